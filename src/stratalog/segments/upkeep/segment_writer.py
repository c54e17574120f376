"""The segment writer: what a closed WAL file holds becomes segment files, then the file goes.

For each partition it writes what is needed of the exact index set that the file holds: what lives,
and everything above the checkpoint. The live set is that of the partition's checkpoint *now*. If a
newer one comes meanwhile, what was written is too much and never too little, because what lives at
a later checkpoint lived at the one before it, or lies above it.

One record of the journal names the segments of all partitions and gives up the WAL file. Until it
is durable the WAL file is there, and doing it all again is harmless: files that no record names are
removed. After a failure (a full disk) it is tried again, later and later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stratalog.errors import Closed, StratalogError, Unavailable
from stratalog.indexset import IndexSet
from stratalog.runtime import Runtime
from stratalog.segments.format import (
    HEAD,
    Edit,
    Entries,
    Flushed,
    FlushedPart,
    Layout,
    SegmentFile,
    WalFile,
    joined,
)
from stratalog.segments.io import FileSystem, Tasks, in_thread, typed
from stratalog.segments.options import DiskOptions
from stratalog.segments.partition import Partition
from stratalog.segments.read import Memtable
from stratalog.segments.stats import Meters
from stratalog.segments.upkeep.choose_segments import needed
from stratalog.segments.upkeep.write_segment import SegmentName, write_segment
from stratalog.segments.write_ahead import Journal

RETRY_S_FIRST = 0.1
RETRY_S_LONGEST = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Source:
    """What a table holds when its flush begins, and what of it is needed."""

    partition: int
    wal: int
    previous: int
    runs: Sequence[Entries]
    indexes: IndexSet
    needed: IndexSet

    @classmethod
    def of(cls, partition: Partition, table: Memtable) -> _Source:
        keep = needed(partition.live, partition.checkpoint_index)
        runs = list(table.runs())
        return cls(partition.number, table.wal, table.previous or 0, runs, table.indexes, keep)

    def entries(self) -> Entries:
        """The entries that are needed. Mostly that is all of them, and they are not looked at."""
        if self.indexes <= self.needed:
            return joined(self.runs)
        chosen = (run.select(self.needed) for run in self.runs)
        return joined([run for run in chosen if len(run)])


class SegmentWriter:
    """Flushes closed WAL files, one after another, oldest first."""

    def __init__(
        self,
        files: FileSystem,
        runtime: Runtime,
        disk: bytes,
        journal: Journal,
        options: DiskOptions,
        partitions: dict[int, Partition],
        meters: Meters,
    ) -> None:
        self._files = files
        self._runtime = runtime
        self._disk = disk
        self._journal = journal
        self._options = options
        self._partitions = partitions
        self._meters = meters
        self._closed: deque[tuple[WalFile, int]] = deque()
        self._wake = asyncio.Event()
        self._tries = self._failed_try = 0
        self._tried = asyncio.Event()
        """Set when the current try has ended; the next one has another."""
        self._tasks = Tasks()
        self._is_closed = False
        self.failure: StratalogError | None = None
        """Why the last try failed, if it did."""
        self.on_flushed: Callable[[WalFile], None] = lambda _: None
        self.on_removable: Callable[[Sequence[str]], None] = lambda _: None

    @property
    def waiting(self) -> int:
        """How many closed WAL files are not yet in segments."""
        return len(self._closed)

    def put(self, wal: WalFile, next_batch: int) -> None:
        """A WAL file that is closed, and the number of the first batch after it."""
        self._closed.append((wal, next_batch))
        self._wake.set()

    async def drain(self) -> None:
        """Wait until all closed WAL files are in segments. One that failed is tried again at once.

        Raises what stands against it, if that was met by a try that began after the call.
        """
        tries = self._tries
        self._wake.set()
        while self._closed:
            if self._is_closed:
                raise Closed("the disk was closed before everything was in segments")
            await self._tried.wait()
            if self.failure is not None and self._closed and self._failed_try > tries:
                raise self.failure.copy()

    async def close(self) -> None:
        """Wait for the flush that was begun: a thread may be writing its files."""
        await self._tasks.end()
        self._is_closed = True
        self._tell()

    async def run(self) -> None:
        wait_s = RETRY_S_FIRST
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s if self._closed else None):
                    await self._wake.wait()
            self._wake.clear()
            while self._closed:
                wal, next_batch = self._closed[0]
                self._tries += 1
                try:
                    await self._tasks.run(self._flush(wal, next_batch))
                except Exception as error:  # noqa: BLE001 - the WAL has it all: try again
                    self.failure, self._failed_try = _as_ours(error), self._tries
                    log.warning("%s is not flushed: %s", wal.path, self.failure)
                    wait_s = min(wait_s * 2, RETRY_S_LONGEST)
                    self._tell()
                    break
                self.failure, wait_s = None, RETRY_S_FIRST
                self._closed.popleft()
                self.on_flushed(wal)
                self._tell()

    def _tell(self) -> None:
        tried, self._tried = self._tried, asyncio.Event()
        tried.set()

    async def _flush(self, wal: WalFile, next_batch: int) -> None:
        began = self._meters.loop.time()
        tables = {
            number: table
            for number, partition in self._partitions.items()
            if (table := partition.table_of(wal.number)) is not None
        }
        sources = [_Source.of(self._partitions[number], table) for number, table in tables.items()]
        paths: list[str] = []
        try:
            written = await in_thread(lambda: self._write(sources, paths))
        except OSError as error:
            self.on_removable(paths)
            raise typed(error, "writing segments", wal.path) from error

        def record(layout: Layout) -> Flushed:
            present = {each: tables[each] for each in tables if each in layout.partitions}
            return Flushed(wal.number, next_batch, _parts(present, written))

        def applied(_: Edit) -> None:
            for number in tables:
                if number in self._partitions:
                    self._partitions[number].drop_table(wal.number)

        await self._journal.commit(record, creates=paths, then=applied)
        named = self._journal.recorded.paths
        self.on_removable([path for path in paths if path not in named])
        size = sum(file.size for _, file in written)
        self._meters.flush.add(self._meters.loop.time() - began, size)
        self._meters.flushed_entries += sum(file.entries for _, file in written)

    def _write(self, sources: Sequence[_Source], paths: list[str]) -> list[tuple[int, SegmentFile]]:
        """In a thread: the files, synced, then their names. ``paths`` tells which were begun."""
        written = []
        for source in sources:
            previous = source.previous
            for part in divided(
                source.entries(), self._options.segment_entries_max, self._options.segment_bytes_max
            ):
                nonce = self._runtime.new_id(16)
                name = SegmentName(source.partition, source.wal, source.wal, nonce)
                paths.append(name.path)
                file = write_segment(self._files, self._disk, name, previous, [part])
                written.append((source.partition, file))
                previous = part.last
        if written:
            self._files.sync_folder("seg")
        return written


def _parts(
    tables: Mapping[int, Memtable], written: Sequence[tuple[int, SegmentFile]]
) -> dict[int, FlushedPart]:
    """What the record says of each partition. What was overwritten meanwhile is not valid."""
    parts = {}
    for number, table in tables.items():
        files = [
            file.with_valid(file.indexes & table.indexes) for at, file in written if at == number
        ]
        kept = tuple(file for file in files if file.indexes)
        if kept or table.cut_after is not None:
            parts[number] = FlushedPart(kept, table.cut_after)
    return parts


def divided(entries: Entries, entries_max: int, bytes_max: int) -> Iterator[Entries]:
    """In parts that keep within both limits. An entry that alone is larger is a part by itself."""
    sizes = entries.heads["size"].astype(np.int64) + HEAD.itemsize
    before = np.cumsum(sizes) - sizes
    start = 0
    while start < len(entries):
        limit = int(before[start]) + bytes_max
        stop = int(np.searchsorted(before + sizes, limit, side="right"))
        stop = min(max(stop, start + 1), start + entries_max)
        yield entries.part(start, stop)
        start = stop


def _as_ours(error: Exception) -> StratalogError:
    if isinstance(error, StratalogError):
        return error
    return Unavailable(f"flushing failed: {error!r}", hint="This is a defect: please report it.")
