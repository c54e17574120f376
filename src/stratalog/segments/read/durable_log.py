"""The durable log of one partition: its checkpoint, segment files and memtables.

From old to new: the segment files, then a memtable for each WAL file that is not yet in segments.
A change is applied here only after it has become durable.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stratalog.errors import Corrupt
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.format import (
    EPOCH_MAX,
    NO_ENTRIES,
    Checkpoint,
    Clock,
    Entries,
    Heads,
    Layout,
    Lineage,
    PartitionLayout,
    Section,
    SegmentFile,
    check_sequence,
    epoch_too_large,
    joined,
    lineage_of,
    meets,
    splits,
    steps_of,
)
from stratalog.segments.options import MergeLimits
from stratalog.segments.read.memtable import Memtable
from stratalog.segments.read.reader import Watch

_RESTORE = "Keep the data directory. Restore the partition from another replica."


class LayoutOwner(Protocol):
    """Keeps the current layout: the journal of a running disk, or a copy for inspection."""

    layout: Layout

    def amend(self, change: Callable[[Layout], Layout]) -> None:
        """Change the layout by what a batch of the WAL says."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that a batch of the WAL follows, and that are not there."""

    after: int
    before: int
    path: str
    """Of the WAL file with the batch."""

    def error(self, partition: str, hint: str) -> Corrupt:
        return Corrupt(
            f"partition {partition!r} lacks what lies between {self.after} and {self.before}, "
            f"which a batch in {self.path} follows",
            hint=hint,
            path=self.path,
            expected=self.after,
            actual=self.before,
        )


class DurableLog:
    """What is durable of a partition."""

    def __init__(
        self, owner: LayoutOwner, number: int, name: str, checkpoint: Checkpoint | None
    ) -> None:
        self.number = number
        self.name = name
        self._owner = owner
        self._checkpoint = checkpoint
        self._tables: deque[Memtable] = deque()
        layout = self.layout
        self._sequence_last = max((file.indexes.last or 0 for file in layout.files), default=0)
        """The last index of an entry that is here, regardless of the checkpoint."""
        check_sequence(layout)
        self.lineage = checkpoint.lineage if checkpoint else Lineage()
        """Covers the log up to the checkpoint, until ``recovered`` adds the rest."""
        self.gap: Gap | None = None
        """While the WAL is replayed: what is missing so far."""
        self.watches: set[Watch] = set()
        """Of the current readers."""
        self.merge_limits = MergeLimits()
        """Whoever uses the partition may change them: they count for later merges."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, last={self.last})"

    @property
    def layout(self) -> PartitionLayout:
        """The files of the partition; none after it was removed."""
        found = self._owner.layout.partitions.get(self.number)
        return found or PartitionLayout(self.number, self.name)

    @property
    def checkpoint_index(self) -> int:
        """0 if there is no checkpoint."""
        return self._checkpoint.index if self._checkpoint else 0

    @property
    def live(self) -> IndexSet:
        """The live entries at or below the checkpoint."""
        return self._checkpoint.live if self._checkpoint else EMPTY

    @property
    def checkpoint_info(self) -> Checkpoint | None:
        """The current checkpoint, without its state."""
        return self._checkpoint

    @property
    def _first(self) -> int:
        """The first index above the checkpoint, or where the log begins."""
        above = self.indexes.floor(self.checkpoint_index + 1).first
        return self.checkpoint_index + 1 if above is None else above

    @property
    def last(self) -> int:
        """The last durable index: of an entry, or of the checkpoint if none lies above it."""
        return max(self._sequence_last, self.checkpoint_index)

    @property
    def epoch(self) -> int:
        """The epoch of the last durable index."""
        return self.lineage.last_epoch

    @property
    def indexes(self) -> IndexSet:
        """The indexes of all durable entries that are here."""
        tables = (table.indexes for table in self._tables)
        return IndexSet.union([self.layout.indexes, *tables])

    @property
    def is_whole(self) -> bool:
        """Whether every entry above the checkpoint is here.

        False after an incomplete copy from another replica.
        """
        first = self.checkpoint_index + 1
        return self.indexes.floor(first) == IndexSet(range(first, self.last + 1))

    @property
    def pending(self) -> IndexSet:
        """The entries in the WAL that are not yet in segments."""
        return IndexSet.union(table.indexes for table in self._tables)

    def has(self, index: int) -> bool:
        """Whether an index is in the log, or is the one before its first entry."""
        if index in (0, self.checkpoint_index, self._sequence_last):
            return index >= self.checkpoint_index
        if any(index in table.indexes for table in self._tables):
            return True
        return any(index in file.indexes for file in self.layout.files_with(index, index))

    def has_all_between(self, previous: int, entries: Entries) -> bool:
        """Whether what is here between ``previous`` and the last of some entries has just their
        indexes and epochs."""
        span = range(previous + 1, entries.last + 1)
        return self.indexes.within(span) == entries.indexes and self.lineage.numbered(entries.heads)

    def differs_from(self, entries: Entries, heads_in: Callable[[SegmentFile], Heads]) -> bool:
        """Whether an entry that is here is another one than that of the same index among these.

        They are compared by their heads, so also by their checks. ``heads_in`` reads those of a
        segment.
        """
        for table in self._tables:
            for run in table.runs(entries.indexes):
                if not entries.select(run.indexes).equals_head_by_head(run):
                    return True
        span = range(entries.first, entries.last + 1)
        for file in self.layout.files_with(entries.first, entries.last):
            valid = file.indexes.within(span) & entries.indexes
            if valid:
                heads = heads_in(file)
                here = heads[meets(valid, heads)]
                if not np.array_equal(entries.select(valid).heads, here):
                    return True
        return False

    def splits(self, index: int, heads_in: Callable[[SegmentFile], Heads]) -> bool:
        """Whether a durable entry covers an index and the next one too: nothing may end there."""
        if index >= self.last or index in (0, self.checkpoint_index):
            return False
        for table in self._tables:
            if (run := table.run_at(index)) is not None:
                return run.splits(index)
        for file in self.layout.files_with(index, index):
            if file.has_spans and index in file.indexes:
                return splits(heads_in(file), index)
        return False

    def fetch(self, index: int, bytes_max: int) -> Entries | None:
        """The entries from the one that covers an index on, or from the next one, from memory.

        As many as have ``bytes_max`` bytes of payload together, and at least one; none behind the
        end. ``None`` if the first of them is in a segment: ``fetch_stored`` reads it.
        """
        if index > self._sequence_last:
            return NO_ENTRIES
        files = self.layout.files
        if files and (files[-1].indexes.last or 0) >= index:
            return None
        left = bytes_max
        found: list[Entries] = []
        for table in self._tables:
            for run in table.runs_from(index):
                part = run
                if run.first < index or run.payload_bytes > left:
                    part = run.fitting(index, left)
                    if found and part.payload_bytes > left:
                        return joined(found)
                found.append(part)
                left -= part.payload_bytes
                if part.last != run.last or left <= 0:
                    return joined(found)
        return joined(found)

    def segments(self) -> list[tuple[int, int, int, int | None]]:
        """First and last index, bytes and highest time of each segment, oldest first.

        The time is ``None`` if nobody told it when the segment was written.
        """
        return [
            (file.indexes.first or 0, file.indexes.last or 0, file.size, file.time_max)
            for file in self.layout.files
        ]

    def first_of_time(self, time: int, time_of: Clock | None) -> int | None:
        """The first index of the first segment or write that may have an entry of this time or a
        later one. ``None`` if there is none.

        A segment may have one if nobody told the times of its entries.
        """
        for file in self.layout.files:
            if file.time_max is None or file.time_max >= time:
                return file.indexes.first
        for table in self._tables:
            if time_of is None:
                return next((run.first for run in table.runs()), None)
            if (first := table.first_at(time, time_of)) is not None:
                return first
        return None

    def plan(self) -> tuple[PartitionLayout, list[Memtable]]:
        """The current files and memtables, for a reader."""
        return self.layout, list(self._tables)

    # Changes, after they became durable

    def apply(self, wal: int, section: Section) -> None:
        """A section became durable."""
        entries = section.entries
        cuts = self._take_up(wal, section)
        if cuts or not len(entries) or entries.last_epoch != self.lineage.last_epoch:
            self.lineage = self._lineage_after(section.previous, entries)

    def _take_up(self, wal: int, section: Section) -> bool:
        """Add it to the memtable of its WAL file. Returns whether it overwrites entries."""
        entries, previous = section.entries, section.previous
        if self._tables and self._tables[-1].wal == wal:
            table = self._tables[-1]
        else:
            table = Memtable(wal)
            self._tables.append(table)
        cuts = previous < self._sequence_last
        if cuts:
            for watch in self.watches:
                watch.note(previous)
            self._cut_files(previous)
            for older in self._tables:
                older.cut(previous)
            table.overwrite(previous)
        table.add(previous, entries)
        if len(entries):
            self._sequence_last = entries.last
        elif cuts:
            self._sequence_last = previous
        return cuts

    def replay(self, wal: int, section: Section, path: str) -> None:
        """A section of a WAL file, at opening.

        The entry that it follows may be missing if a later section overwrites both: then the
        entries between them were dead before their own WAL file was flushed.
        """
        if section.previous > self.last and self.gap is None:
            self.gap = Gap(self.last, section.previous, path)
        elif self.gap is not None and section.previous <= self.gap.after:
            self.gap = None
        self._take_up(wal, section)

    def recovered(self) -> None:
        """All WAL files are replayed. ``Corrupt`` if a needed entry is missing.

        ``Invalid`` if a version before spans has numbered entries under epochs that are too large
        today.
        """
        self._find_lineage()
        if self.lineage.last_epoch > EPOCH_MAX:
            index, epoch = self.lineage.steps[-1]
            raise epoch_too_large(epoch, f"partition {self.name!r}", index)
        if self.gap is not None:
            raise self.gap.error(self.name, _RESTORE)
        if missing := self.live - self.indexes:
            raise Corrupt(
                f"partition {self.name!r} lacks {missing!r}, which its checkpoint needs",
                hint=_RESTORE,
                actual=missing,
            )

    def _find_lineage(self) -> None:
        """Only after all WAL files are replayed is it known which entries of the segments count.

        The checkpoint may have been made from entries that overwrite them and are only in the WAL.
        """
        self.lineage = lineage_of(self.layout, self.lineage)
        for table in self._tables:
            for run in table.runs():
                self.lineage = self._lineage_after(run.first - 1, run)

    def _lineage_after(self, previous: int, entries: Entries) -> Lineage:
        floor = max(previous, self.checkpoint_index)
        return self.lineage.after(floor, steps_of(entries.above(floor).heads))

    def _cut_files(self, after: int) -> None:
        """Also in files of an edit that is being committed, which are not in the layout yet."""
        number = self.number

        def cut(layout: Layout) -> Layout:
            partition = layout.partitions.get(number)
            return layout if partition is None else layout.having(partition.cut_after(after))

        self._owner.amend(cut)

    def table_of(self, wal: int) -> Memtable | None:
        """The memtable of a WAL file, if that has entries of this partition."""
        return next((table for table in self._tables if table.wal == wal), None)

    def drop_table(self, wal: int) -> None:
        """Drop the memtable of a WAL file that is in segments."""
        self._tables = deque(table for table in self._tables if table.wal != wal)

    def has_checkpoint(self, checkpoint: Checkpoint) -> None:
        """The checkpoint became the current one."""
        lineage = checkpoint.lineage
        if self.last > checkpoint.index:
            above = [step for step in self.lineage.steps if step[0] > checkpoint.index]
            lineage = lineage.after(checkpoint.index, above)
        self._checkpoint, self.lineage = checkpoint, lineage
