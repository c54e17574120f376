"""From a manifest to what tasks read: the fragments of a window, found in the tree."""

from __future__ import annotations

from contextlib import aclosing

from stratalog.objectlog.stored import ByteCache, Manifest
from stratalog.objectlog.tree import Tree, Window
from stratalog.pipeline.source.splits import Part
from stratalog.store import Store

PLANNING_CACHE_BYTES = 1 << 20


async def part_of(
    store: Store, url: str, manifest: Manifest, window: Window, *, log: str | None = None
) -> Part:
    """The fragments of a log that overlap a window. Reads only the nodes that lead to them.

    ``url`` is where tasks find the log; ``store`` is the same place, open in this process.
    """
    tree = Tree(store, ByteCache(PLANNING_CACHE_BYTES))
    async with aclosing(tree.walk(manifest, window)) as walk:
        return Part(url, tuple([fragment async for fragment in walk]), window, log)
