"""Forks: a new log that begins as another one did, and shares its objects instead of copying them.

    fork         in the fork's manifest: source, pin, at, state, then for a log of wal3: held_by
    base         on its entries: the URL of the log that owns the object

The shared objects stay the source's. What keeps them there is a pin in the source, without expiry.
So the order is

    1  the fork's manifest, ``forking``       names the pin to be
    2  the pin in the source, confirmed       from now on the shared objects are not deleted
    3  the fork's manifest, ``open``          links them

A fork that is not open can be neither read nor written, and no fork is open without its pin.

1  A run that was cut short. The next run takes the fork over: it names a pin of its own, and from
   then on the earlier run, should it only sleep, cannot open the fork. So the run that confirms and
   uses a pin is the one that made it. The pins of earlier runs stay named in the note (``former``)
   until a run that has retired their names opens the fork.
2  A fork that is given up. Its manifest is first put to ``aborted``. Only then may the pin go,
   since a sleeping run could open the fork until then.
3  A fork that does not reach into its source any more, because it was collected beyond the point
   where it left. It is put to ``detached`` after its pin is released.
4  A fork of a fork. It has its pin in the fork, whose own pin stays as long as anything below it is
   held.

A log of wal3 can be forked too. wal3's collector knows no pins, so a cursor takes the place of the
pin (``wal3_hold``) and holds back the collection for as long as the fork needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from stratalog.errors import Conflict, Exists, Invalid, NotFound, Trimmed
from stratalog.objectlog.branch.divide import Prefix, encode_part, prefix_of
from stratalog.objectlog.holds import (
    FORK_TIMEOUT_S,
    ForkNote,
    PinStore,
    abort_fork,
    change_fork,
    cursor_path,
    hold_by_cursor,
    note_of,
    pin_path,
    release_cursor_hold,
    require_note,
)
from stratalog.objectlog.options import MIB
from stratalog.objectlog.stored import (
    FIRST_SEQ_NO,
    MANIFEST_PATH,
    Entry,
    Fragment,
    LogPosition,
    Manifest,
    SnapshotPointer,
    UploadNames,
    as_fields,
    check_begun,
    check_offset,
    encode_manifest,
    load_any_manifest,
    load_manifest,
    taken,
    writer_label,
)
from stratalog.objectlog.tree import Change, Nodes, Tree, Window, with_nodes
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import (
    Patience,
    PatientStore,
    StoreLike,
    create,
    open_store,
    probe,
    put_once,
    sibling,
)

SNAPSHOT_CACHE_BYTES = 1 * MIB


@dataclass(frozen=True, slots=True)
class Forked:
    """A fork that is open."""

    url: str
    source: str
    first_offset: int
    at: int
    """The first offset of its own."""

    is_new: bool
    """Whether this call has made it, or completed it. If not, it may have grown since."""

    held_by: Literal["pin", "cursor"]
    """What keeps the shared objects in the source: a pin, or in a log of wal3 a cursor."""

    hold: str
    """Its name there."""


async def fork(
    source: StoreLike,
    target: StoreLike,
    *,
    at: int | None = None,
    writer: str | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Forked:
    """A new log at ``target`` with the records of ``source`` before offset ``at``, or all.

    Both lie on one store; ``copy_log`` is for others. Idempotent: a fork that was cut short is
    completed, one that is open is left as it is. ``Exists`` if another log is there. A fork of a
    log that wal3 made holds back wal3's collection by a cursor; ``Conflict`` while wal3 is
    collecting.
    """
    if at is not None:
        check_offset(at)
    return await _Fork(source, target, writer_label(writer), runtime).run(at)


class _Fork:
    def __init__(self, source: StoreLike, target: StoreLike, writer: str, runtime: Runtime) -> None:
        self._source = PatientStore(open_store(source), runtime, FORK_TIMEOUT_S)
        self._target = PatientStore(open_store(target), runtime, FORK_TIMEOUT_S)
        self._writer = writer
        self._runtime = runtime
        self._tree = Tree(self._target, SNAPSHOT_CACHE_BYTES)
        self._first_seq_no = FIRST_SEQ_NO
        if self._source.url == self._target.url:
            raise Invalid("a log cannot be its own fork", hint="Choose another place.")

    async def run(self, at: int | None) -> Forked:
        patience = self._patience()
        while True:
            note = await self._begun(at)
            is_new = note.state == "forking"
            if is_new:
                completed = await self._completed(note)
                if completed is None:
                    if await patience.pause():
                        continue
                    raise Conflict("others keep taking over the fork", path=MANIFEST_PATH)
                note = completed
            manifest, _ = await load_manifest(self._target)
            return Forked(
                self._target.url,
                note.source,
                manifest.first_offset,
                note.at,
                is_new,
                note.held_by,
                note.pin,
            )

    async def _completed(self, note: ForkNote) -> ForkNote | None:
        """Steps two and three, by the run that the note belongs to. None if another took it over.

        The pin of a fork that was given up or taken over is released here: no other run knows it.
        """
        try:
            held = await self._held(note)
            if held is None:
                return None
            note, entries = held
            opened = await self._open(note, entries)
        except (Conflict, NotFound):
            if await self._is_given_up():
                await note.release_source(self._target, self._runtime)
            raise
        except Invalid:  # there can be no such fork
            await abort_fork(self._target, runtime=self._runtime)
            raise
        if opened is None or opened.pin != note.pin:
            await note.release_source(self._target, self._runtime)
        return opened

    async def _is_given_up(self) -> bool:
        try:
            manifest, _ = await load_any_manifest(self._target)
        except NotFound:
            return True
        note = note_of(manifest)
        return note is not None and note.state == "aborted"

    async def _begun(self, at: int | None) -> ForkNote:
        """Step one. What another run has begun is taken over, under a pin of our own."""
        try:
            manifest, _ = await load_any_manifest(self._target)
        except NotFound:
            return await self._begin(at)
        note = note_of(manifest)
        if note is None or note.source != self._source.url or at not in (None, note.at):
            raise taken(self._target.url, "A fork begins where nothing is.")
        if note.state == "forking":
            ours = await self._with_another_pin(note)
            return await self._begun(at) if ours is None else ours
        if note.state == "aborted":
            raise Exists(
                f"the fork at {self._target.url} was given up",
                path=MANIFEST_PATH,
                hint="Destroy it, or choose another place.",
            )
        return note

    async def _begin(self, at: int | None) -> ForkNote:
        source, _ = await load_manifest(self._source)
        if not await self._is_seen(MANIFEST_PATH):
            raise self._elsewhere()
        limit = source.tail.offset if at is None else at
        check_begun(source, limit)
        if limit > source.tail.offset:
            raise Invalid(
                f"the log ends at {source.tail.offset}",
                hint="Fork at an offset up to there, or name none to fork at the end.",
                actual=source.tail.offset,
            )
        await probe(self._target, self._runtime)
        note = ForkNote(
            source=self._source.url,
            pin=self._new_pin(),
            at=limit,
            state="forking",
            held_by="pin" if source.is_ours else "cursor",
        )
        manifest = msgspec.structs.replace(
            Manifest.of_new_log(self._writer, self._runtime),
            initial_offset=LogPosition(limit, source.tail.timestamp_us),
            initial_seq_no=source.next_seq_no if source.is_ours else FIRST_SEQ_NO,
            fork=as_fields(note),
        )
        try:
            await create(self._target, MANIFEST_PATH, encode_manifest(manifest), self._patience())
        except Exists:
            return await self._begun(at)
        return note

    async def _is_seen(self, path: str) -> bool:
        """Whether what holds the objects is in the log that the fork will read them from.

        Another server may have a bucket of the same name, and in it a copy of the source.
        """
        try:
            await sibling(self._target, self._source.url).head(path)
        except NotFound:
            return False
        return True

    def _elsewhere(self) -> Invalid:
        return Invalid(
            f"{self._source.url} cannot be reached through the store of {self._target.url}",
            hint="A fork shares objects. Use copy between stores.",
        )

    async def _held(self, note: ForkNote) -> tuple[ForkNote, Sequence[Entry]] | None:
        """Step two. Gives what may be shared, nothing if there is nothing before the point.

        None if another run has taken the fork over.
        """
        if note.held_by == "cursor":
            await note.release_former(self._target, self._runtime)
            source = await hold_by_cursor(self._source, note.pin, self._writer, self._runtime)
            if not await self._is_seen(cursor_path(note.pin)):
                await release_cursor_hold(self._source, note.pin, self._runtime)
                raise self._elsewhere()
            self._first_seq_no = source.numbered_from
            window = Window(source.first_offset, note.at)
            return note, [entry for entry in source.entries if window.overlaps(entry)]
        pins = PinStore(self._source, owner=self._writer, runtime=self._runtime)
        text = f"held by the fork at {self._target.url}"
        while True:
            await note.release_former(self._target, self._runtime)
            source, _ = await load_manifest(self._source)
            first, self._first_seq_no = source.first_offset, source.numbered_from
            if first >= note.at:
                return note, ()
            try:
                pin = await pins.create(note.pin, first, note.at, note=text, reuse=False)
            except (Trimmed, Exists):
                # A collection was faster, or another run, and has released the pin.
                again = await self._with_another_pin(note)
                if again is None:
                    return None
                note = again
            else:
                if not await self._is_seen(pin_path(note.pin)):
                    await pin.release()
                    raise self._elsewhere()
                return note, pin.entries

    async def _with_another_pin(self, note: ForkNote) -> ForkNote | None:
        """The note with a pin of our own, put in the place of this one. None if it has changed.

        A run that relied on the pin that was named before cannot open the fork any more.
        """
        former = (*note.former, note.pin)
        renamed = msgspec.structs.replace(note, pin=self._new_pin(), former=former)

        def rename(manifest: Manifest) -> Manifest | None:
            if require_note(manifest) != note:
                return None
            return renamed.put_into(manifest, "forking", self._runtime)

        return renamed if await self._changed(rename) == renamed else None

    async def _open(self, note: ForkNote, held: Sequence[Entry]) -> ForkNote | None:
        """Step three, if the note is still ours. None if another run has taken the fork over."""
        entries = await self._shared(held, note) if held else ()
        opened = msgspec.structs.replace(note, former=())

        def open_(manifest: Manifest) -> Manifest | None:
            if require_note(manifest) != note:
                return None
            if not entries:
                return opened.put_into(manifest, "open", self._runtime)
            first = entries[0].start
            return msgspec.structs.replace(
                opened.put_into(manifest, "open", self._runtime),
                setsum=Setsum.total(entry.setsum for entry in entries),
                collected=EMPTY,
                acc_bytes=sum(entry.num_bytes for entry in entries),
                snapshots=tuple(e for e in entries if isinstance(e, SnapshotPointer)),
                fragments=tuple(e for e in entries if isinstance(e, Fragment)),
                initial_offset=LogPosition(first.offset, first.timestamp_us),
                initial_seq_no=self._first_seq_no,
            )

        found = await self._changed(open_)
        return None if found.state == "forking" else found

    async def _changed(self, change: Change) -> ForkNote:
        """The note after this change. ``Conflict`` if the fork was given up."""
        found = require_note(await change_fork(self._target, change, self._runtime))
        if found.state == "aborted":
            raise Conflict("the fork was given up meanwhile", path=MANIFEST_PATH)
        return found

    def _new_pin(self) -> str:
        return f"fork_{self._runtime.new_id()}"

    async def _shared(self, held: Sequence[Entry], note: ForkNote) -> tuple[Entry, ...]:
        """The entries of the fork's root; what has to be made for them is stored."""
        names = UploadNames(self._runtime)

        def find(nodes: Nodes) -> Prefix:
            return prefix_of(held, note.at, note.source, nodes, names.snapshot, self._writer)

        prefix = await with_nodes(self._tree, find)
        for node in prefix.made:
            await put_once(self._target, partial(str, node.path), node.to_json(), self._patience())
        if prefix.last in prefix.entries:
            return prefix.entries
        return (*prefix.entries, await self._copied(prefix.last, note.at, names))

    async def _copied(self, last: Fragment, limit: int, names: UploadNames) -> Fragment:
        """The first records of a fragment that the point divides, as a fragment of our own."""
        blob = await self._tree.store_of(last).get(last.path)
        encoded, part = encode_part(blob.data, last, last.start.offset, limit)
        seq_no = last.seq_no if isinstance(last.seq_no, int) else self._first_seq_no
        path = await put_once(
            self._target, partial(names.fragment, seq_no), encoded.data, self._patience()
        )
        return msgspec.structs.replace(part.linking(path, encoded), seq_no=seq_no)

    def _patience(self) -> Patience:
        return Patience(self._runtime, FORK_TIMEOUT_S)
