"""Pure functions over a tree of which only a few nodes are read: those that they ask for.

A function that looks below a pointer takes the nodes that are loaded and asks for the children with
``children_in``. If the node is not among them, ``Unloaded`` names it; ``with_nodes`` loads it and
calls the function again from the beginning.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from stratalog.objectlog.stored import Entry, Snapshot, SnapshotPointer
from stratalog.objectlog.tree.walk import Tree

T = TypeVar("T")

Nodes = Mapping[str, Snapshot]
"""Loaded nodes by path."""


class Unloaded(Exception):
    """This node must be loaded before the function can answer."""

    def __init__(self, pointer: SnapshotPointer) -> None:
        super().__init__(pointer.path)
        self.pointer = pointer


def children_in(nodes: Nodes, pointer: SnapshotPointer) -> tuple[Entry, ...]:
    """What is below a pointer; ``Unloaded`` if its node is not loaded."""
    node = nodes.get(pointer.path)
    if node is None or not node.fits(pointer):
        raise Unloaded(pointer)
    return node.entries


async def with_nodes(tree: Tree, work: Callable[[Nodes], T], loaded: Nodes | None = None) -> T:
    """What ``work`` answers once all nodes that it asks for are loaded."""
    nodes = dict(loaded or {})
    while True:
        try:
            return work(nodes)
        except Unloaded as unloaded:
            nodes[unloaded.pointer.path] = await tree.snapshot(unloaded.pointer)
