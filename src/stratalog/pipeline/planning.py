"""From a manifest to what tasks read: the fragments of a window, found in the tree."""

from __future__ import annotations

from contextlib import aclosing

from stratalog.errors import Invalid
from stratalog.objectlog.cache import ByteCache
from stratalog.objectlog.manifest import Manifest
from stratalog.objectlog.tree import Tree, Window
from stratalog.pipeline.splits import Part
from stratalog.store.protocol import Store

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


def check_reachable(url: str) -> str:
    """Refuse a place that no other process can see."""
    if url.partition("://")[0] == "memory":
        raise Invalid(
            "Spark's workers are other processes and cannot see a log in memory",
            hint="Use a directory or a bucket.",
        )
    return url
