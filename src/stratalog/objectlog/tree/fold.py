"""How the root stays small: old entries move into snapshots, in the background.

The root lists snapshots and fragments in log order, deep ones first. When twelve entries of one
depth have gathered, they move into a snapshot that is one deeper. If the snapshot just before
them has room, the new one takes over its children too, so that nodes fill up to 64 entries
although the root never holds more than about twelve of a kind:

    root      [d2 d2 | d1 d1 (d1) | f1 f2 … f12 | f13]       (d1) has 40 children
    after     [d2 d2 | d1 d1 (d1')              | f13]       (d1') has 52, (d1) is left to the sweep

A tree of 1.4 million fragments is three levels deep. The newest fragment stays in the root, and a
node never has a single child. When a fold is applied, what it replaces is compared by path. A fold
whose entries have changed meanwhile, by a collection for example, is dropped.

Pure functions. The writer's ``fold_task`` reads and stores the nodes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import msgspec

from stratalog.invariants import invariant
from stratalog.objectlog.stored import (
    Entry,
    Fragment,
    Manifest,
    Snapshot,
    SnapshotPointer,
    depth_of,
)
from stratalog.setsum import Setsum

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """These neighbours move into a snapshot; ``host`` precedes them and may lend its children."""

    host: SnapshotPointer | None
    entries: tuple[Entry, ...]
    depth: int


@dataclass(frozen=True, slots=True)
class Fold:
    """A stored snapshot that is ready to take the place of the entries with these paths."""

    pointer: SnapshotPointer
    replaced: tuple[str, ...]
    sweep_epoch: int


def plan_fold(manifest: Manifest, fold_entries: int, entries_max: int) -> FoldPlan | None:
    """What to move next: the deepest kind that is due, since it is the rarest."""
    snapshots = manifest.snapshots
    depths = sorted({pointer.depth for pointer in snapshots}, reverse=True)
    for depth in depths:
        low, high = _last_run(snapshots, depth)
        if high - low >= fold_entries:
            host = snapshots[low - 1] if low > 0 else None
            chosen: Sequence[Entry] = snapshots[low : min(high, low + entries_max)]
            return FoldPlan(_able(host, depth + 1), tuple(chosen), depth + 1)
    old = manifest.fragments[:-1]
    if len(old) >= fold_entries:
        host = snapshots[-1] if snapshots else None
        return FoldPlan(_able(host, 1), old[:entries_max], 1)
    return None


def _last_run(snapshots: Sequence[SnapshotPointer], depth: int) -> tuple[int, int]:
    high = max(i for i, pointer in enumerate(snapshots) if pointer.depth == depth) + 1
    low = high
    while low > 0 and snapshots[low - 1].depth == depth:
        low -= 1
    return low, high


def _able(host: SnapshotPointer | None, depth: int) -> SnapshotPointer | None:
    """A host lends its children only if it is a plain node of the right depth."""
    if host is None or host.depth != depth or host.unknown is not None or host.base is not None:
        return None
    return host


def children_of(
    plan: FoldPlan, host: Snapshot | None, entries_max: int
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The children of the new node, and the paths of what it replaces."""
    paths = tuple(entry.path for entry in plan.entries)
    if host is not None and plan.host is not None and host.depth == plan.depth:
        lent = host.entries
        if len(lent) + len(plan.entries) <= entries_max and host.unknown is None:
            return (*lent, *plan.entries), (plan.host.path, *paths)
    return plan.entries, paths


def make_snapshot(
    children: Sequence[Entry], depth: int, name: Callable[[Setsum], str], writer: str
) -> Snapshot:
    """The node over these children. ``name`` gives its path."""
    invariant(len(children) > 1, "a node never has a single child")
    setsum = Setsum.total(child.setsum for child in children)
    return Snapshot(
        path=name(setsum),
        depth=depth,
        setsum=setsum,
        writer=writer,
        snapshots=tuple(child for child in children if isinstance(child, SnapshotPointer)),
        fragments=tuple(child for child in children if isinstance(child, Fragment)),
    )


def evenly(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """The items in so many parts of about the same length."""
    for low, high in pairwise(len(items) * number // count for number in range(count + 1)):
        yield items[low:high]


def apply_fold(manifest: Manifest, fold: Fold) -> Manifest | None:
    """The manifest with the snapshot in place, or None if it no longer fits there."""
    entries = manifest.entries
    paths = [entry.path for entry in entries]
    if fold.sweep_epoch != manifest.sweep_epoch or fold.replaced[0] not in paths:
        return None
    low = paths.index(fold.replaced[0])
    high = low + len(fold.replaced)
    if tuple(paths[low:high]) != fold.replaced or high >= len(paths):
        return None
    spans = (entries[low].start.offset, entries[high - 1].limit.offset)
    if spans != (fold.pointer.start.offset, fold.pointer.limit.offset):
        return None  # a compaction let one of them stand for a neighbour as well
    if low > 0 and depth_of(entries[low - 1]) < fold.pointer.depth:
        return None  # a collection left something shallower before it
    moved = Setsum.total(entry.setsum for entry in entries[low:high])
    invariant(moved == fold.pointer.setsum, "a fold moves exactly what it replaces")
    kept = (*entries[:low], fold.pointer, *entries[high:])
    return msgspec.structs.replace(
        manifest,
        snapshots=tuple(entry for entry in kept if isinstance(entry, SnapshotPointer)),
        fragments=tuple(entry for entry in kept if isinstance(entry, Fragment)),
    )
