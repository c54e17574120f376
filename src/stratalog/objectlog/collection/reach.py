"""What several trees reach in one stretch of the log: a set of paths that may not be deleted.

The manifest of a log and its pins are trees over the same immutable objects, and may overlap in any
way. Before objects are deleted, their stretch is looked up in each tree, down to the level of these
objects and no further; only that is in memory. Objects of other logs are never deleted here, so
they are not looked up.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.errors import NotFound
from stratalog.objectlog.stored import Entry, SnapshotPointer, depth_of
from stratalog.objectlog.tree import Tree, Window

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Root:
    """The top of a tree, and which part of it counts: all of it, or a window, which a pin has.

    Without a window a missing node is an error; with one, nothing is reached below it.
    """

    name: str
    entries: tuple[Entry, ...]
    window: Window | None = None

    def counts(self, entry: Entry) -> bool:
        return self.window is None or self.window.overlaps(entry)

    def counts_wholly(self, entry: Entry) -> bool:
        """Whether all below this entry counts as well."""
        window = self.window
        if window is None:
            return True
        ends = window.to_offset is None or entry.limit.offset <= window.to_offset
        return ends and window.from_offset <= entry.start.offset


class Reached(NamedTuple):
    """Paths that may not be deleted, and those among them below which nothing may."""

    paths: set[str]
    wholly: set[str]


async def reached(tree: Tree, roots: Sequence[Root], entries: Sequence[Entry]) -> Reached:
    """Which objects of the stretch of these entries, and of their kind or deeper, roots reach."""
    window = Window(
        min(entry.start.offset for entry in entries), max(entry.limit.offset for entry in entries)
    )
    depth_min = min(map(depth_of, entries))
    found = Reached(set(), set())

    async def collect(root: Root, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.base is not None or not (window.overlaps(entry) and root.counts(entry)):
                continue
            if depth_of(entry) >= depth_min:
                found.paths.add(entry.path)
                if root.counts_wholly(entry):
                    found.wholly.add(entry.path)
            if isinstance(entry, SnapshotPointer) and entry.depth > depth_min:
                try:
                    node = await tree.snapshot(entry)
                except NotFound:
                    if root.window is None:
                        raise
                    log.warning("%s points to %s, which is gone", root.name, entry.path)
                    continue
                await collect(root, node.entries)

    for root in roots:
        await collect(root, root.entries)
    return found
