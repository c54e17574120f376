"""The entries of one partition from one WAL file, in memory, as consecutive runs.

Only durable entries are here. A table is dropped when its WAL file is in segments by the journal;
readers that hold it may go on.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice

from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.format import Clock, Entries


class Memtable:
    """Entries of one partition from one WAL file, and where that file overwrites older ones."""

    __slots__ = ("_firsts", "_indexes", "_new", "_runs", "_times", "cut_after", "previous", "wal")

    def __init__(self, wal: int) -> None:
        self.wal = wal
        self.cut_after: int | None = None
        """This file overwrote everything above this index in older files."""
        self.previous: int | None = None
        """The index before the first entry here."""
        self._runs: list[Entries] = []
        self._firsts: list[int] = []
        self._indexes = EMPTY
        self._new: list[list[int]] = []
        """First and last index of runs that are not in ``_indexes`` yet, runs that follow one
        another as one: alternating adds and lookups stay cheap."""
        self._times: list[int | None] = []
        """The highest time of each of the first runs, as far as somebody asked."""

    def add(self, previous: int, entries: Entries) -> None:
        """Add entries that follow an index. Everything above it must have been cut off before."""
        if not len(entries):
            return
        if not self._runs:
            self.previous = previous
        self._runs.append(entries)
        self._firsts.append(entries.first)
        if not entries.has_no_gaps:
            self._indexes = self.indexes | entries.indexes
        elif self._new and self._new[-1][1] + 1 == entries.first:
            self._new[-1][1] = entries.last
        else:
            self._new.append([entries.first, entries.last])

    def overwrite(self, after: int) -> None:
        """The WAL file of this table overwrites everything above an index."""
        self.cut_after = after if self.cut_after is None else min(self.cut_after, after)
        self.cut(after)

    def cut(self, after: int) -> None:
        """Remove everything above an index."""
        place = bisect_right(self._firsts, after)
        del self._runs[place:], self._firsts[place:]
        del self._times[max(0, place - 1) :]
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
            ranges = (range(first, last + 1) for first, last in self._new)
            self._indexes = self._indexes | IndexSet(*ranges)
            self._new.clear()
        return self._indexes

    def run_at(self, index: int) -> Entries | None:
        """The run that covers an index, or has it in a gap."""
        place = bisect_right(self._firsts, index) - 1
        if place < 0 or self._runs[place].last < index:
            return None
        return self._runs[place]

    def runs_from(self, index: int) -> Iterator[Entries]:
        """The runs from the one that has an index on."""
        place = max(0, bisect_right(self._firsts, index) - 1)
        if place < len(self._runs) and self._runs[place].last < index:
            place += 1
        return islice(self._runs, place, None)

    def first_at(self, time: int, time_of: Clock) -> int | None:
        """The first index of the first run of which an entry has this time or a later one."""
        for run in self._runs[len(self._times) :]:
            self._times.append(run.time_max(time_of))
        for run, highest in zip(self._runs, self._times, strict=True):
            if highest is not None and highest >= time:
                return run.first
        return None

    def runs(self, wanted: IndexSet | None = None) -> Iterator[Entries]:
        """The entries with the wanted indexes, or all."""
        if wanted is None:
            yield from self._runs
            return
        for run in self._runs[self._span(wanted)]:
            chosen = run.select(wanted)
            if len(chosen):
                yield chosen
