"""The verifier of a compaction: it may only take records away, and must account for each.

It is independent of the code that makes plans. It opens the old root and the new one as far as they
differ, and requires of the fragments that only one of them has:

    each new one spans exactly some old neighbours, by offset, by time and by number
    it holds no more records than they did
    the sums of the old ones  =  the sums of the new ones  +  what the plan discards

The newest fragment may not be among them, unless the log is sealed. What the plan discards was
hashed from the removed rows when the plan was made, so the last line is no tautology.
"""

import asyncio
from collections.abc import Sequence

from stratalog.objectlog.collection.plan_check import OWNED, identity, require, taken_by
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    Entry,
    Fragment,
    Garbage,
    Manifest,
    SnapshotPointer,
    check_adjacent,
    depth_of,
)
from stratalog.objectlog.tree import Tree
from stratalog.setsum import Setsum


async def check_compaction(plan: Garbage, manifest: Manifest, tree: Tree) -> None:
    """Raise ``Corrupt`` unless the plan, applied to this manifest, balances."""
    taken = taken_by(plan, manifest)
    check_adjacent(plan.root_after, GARBAGE_PATH)
    require(_ends(taken) == _ends(plan.root_after), "the new root spans other offsets")
    kept = {entry.path for entry in plan.root_after}
    dropped = {entry.path for entry in taken} - kept
    require({entry.path for entry in plan.dropped} == dropped, "it drops what it does not replace")
    before, after = await _difference(taken, plan.root_after, tree)
    require(manifest.newest not in before, "it changes the newest fragment")
    _check_spans(before, after)
    was, stays = (Setsum.total(each.setsum for each in side) for side in (before, after))
    require(was == stays + plan.setsum_to_discard, "what goes and what stays do not balance")


async def _difference(
    before: Sequence[Entry], after: Sequence[Entry], tree: Tree
) -> tuple[list[Fragment], list[Fragment]]:
    """The fragments that only one of two trees has. What they share is not read."""
    while True:
        shared = {identity(entry) for entry in before} & {identity(entry) for entry in after}
        before = [entry for entry in before if identity(entry) not in shared]
        after = [entry for entry in after if identity(entry) not in shared]
        deepest = max(map(depth_of, [*before, *after]), default=0)
        if deepest == 0:
            return _fragments(before), _fragments(after)
        before = await _open(before, deepest, tree)
        after = await _open(after, deepest, tree)


async def _open(entries: Sequence[Entry], depth: int, tree: Tree) -> list[Entry]:
    """The entries with the children of each node of this depth in its place."""

    async def below(entry: Entry) -> tuple[Entry, ...]:
        if isinstance(entry, SnapshotPointer) and entry.depth == depth:
            return (await tree.snapshot(entry)).entries
        return (entry,)

    opened = await asyncio.gather(*map(below, entries))
    return [entry for several in opened for entry in several]


def _fragments(entries: Sequence[Entry]) -> list[Fragment]:
    return [entry for entry in entries if isinstance(entry, Fragment)]


def _check_spans(before: Sequence[Fragment], after: Sequence[Fragment]) -> None:
    waiting = list(reversed(before))
    for new in after:
        spanned: list[Fragment] = []
        while waiting and waiting[-1].start.offset < new.limit.offset:
            spanned.append(waiting.pop())
        require(bool(spanned), f"{new.path} takes the place of nothing")
        require(new.path.startswith(OWNED[0]), f"{new.path} is not a fragment's place")
        require(new.is_sparse, f"{new.path} does not say how many records it has")
        first, last = spanned[0], spanned[-1]
        require(_ends([new]) == _ends(spanned), f"{new.path} spans other offsets")
        numbers = (new.first_seq_no, new.seq_no)
        require(numbers == (first.first_seq_no, last.seq_no), f"{new.path} has other numbers")
        require(new.count <= sum(each.count for each in spanned), f"{new.path} has more records")
    require(not waiting, "some of the log is left out")


def _ends(entries: Sequence[Entry]) -> tuple[object, ...]:
    if not entries:
        return ()
    start, limit = entries[0].start, entries[-1].limit
    return (start.offset, start.timestamp_us, limit.offset, limit.timestamp_us)
