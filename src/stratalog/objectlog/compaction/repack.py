"""Packing a tree after some of its nodes were opened: what was in a node goes into nodes again.

    root     [ A(d2) B(d2) | c(d1) | f ]      a fragment below B has changed
    opened   [ A(d2)  b1(d1) x y′ z b3(d1)  c(d1)  f ]
    packed   [ A(d2)  B′[ b1 b2′[ x y′ z ] b3 ]  c(d1)  f ]

A list of entries goes from deep to shallow, and no node has a single child. So, level by level, a
run of entries that something deeper follows moves into nodes one deeper; one that is alone there
opens its neighbour and joins its children. Nodes that were not opened stay as they are and separate
the runs, so only the ways down to what has changed are written anew.

Pure functions over nodes that are loaded (``load_nodes``).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stratalog.objectlog.options import WriterOptions
from stratalog.objectlog.stored import Entry, SnapshotPointer, depth_of
from stratalog.objectlog.tree import Nodes, children_in, evenly

NODE_ENTRIES_MAX = WriterOptions.snapshot_entries_max

Make = Callable[[Sequence[Entry], int], SnapshotPointer]
"""Makes a node of this depth over these children."""


class Loose(NamedTuple):
    """An entry among others, and whether it was taken out of a node that was opened."""

    entry: Entry
    opened: bool

    @property
    def depth(self) -> int:
        return depth_of(self.entry)


def opened(entries: Sequence[Entry], nodes: Nodes, wanted: Callable[[Entry], bool]) -> list[Loose]:
    """The entries with every wanted node in place of its pointer, down to fragments."""
    found: list[Loose] = []
    for entry in entries:
        if isinstance(entry, SnapshotPointer) and wanted(entry):
            below = opened(children_in(nodes, entry), nodes, wanted)
            found += [Loose(each, opened=True) for each, _ in below]
        else:
            found.append(Loose(entry, opened=False))
    return found


def packed(items: Sequence[Loose], nodes: Nodes, make: Make) -> list[Entry]:
    """The entries of a root, in which nothing is loose that was in a node."""
    depth, found = 0, list(items)
    while any(item.depth > depth or (item.opened and item.depth == depth) for item in found):
        found = _pack_level(found, depth, nodes, make)
        depth += 1
    return [item.entry for item in found]


def _pack_level(items: Sequence[Loose], depth: int, nodes: Nodes, make: Make) -> list[Loose]:
    waiting, found = list(reversed(items)), list[Loose]()
    run: list[Loose] = []
    while waiting:
        item = waiting.pop()
        if item.depth < depth:
            # Only at the end of a root is anything shallower left, and it stays there.
            found += _settled(run, depth, make)
            return [*found, item, *reversed(waiting)]
        if item.depth == depth:
            run.append(item)
        elif len(run) == 1 and isinstance(item.entry, SnapshotPointer):
            children = children_in(nodes, item.entry)
            waiting += [Loose(entry, opened=True) for entry in reversed(children)]
        else:
            found += [*_nodes(run, depth, make), item]
            run = []
    return [*found, *_settled(run, depth, make)]


def _settled(run: Sequence[Loose], depth: int, make: Make) -> list[Loose]:
    """A run that nothing deeper follows: only what came out of a node goes back into one."""
    loose = max((place + 1 for place, item in enumerate(run) if item.opened), default=0)
    head, rest = run[:loose], run[loose:]
    if len(head) == 1:
        return [Loose(head[0].entry, opened=False), *rest]
    return [*_nodes(head, depth, make), *rest]


def _nodes(run: Sequence[Loose], depth: int, make: Make) -> list[Loose]:
    """As few nodes as possible over these, evenly filled, none with a single child."""
    if not run:
        return []
    count = max(1, min(-(-len(run) // NODE_ENTRIES_MAX), len(run) // 2))
    return [
        Loose(make([item.entry for item in part], depth + 1), opened=True)
        for part in evenly(run, count)
    ]
