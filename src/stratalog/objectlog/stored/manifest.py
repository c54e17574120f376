"""The manifest: the root of the tree, one JSON object changed by compare-and-swap.

    path      manifest/MANIFEST
    fields    setsum, collected, acc_bytes, writer, snapshots, fragments,
              then when set: initial_offset, initial_seq_no,
              then ours: format, write_id, linked, sweep_epoch, seal, predecessor,
              name, sinks, fork, copy

    setsum = Σ snapshots + Σ fragments + collected

``acc_bytes`` adds up the bytes of all fragments ever linked. ``write_id`` is fresh in every
version, so that no two are byte-equal. ``linked`` has the highest linked sequence number of each
of the last 64 incarnations, newest last: it settles what became of a write whose answer was lost.
``sweep_epoch`` is raised by the sweep; an upload may be linked only under the epoch in which it
began. It starts at a random number, so that what was uploaded for a log that was destroyed is not
linked into one that was created in its place. ``name`` is what the log's herd calls it. What
``seal``, ``predecessor``, ``fork`` and ``copy`` hold is described in ``seal``, ``fork_note`` and
``copy_note``. ``sinks`` has the last batch of each query that writes in numbered batches (see
``bulk_commit``), at most 256 of them, none evicted. A log without ``write_id`` was made by wal3: it
is read, never written. Persisted: keep stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import msgspec

from stratalog.errors import Corrupt, Exists, Invalid, NotFound, Trimmed, Unavailable
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.position import FIRST_OFFSET, LogPosition, Natural
from stratalog.objectlog.stored.record_sums import check_sum
from stratalog.objectlog.stored.snapshot import Entry, SnapshotPointer, check_adjacent
from stratalog.objectlog.stored.stored_json import (
    FORMAT,
    StoredObject,
    check_format,
    decode_document,
)
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Store, closed

MANIFEST_PATH = "manifest/MANIFEST"
LINKED_MAX = 64
FIRST_SEQ_NO = 1
COPY_HINT = "Copy it into a log of your own to write to it."

UNFINISHED = {
    "forking": "Fork it again to complete it, or give it up with `stratalog fork --abort`.",
    "aborted": "This fork was given up. Destroy it, or choose another place.",
    "copying": "Copy it again to complete it, or destroy it.",
}
"""What to do about a log that is not all there, by the state that its note has."""


class Manifest(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """One version of the root."""

    what: ClassVar[str] = "manifest"

    setsum: Setsum
    collected: Setsum | msgspec.UnsetType = msgspec.UNSET
    acc_bytes: Natural
    writer: str
    snapshots: tuple[SnapshotPointer, ...]
    fragments: tuple[Fragment, ...]
    initial_offset: LogPosition | None = None
    initial_seq_no: Natural | str | None = None
    format: str | None = None
    write_id: str | None = None
    linked: dict[str, Natural] | None = None
    sweep_epoch: Natural = 0
    seal: dict[str, msgspec.Raw] | None = None
    predecessor: dict[str, msgspec.Raw] | None = None
    name: str | None = None
    sinks: dict[str, Natural] | None = None
    fork: dict[str, msgspec.Raw] | None = None
    copy: dict[str, msgspec.Raw] | None = None
    compacted: str | None = None

    @classmethod
    def empty(cls, writer: str, write_id: str, first_offset: int = FIRST_OFFSET) -> Manifest:
        """The first version of a new log."""
        return cls(
            setsum=EMPTY,
            collected=EMPTY,
            acc_bytes=0,
            writer=writer,
            snapshots=(),
            fragments=(),
            initial_offset=LogPosition(first_offset) if first_offset > FIRST_OFFSET else None,
            initial_seq_no=FIRST_SEQ_NO if first_offset > FIRST_OFFSET else None,
            format=FORMAT,
            write_id=write_id,
            linked={},
        )

    @classmethod
    def of_new_log(
        cls, writer: str, runtime: Runtime, first_offset: int = FIRST_OFFSET
    ) -> Manifest:
        """The same, with a write id and an epoch that no log before it at this place has had."""
        made = cls.empty(writer, runtime.new_id(), first_offset)
        return msgspec.structs.replace(made, sweep_epoch=int(runtime.new_id(8), 16))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything linked in the root, oldest first."""
        return (*self.snapshots, *self.fragments)

    @property
    def first_offset(self) -> int:
        """The oldest offset that can be read, or the next one if there is none."""
        first = self.snapshots[:1] or self.fragments[:1]
        if first:
            return first[0].start.offset
        return self.initial_offset.offset if self.initial_offset else FIRST_OFFSET

    @property
    def collected_sum(self) -> Setsum:
        """The sum of all records that have left the log."""
        return self.collected if isinstance(self.collected, Setsum) else EMPTY

    @property
    def newest(self) -> Fragment | None:
        """The fragment that is never replaced, for the sake of writers. After a seal there are none
        of those."""
        return self.fragments[-1] if self.fragments and self.seal is None else None

    @property
    def tail(self) -> LogPosition:
        """The next offset to be written, and the time that it may not go below."""
        last = self.fragments[-1:] or self.snapshots[-1:]
        if last:
            return last[0].limit
        return self.initial_offset or LogPosition(FIRST_OFFSET)

    @property
    def next_seq_no(self) -> int:
        """The sequence number of the next fragment.

        A fork of a log that names its fragments by UUID counts from where it left that log.
        """
        last = self.fragments[-1].seq_no if self.fragments else None
        if isinstance(last, int):
            return last + 1
        if not self.is_ours and isinstance(last or self.initial_seq_no, str):
            raise Invalid(
                "this log names its fragments by UUID and can only be read", hint=COPY_HINT
            )
        return self.numbered_from

    @property
    def last_seq_no(self) -> int:
        """The highest sequence number that is linked."""
        return self.next_seq_no - 1

    @property
    def numbered_from(self) -> int:
        """The sequence number that the log began with, as far as it numbers its fragments."""
        first = self.initial_seq_no
        return first if isinstance(first, int) else FIRST_SEQ_NO

    @property
    def count(self) -> int:
        """How many records can be read."""
        return self.tail.offset - self.first_offset

    def check(self) -> None:
        """Refuse a manifest of a newer format, or whose sums or ranges do not hold."""
        check_format(self.format)
        entries = self.entries
        check_adjacent(entries, MANIFEST_PATH)
        total = Setsum.total([self.collected_sum, *(entry.setsum for entry in entries)])
        check_sum(total, self.setsum, "the manifest", MANIFEST_PATH)
        if self.initial_offset and entries and self.initial_offset.offset > self.first_offset:
            raise Corrupt("the manifest starts before its initial offset", path=MANIFEST_PATH)
        _check_sequence(self.fragments)

    def check_open(self, url: str) -> None:
        """Refuse a fork or a copy that was begun and not completed: it may not have all yet."""
        for what, note in (("fork", self.fork), ("copy", self.copy)):
            state = bytes((note or {}).get("state", b"")).strip(b'"').decode()
            if state in UNFINISHED:
                raise Unavailable(
                    f"the {what} at {url} is not complete: {state}",
                    path=MANIFEST_PATH,
                    hint=UNFINISHED[state],
                )

    @property
    def is_ours(self) -> bool:
        """Whether this library made the log. wal3 writes none of these fields."""
        return not (self.write_id is None or self.format is None or self.linked is None)

    def check_writable(self) -> None:
        """Refuse to write to a log that another program made: it would drop our fields."""
        if not self.is_ours:
            raise Invalid(
                "this log was made by another program and can only be read",
                hint=COPY_HINT,
            )


def _check_sequence(fragments: Sequence[Fragment]) -> None:
    for before, after in pairwise(fragments):
        number, following = before.seq_no, after.first_seq_no
        if isinstance(number, str) or isinstance(following, str):
            continue
        if following != number + 1:
            raise Corrupt(
                f"the manifest skips from fragment {number} to {following}",
                path=MANIFEST_PATH,
                expected=number + 1,
                actual=following,
            )


def check_begun(manifest: Manifest, offset: int) -> None:
    """Refuse an offset before the log's first one."""
    first_offset = manifest.first_offset
    if offset < first_offset:
        raise Trimmed(f"the log starts at {first_offset}", first_offset=first_offset)


def taken(url: str, hint: str) -> Exists:
    """Why no new log can begin at this place."""
    return Exists(f"there is already a log at {url}", path=MANIFEST_PATH, hint=hint)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes to put. They end with their digest."""
    return closed(manifest)


def parse_manifest(data: bytes) -> Manifest:
    """Decode a stored manifest whose sums and ranges may not hold.

    A newer format is refused before it is misread.
    """
    return decode_document(Manifest, data, MANIFEST_PATH)


def decode_manifest(data: bytes) -> Manifest:
    manifest = parse_manifest(data)
    manifest.check()
    return manifest


async def load_manifest(store: Store) -> tuple[Manifest, str]:
    """The current manifest and its etag, with one read. ``Unavailable`` for half a fork."""
    manifest, etag = await load_any_manifest(store)
    manifest.check_open(store.url)
    return manifest, etag


async def load_any_manifest(store: Store) -> tuple[Manifest, str]:
    """The same, also of a fork that is not open."""
    try:
        blob = await store.get(MANIFEST_PATH)
    except NotFound:
        raise NotFound(
            f"there is no log at {store.url}",
            path=MANIFEST_PATH,
            hint="Create it with `stratalog init`, or open the writer with create=True.",
        ) from None
    return decode_manifest(blob.data), blob.etag
