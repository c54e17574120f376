"""The objects of a log that nothing links: a listing, compared with the tree.

Both come in the same order: a listing by path, which begins with the bucket, whose number has
leading zeros; the tree by sequence number. Paths are compared one bucket at a time, so a log of any
length needs the memory of one bucket, of the paths of its snapshots (one for 64 fragments), and of
a limited number of candidates.

Correctness does not depend on the order. A fragment that the tree gives late is struck from the
candidates all the same, so in the end none is left that the tree leads to.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from stratalog.objectlog.holds import Pin
from stratalog.objectlog.stored import Entry, Fragment, Manifest, SnapshotPointer, is_sweepable, own
from stratalog.objectlog.tree import Tree, Window
from stratalog.store import Listed, Store

log = logging.getLogger(__name__)

UNKNOWN_PATHS_MAX = 100
LISTED_PER_REPORT = 1000

_BUCKET_CHARS = len("log/Bucket=0123456789abcdef")

OnLeft = Callable[[Fragment], None]
"""Called for each fragment that only a pin holds."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How many objects, and how many bytes they have."""

    objects: int = 0
    bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.objects + other.objects, self.bytes + other.bytes)


@dataclass(eq=False)
class Survey:
    """One round: a part of the listing, compared with the whole tree."""

    store: Store
    tree: Tree
    candidates_max: int
    on_listed: Callable[[Amount], None] | None = None

    def __post_init__(self) -> None:
        self._walked: set[str] = set()
        self._linked_in_bucket: set[str] = set()
        self._not_listed: set[str] = set()
        self.candidates: dict[str, int] = {}
        self.absent: list[str] = []
        """Fragments that the tree leads to and the listing did not show, as far as it went."""

        self.listed = self.reached = self.pinned = self.kept = self.unknown = Amount()
        self.unknown_paths: list[str] = []
        self.next_after: str | None = None

    async def take(self, manifest: Manifest, after: str) -> None:
        """List what comes after a path; stop when there are as many candidates as there may be.

        ``next_after`` then tells where the next round begins, and is None at the end of the log.
        ``NotFound`` if a node was deleted meanwhile: then nothing that was found counts.
        """
        bucket = ""
        async with aclosing(self._walk(manifest.entries, self._strike_out)) as fragments:
            fragment = await anext(fragments, None)
            async for row in self.store.list("", after):
                if _bucket(row.path) != bucket:
                    bucket = _bucket(row.path)
                    self._end_bucket()
                while fragment is not None and _bucket(fragment.path) <= bucket:
                    is_late = not self._strike_out(fragment.path) and fragment.path > after
                    if _bucket(fragment.path) == bucket:
                        self._linked_in_bucket.add(fragment.path)
                        if is_late:
                            self._not_listed.add(fragment.path)
                    elif is_late:
                        self.absent.append(fragment.path)
                    fragment = await anext(fragments, None)
                self._judge(row)
                if len(self.candidates) >= self.candidates_max:
                    self.next_after = row.path
                    break
            else:
                self._end_bucket()
            while fragment is not None:
                is_late = not self._strike_out(fragment.path) and fragment.path > after
                if is_late and self.next_after is None:
                    self.absent.append(fragment.path)
                fragment = await anext(fragments, None)

    def _end_bucket(self) -> None:
        """What is linked in this bucket, and was not among its rows, is not stored."""
        self.absent += sorted(self._not_listed)
        self._linked_in_bucket.clear()
        self._not_listed.clear()

    async def strike_out_linked(self, manifest: Manifest) -> Manifest:
        """Drop the candidates that a newer manifest leads to. Gives that manifest.

        What is below nodes that were walked before was struck out then: they cannot change.
        ``NotFound`` if a node was deleted meanwhile: then walk a newer manifest.
        """
        async with aclosing(self._walk(manifest.entries, self._strike_out)) as fragments:
            async for fragment in fragments:
                self._strike_out(fragment.path)
        return manifest

    async def strike_out_pinned(self, pin: Pin, on_left: OnLeft | None = None) -> None:
        """Drop the candidates that a pin leads to. Below a node that is gone it holds nothing."""

        def strike_out(path: str) -> None:
            self.pinned += self._taken(path)

        walk = self._walk(pin.entries, strike_out, pin.window)
        async with aclosing(walk) as fragments:
            async for fragment in fragments:
                if on_left is not None and fragment.path in self.candidates:
                    on_left(fragment)
                strike_out(fragment.path)

    async def _walk(
        self,
        entries: Sequence[Entry],
        strike_out: Callable[[str], object],
        window: Window | None = None,
    ) -> AsyncGenerator[Fragment, None]:
        """Strikes out nodes and gives the fragments below those that are new.

        With a window, which a pin has, only what overlaps it, and nodes may be missing. Otherwise
        the nodes count as walked when the whole walk has ended.
        """
        met: set[str] = set()
        gone: list[SnapshotPointer] = []

        def is_new(entry: Entry) -> bool:
            if entry.base is not None:
                return False  # it lies in another log, with all that is below it
            if window is not None and not window.overlaps(entry):
                return False
            if isinstance(entry, Fragment):
                return True
            strike_out(entry.path)
            met.add(entry.path)
            return entry.path not in self._walked

        on_missing = None if window is None else gone.append
        async with aclosing(self.tree.fragments(entries, is_new, on_missing)) as fragments:
            async for fragment in fragments:
                yield fragment
        for node in gone:
            log.warning("a pin points to %s, which is gone", node.path)
        if window is None:
            self._walked |= met

    def _strike_out(self, path: str) -> bool:
        """Whether the path was among the candidates."""
        taken = self._taken(path)
        self.reached += taken
        return taken.objects > 0

    def _taken(self, path: str) -> Amount:
        """What a path takes away from the candidates."""
        size = self.candidates.pop(path, None)
        return Amount() if size is None else Amount(1, size)

    def _judge(self, row: Listed) -> None:
        each = Amount(1, row.size)
        self.listed += each
        found = own(row.path)
        if found is None:
            self.unknown += each
            if len(self.unknown_paths) < UNKNOWN_PATHS_MAX:
                self.unknown_paths.append(row.path)
        elif not is_sweepable(found):
            self.kept += each
        elif row.path in self._walked or row.path in self._linked_in_bucket:
            self.reached += each
            self._not_listed.discard(row.path)
        else:
            self.candidates[row.path] = row.size
        if self.on_listed is not None and self.listed.objects % LISTED_PER_REPORT == 0:
            self.on_listed(self.listed)


def _bucket(path: str) -> str:
    """What a path begins with. Everything else in a log sorts before or after all buckets."""
    return path[:_BUCKET_CHARS]
