"""Copying a log: a stretch of its records in a new log of any store.

Fragments are read, verified and stored as they are, byte for byte, under names of the target. Their
bytes are compared with the digest in their entry; only an entry without one has its records decoded
and hashed. They keep their offsets, times and sums, and get numbers of the target. Only a fragment
that a boundary divides is encoded anew.

    source ──► read, verify ──► store ──┐
           ──► read, verify ──► store ──┼──► linked in order, a few at a time
           ──► read, verify ──► store ──┘

    1  the target's manifest, ``copying``   notes the stretch and the sum that it has in the source
    2  a pin in the source                  what is not copied yet stays there
    3  the fragments                        the target's tail tells how far the copy is
    4  the target's manifest, ``done``      if its sum is the one that was noted
    5  the pin is released

A copy that is not done can be neither read nor written. The next run for the same stretch resumes
one that was cut short, and two runs at once help each other. Cursors and pins are not copied, nor
is what the source knows of its writers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from stratalog.errors import Conflict, Corrupt, Exists, Invalid, NotFound, Trimmed
from stratalog.objectlog.append import CommitOutcome, Committer, Upload, WriterContext
from stratalog.objectlog.branch.copy_source import CopySource
from stratalog.objectlog.options import CopyOptions, WriterOptions
from stratalog.objectlog.stored import (
    FIRST_SEQ_NO,
    MANIFEST_PATH,
    CopyNote,
    Fragment,
    Manifest,
    as_fields,
    check_offset,
    copy_note_of,
    encode_manifest,
    is_relative,
    load_any_manifest,
    writer_label,
)
from stratalog.ordered import OrderedTasks
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import Setsum
from stratalog.store import Patience, PatientStore, StoreLike, create, open_store, probe, put_once

DEFAULT_OPTIONS = CopyOptions()


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy is: what lies before ``next_offset`` is linked."""

    first_offset: int
    next_offset: int
    limit_offset: int


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy that is done."""

    url: str
    source: str
    first_offset: int
    limit_offset: int
    """The offset after the last one that was copied."""

    setsum: Setsum
    """Of all that was copied, in the source and in the target."""

    fragments: int
    """How many fragments this run has copied. What earlier runs did is not counted."""

    num_bytes: int


OnProgress = Callable[[CopyProgress], None]


async def copy_log(
    source: StoreLike,
    target: StoreLike,
    *,
    from_offset: int | None = None,
    to_offset: int | None = None,
    on_progress: OnProgress | None = None,
    writer: str | None = None,
    options: CopyOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Copied:
    """A new log at ``target`` with a stretch of the records of ``source``, or with all.

    It begins at the first offset that is copied, and may then be written to. Called again for the
    same stretch it resumes what was cut short, and leaves a copy that is done as it is. ``Exists``
    if another log is there; ``Trimmed`` if the source no longer has what is to be copied.
    """
    for offset in (from_offset, to_offset):
        if offset is not None:
            check_offset(offset)
    run = _Copy(source, target, on_progress, writer_label(writer), options, runtime)
    return await run.run(from_offset, to_offset)


class _Again(Exception):
    """Another process has changed the target or the pin: look again how far the copy is."""


class _Copy:
    def __init__(
        self,
        source: StoreLike,
        target: StoreLike,
        on_progress: OnProgress | None,
        writer: str,
        options: CopyOptions,
        runtime: Runtime,
    ) -> None:
        self._source = CopySource(source, writer, options, runtime)
        self._store = open_store(target)
        self._target = PatientStore(self._store, runtime, options.timeout_s)
        self._on_progress = on_progress
        self._writer = writer
        self._options = options
        self._linking = WriterOptions(timeout_s=options.timeout_s)
        self._runtime = runtime
        self._fragments = self._num_bytes = 0
        if self._source.url == self._target.url:
            raise Invalid("a log cannot be its own copy", hint="Choose another place.")

    async def run(self, from_offset: int | None, to_offset: int | None) -> Copied:
        note = await self._begun(from_offset, to_offset)
        if note.state == "copying":
            await self._complete(note)
        await self._source.release(note)
        return Copied(
            self._target.url,
            note.source,
            note.start,
            note.limit,
            note.setsum,
            self._fragments,
            self._num_bytes,
        )

    async def _begun(self, from_offset: int | None, to_offset: int | None) -> CopyNote:
        """Step one, or the note of a run that has done it before."""
        try:
            manifest, _ = await load_any_manifest(self._target)
        except NotFound:
            return await self._begin(from_offset, to_offset)
        note = copy_note_of(manifest)
        if (
            note is None
            or note.source != self._source.url
            or from_offset not in (None, note.start)
            or to_offset not in (None, note.limit)
        ):
            raise self._taken()
        return note

    async def _begin(self, from_offset: int | None, to_offset: int | None) -> CopyNote:
        note, begins = await self._source.plan(from_offset, to_offset)
        await probe(self._target, self._runtime)
        manifest = msgspec.structs.replace(
            Manifest.of_new_log(self._writer, self._runtime),
            initial_offset=begins,
            initial_seq_no=FIRST_SEQ_NO,
            copy=as_fields(note),
        )
        try:
            await create(self._store, MANIFEST_PATH, encode_manifest(manifest), self._patience())
        except Exists:
            return await self._begun(from_offset, to_offset)
        return note

    async def _complete(self, note: CopyNote) -> None:
        """Steps two to four, from where the target's tail is."""
        while True:
            manifest, etag = await load_any_manifest(self._target)
            known, next_offset = copy_note_of(manifest), manifest.tail.offset
            if known is None or known.id != note.id:
                raise self._taken()
            if known.state == "done":
                return
            context = WriterContext(self._store, self._writer, self._linking, self._runtime)
            committer = Committer(context, manifest, etag)
            try:
                await self._go_on(committer, note, next_offset)
                return
            except _Again:
                continue
            except Trimmed:
                # What was cut may have been copied before, by another run.
                manifest, _ = await load_any_manifest(self._target)
                if manifest.tail.offset == next_offset:
                    raise
            finally:
                await committer.close()

    async def _go_on(self, committer: Committer, note: CopyNote, next_offset: int) -> None:
        version: str | None = None
        try:
            if next_offset < note.limit:
                source, version = await self._source.hold(note, next_offset)
                await self._copy_rest(committer, source, note)
            await self._finish(committer, note)
        except NotFound as error:
            await self._source.look_again(error, version, next_offset)
            raise _Again from None

    async def _copy_rest(self, committer: Committer, source: Manifest, note: CopyNote) -> None:
        """Step three: a bounded number of fragments under way, the oldest of them linked."""
        start, seq_no = committer.manifest.tail.offset, committer.manifest.next_seq_no
        walk = self._source.walk(source, start, note.limit)
        async with (
            aclosing(walk) as fragments,
            OrderedTasks[Upload](self._options.fragments_max, self._options.bytes_max) as ahead,
        ):
            async for fragment in fragments:
                while not ahead.has_room(fragment.num_bytes):
                    await self._link_some(committer, ahead, note)
                copied = self._copied(committer, fragment, start, note.limit, seq_no)
                ahead.start(copied, fragment.num_bytes)
                seq_no += 1
            while ahead:
                await self._link_some(committer, ahead, note)

    async def _copied(
        self, committer: Committer, fragment: Fragment, start: int, limit: int, seq_no: int
    ) -> Upload:
        """A fragment, or the part of it that lies in the stretch, stored in the target."""
        names, epoch = committer.names, committer.manifest.sweep_epoch
        encoded, part = await self._source.read(fragment, start, limit)
        named = names.staged if part is fragment and is_relative(fragment.path) else names.fragment
        path = await put_once(self._store, lambda: named(seq_no), encoded.data, self._patience())
        stored = msgspec.structs.replace(
            part.linking(path, encoded), seq_no=seq_no, seq_first=None, base=None
        )
        return Upload(stored, epoch)

    async def _link_some(
        self, committer: Committer, ahead: OrderedTasks[Upload], note: CopyNote
    ) -> None:
        """Wait for the oldest and link them with one manifest, while the others go on."""
        count = min(len(ahead), self._linking.manifest_fragments_max)
        uploads = [await ahead.take() for _ in range(count)]
        outcome = await committer.commit(uploads)
        tail = committer.manifest.tail.offset
        if outcome is not CommitOutcome.LINKED or tail != uploads[-1].fragment.limit.offset:
            raise _Again
        self._fragments += len(uploads)
        self._num_bytes += sum(upload.fragment.num_bytes for upload in uploads)
        if self._on_progress is not None:
            self._on_progress(CopyProgress(note.start, tail, note.limit))
        if not await self._source.keep():
            raise _Again

    async def _finish(self, committer: Committer, note: CopyNote) -> None:
        """Step four: the copy has the sum that the source had, or it is never done."""
        copied = committer.manifest.setsum
        if copied != note.setsum and await self._source.was_compacted():
            raise Conflict(
                "the source was compacted while it was copied, so the copy is neither what it was "
                "nor what it is",
                path=MANIFEST_PATH,
                hint="Destroy the copy, and copy again.",
            )
        if copied != note.setsum:
            raise Corrupt(
                "what was copied does not add up to what the source had",
                path=MANIFEST_PATH,
                expected=note.setsum.hexdigest(),
                actual=copied.hexdigest(),
            )
        done = as_fields(msgspec.structs.replace(note, state="done"))

        def finish(manifest: Manifest) -> Manifest:
            return msgspec.structs.replace(manifest, copy=done, write_id=self._runtime.new_id())

        if not await committer.amend(finish):
            raise _Again

    def _patience(self) -> Patience:
        return Patience(self._runtime, self._options.timeout_s)

    def _taken(self) -> Exists:
        return Exists(
            f"there is already a log at {self._target.url}, and it is not this copy",
            path=MANIFEST_PATH,
            hint="A copy begins where nothing is; to resume one, ask for the same stretch.",
        )
