"""The verifier: a plan is believed only if it balances against the tree that it changes.

It is independent of the code that makes plans.

For a collection it compares the stored plan with the root and with the replaced nodes as they are
stored, and requires of every level:

    what was there  =  what goes  +  what stays

This is checked entry by entry, so that nothing is dropped twice, kept twice, or forgotten. Ranges
must meet, every sum must be the sum of its parts, and no path may leave ``log/`` and ``snapshot/``.

A compaction may only take records away, and must account for each. The old root and the new one are
opened as far as they differ. Of the fragments that only one of them has:

    each new one spans exactly some old neighbours, by offset, by time and by number
    it holds no more records than they did
    the sums of the old ones  =  the sums of the new ones  +  what the plan discards

The newest fragment may not be among them, unless the log is sealed. What the plan discards was
hashed from the removed rows when the plan was made, so the last line is no tautology.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from stratalog.errors import Corrupt
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    Entry,
    Fragment,
    Garbage,
    Manifest,
    Snapshot,
    SnapshotPointer,
    check_adjacent,
    check_bytes,
    depth_of,
)
from stratalog.objectlog.tree import Tree
from stratalog.setsum import Setsum

OWNED = ("log/", "snapshot/")


def check_plan(plan: Garbage, manifest: Manifest, nodes: Mapping[str, Snapshot]) -> None:
    """Raise ``Corrupt`` unless the plan, applied to this manifest, loses exactly what it names.

    ``nodes`` has at least the stored nodes that the plan replaces, by path.
    """
    taken = _taken_by(plan, manifest)
    made = {node.path: node for node in plan.snapshots_to_make}
    _check_paths([*plan.dropped, *plan.snapshots_to_replace], made)
    for node in plan.snapshots_to_make:
        _require(len(node.entries) > 1, f"{node.path} has a single child")
        node.check(node.pointer())
    _check_digests((*plan.root_after, *chain.from_iterable(n.entries for n in made.values())), made)
    cut = {pointer.path: nodes[pointer.path].entries for pointer in plan.snapshots_to_replace}
    before = _leaves(taken, cut)
    after = _leaves(plan.root_after, {path: node.entries for path, node in made.items()})
    _require(
        Counter(map(_identity, before)) == Counter(map(_identity, (*plan.dropped, *after))),
        "what goes and what stays are not what was there",
    )
    _check_cut(plan, manifest, after)
    gone = Setsum.total(entry.setsum for entry in plan.dropped)
    _require(gone == plan.setsum_to_discard, "what goes does not add up to its sum")
    was = Setsum.total(entry.setsum for entry in taken)
    stays = Setsum.total(entry.setsum for entry in plan.root_after)
    _require(was == gone + stays, "the sums of what goes and what stays do not balance")


def _check_digests(entries: Iterable[Entry], made: Mapping[str, Snapshot]) -> None:
    """A node is put as it is encoded from the plan, and its pointer has the digest of that."""
    for entry in entries:
        node = made.get(entry.path)
        try:
            if node is not None:
                check_bytes(node.to_json(), entry)
        except Corrupt as error:
            _require(False, str(error))


def _taken_by(plan: Garbage, manifest: Manifest) -> tuple[Entry, ...]:
    """The entries of the stored root that the plan replaces."""
    taken = manifest.entries[: len(plan.root_before)]
    _require(
        tuple(entry.path for entry in taken) == plan.root_before,
        "it changes another root than the stored one",
    )
    return taken


def _identity(entry: Entry) -> tuple[object, ...]:
    """Equal for two entries if they link the same object for the same records."""
    ends = (entry.start.offset, entry.limit.offset)
    return (entry.base, entry.path, *ends, entry.num_bytes, entry.setsum, entry.xxh3)


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise Corrupt(
            f"the plan is not to be trusted: {complaint}",
            path=GARBAGE_PATH,
            hint="Keep a copy of the object, then cancel it with `stratalog collect --cancel`.",
        )


def _check_paths(entries: Iterable[Entry], made: Mapping[str, Snapshot]) -> None:
    for entry in entries:
        _require(entry.path.startswith(OWNED), f"{entry.path} is not an object of the tree")
        _require(entry.path not in made, f"{entry.path} is both made and taken away")


def _check_cut(plan: Garbage, manifest: Manifest, after: Sequence[Entry]) -> None:
    """The dropped entries lie side by side, from the start of the log to the first to keep."""
    dropped, cut = plan.dropped, plan.first_to_keep.offset
    check_adjacent(dropped, GARBAGE_PATH)
    _require(
        (dropped[0].start.offset, dropped[-1].limit.offset) == (manifest.first_offset, cut),
        "what goes is not the beginning of the log",
    )
    first = next(iter(after), None)
    _require(first is None or first.start.offset == cut, "what stays begins elsewhere")
    if isinstance(first, Fragment) and isinstance(first.first_seq_no, int):
        _require(
            first.first_seq_no == plan.first_seq_no_to_keep, "its first number to keep is another"
        )


def _leaves(entries: Sequence[Entry], below: dict[str, tuple[Entry, ...]]) -> list[Entry]:
    """The entries, with every known node replaced by its children, once."""
    found: list[Entry] = []
    for entry in entries:
        children = below.pop(entry.path, None)
        found += [entry] if children is None else _leaves(children, below)
    return found


async def check_compaction(plan: Garbage, manifest: Manifest, tree: Tree) -> None:
    """Raise ``Corrupt`` unless the plan, applied to this manifest, balances."""
    taken = _taken_by(plan, manifest)
    check_adjacent(plan.root_after, GARBAGE_PATH)
    _require(_ends(taken) == _ends(plan.root_after), "the new root spans other offsets")
    kept = {entry.path for entry in plan.root_after}
    dropped = {entry.path for entry in taken} - kept
    _require({entry.path for entry in plan.dropped} == dropped, "it drops what it does not replace")
    before, after = await _difference(taken, plan.root_after, tree)
    _require(manifest.newest not in before, "it changes the newest fragment")
    _check_spans(before, after)
    was, stays = (Setsum.total(each.setsum for each in side) for side in (before, after))
    _require(was == stays + plan.setsum_to_discard, "what goes and what stays do not balance")


async def _difference(
    before: Sequence[Entry], after: Sequence[Entry], tree: Tree
) -> tuple[list[Fragment], list[Fragment]]:
    """The fragments that only one of two trees has. What they share is not read."""
    while True:
        shared = {_identity(entry) for entry in before} & {_identity(entry) for entry in after}
        before = [entry for entry in before if _identity(entry) not in shared]
        after = [entry for entry in after if _identity(entry) not in shared]
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
        _require(bool(spanned), f"{new.path} takes the place of nothing")
        _require(new.path.startswith(OWNED[0]), f"{new.path} is not a fragment's place")
        _require(new.is_sparse, f"{new.path} does not say how many records it has")
        first, last = spanned[0], spanned[-1]
        _require(_ends([new]) == _ends(spanned), f"{new.path} spans other offsets")
        numbers = (new.first_seq_no, new.seq_no)
        _require(numbers == (first.first_seq_no, last.seq_no), f"{new.path} has other numbers")
        _require(new.count <= sum(each.count for each in spanned), f"{new.path} has more records")
    _require(not waiting, "some of the log is left out")


def _ends(entries: Sequence[Entry]) -> tuple[object, ...]:
    if not entries:
        return ()
    start, limit = entries[0].start, entries[-1].limit
    return (start.offset, start.timestamp_us, limit.offset, limit.timestamp_us)
