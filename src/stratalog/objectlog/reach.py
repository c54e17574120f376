"""What several trees hold in one stretch of the log: a set of paths that may not be deleted.

A log's manifest and its pins are trees over the same immutable objects, and overlap in any way. So
before something is deleted, the stretch that it lies in is looked up in each of them. Only that
stretch is in memory. What belongs to another log is not ours to delete, so it is not looked up.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.errors import NotFound
from stratalog.objectlog.snapshot import Entry, SnapshotPointer
from stratalog.objectlog.tree import Tree, Window

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Root:
    """The top of a tree. ``whole`` if a missing node is an error, and not just a sign of age."""

    name: str
    entries: tuple[Entry, ...]
    whole: bool


class Reach:
    """The objects that these trees reach."""

    def __init__(self, tree: Tree, roots: Sequence[Root]) -> None:
        self._tree = tree
        self._roots = roots

    async def paths(self, from_offset: int, to_offset: int) -> set[str]:
        """The paths of everything that spans a part of the stretch."""
        window = Window(from_offset, to_offset)
        found: set[str] = set()
        for root in self._roots:
            await self._collect(root, root.entries, window, found)
        return found

    async def _collect(
        self, root: Root, entries: Sequence[Entry], window: Window, found: set[str]
    ) -> None:
        for entry in entries:
            if not window.overlaps(entry) or entry.path in found or entry.base is not None:
                continue
            found.add(entry.path)
            if isinstance(entry, SnapshotPointer):
                try:
                    node = await self._tree.snapshot(entry)
                except NotFound:
                    if root.whole:
                        raise
                    log.warning("%s points to %s, which is gone", root.name, entry.path)
                    continue
                await self._collect(root, node.entries, window, found)
