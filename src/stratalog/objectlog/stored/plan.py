"""The plan of a change of the past: what goes, what takes its place, one JSON object under CAS.

    path      gc/GARBAGE
    fields    snapshots_to_drop, snapshots_to_make, snapshot_for_root, fragments_to_drop_start,
              fragments_to_drop_limit, fragments_are_uuids, setsum_to_discard, first_to_keep,
              then ours: format, write_id, writer, plan_id, fragments_to_drop, snapshots_to_replace,
              fragment_for_root, root_before, first_seq_no_to_keep, sweep_epoch, published_us,
              and for a compaction: compaction, snapshots_for_root, fragments_for_root

A collection cuts off the beginning of the log: what it drops is gone with all below it. A
compaction leaves the range of the log as it is: it puts other entries in the place of those that
the root begins with, and what it drops goes as far as the new root does not lead there. Its nodes
and fragments are stored before the plan is.

There is at most one plan. When it is done it is emptied, never deleted, and every version has a
fresh ``write_id``, an empty one too. A dropped snapshot stands for all that is below it. wal3 names
dropped fragments by a range of sequence numbers; ours are listed, since their names cannot be told
from their numbers. ``docs/design/005-collection.md`` and ``010-compaction.md`` have the protocols.
Persisted: keep stable.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import msgspec

from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.manifest import Manifest
from stratalog.objectlog.stored.position import FIRST_OFFSET, LogPosition, Natural
from stratalog.objectlog.stored.snapshot import Entry, Snapshot, SnapshotPointer, depth_of
from stratalog.objectlog.stored.stored_json import FORMAT, StoredObject, decode_document
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Document, Store, read_version

GARBAGE_PATH = "gc/GARBAGE"


class PlanState(enum.Enum):
    """What a manifest tells about a plan."""

    EMPTY = "empty"

    PUBLISHED = "published"
    """The log begins where the plan wants it to, or was last compacted by it."""

    DEAD = "dead"
    """It can never be applied: the epoch has moved on, or the entries that it takes away have left
    the root, to which nothing comes back."""

    UNFITTING = "unfitting"
    """It cannot be applied now: the root would not go from deep to shallow any more."""

    LIVE = "live"
    """It may be published at any moment."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a compaction is about, for people and for the report."""

    up_to: Natural
    records: Natural
    """How many records go."""

    fragments: Natural
    """How many fragments are replaced."""

    num_bytes: Natural
    """How many bytes of fragments are given back."""


class Garbage(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """One version of the plan of a collection or a compaction, named as wal3 names it."""

    what: ClassVar[str] = "plan of a collection"

    snapshots_to_drop: tuple[SnapshotPointer, ...]
    snapshots_to_make: tuple[Snapshot, ...]
    snapshot_for_root: SnapshotPointer | None
    fragments_to_drop_start: Natural | str
    fragments_to_drop_limit: Natural | str
    fragments_are_uuids: bool | msgspec.UnsetType = msgspec.UNSET
    setsum_to_discard: Setsum
    first_to_keep: LogPosition
    format: str | None = None
    write_id: str | None = None
    writer: str | None = None
    plan_id: str | None = None
    fragments_to_drop: tuple[Fragment, ...] = ()
    snapshots_to_replace: tuple[SnapshotPointer, ...] = ()
    fragment_for_root: Fragment | None = None
    root_before: tuple[str, ...] = ()
    first_seq_no_to_keep: Natural = 0
    sweep_epoch: Natural = 0
    published_us: Natural | None = None
    compaction: Compaction | None = None
    snapshots_for_root: tuple[SnapshotPointer, ...] = ()
    fragments_for_root: tuple[Fragment, ...] = ()

    @classmethod
    def empty(cls, writer: str, write_id: str) -> Garbage:
        """The value of a log that nobody is collecting."""
        return cls(
            snapshots_to_drop=(),
            snapshots_to_make=(),
            snapshot_for_root=None,
            fragments_to_drop_start=0,
            fragments_to_drop_limit=0,
            fragments_are_uuids=False,
            setsum_to_discard=EMPTY,
            first_to_keep=LogPosition(FIRST_OFFSET),
            format=FORMAT,
            write_id=write_id,
            writer=writer,
        )

    @property
    def entries(self) -> tuple[StoredObject, ...]:
        """The stored objects inside this one."""
        return (
            *self.snapshots_to_drop,
            *self.snapshots_to_make,
            *self.fragments_to_drop,
            *self.snapshots_to_replace,
            *self.root_after,
        )

    @property
    def is_empty(self) -> bool:
        return not (self.snapshots_to_drop or self.fragments_to_drop)

    @property
    def dropped(self) -> tuple[Entry, ...]:
        """The whole entries that go, oldest first."""
        both: list[Entry] = [*self.snapshots_to_drop, *self.fragments_to_drop]
        return tuple(sorted(both, key=lambda entry: entry.start.offset))

    @property
    def records(self) -> int:
        """How many records go."""
        if self.compaction is not None:
            return self.compaction.records
        return sum(entry.limit.offset - entry.start.offset for entry in self.dropped)

    @property
    def fragments(self) -> int:
        """How many fragments go. Their sequence numbers have no gaps."""
        if self.compaction is not None:
            return self.compaction.fragments
        start, limit = self.fragments_to_drop_start, self.fragments_to_drop_limit
        return limit - start if isinstance(start, int) and isinstance(limit, int) else 0

    @property
    def fragment_bytes(self) -> int:
        """How many bytes of fragments go."""
        if self.compaction is not None:
            return self.compaction.num_bytes
        return sum(entry.num_bytes for entry in self.dropped)

    @property
    def root_after(self) -> tuple[Entry, ...]:
        """What the root begins with in place of ``root_before``.

        After a collection that is one entry, or none.
        """
        if self.compaction is not None:
            return (*self.snapshots_for_root, *self.fragments_for_root)
        after: Entry | None = self.snapshot_for_root or self.fragment_for_root
        return () if after is None else (after,)

    def state(self, manifest: Manifest) -> PlanState:
        """What the manifest tells about this plan."""
        if self.is_empty:
            return PlanState.EMPTY
        if self._is_published(manifest):
            return PlanState.PUBLISHED
        taken = manifest.entries[: len(self.root_before)]
        begins = tuple(entry.path for entry in taken)
        if manifest.sweep_epoch != self.sweep_epoch or begins != self.root_before:
            return PlanState.DEAD
        # Another compaction may have left the paths, and let the last of them stand for more.
        if self.compaction is not None and _ends(taken) != _ends(self.root_after):
            return PlanState.DEAD
        after = manifest.entries[len(taken) : len(taken) + 1]
        if self.root_after and after and depth_of(self.root_after[-1]) < depth_of(after[0]):
            return PlanState.UNFITTING
        return PlanState.LIVE

    def _is_published(self, manifest: Manifest) -> bool:
        if self.compaction is not None:
            return manifest.compacted == self.plan_id
        return manifest.first_offset >= self.first_to_keep.offset

    def apply(self, manifest: Manifest, write_id: str) -> Manifest:
        """The manifest without what goes. The plan must be live."""
        kept = (*self.root_after, *manifest.entries[len(self.root_before) :])
        after = msgspec.structs.replace(
            manifest,
            collected=manifest.collected_sum + self.setsum_to_discard,
            snapshots=tuple(entry for entry in kept if isinstance(entry, SnapshotPointer)),
            fragments=tuple(entry for entry in kept if isinstance(entry, Fragment)),
            write_id=write_id,
        )
        if self.compaction is not None:
            linked = sum(entry.num_bytes for entry in kept)
            return msgspec.structs.replace(
                after, compacted=self.plan_id, acc_bytes=max(manifest.acc_bytes, linked)
            )
        return msgspec.structs.replace(
            after, initial_offset=self.first_to_keep, initial_seq_no=self.first_seq_no_to_keep
        )


def _ends(entries: Sequence[Entry]) -> tuple[int, int] | None:
    return (entries[0].start.offset, entries[-1].limit.offset) if entries else None


def plan_document(store: Store, runtime: Runtime, timeout_s: float) -> Document[Garbage]:
    return Document(
        store,
        GARBAGE_PATH,
        partial(decode_document, Garbage),
        label="plan of a collection",
        runtime=runtime,
        timeout_s=timeout_s,
    )


async def load_garbage(store: Store) -> tuple[Garbage | None, str | None]:
    """The stored plan and its etag. A log that was never collected has none."""
    found = await read_version(store, GARBAGE_PATH, partial(decode_document, Garbage))
    return (None, None) if found is None else (found.value, found.etag)
