"""A snapshot: an immutable inner node of the tree, JSON.

    path      snapshot/SNAPSHOT.{setsum hex}.{incarnation}-{n}     (wal3: without the last part)
    fields    path, depth, setsum, writer, snapshots, fragments; one of the two lists is empty
    pointer   setsum, path_to_snapshot, depth, start, limit, num_bytes, xxh3, xxh3_of

A snapshot over fragments has depth 1, one over those has depth 2. Its setsum is the sum of its
children, and a pointer repeats it. ``num_bytes`` adds up the fragments below; ``xxh3`` and
``xxh3_of`` are the digest of the node itself (``object_digest``). wal3 gives a node with a single
child that child's name, so a pointer may be deeper than the stored object; we write no such node. A
pointer with a ``base`` leads into the log of that URL, and so does everything below it that does
not name another. Persisted: keep stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import msgspec

from stratalog.errors import Corrupt
from stratalog.hashing import digest_of
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.object_digest import with_digest
from stratalog.objectlog.stored.position import LogPosition, Natural
from stratalog.objectlog.stored.record_sums import check_sum
from stratalog.objectlog.stored.stored_json import StoredObject
from stratalog.setsum import Setsum


class SnapshotPointer(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The entry that links a snapshot into a manifest or a deeper snapshot."""

    what: ClassVar[str] = "snapshot pointer"

    setsum: Setsum
    path_to_snapshot: str
    depth: Natural
    start: LogPosition
    limit: LogPosition
    num_bytes: Natural
    base: str | None = None
    xxh3: str | None = None
    xxh3_of: str | None = None

    @property
    def path(self) -> str:
        return self.path_to_snapshot


Entry = Fragment | SnapshotPointer


def in_base(entry: Entry, base: str | None) -> Entry:
    """An entry as seen from above a pointer with this base: it inherits what it does not name."""
    if base is None or entry.base is not None:
        return entry
    return msgspec.structs.replace(entry, base=base)


def depth_of(entry: Entry) -> int:
    """How many levels of snapshots an entry has, itself included."""
    return entry.depth if isinstance(entry, SnapshotPointer) else 0


class Snapshot(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The stored node."""

    what: ClassVar[str] = "snapshot"

    path: str
    depth: Natural
    setsum: Setsum
    writer: str
    snapshots: tuple[SnapshotPointer, ...]
    fragments: tuple[Fragment, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The children, oldest first."""
        return (*self.snapshots, *self.fragments)

    def pointer(self) -> SnapshotPointer:
        """The entry that links this node into its parent."""
        children = self.entries
        pointer = SnapshotPointer(
            setsum=self.setsum,
            path_to_snapshot=self.path,
            depth=self.depth,
            start=LogPosition(children[0].start.offset, children[0].start.timestamp_us),
            limit=LogPosition(children[-1].limit.offset, children[-1].limit.timestamp_us),
            num_bytes=sum(child.num_bytes for child in children),
        )
        return with_digest(pointer, digest_of(self.to_json()))

    def in_base(self, base: str) -> Snapshot:
        """The node with children that name the base which they inherit."""
        return msgspec.structs.replace(
            self,
            snapshots=tuple(in_base(child, base) for child in self.snapshots),
            fragments=tuple(in_base(child, base) for child in self.fragments),
        )

    def fits(self, pointer: SnapshotPointer) -> bool:
        """Whether a node that was checked for one pointer is also what another one promises.

        Nodes of wal3 that share a name are led to by pointers of several depths.
        """
        return (
            self.depth <= pointer.depth
            and self.setsum == pointer.setsum
            and self.entries[0].start.offset == pointer.start.offset
            and self.entries[-1].limit.offset == pointer.limit.offset
        )

    def check(self, pointer: SnapshotPointer) -> None:
        """Refuse a node that is not what its pointer promises."""
        path, children = pointer.path, self.entries
        check_adjacent(children, path)
        if not children:
            raise Corrupt(f"{path} has no children", path=path)
        total = Setsum.total(child.setsum for child in children)
        for found in (total, self.setsum):
            check_sum(found, pointer.setsum, path, path)
        spanned = (children[0].start.offset, children[-1].limit.offset)
        promised = (pointer.start.offset, pointer.limit.offset)
        if spanned != promised:
            raise Corrupt(
                f"{path} spans other offsets than its pointer",
                path=path,
                expected=promised,
                actual=spanned,
            )
        if self.depth > pointer.depth or any(child.depth >= self.depth for child in self.snapshots):
            raise Corrupt(f"{path} is deeper than its pointer allows", path=path)


def snapshot_path(setsum: Setsum, incarnation: str, upload: int) -> str:
    """A name that is never used twice, also for equal content made twice."""
    return f"snapshot/SNAPSHOT.{setsum.hexdigest()}.{incarnation}-{upload}"


def check_adjacent(entries: Sequence[Entry], path: str) -> None:
    """Refuse entries that are empty, overlap, leave a gap, or go back in time."""
    for entry in entries:
        if not 0 <= entry.start.offset < entry.limit.offset:
            raise Corrupt(f"{path}: the entry {entry.path} spans nothing", path=path)
        if 0 < entry.limit.timestamp_us < entry.start.timestamp_us:
            raise Corrupt(f"{path}: {entry.path} goes back in time", path=path)
    for before, after in pairwise(entries):
        if before.limit.offset != after.start.offset:
            raise Corrupt(
                f"{path}: {after.path} does not start where {before.path} ends",
                path=path,
                expected=before.limit.offset,
                actual=after.start.offset,
            )
        if 0 < after.start.timestamp_us < before.limit.timestamp_us:
            raise Corrupt(f"{path}: {after.path} goes back in time", path=path)
