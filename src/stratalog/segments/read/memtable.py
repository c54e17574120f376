"""The entries of one partition from one WAL file, in memory, as consecutive runs.

Only durable entries are here. A table is dropped when its WAL file is in segments by the journal;
readers that hold it may go on.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.format import Entries


class Memtable:
    """Entries of one partition from one WAL file, and where that file overwrites older ones."""

    __slots__ = ("_firsts", "_indexes", "_new", "_runs", "cut_after", "previous", "wal")

    def __init__(self, wal: int) -> None:
        self.wal = wal
        self.cut_after: int | None = None
        """This file overwrote everything above this index in older files."""
        self.previous: int | None = None
        """The index before the first entry here."""
        self._runs: list[Entries] = []
        self._firsts: list[int] = []
        self._indexes = EMPTY
        self._new: list[IndexSet] = []
        """Of runs that are not in ``_indexes`` yet: alternating adds and lookups stay cheap."""

    def add(self, previous: int, entries: Entries) -> None:
        """Add entries that follow an index. Everything above it must have been cut off before."""
        if not len(entries):
            return
        if not self._runs:
            self.previous = previous
        self._runs.append(entries)
        self._firsts.append(entries.first)
        self._new.append(entries.indexes)

    def overwrite(self, after: int) -> None:
        """The WAL file of this table overwrites everything above an index."""
        self.cut_after = after if self.cut_after is None else min(self.cut_after, after)
        self.cut(after)

    def cut(self, after: int) -> None:
        """Remove everything above an index."""
        place = bisect_right(self._firsts, after)
        del self._runs[place:], self._firsts[place:]
        if self._runs and self._runs[-1].last > after:
            self._runs[-1] = self._runs[-1].up_to(after)
        self._indexes = self.indexes.limit(after)

    def _span(self, wanted: IndexSet) -> slice:
        """The runs that may contain indexes of a set."""
        first, last = wanted.first, wanted.last
        if first is None or last is None:
            return slice(0)
        start = max(0, bisect_right(self._firsts, first) - 1)
        return slice(start, bisect_left(self._firsts, last + 1))

    @property
    def indexes(self) -> IndexSet:
        if self._new:
            self._indexes = IndexSet.union([self._indexes, *self._new])
            self._new.clear()
        return self._indexes

    def runs(self, wanted: IndexSet | None = None) -> Iterator[Entries]:
        """The entries with the wanted indexes, or all."""
        if wanted is None:
            yield from self._runs
            return
        for run in self._runs[self._span(wanted)]:
            chosen = run.select(wanted)
            if len(chosen):
                yield chosen
