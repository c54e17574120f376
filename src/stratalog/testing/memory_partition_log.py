"""`MemoryPartitionLog`: the reference of what a partition log does, and one for tests of users.

It commits an append in the next turn of the event loop, or when a test says so: ``hold`` keeps what
is appended in flight, until ``let_go`` or ``fail``. Each batch is a segment of its own.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stratalog.errors import Closed, Full, Invalid, StratalogError, Trimmed
from stratalog.partitions import (
    Appended,
    Batch,
    Fetched,
    OutOfRange,
    Producers,
    ProducerState,
    TimedOffset,
    first_at_or_after,
    with_largest_time,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime


@dataclass(eq=False, slots=True)
class _Kept:
    """A batch with its place in the log, and who waits for it."""

    batch: Batch
    base_offset: int
    time_us: int
    epoch: int
    waiting: list[tuple[asyncio.Future[Appended], bool]]
    """Each with whether it is a duplicate."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.batch.count

    def to_bytes(self) -> bytes:
        data = bytes(self.batch.data)
        offset, epoch = self.base_offset.to_bytes(8), self.epoch.to_bytes(4)
        return offset + data[8:12] + epoch + data[16:]


class MemoryPartitionLog:
    """A ``PartitionLog`` in memory."""

    def __init__(
        self,
        *,
        runtime: Runtime = DEFAULT_RUNTIME,
        epoch: int = 1,
        uncommitted_max: int = 1000,
    ) -> None:
        self._runtime = runtime
        self._epoch = epoch
        self._uncommitted_max = uncommitted_max
        self._kept: list[_Kept] = []
        self._log_start = self._high_watermark = self._end = 0
        self._producers = Producers()
        self._user: tuple[int, bytes] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._is_held = False
        self._is_closed = False
        self._time_us = 0
        self._less = asyncio.Event()
        """Set when fewer are in flight."""

    def after_crash(self, *, epoch: int | None = None) -> "MemoryPartitionLog":
        """What the next process opens: all that is committed, and nothing else."""
        opened = MemoryPartitionLog(
            runtime=self._runtime, epoch=epoch or self._epoch, uncommitted_max=self._uncommitted_max
        )
        opened._kept = [each for each in self._kept if each.next_offset <= self._high_watermark]
        opened._log_start, opened._user = self._log_start, self._user
        opened._high_watermark = opened._end = self._high_watermark
        opened._producers = Producers.restored(self._producers.snapshot())
        opened._time_us = max((each.time_us for each in opened._kept), default=0)
        return opened

    # For tests

    def hold(self) -> None:
        """From now on nothing is committed."""
        self._is_held = True

    def let_go(self) -> None:
        """Commit what is in flight, and from now on what comes."""
        self._is_held = False
        self._commit()

    def fail(self, error: StratalogError) -> None:
        """What is in flight fails."""
        failed = self._in_flight()
        self._kept = self._kept[: len(self._kept) - len(failed)]
        self._end = self._high_watermark
        self._producers.forget_in_flight()
        self._less.set()
        for each in failed:
            for answer, _ in each.waiting:
                if not answer.done():
                    answer.set_exception(error.copy())
                    answer.exception()

    def _in_flight(self) -> list[_Kept]:
        place = bisect_right(self._kept, self._high_watermark, key=lambda each: each.next_offset)
        return self._kept[place:]

    def _commit(self) -> None:
        in_flight = self._in_flight()
        if self._is_held or not in_flight:
            return
        self._high_watermark = self._end
        self._producers.commit(self._end)
        self._less.set()
        for each in in_flight:
            for answer, is_duplicate in each.waiting:
                if not answer.done():
                    answer.set_result(_appended(each, is_duplicate=is_duplicate))
            each.waiting.clear()
        self._tell()

    # The protocol

    @property
    def log_start(self) -> int:
        return self._log_start

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def end(self) -> int:
        return self._end

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def size(self) -> int:
        return sum(len(each.batch.data) for each in self._kept)

    def append(self, batch: Batch) -> asyncio.Future[Appended]:
        self._must_be_open()
        now_us = self._time_us = max(self._runtime.now_us(), self._time_us)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Appended] = loop.create_future()
        original = self._producers.judge(batch, now_us)
        if original is not None:
            if original.next_offset <= self._high_watermark:
                found = Appended(original.base_offset, original.time_us // 1000, is_duplicate=True)
                answer.set_result(found)
            else:
                kept = next(each for each in self._kept if each.base_offset == original.base_offset)
                kept.waiting.append((answer, True))
            return answer
        if len(self._in_flight()) >= self._uncommitted_max:
            raise Full("too many batches are in flight", hint="Wait with `await log.room()`.")
        kept = _Kept(batch, self._end, now_us, self._epoch, [(answer, False)])
        self._producers.accept(batch, self._end, now_us)
        self._kept.append(kept)
        self._end = kept.next_offset
        loop.call_soon(self._commit)
        return answer

    async def room(self) -> None:
        while len(self._in_flight()) >= self._uncommitted_max:
            self._less.clear()
            await self._less.wait()

    def fetch(self, offset: int, bytes_max: int) -> Fetched | None:
        self._must_be_open()
        if offset < self._log_start:
            raise Trimmed(f"offset {offset} was removed", first_offset=self._log_start)
        if offset > self._high_watermark:
            raise OutOfRange(
                f"the log ends at offset {self._high_watermark}, before {offset}",
                expected=offset,
                actual=self._high_watermark,
            )
        parts: list[bytes] = []
        size, next_offset = 0, offset
        place = bisect_right(self._kept, offset, key=lambda each: each.next_offset)
        for kept in self._kept[place:]:
            if kept.next_offset > self._high_watermark:
                break
            if parts and size + len(kept.batch.data) > bytes_max:
                break
            parts.append(kept.to_bytes())
            size += len(parts[-1])
            next_offset = kept.next_offset
        return Fetched(parts, size, next_offset)

    async def fetch_stored(self, offset: int, bytes_max: int) -> Fetched:
        fetched = self.fetch(offset, bytes_max)
        assert fetched is not None
        return fetched

    def on_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._callbacks.append(callback)

        def stop() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return stop

    def _tell(self) -> None:
        for callback in list(self._callbacks):
            callback()

    async def offset_for_time(self, time_ms: int) -> TimedOffset | None:
        return await first_at_or_after(self, self._log_start, time_ms, self._runtime)

    async def offset_of_latest_time(self) -> TimedOffset | None:
        within = range(self._log_start, self._high_watermark)
        return await with_largest_time(self, within, self._runtime)

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        if epoch > self._epoch:
            return None
        if epoch == self._epoch:
            return epoch, self._end
        newer = next((each.base_offset for each in self._kept if each.epoch > epoch), self._end)
        return max((each.epoch for each in self._kept if each.epoch <= epoch), default=epoch), newer

    async def delete_before(self, offset: int) -> int:
        self._must_be_open()
        if offset > self._high_watermark:
            raise OutOfRange(
                f"the log ends at offset {self._high_watermark}, before {offset}",
                expected=offset,
                actual=self._high_watermark,
            )
        if offset > self._log_start:
            self._log_start = offset
            self._kept = [each for each in self._kept if each.next_offset > offset]
            self._tell()
        return self._log_start

    async def retain(self, *, bytes_max: int | None, time_min_ms: int | None) -> int:
        size, start = self.size, self._log_start
        for each in self._kept:
            if each.next_offset > self._high_watermark:
                break
            batch_bytes = len(each.batch.data)
            is_too_much = bytes_max is not None and size - batch_bytes >= bytes_max
            time_ms = each.batch.time_ms
            is_too_old = time_min_ms is not None and 0 <= time_ms < time_min_ms
            if not is_too_much and not is_too_old:
                break
            size -= batch_bytes
            start = max(start, each.next_offset)
        return await self.delete_before(start)

    def producers(self) -> Sequence[ProducerState]:
        return tuple(self._producers)

    async def snapshot(self, offset: int, state: bytes) -> None:
        if not self._log_start <= offset <= self._high_watermark:
            raise Invalid(f"nothing is committed up to offset {offset}")
        self._user = (offset, state)
        await self.delete_before(offset)

    async def state(self) -> tuple[int, bytes] | None:
        return self._user

    async def close(self) -> None:
        self._commit()
        self._is_closed = True

    def _must_be_open(self) -> None:
        if self._is_closed:
            raise Closed("this log was closed")


def _appended(kept: _Kept, *, is_duplicate: bool) -> Appended:
    return Appended(kept.base_offset, kept.time_us // 1000, is_duplicate=is_duplicate)
