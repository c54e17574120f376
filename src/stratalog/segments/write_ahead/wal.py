"""The write-ahead log of a node: one file, one batch, one sync for all partitions.

This is group commit: writes that arrive during the sync of one batch form the next batch. A thread
writes batch after batch while there is something to write, so it does not wait for the event loop
to acknowledge the batch before.

**If a write fails**, its batch did not happen, because it has no end. **If a sync fails**, the
kernel may have dropped the pages, and a second sync would report success: the batch is written
again to a new file. If that fails too, the result is ``Unknown``. After any failure the file is
closed for good, and the head of the next one says which batch it begins with.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stratalog.errors import NotHappened, StratalogError, Unknown
from stratalog.indexset import IndexSet
from stratalog.segments.context import DiskContext
from stratalog.segments.format import Entries, Section, batch_parts
from stratalog.segments.io import NotWritten, in_sync_thread, typed
from stratalog.segments.write_ahead.flush_queue import ClosedWal, FlushQueue
from stratalog.segments.write_ahead.journal import Journal
from stratalog.segments.write_ahead.next_wal import NextWal, OpenWal
from stratalog.segments.write_ahead.spare_wal import SpareWal
from stratalog.segments.write_ahead.wal_back_pressure import BackPressure


@dataclass(eq=False, slots=True)
class Write:
    """Sections on their way to the disk, and the future of their writer.

    They become durable together or not at all: a write is never divided over two batches.
    """

    sections: tuple[Section, ...]
    bytes: int
    answer: asyncio.Future[IndexSet] | asyncio.Future[None]

    def acknowledge(self) -> None:
        """It is durable."""
        raise NotImplementedError

    def refuse(self, error: StratalogError) -> None:
        """Raise an error at its writer."""
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # the caller may be cancelled: retrieve it


@dataclass(eq=False, slots=True)
class PartitionWrite(Write):
    """A write of one partition."""

    answer: asyncio.Future[IndexSet]
    acknowledges: Entries
    """What the writer is told that it has written."""

    def acknowledge(self) -> None:
        if not self.answer.done():
            self.answer.set_result(self.acknowledges.indexes)


@dataclass(eq=False, slots=True)
class GroupWrite(Write):
    """A write of several partitions."""

    answer: asyncio.Future[None]

    def acknowledge(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


@dataclass(frozen=True, slots=True)
class _Stopped:
    """Why the thread returned: the queue is empty, the file is full, or a batch failed."""

    failed: list[Write] = field(default_factory=list)
    error: OSError | None = None
    may_be_there: bool = False


class Wal:
    """Makes writes durable in batches, in their order."""

    def __init__(
        self,
        context: DiskContext,
        journal: Journal,
        flush_queue: FlushQueue,
        spare: SpareWal,
        *,
        on_durable: Callable[[int, list[Write]], None],
        on_failed: Callable[[list[Write]], None],
    ) -> None:
        """``on_durable`` gets the number of the WAL file and the writes of a batch, ``on_failed``
        the writes that failed. Both run in the event loop, before the writers get their results.
        """
        self._context = context
        self._options = context.options
        self._meters = context.meters
        self._loop = context.meters.loop
        self._journal = journal
        self._flush_queue = flush_queue
        self._next = NextWal(context, journal, flush_queue, spare)
        self._on_durable = on_durable
        self._on_failed = on_failed
        self.back_pressure = BackPressure(context.options, flush_queue)
        self.next_batch = 1
        self._current: OpenWal | None = None
        self._batch: list[Write] = []
        """What the thread is writing."""
        self._is_in_doubt = False
        """The last batch of the last file may be durable, but its writers got ``Unknown``."""
        self._has_failed = False
        """A write to the last file has failed: the head of the next one says where it begins."""
        self._queue: deque[Write] = deque()
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._idle = asyncio.Event()
        self._idle.set()
        self.failure: StratalogError | None = None
        """Why the last write failed, if it did."""

    # For writers

    def put(self, write: Write) -> None:
        """Queue a write for which ``back_pressure`` has made room."""
        self._queue.append(write)
        self._idle.clear()
        self._wake.set()

    async def drain(self) -> None:
        """Wait until nothing is queued."""
        await self._idle.wait()

    # The writing

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                async with self._writing:
                    await self._write_all()
            except Exception as error:
                self._give_up(error)
                raise
            if not self._queue:
                self._idle.set()

    async def settle(self) -> None:
        """If a batch is in doubt, begin the next file, whose head says that it does not count.

        A record must not rest on entries that such a batch would overwrite. A batch that is being
        written overwrites none of them (``Partition.keeping``), so it is not waited for.
        """
        if self._is_in_doubt:
            async with self._writing:
                await self._void_doubtful()

    async def _void_doubtful(self) -> None:
        if self._is_in_doubt and self._current is None:
            await self._open_next()

    def _give_up(self, error: Exception) -> None:
        """After a defect: fail all writes, so that no writer waits for ever."""
        batch, self._batch = self._batch, []
        unknown = Unknown(
            f"the WAL has stopped: {error!r}",
            hint="Close the disk and open it again, then see which entries it has.",
        )
        self._fail(batch, unknown)
        self._fail(self._take_everything(), _before_it_failed(unknown))
        self._idle.set()

    async def end_file(self) -> None:
        """Close the file, so that it is flushed. The next write begins another."""
        async with self._writing:
            self._close_current()

    async def close(self) -> list[ClosedWal] | None:
        """Writes that wait for room are let in, and find the disk closed.

        Gives the files that are not flushed, unless a batch is in doubt.
        """
        self.back_pressure.close()
        if self._current is not None:
            self._close_current()
        prepared = await self._next.close(self.next_batch)
        left = [*self._flush_queue, *([prepared] if prepared else [])]
        return None if self._is_in_doubt else left

    async def _write_all(self) -> None:
        while self._queue:
            try:
                if self._journal.is_in_doubt:
                    await self._journal.settle()
                if self._current is None:
                    await self._open_next()
            except StratalogError as error:
                self._fail(self._take_everything(), _before_it_failed(error))
                return
            stopped = await in_sync_thread(self._write_batches)
            if stopped.error is not None:
                await self._recover(stopped)
            elif self._current is not None and self._is_full(self._current):
                self._close_current()

    def _write_batches(self) -> _Stopped:
        """In a thread: write batches until the queue is empty or the file is full."""
        current, loop = self._current, self._loop
        assert current is not None
        while self._queue and not self._is_full(current) and not self._journal.is_in_doubt:
            writes = self._batch = self._next_batch_of_queue()
            stopped = self._write_one(current, writes)
            self._batch = []
            if stopped is not None:
                return stopped
            loop.call_soon_threadsafe(self._durable, current.wal.number, writes)
        return _Stopped()

    def _write_one(self, current: OpenWal, writes: list[Write]) -> _Stopped | None:
        sections = [section for write in writes for section in write.sections]
        parts = batch_parts(current.nonce, self.next_batch, sections)
        began = self._loop.time()
        stopped: _Stopped | None = None
        size = 0
        try:
            size = current.file.write_durably(current.position, *parts)
        except NotWritten as failed:
            stopped = _Stopped(writes, failed.error)
            current.has_failed = True
        except OSError as error:
            stopped = _Stopped(writes, error, may_be_there=True)
            current.has_failed = True
        else:
            current.position += size
            self.next_batch += 1
        self._meters.sync.add(self._loop.time() - began, size, failed=stopped is not None)
        return stopped

    def _next_batch_of_queue(self) -> list[Write]:
        writes = [self._queue.popleft()]
        size = writes[0].bytes
        while self._queue and size + self._queue[0].bytes <= self._options.batch_bytes_max:
            writes.append(self._queue.popleft())
            size += writes[-1].bytes
        return writes

    async def _recover(self, stopped: _Stopped) -> None:
        """Close the file. A batch that may be in it is written again to a new one."""
        assert stopped.error is not None
        path = self._current.wal.path if self._current else None
        error: StratalogError = typed(stopped.error, "writing to the WAL", path)
        self._close_current()
        self._has_failed = True
        if stopped.may_be_there:
            self._is_in_doubt = True
            if await self._written_again(stopped.failed):
                return
        if self._is_in_doubt:
            error = Unknown(
                f"{error}: the entries may or may not be in the file",
                hint="Check the disk. Open the node again and see which entries it has.",
                path=error.path,
            )
        self._fail(stopped.failed, error)

    async def _written_again(self, writes: list[Write]) -> bool:
        with contextlib.suppress(StratalogError):
            await self._open_next()
        current = self._current
        if current is None:
            return False
        stopped = await in_sync_thread(lambda: self._write_one(current, writes))
        if stopped is not None:
            self._is_in_doubt, self._has_failed = stopped.may_be_there, True
            self._close_current()
            return False
        self._durable(current.wal.number, writes)
        return True

    def _durable(self, wal: int, writes: list[Write]) -> None:
        """In the event loop: acknowledge the writes of a batch."""
        self.failure = None
        self._on_durable(wal, writes)
        for write in writes:
            for section in write.sections:
                self._meters.entries += len(section.entries)
            write.acknowledge()
        self.back_pressure.give_back(sum(write.bytes for write in writes))
        if self._current is not None:
            self._next.prepare_if_due(self._current)

    def _fail(self, writes: list[Write], error: StratalogError) -> None:
        """Refuse writes that failed or are in doubt, and the queued writes that follow them."""
        if not writes:
            return
        self.failure = error
        failed = _partitions_with(writes, self._queue)
        followers = [write for write in self._queue if _is_of(write, failed)]
        self._queue = deque(write for write in self._queue if not _is_of(write, failed))
        self._on_failed([*writes, *followers])
        for write in writes:
            write.refuse(error.copy())
        for write in followers:
            write.refuse(_before_it_failed(error))
        self.back_pressure.give_back(sum(write.bytes for write in [*writes, *followers]))

    def _take_everything(self) -> list[Write]:
        writes = list(self._queue)
        self._queue.clear()
        return writes

    # Files

    async def _open_next(self) -> None:
        """Begin the next file: the one that was prepared, unless a write has failed."""
        take = self._next.take_new if self._has_failed else self._next.take
        self._current = await take(self.next_batch)
        self._is_in_doubt = self._has_failed = False

    def _close_current(self) -> None:
        if self._current is None:
            return
        closed, self._current = self._current, None
        closed.file.close()
        self._flush_queue.put(closed.closed(self.next_batch))

    def _is_full(self, current: OpenWal) -> bool:
        return current.position >= self._options.wal_file_bytes


def _is_of(write: Write, partitions: set[int]) -> bool:
    return any(section.partition in partitions for section in write.sections)


def _partitions_with(failed: Iterable[Write], queue: Iterable[Write]) -> set[int]:
    """The partitions of failed writes, and those that queued writes of several tie to them."""
    found = {section.partition for write in failed for section in write.sections}
    groups = [write for write in queue if len(write.sections) > 1]
    while tied := [write for write in groups if _is_of(write, found)]:
        found.update(section.partition for write in tied for section in write.sections)
        groups = [write for write in groups if write not in tied]
    return found


def _before_it_failed(error: StratalogError) -> StratalogError:
    """The error of a write whose predecessor failed: it was never sent, so it did not happen."""
    if isinstance(error, Unknown):
        return NotHappened(f"the write before it failed: {error}", path=error.path)
    return error.copy()
