"""What a data directory holds: partitions, segments and how much of them lives, the WAL.

Read-only and without a lock, so it may be asked beside the node that runs on it: then it is what
was there at one moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from stratalog.errors import Corrupt
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.format import (
    SEGMENT_OVERHEAD_BYTES,
    Checkpoint,
    Entries,
    Lineage,
    PartitionLayout,
    Section,
    SegmentFile,
    SegmentIndex,
    lineage_of,
    steps_of,
)
from stratalog.segments.inspect.disk_snapshot import (
    DiskSnapshot,
    retry_while_changing,
    take_snapshot,
)
from stratalog.segments.io import in_thread, typed_errors
from stratalog.segments.maintenance import needed
from stratalog.segments.recover import replay_wal, size_of

_ASK_CHECK = "`stratalog disk check` names all that is missing or damaged."


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment file. What lives is what a checkpoint keeps, and everything above it."""

    path: str
    first: int
    last: int
    entries: int
    bytes: int
    live_entries: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition, as far as it is durable."""

    name: str
    first: int
    """The first index above the checkpoint, or where the log begins."""
    last: int
    epoch: int
    checkpoint: int
    """The index of the checkpoint; 0 if there is none."""
    checkpoint_bytes: int
    live: int
    """How many entries live at or below the checkpoint."""
    pending: int
    """How many entries are in the WAL and not yet in segments."""
    segments: tuple[SegmentReport, ...]
    """Oldest first."""

    @property
    def entries(self) -> int:
        """Of its segments."""
        return sum(segment.entries for segment in self.segments)

    @property
    def bytes(self) -> int:
        """Of its segments."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def live_entries(self) -> int:
        return sum(segment.live_entries for segment in self.segments)

    @property
    def live_bytes(self) -> int:
        return sum(segment.live_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class WalReport:
    """One WAL file that is still needed."""

    path: str
    bytes: int
    """As the file system has it: a file is allocated ahead."""
    batches: int
    entries: int


@dataclass(frozen=True, slots=True)
class DiskReport:
    """What a data directory holds."""

    path: str
    disk: str
    format: int
    partitions: tuple[PartitionReport, ...]
    wals: tuple[WalReport, ...]
    leftovers: tuple[str, ...]
    """Files that nobody names: the next opening removes them, unless a node is just making them."""

    def to_dict(self) -> dict[str, object]:
        """For programs: nothing but what JSON has."""
        partitions = []
        for each in self.partitions:
            facts = asdict(each)
            segments = facts.pop("segments")
            sums = ("entries", "bytes", "live_entries", "live_bytes")
            facts.update({name: getattr(each, name) for name in sums})
            partitions.append({**facts, "segments": segments})
        return {**asdict(self), "partitions": partitions}


async def inspect_disk(path: str | os.PathLike[str]) -> DiskReport:
    """What a data directory holds. ``NotFound`` if it is none, ``Corrupt`` if that cannot be told.

    ``check_disk`` names every damage.
    """

    def look() -> DiskReport:
        with typed_errors("looking at the data directory", str(path)):
            return retry_while_changing(lambda: _inspect(path), path)

    return await in_thread(look)


def _inspect(path: str | os.PathLike[str]) -> DiskReport:
    found = take_snapshot(path)
    try:
        _must_be_there(found)
        logs = {
            number: LogView(layout, _readable(found.checkpoints.get(number)))
            for number, layout in found.layout.partitions.items()
        }
        wals = []
        for wal, batches, _ in replay_wal(found.files, found.disk, found.layout):
            entries = 0
            for batch in batches:
                for section in batch.sections:
                    entries += len(section.entries)
                    if section.partition in logs:
                        logs[section.partition].apply(section, wal.path)
            size = size_of(found.files, wal.path)
            wals.append(WalReport(wal.path, size, len(batches), entries))
        for log in logs.values():
            log.must_be_whole()
        partitions = [log.report(found) for log in logs.values()]
        return DiskReport(
            path=os.fspath(path),
            disk=found.identity.disk,
            format=found.identity.format,
            partitions=tuple(sorted(partitions, key=lambda each: each.name)),
            wals=tuple(wals),
            leftovers=found.leftovers,
        )
    finally:
        found.files.close()


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that a batch of the WAL follows, and that are not there."""

    after: int
    before: int
    path: str


class LogView:
    """One partition as a node would find it at opening: its files, then what the WAL adds."""

    def __init__(self, layout: PartitionLayout, checkpoint: Checkpoint | None) -> None:
        self.layout = layout
        self.checkpoint = checkpoint
        self.checkpoint_index = layout.checkpoint.index if layout.checkpoint else 0
        self.gap: Gap | None = None
        self._last_entry = max((file.indexes.last or 0 for file in layout.files), default=0)
        self._pending: list[IndexSet] = []
        self._steps: list[tuple[int, int]] = []
        """The first index of each epoch in what the WAL adds."""

    @property
    def last(self) -> int:
        return max(self._last_entry, self.checkpoint_index)

    @property
    def live(self) -> IndexSet:
        return self.checkpoint.live if self.checkpoint else EMPTY

    @property
    def pending(self) -> IndexSet:
        self._pending = [IndexSet.union(self._pending)]
        return self._pending[0]

    @property
    def indexes(self) -> IndexSet:
        """Of all entries that are here."""
        return self.layout.indexes | self.pending

    @property
    def epoch(self) -> int:
        """Of the last entry. Known when all of the WAL was applied: it says which files count."""
        newest = [epoch for index, epoch in self._steps if index > self.checkpoint_index]
        if newest:
            return newest[-1]
        before = self.checkpoint.lineage if self.checkpoint else Lineage()
        return lineage_of(self.layout, before).last_epoch

    def apply(self, section: Section, path: str) -> None:
        """What a batch of the WAL does to it.

        What it follows may be missing if a later one overwrites both.
        """
        previous, entries = section.previous, section.entries
        if previous > self.last and self.gap is None:
            self.gap = Gap(self.last, previous, path)
        elif self.gap is not None and previous <= self.gap.after:
            self.gap = None
        if previous < self._last_entry:
            self.layout = self.layout.cut_after(previous)
            self._pending = [self.pending.limit(previous)]
            self._steps = [step for step in self._steps if step[0] <= previous]
            self._last_entry = previous
        if len(entries):
            self._pending.append(entries.indexes)
            self._add_steps(entries)
            self._last_entry = entries.last

    def _add_steps(self, entries: Entries) -> None:
        above = entries.above(self.checkpoint_index)
        for index, epoch in steps_of(above.heads):
            if not self._steps or self._steps[-1][1] != epoch:
                self._steps.append((index, epoch))

    def must_be_whole(self) -> None:
        if self.gap is not None:
            raise Corrupt(
                f"partition {self.layout.name!r} lacks what lies between {self.gap.after} and "
                f"{self.gap.before}, which a batch in {self.gap.path} follows",
                hint=_ASK_CHECK,
                path=self.gap.path,
            )

    def report(self, found: DiskSnapshot) -> PartitionReport:
        keep = needed(self.live, self.checkpoint_index)
        above = self.indexes.floor(self.checkpoint_index + 1)
        stored = self.layout.checkpoint
        return PartitionReport(
            name=self.layout.name,
            first=above.first if above.first is not None else self.checkpoint_index + 1,
            last=self.last,
            epoch=self.epoch,
            checkpoint=self.checkpoint_index,
            checkpoint_bytes=stored.size if stored else 0,
            live=len(self.live),
            pending=len(self.pending),
            segments=tuple(self._segments(found, keep)),
        )

    def _segments(self, found: DiskSnapshot, keep: IndexSet) -> Iterable[SegmentReport]:
        for file in self.layout.files:
            alive = file.indexes & keep
            yield SegmentReport(
                path=file.path,
                first=file.indexes.first or 0,
                last=file.indexes.last or 0,
                entries=file.entries,
                bytes=file.size,
                live_entries=len(alive),
                live_bytes=self._bytes_of(found, file, alive),
            )

    def _bytes_of(self, found: DiskSnapshot, file: SegmentFile, alive: IndexSet) -> int:
        """The index of a segment is read only if some of it lives and some does not."""
        if not alive or len(alive) == file.entries:
            return file.size - SEGMENT_OVERHEAD_BYTES if alive else 0
        opened = found.files.open(file.path)
        try:
            index = SegmentIndex.read(opened, found.disk, self.layout.number, file.path)
        finally:
            opened.close()
        return index.bytes_of(alive)


def _must_be_there(found: DiskSnapshot) -> None:
    for path in sorted(found.missing):
        raise Corrupt(
            f"{path} is missing",
            hint=_ASK_CHECK,
            path=path,
        )


def _readable(checkpoint: Checkpoint | Corrupt | None) -> Checkpoint | None:
    if isinstance(checkpoint, Corrupt):
        raise checkpoint
    return checkpoint
