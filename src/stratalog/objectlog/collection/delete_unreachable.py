"""Deleting what a published plan dropped: only what is out of reach, children first.

A dropped snapshot is read, everything below it is deleted, then the snapshot itself. So a run that
was cut short can be repeated: where a snapshot is gone, nothing is left below it.

What the manifest or a pin still reaches is passed over, and is not read if they reach all below it.
Objects of the log that this one was forked from are not touched. A few thousand entries are in
memory at a time, however much goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stratalog.errors import Corrupt, NotFound
from stratalog.invariants import invariant
from stratalog.objectlog.collection.plan_check import OWNED
from stratalog.objectlog.collection.reach import Root, reached
from stratalog.objectlog.stored import Entry, Fragment, Garbage, Manifest, Snapshot, SnapshotPointer
from stratalog.objectlog.tree import DELETE_BATCH, Tree, delete_surely
from stratalog.runtime import Runtime
from stratalog.store import Patience, Store

T = TypeVar("T")

NODES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Removed:
    """How many objects were deleted, and how many requests that took."""

    fragments: int = 0
    snapshots: int = 0
    requests: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(
            self.fragments + other.fragments,
            self.snapshots + other.snapshots,
            self.requests + other.requests,
        )


OnRemoved = Callable[[Removed], None]
"""Called with what was deleted so far."""


@dataclass(eq=False, slots=True)
class Removal:
    """One run of deletions, and what is deleted so far. What ``keep`` leads to stays."""

    store: Store
    tree: Tree
    timeout_s: float
    runtime: Runtime
    on_progress: OnRemoved | None = None
    keep: Sequence[Root] = ()
    removed: Removed = Removed()

    async def check_unreachable(self, plan: Garbage, manifest: Manifest) -> None:
        """Refuse unless the manifest reaches none of the plan's objects.

        What was dropped ends before the log begins. A replaced node may span what is kept, so the
        way down to its range is checked.
        """
        first = plan.first_to_keep.offset
        invariant(manifest.first_offset >= first, "a plan is published before it is deleted")
        replaced = {pointer.path for pointer in plan.snapshots_to_replace}
        starts = {max(p.start.offset, manifest.first_offset) for p in plan.snapshots_to_replace}
        for entry in plan.dropped:
            if entry.limit.offset > first or not entry.path.startswith(OWNED):
                raise Corrupt(f"{entry.path} is not to be collected", path=entry.path)
        for start in starts:
            async for path in self._way_down(manifest, start):
                if path in replaced:
                    raise Corrupt(f"{path} is still linked and was to be deleted", path=path)

    async def remove(self, entries: Sequence[Entry], nodes: Sequence[Entry] = ()) -> Removed:
        """Delete these entries with all below them, then these nodes. Idempotent."""
        await self._remove(entries)
        await self._delete(nodes)
        return self.removed

    async def _way_down(self, manifest: Manifest, offset: int) -> AsyncIterator[str]:
        entries: Sequence[Entry] = manifest.entries
        while entries:
            found = [e for e in entries if e.start.offset <= offset < e.limit.offset]
            if not found:
                return
            yield found[0].path
            if isinstance(found[0], Fragment):
                return
            entries = (await self.tree.snapshot(found[0])).entries

    async def _remove(self, entries: Sequence[Entry]) -> None:
        entries = [entry for entry in entries if entry.base is None]
        pointers = [entry for entry in entries if isinstance(entry, SnapshotPointer)]
        for group in _batched(pointers, NODES_AT_ONCE):
            wholly = (await reached(self.tree, self.keep, group)).wholly
            loose = [pointer for pointer in group if pointer.path not in wholly]
            nodes = await asyncio.gather(*map(self._node, loose))
            await self._remove([child for node in nodes if node for child in node.entries])
            await self._delete(loose)
        await self._delete([entry for entry in entries if isinstance(entry, Fragment)])

    async def _node(self, pointer: SnapshotPointer) -> Snapshot | None:
        """A dropped node, or None if an earlier run has deleted it, and so all below it."""
        try:
            return await self.tree.snapshot(pointer)
        except NotFound:
            return None

    async def _delete(self, entries: Sequence[Entry]) -> None:
        for batch in _batched(entries, DELETE_BATCH):
            kept = (await reached(self.tree, self.keep, batch)).paths
            paths = [e.path for e in batch if e.base is None and e.path not in kept]
            if not paths:
                continue
            await delete_surely(self.store, paths, Patience(self.runtime, self.timeout_s))
            snapshots = sum(path.startswith("snapshot/") for path in paths)
            self.removed += Removed(len(paths) - snapshots, snapshots, 1)
            if self.on_progress is not None:
                self.on_progress(self.removed)


def _batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
