"""Retention: how much of the oldest part of a log goes, by age and by size.

A fragment goes if all of its records were appended before a time, or if it and all later ones are
more than so many bytes. Each rule selects a beginning of the log; the longer one goes. The newest
fragment never goes. Times and sizes are in the entries, so no fragment is read, and of the tree
only the nodes on the cut.

    root  [ A  B  C | f ]      A goes as a whole, C stays as a whole: only B is opened

An entry without a time has no known age. It stays until the log has too many bytes.

``retention_cut`` is a pure function over nodes that are loaded (``load_nodes``). ``PolicyStore``
takes the limits from the policy of a log, and moves the policy's cursor to the cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.objectlog.stored import Entry, Fragment, Manifest
from stratalog.objectlog.tree.load_nodes import Nodes, children_in, with_nodes
from stratalog.objectlog.tree.walk import Tree


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the log is to begin, and how many bytes lie before that."""

    offset: int
    num_bytes: int


class RetentionLimits(NamedTuple):
    """How much of a log stays, as far as that is limited."""

    before_us: int | None = None
    """What was appended before this time goes."""

    bytes_max: int | None = None
    counted_to: int | None = None
    """Only entries that end there or before count as bytes, and go for them."""

    def counts(self, entry: Entry) -> bool:
        return self.counted_to is None or entry.limit.offset <= self.counted_to


def retention_cut(manifest: Manifest, nodes: Nodes, limits: RetentionLimits) -> Cut:
    """The first offset that stays, if what is too old goes, and excess bytes."""
    total = sum(entry.num_bytes for entry in manifest.entries if limits.counts(entry))
    found = _RetentionCut(nodes, limits, manifest.first_offset, total)
    found.advance(manifest.entries, holds_newest=True)
    return Cut(found.cut, total - found.left)


async def find_retention_cut(tree: Tree, manifest: Manifest, limits: RetentionLimits) -> Cut:
    """The same, reading the nodes that it takes. ``NotFound`` if one is gone meanwhile."""
    return await with_nodes(tree, lambda nodes: retention_cut(manifest, nodes, limits))


@dataclass(slots=True)
class _RetentionCut:
    nodes: Nodes
    limits: RetentionLimits
    cut: int
    left: int
    """The bytes from the cut on."""

    def advance(self, entries: Sequence[Entry], *, holds_newest: bool) -> bool:
        """Cut these off, oldest first. False once something stays."""
        for number, entry in enumerate(entries, 1):
            is_last = holds_newest and number == len(entries)
            if self._goes(entry) and not is_last:
                self.cut = entry.limit.offset
                if self.limits.counts(entry):
                    self.left -= entry.num_bytes
                continue
            if isinstance(entry, Fragment) or not self._begins_to_go(entry):
                return False
            if not self.advance(children_in(self.nodes, entry), holds_newest=is_last):
                return False
        return True

    def _goes(self, entry: Entry) -> bool:
        """Whether all of it goes, judged by its entry alone."""
        before_us, bytes_max, _ = self.limits
        if before_us is not None and 0 < entry.limit.timestamp_us < before_us:
            return True
        if bytes_max is None or not self.limits.counts(entry):
            return False
        if isinstance(entry, Fragment):
            return self.left > bytes_max
        return self.left - entry.num_bytes >= bytes_max  # what follows is enough already

    def _begins_to_go(self, entry: Entry) -> bool:
        before_us, bytes_max, _ = self.limits
        if before_us is not None and 0 < entry.start.timestamp_us < before_us:
            return True
        return bytes_max is not None and self.limits.counts(entry) and self.left > bytes_max
