"""The content of a data directory: partitions, segments and how much of them lives, the WAL.

Read-only and without a lock, so it may run beside the node. It reports the state of one moment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from stratalog.errors import Corrupt
from stratalog.indexset import IndexSet
from stratalog.segments.format import (
    SEGMENT_OVERHEAD_BYTES,
    FileEnd,
    SegmentFile,
    SegmentIndex,
)
from stratalog.segments.inspect.disk_snapshot import (
    DiskSnapshot,
    Where,
    name_of,
    retry_while_changing,
    take_snapshot,
)
from stratalog.segments.inspect.replayed_log import ReplayedLog, replay_batches
from stratalog.segments.io import ReadableFiles, in_thread, opened, typed_errors
from stratalog.segments.maintenance import needed
from stratalog.segments.recover import ReplayedWal, doubts_of, must_match, replay_wal, size_of

_ASK_CHECK = "`stratalog disk check` names all that is missing or damaged."


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment file. Its live entries are those that a checkpoint keeps, and all above it."""

    path: str
    first: int
    last: int
    entries: int
    bytes: int
    live_entries: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The durable part of one partition."""

    name: str
    first: int
    """The first index above the checkpoint, or where the log begins."""
    last: int
    epoch: int
    checkpoint: int
    """The index of the checkpoint; 0 if there is none."""
    checkpoint_bytes: int
    live: int
    """The number of live entries at or below the checkpoint."""
    pending: int
    """The number of entries in the WAL that are not yet in segments."""
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
    """One WAL file that is not yet in segments."""

    path: str
    bytes: int
    """The size in the file system, where a file is preallocated."""
    batches: int
    entries: int
    is_prepared: bool = False
    """Whether it is there for later: nothing has been written to it yet."""


@dataclass(frozen=True, slots=True)
class DoubtReport:
    """Doubtful bytes: of a batch that a crash tore, or of a damaged one."""

    path: str
    """The file in which they are."""
    position: int
    """Where in the file they begin."""
    bytes: int
    is_kept: bool
    """Whether an opening has kept them aside. If not, the next one does."""


@dataclass(frozen=True, slots=True)
class DiskReport:
    """The content of a data directory."""

    path: str
    disk: str
    format: int
    partitions: tuple[PartitionReport, ...]
    wals: tuple[WalReport, ...]
    leftovers: tuple[str, ...]
    """Files that are not named. The next opening removes them, unless a node is making them now."""
    closed: bool = False
    """Whether it was closed cleanly, so that nothing in it can be doubtful."""
    doubtful: tuple[DoubtReport, ...] = ()

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


async def inspect_disk(path: str | os.PathLike[str] | ReadableFiles) -> DiskReport:
    """Inspect a data directory. ``NotFound`` if it is not one, ``Corrupt`` if it is unreadable.

    ``check_disk`` reports all damage.
    """

    def inspect() -> DiskReport:
        with typed_errors("inspecting the data directory", name_of(path)):
            return retry_while_changing(lambda: _inspect(path), path)

    return await in_thread(inspect)


def _inspect(path: Where) -> DiskReport:
    """``FileNotFoundError`` if a node has written over a WAL file meanwhile."""
    found = take_snapshot(path)
    with contextlib.closing(found.files):
        try:
            report = _report(found, name_of(path))
        except Corrupt as error:
            if found.is_written_over:
                raise FileNotFoundError from error
            raise
        if found.is_written_over:
            raise FileNotFoundError
        return report


def _report(found: DiskSnapshot, path: str) -> DiskReport:
    _must_be_there(found)
    logs = {number: ReplayedLog(found, number) for number in found.layout.partitions}
    wals, ends, last = [], [], None
    for each in replay_wal(found.files, found.disk, found.layout):
        entries = replay_batches(logs, each.wal, each.batches)
        wals.append(WalReport(each.wal.path, each.size, len(each.batches), entries, each.is_unused))
        ends.append(each.closed.file_end)
        if not each.is_unused:
            last = each
    for log in logs.values():
        if log.gap is not None:
            raise log.gap.error(log.name, _ASK_CHECK)
        log.find_lineage()
    _must_be_as_closed(found, ends)
    partitions = [_partition_report(found, log) for log in logs.values()]
    return DiskReport(
        path=path,
        disk=found.identity.disk,
        format=found.identity.format,
        partitions=tuple(sorted(partitions, key=lambda each: each.name)),
        wals=tuple(wals),
        leftovers=found.leftovers,
        closed=found.closed is not None,
        doubtful=(*_kept(found), *_doubtful(found, last)),
    )


def _must_be_as_closed(found: DiskSnapshot, ends: Sequence[FileEnd]) -> None:
    """``Corrupt`` if it is not, and no node has opened it meanwhile."""
    if isinstance(found.closed, Corrupt):
        raise found.closed
    if found.closed is not None and found.is_still_closed:
        must_match(found.closed, found.journal, ends)


def _kept(found: DiskSnapshot) -> list[DoubtReport]:
    return [DoubtReport(path, 0, size_of(found.files, path), is_kept=True) for path in found.kept]


def _doubtful(found: DiskSnapshot, last: ReplayedWal | None) -> list[DoubtReport]:
    return [
        DoubtReport(doubt.path, doubt.span.start, len(doubt.span), is_kept=False)
        for doubt in doubts_of(found.journal, last, is_closed=found.closed is not None)
        if not found.files.exists(doubt.kept_as)
    ]


def _must_be_there(found: DiskSnapshot) -> None:
    for path in sorted(found.missing):
        raise Corrupt(f"{path} is missing", hint=_ASK_CHECK, path=path)
    for checkpoint in found.checkpoints.values():
        if isinstance(checkpoint, Corrupt):
            raise checkpoint


def _partition_report(found: DiskSnapshot, log: ReplayedLog) -> PartitionReport:
    keep = needed(log.live, log.checkpoint_index)
    stored = log.layout.checkpoint
    return PartitionReport(
        name=log.name,
        first=log.first,
        last=log.last,
        epoch=log.epoch,
        checkpoint=log.checkpoint_index,
        checkpoint_bytes=stored.size if stored else 0,
        live=len(log.live),
        pending=len(log.pending),
        segments=tuple(
            _segment_report(found, log.number, file, file.indexes & keep)
            for file in log.layout.files
        ),
    )


def _segment_report(
    found: DiskSnapshot, partition: int, file: SegmentFile, alive: IndexSet
) -> SegmentReport:
    """The segment is opened only if it is partly live."""
    live_bytes = file.size - SEGMENT_OVERHEAD_BYTES if alive else 0
    live_entries = file.entries if alive else 0
    if alive and len(alive) != file.index_count:
        with opened(found.files, file.path) as segment:
            index = SegmentIndex.read(segment, found.disk, partition, file.path)
        live_entries, live_bytes = index.count_of(alive), index.bytes_of(alive)
    return SegmentReport(
        path=file.path,
        first=file.indexes.first or 0,
        last=file.indexes.last or 0,
        entries=file.entries,
        bytes=file.size,
        live_entries=live_entries,
        live_bytes=live_bytes,
    )
