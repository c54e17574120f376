"""The flush: the entries of a closed WAL file become segments, then the WAL file is deleted, or
kept as the spare.

For each partition the flusher writes the entries of the file that are needed: the live ones, and
all above the checkpoint. It uses the live set of the current checkpoint. If a newer checkpoint
comes meanwhile, too much is written and never too little: what lives at a later checkpoint lived at
the one before, or lies above it.

One record of the journal names the segments of all partitions and drops the WAL file, which the
journal then hands to ``remove_files``. Until the record is durable the WAL file stays, and a flush
can be repeated: segments that no record names are removed.
After a failure, such as a full disk, it is retried with growing pauses.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from stratalog.errors import Closed, Full, StratalogError, Unavailable
from stratalog.indexset import IndexSet
from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    Edit,
    Entries,
    Flushed,
    FlushedPart,
    Layout,
    SegmentFile,
    divided,
    joined,
)
from stratalog.segments.io import Tasks, in_thread, typed
from stratalog.segments.maintenance.choose_segments import needed
from stratalog.segments.maintenance.write_segment import SegmentName, write_segment
from stratalog.segments.read import DurableLog, Memtable
from stratalog.segments.write_ahead import (
    BackPressure,
    ClosedWal,
    FlushQueue,
    Journal,
    SpareWal,
)

RETRY_S_FIRST = 0.1
RETRY_S_LONGEST = 10.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Source:
    """The content of a memtable when its flush begins, and which indexes are needed."""

    partition: int
    name: str
    wal: int
    previous: int
    runs: Sequence[Entries]
    indexes: IndexSet
    needed: IndexSet

    @classmethod
    def of(cls, log: DurableLog, table: Memtable) -> Self:
        keep = needed(log.live, log.checkpoint_index)
        runs = list(table.runs())
        return cls(log.number, log.name, table.wal, table.previous or 0, runs, table.indexes, keep)

    def entries(self) -> Entries:
        """The needed entries: usually all, and then they are not filtered."""
        if self.indexes <= self.needed:
            return joined(self.runs)
        chosen = (run.select(self.needed) for run in self.runs)
        return joined([run for run in chosen if len(run)])


@dataclass(eq=False)
class WalFlusher:
    """Flushes closed WAL files, one after another, oldest first."""

    _context: DiskContext
    _journal: Journal
    _queue: FlushQueue
    _spare: SpareWal
    _back_pressure: BackPressure
    _logs: Mapping[int, DurableLog]
    """The partitions by number. It changes as they are created and removed."""
    _on_flushed: Callable[[Iterable[DurableLog]], None]
    """Called with the partitions that may have new segments."""
    _tries: int = field(default=0, init=False)
    _failed_try: int = field(default=0, init=False)
    _tried: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when the current try ends, and then replaced."""
    _tasks: Tasks = field(default_factory=Tasks, init=False)
    _is_closed: bool = field(default=False, init=False)

    async def drain(self) -> None:
        """Wait until all closed WAL files are in segments. A failed flush is retried at once.

        Raises the failure of a try that began after the call.
        """
        queue, tries = self._queue, self._tries
        queue.wake.set()
        while queue:
            if self._is_closed:
                raise Closed("the disk was closed before everything was in segments")
            await self._tried.wait()
            if queue.failure is not None and queue and self._failed_try > tries:
                raise queue.failure.copy()

    async def close(self) -> None:
        """Wait for the current flush: a thread may be writing its files."""
        await self._tasks.end()
        self._is_closed = True
        self._end_try()

    async def run(self) -> None:
        queue, wait_s = self._queue, RETRY_S_FIRST
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s if queue else None):
                    await queue.wake.wait()
            queue.wake.clear()
            while queue:
                oldest = queue.oldest
                wal = oldest.file
                self._tries += 1
                try:
                    await self._tasks.run(self._flush(oldest))
                except Exception as error:  # noqa: BLE001 - the WAL has all entries: retry
                    queue.failure, self._failed_try = _as_ours(error), self._tries
                    if isinstance(queue.failure, Full):
                        self._make_room()
                    log.warning("%s is not flushed: %s", wal.path, queue.failure)
                    wait_s = min(wait_s * 2, RETRY_S_LONGEST)
                    self._end_try()
                    break
                queue.failure, wait_s = None, RETRY_S_FIRST
                queue.pop()
                self._back_pressure.grant()
                self._end_try()

    def _make_room(self) -> None:
        """On a full disk segments need the room of the spare."""
        spare = self._spare.take()
        if spare is not None:
            self._context.remove_files([spare])

    def _end_try(self) -> None:
        tried, self._tried = self._tried, asyncio.Event()
        tried.set()

    async def _flush(self, closed: ClosedWal) -> None:
        wal = closed.file
        began = self._context.meters.loop.time()
        tables = {
            number: table
            for number, log_ in self._logs.items()
            if (table := log_.table_of(wal.number)) is not None
        }
        sources = [_Source.of(self._logs[number], table) for number, table in tables.items()]
        paths: list[str] = []
        try:
            written = await in_thread(lambda: self._write(sources, paths))
        except OSError as error:
            self._context.remove_files(paths)
            raise typed(error, "writing segments", wal.path) from error

        def record(layout: Layout) -> Flushed:
            present = {each: tables[each] for each in tables if layout.find(each) is not None}
            return Flushed(wal.number, closed.next_batch, _parts(present, written))

        def applied(_: Edit) -> None:
            for number in tables:
                if number in self._logs:
                    self._logs[number].drop_table(wal.number)
            self._spare.offer(closed)
            self._back_pressure.release(wal.number)

        await self._journal.commit(record, creates=paths, then=applied)
        self._journal.remove_unnamed(paths)
        self._on_flushed(self._logs[number] for number in tables if number in self._logs)
        size = sum(file.size for _, file in written)
        self._context.meters.flush.add(self._context.meters.loop.time() - began, size)
        self._context.meters.flushed_entries += sum(file.entries for _, file in written)

    def _write(self, sources: Sequence[_Source], paths: list[str]) -> list[tuple[int, SegmentFile]]:
        """In a thread: write and sync the segments. ``paths`` gets the files that were begun."""
        options = self._context.options
        written = []
        for source in sources:
            previous = source.previous
            time_of = self._context.clock_of(source.name)
            for part in divided(
                source.entries(),
                options.segment_entries_max,
                options.segment_bytes_max,
            ):
                nonce = self._context.new_nonce()
                name = SegmentName(source.partition, source.wal, source.wal, nonce)
                paths.append(name.path)
                file = write_segment(self._context, name, previous, [part], time_of)
                written.append((source.partition, file))
                previous = part.last
        if written:
            self._context.files.sync_folder("seg")
        return written


def _parts(
    tables: Mapping[int, Memtable], written: Sequence[tuple[int, SegmentFile]]
) -> dict[int, FlushedPart]:
    """The record, by partition. Entries that were overwritten meanwhile are not valid."""
    parts = {}
    for number, table in tables.items():
        files = [
            file.with_valid(file.indexes & table.indexes) for at, file in written if at == number
        ]
        kept = tuple(file for file in files if file.indexes)
        if kept or table.cut_after is not None:
            parts[number] = FlushedPart(kept, table.cut_after)
    return parts


def _as_ours(error: Exception) -> StratalogError:
    if isinstance(error, StratalogError):
        return error
    return Unavailable(f"flushing failed: {error!r}", hint="This is a defect: please report it.")
