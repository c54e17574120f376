"""What is left of a partition when some of its files cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from stratalog.errors import Corrupt
from stratalog.indexset import EMPTY
from stratalog.segments.format import (
    Batch,
    Checkpoint,
    Layout,
    Lineage,
    PartitionLayout,
    SegmentFile,
    check_sequence,
)
from stratalog.segments.read import DurableLog


@dataclass(frozen=True, slots=True)
class SalvagedPartition:
    """``layout`` is nothing if the partition cannot be kept."""

    layout: PartitionLayout | None
    given_up_from: int | None = None
    """The first index that is given up, if some are."""
    cut_at_batch: int | None = None
    """The number of the first batch whose sections of this partition do not count."""
    why: str = ""


@dataclass(slots=True)
class _LayoutCopy:
    layout: Layout

    def amend(self, change: Callable[[Layout], Layout]) -> None:
        self.layout = change(self.layout)


def salvage_partition(
    partition: PartitionLayout,
    checkpoint: Checkpoint | None,
    unusable: set[str],
    kept: Sequence[Batch],
) -> SalvagedPartition:
    """Without the unusable segments, and without whatever followed them."""
    if partition.checkpoint is not None and checkpoint is None:
        return SalvagedPartition(None, why=f"{partition.checkpoint.path} is unreadable")
    left, lost = _segments(partition, checkpoint, unusable)
    why = f"{lost.path} cannot be used" if lost else ""
    if left is None:
        return SalvagedPartition(None, why=why)
    cut_at = None
    if lost is not None:
        cut_at = kept[0].number if kept else None
    else:
        cut_at, lost_from = _first_gap(left, checkpoint, kept)
        if cut_at is not None:
            usable = [batch for batch in kept if batch.number < cut_at]
            if _lacks_live(left, checkpoint, usable):
                return SalvagedPartition(None, why="what its checkpoint needs is gone")
            return SalvagedPartition(left, lost_from, cut_at, "what follows has a gap before it")
    usable = [] if lost else list(kept)
    if _lacks_live(left, checkpoint, usable):
        return SalvagedPartition(None, why=why or "what its checkpoint needs is gone")
    if lost is None:
        return SalvagedPartition(left)
    return SalvagedPartition(left, lost.previous + 1, cut_at, why)


def _segments(
    partition: PartitionLayout, checkpoint: Checkpoint | None, unusable: set[str]
) -> tuple[PartitionLayout | None, SegmentFile | None]:
    """What is left of the layout, and the segment before which the log is cut off.

    A segment below the checkpoint in which nothing lives is missed by nobody.
    """
    at = checkpoint.index if checkpoint else 0
    live = checkpoint.live if checkpoint else EMPTY
    left: list[SegmentFile] = []
    for file in partition.files:
        if file.path not in unusable and _follows(partition, [*left, file]):
            left.append(file)
        elif (file.indexes.last or 0) > at or not _follows(partition, [*left, file]):
            return _having(partition, left), file
        elif file.indexes & live:
            return None, file
    return _having(partition, left), None


def _having(partition: PartitionLayout, files: Sequence[SegmentFile]) -> PartitionLayout:
    return msgspec.structs.replace(partition, files=tuple(files))


def _follows(partition: PartitionLayout, files: Sequence[SegmentFile]) -> bool:
    try:
        check_sequence(_having(partition, files))
    except Corrupt:
        return False
    return True


def _log(partition: PartitionLayout, checkpoint: Checkpoint | None) -> DurableLog:
    owner = _LayoutCopy(Layout(partitions={partition.number: partition}))
    return DurableLog(owner, partition.number, partition.name, checkpoint or _none(partition))


def _none(partition: PartitionLayout) -> Checkpoint | None:
    named = partition.checkpoint
    return Checkpoint(named.index, EMPTY, Lineage(), 0, 0) if named else None


def _first_gap(
    partition: PartitionLayout, checkpoint: Checkpoint | None, kept: Sequence[Batch]
) -> tuple[int | None, int | None]:
    """The batch with a section that follows nothing, and the first index that is missing."""
    log, batch_of_gap = _log(partition, checkpoint), None
    for batch in kept:
        for section in batch.sections:
            if section.partition == partition.number:
                had_gap = log.gap is not None
                log.replay(0, section, "")
                if log.gap is not None and not had_gap:
                    batch_of_gap = batch.number
    if log.gap is None:
        return None, None
    return batch_of_gap, log.gap.after + 1


def _lacks_live(
    partition: PartitionLayout, checkpoint: Checkpoint | None, kept: Sequence[Batch]
) -> bool:
    log = _log(partition, checkpoint)
    for batch in kept:
        for section in batch.sections:
            if section.partition == partition.number:
                log.replay(0, section, "")
    return bool(log.live - log.indexes)
