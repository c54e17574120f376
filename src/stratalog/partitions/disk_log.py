"""`DiskLog`: a partition of a topic on one node's disk.

    offset = index − 1: an entry is a batch, and spans as many indexes as the batch has records

An append judges the batch, numbers it, stamps it, and hands its memory to the disk; the disk says
when it is durable. There is no task and no copy for an append. Everything else that the log knows
is a function of its batches: a checkpoint carries it, and opening replays the batches above.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Self

from stratalog.errors import (
    Closed,
    Conflict,
    Corrupt,
    Invalid,
    NotFound,
    NotHappened,
    StratalogError,
    Trimmed,
)
from stratalog.indexset import EMPTY, IndexSet
from stratalog.partitions.batch import Batch, stamp_stored, write_base_offset
from stratalog.partitions.checkpoint_turns import CheckpointTurns
from stratalog.partitions.disk_state import VERSION, DiskState, LatestTime, UserState
from stratalog.partitions.in_flight import InFlight, as_duplicate
from stratalog.partitions.look_up_time import first_at_or_after, with_largest_time
from stratalog.partitions.producers import (
    DEFAULT_PRODUCER_LIMITS,
    ProducerLimits,
    Producers,
    ProducerState,
    Remembered,
)
from stratalog.partitions.protocol import Appended, Fetched, OutOfRange, TimedOffset
from stratalog.partitions.read_ahead import ReadAhead
from stratalog.partitions.stored_batches import StoredBatches, indexes_of
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.segments import Disk, Entries, MergeLimits, Partition

GRAIN_BYTES: Final = 1 << 20
"""How exactly the bytes in memory are known."""
EVERYTHING: Final = 1 << 62
MERGED_SHARE: Final = 8
"""Merging makes a segment of at most such a part of what retention keeps, by bytes and by time."""


class _InMemory:
    """The bytes of batches that may not be in segments yet."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sizes: deque[tuple[int, int]] = deque()
        """Last indexes, each with the bytes up to there."""

    def add(self, last: int, size: int) -> None:
        self.bytes += size
        if self._sizes and self._sizes[-1][1] < GRAIN_BYTES:
            size += self._sizes.pop()[1]
        self._sizes.append((last, size))

    def drop_up_to(self, index: int) -> None:
        while self._sizes and self._sizes[0][0] <= index:
            self.bytes -= self._sizes.popleft()[1]


class DiskLog:
    """A ``PartitionLog`` on a node's disk. It is the only writer of its disk partition."""

    def __init__(
        self,
        disk: Disk,
        partition: Partition,
        runtime: Runtime,
        turns: CheckpointTurns,
        ahead: ReadAhead,
        epoch: int,
        state: DiskState | None,
        producers: Producers,
    ) -> None:
        """Use ``open``."""
        self._disk = disk
        self._partition = partition
        self._runtime = runtime
        self._turns = turns
        self._epoch = epoch
        self._log_start = state.log_start if state else 0
        self._producers = producers
        self._latest = state.latest if state else None
        self._user = state.user if state else None
        self._end = self._high_watermark = partition.last
        self._epoch_start = _start_of(epoch, partition)
        self._time_us = state.time_us if state else 0
        """Of the newest batch. Append times never go back."""
        self._in_flight = InFlight()
        self._batches = StoredBatches(partition, ahead, self._must_cover)
        self._in_memory = _InMemory()
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._checkpointing = asyncio.Lock()
        self._is_closed = False
        self._stop_listening = partition.on_durable(self._durable)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        name: str,
        *,
        runtime: Runtime = DEFAULT_RUNTIME,
        turns: CheckpointTurns | None = None,
        ahead: ReadAhead | None = None,
        epoch: int | None = None,
        limits: ProducerLimits = DEFAULT_PRODUCER_LIMITS,
    ) -> Self:
        """Open the log of this name, or create it. Its disk was opened with ``time_of``.

        It goes on under the epoch of its last batch unless a newer one is given.
        """
        partition = await disk.partition(name)
        stored = await partition.state()
        state = None if stored is None else DiskState.from_bytes(stored, name)
        newest = max(partition.epoch, 1)
        if epoch is not None and epoch < newest:
            raise Invalid(f"{name!r} has batches of epoch {newest}", expected=newest, actual=epoch)
        turns = CheckpointTurns() if turns is None else turns
        ahead = ReadAhead() if ahead is None else ahead
        producers = _producers_of(state, limits)
        log = cls(disk, partition, runtime, turns, ahead, epoch or newest, state, producers)
        await log._replay()
        return log

    async def _replay(self) -> None:
        partition = self._partition
        segments = partition.segments()
        in_memory = partition.fetch((segments[-1][1] if segments else 0) + 1, EVERYTHING)
        if in_memory is not None and len(in_memory):
            self._in_memory.add(in_memory.last, in_memory.payload_bytes)
        above = range(partition.status().checkpoint + 1, partition.last + 1)
        if not above:
            return
        size = 0
        async for entries in partition.read(above):
            for index, payload in zip(indexes_of(entries), entries.payloads, strict=True):
                try:
                    batch = Batch.over(payload)
                except Corrupt as error:
                    raise Corrupt(f"entry {index} of {self.name!r}: {error}") from None
                self._time_us = max(self._time_us, batch.stored_time_us)
                self._producers.accept(batch, index - 1, batch.stored_time_us)
                self._note_time(batch.time_ms, index - 1, index - 1 + batch.count)
            self._producers.commit(entries.last)
            size += entries.payload_bytes
        self._turns.appended(self, size)  # not before: a checkpoint contains all of it

    @property
    def name(self) -> str:
        return self._partition.name

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

    # Appending

    def append(self, batch: Batch) -> asyncio.Future[Appended]:
        if self._is_closed:
            raise self._closed()
        now_us = self._runtime.now_us()
        if now_us < self._time_us:
            now_us = self._time_us
        original = self._producers.judge(batch, now_us)
        if original is not None:
            return self._repeated(original)
        data = batch.data
        if data.readonly:
            data = memoryview(bytearray(data))
        stamp_stored(data, now_us, self._epoch)
        base_offset = self._end
        entries = Entries.following(base_offset, self._epoch, (data.toreadonly(),), (batch.count,))
        try:
            written = self._partition.submit(base_offset, entries)
        except Conflict as error:  # what it would follow is about to fail
            self._producers.failed(batch, now_us)
            raise NotHappened(f"the batch before it was not written: {error}") from None
        except StratalogError:
            self._producers.failed(batch, now_us)
            write_base_offset(data, 0)  # as it came: it may be appended again
            raise
        written.add_done_callback(self._written)
        self._time_us = now_us
        self._end = next_offset = base_offset + batch.count
        self._producers.accept(batch, base_offset, now_us)
        appended = Appended(base_offset, now_us // 1000)
        return self._in_flight.add(written, appended, next_offset, batch.time_ms, len(data))

    def _repeated(self, original: Remembered) -> asyncio.Future[Appended]:
        if original.next_offset > self._high_watermark:
            return self._in_flight.repeat(original.next_offset)
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        answer.set_result(as_duplicate(Appended(original.base_offset, original.time_us // 1000)))
        return answer

    async def room(self) -> None:
        await self._disk.room()

    def _durable(self, last: int) -> None:
        """The disk has everything up to this index: the commit of a log on one node.

        A topic whose ``flush`` settings promise less would move the high watermark earlier, here.
        """
        size = 0
        self._high_watermark = last
        self._producers.commit(last)
        for done in self._in_flight.durable(last):
            size += done.size
            self._note_time(done.time_ms, done.appended.base_offset, done.next_offset)
        self._in_memory.add(last, size)
        self._tell()
        self._turns.appended(self, size)

    def _note_time(self, time_ms: int, base_offset: int, next_offset: int) -> None:
        if time_ms >= 0 and (self._latest is None or time_ms > self._latest.time_ms):
            self._latest = LatestTime(time_ms, base_offset, next_offset)

    def _written(self, written: asyncio.Future[IndexSet]) -> None:
        """When a write fails, the disk fails all writes that follow it, at once."""
        if written.cancelled() or (error := written.exception()) is None:
            return
        if self._in_flight.has(written):
            self._end = self._high_watermark
            self._producers.forget_in_flight()
            self._in_flight.fail(error)

    # Reading

    def fetch(self, offset: int, bytes_max: int) -> Fetched | None:
        if not self._has(offset):
            return Fetched((), 0, offset)
        return self._batches.at_hand(offset, bytes_max)

    async def fetch_stored(self, offset: int, bytes_max: int) -> Fetched:
        await self._batches.wait(offset)
        if not self._has(offset):
            return Fetched((), 0, offset)
        return await self._batches.read(offset, bytes_max)

    def _has(self, offset: int) -> bool:
        """False at the high watermark. An error outside of what can be read."""
        if self._is_closed:
            raise self._closed()
        if offset < self._log_start:
            raise self._trimmed(offset)
        if offset > self._high_watermark:
            raise OutOfRange(
                f"{self.name!r} ends at offset {self._high_watermark}, before {offset}",
                expected=offset,
                actual=self._high_watermark,
            )
        return offset < self._high_watermark

    def _must_cover(self, offset: int, entries: Entries) -> None:
        """``Trimmed`` if it was removed meanwhile."""
        if not len(entries) or entries.first > offset + 1:
            raise self._trimmed(offset)

    def on_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self._callbacks[key] = callback

        def stop() -> None:
            self._callbacks.pop(key, None)

        return stop

    def _tell(self) -> None:
        for callback in tuple(self._callbacks.values()):
            callback()

    # Times and epochs

    async def offset_for_time(self, time_ms: int) -> TimedOffset | None:
        first = self._partition.first_at(time_ms)
        if first is None:
            return None
        return await first_at_or_after(self, first - 1, time_ms, self._runtime)

    async def offset_of_latest_time(self) -> TimedOffset | None:
        latest = self._latest
        if latest is None:
            return None
        if latest.base_offset >= self._log_start:
            within = range(latest.base_offset, latest.next_offset)
        else:  # at least a part of it was removed
            within = range(self._log_start, self._high_watermark)
        return await with_largest_time(self, within, self._runtime)

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        if epoch > self._epoch:
            return None
        if epoch == self._epoch:
            return epoch, self._end
        end = self._epoch_start
        for index, began in reversed(self._partition.lineage.steps):
            if began <= epoch:
                return began, end
            end = min(end, index - 1)
        return epoch, end

    # What is kept

    @property
    def size(self) -> int:
        segments = self._partition.segments()
        self._in_memory.drop_up_to(segments[-1][1] if segments else 0)
        return sum(size for _, _, size, _ in segments) + self._in_memory.bytes

    async def delete_before(self, offset: int) -> int:
        if offset > self._high_watermark:
            raise OutOfRange(
                f"{self.name!r} ends at offset {self._high_watermark}, before {offset}",
                expected=offset,
                actual=self._high_watermark,
            )
        if offset > self._log_start:
            await self._checkpoint(log_start=offset)
        return self._log_start

    async def retain(self, *, bytes_max: int | None, time_min_ms: int | None) -> int:
        self._limit_merges(bytes_max, time_min_ms)
        size, start = self.size, self._log_start
        for _, last, segment_bytes, time_max in self._partition.segments():
            is_too_much = bytes_max is not None and size - segment_bytes >= bytes_max
            is_too_old = time_min_ms is not None and time_max is not None and time_max < time_min_ms
            if not is_too_much and not is_too_old:
                break
            size -= segment_bytes
            start = max(start, last)
        return await self.delete_before(min(start, self._high_watermark))

    def _limit_merges(self, bytes_max: int | None, time_min_ms: int | None) -> None:
        """A segment goes as a whole: a coarse one would stay too long, or take too much along."""
        age_ms = None if time_min_ms is None else self._runtime.now_us() // 1000 - time_min_ms
        self._partition.merge_limits = MergeLimits(
            bytes_max=None if bytes_max is None else bytes_max // MERGED_SHARE,
            time_max=None if age_ms is None else max(age_ms, 0) // MERGED_SHARE,
        )

    async def snapshot(self, offset: int, state: bytes) -> None:
        if not self._log_start <= offset <= self._high_watermark:
            raise Invalid(
                f"a snapshot at offset {offset} of a log from {self._log_start} "
                f"to {self._high_watermark}",
                hint="A snapshot contains what is committed.",
            )
        await self._checkpoint(log_start=offset, user=UserState(offset, state))

    async def state(self) -> tuple[int, bytes] | None:
        return None if self._user is None else (self._user.offset, self._user.state)

    def producers(self) -> Sequence[ProducerState]:
        return tuple(self._producers)

    # Checkpoints

    async def take_checkpoint(self) -> None:
        """A checkpoint of what is durable now, for ``CheckpointTurns``."""
        await self._checkpoint()

    async def _checkpoint(
        self, *, log_start: int | None = None, user: UserState | None = None
    ) -> None:
        """The log start and the user's state count when the checkpoint is durable.

        A cancelled caller does not stop it, so that they count then too: the disk does not take a
        checkpoint that begins before the one that it has.
        """
        taking = asyncio.ensure_future(self._take(log_start, user))
        taking.add_done_callback(_looked_at)
        await asyncio.shield(taking)

    async def _take(self, log_start: int | None, user: UserState | None) -> None:
        async with self._checkpointing:
            index = self._high_watermark
            if index == 0:
                return
            start = max(self._log_start, log_start or 0)
            kept = user or self._user
            state = DiskState(
                VERSION, start, self._producers.snapshot(), self._latest, kept, self._time_us
            ).to_bytes()
            live = IndexSet(range(start + 1, index + 1)) if start < index else EMPTY
            self._turns.taken(self)
            await self._partition.checkpoint(index, state, live)
            self._user = kept
            if start > self._log_start:
                self._log_start = start
                self._tell()

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._batches.close()
        await self._in_flight.settled()
        await self._turns.leave(self)
        try:
            if self._partition.status().checkpoint < self._high_watermark:
                await self._checkpoint()
        except NotFound:
            pass  # it was removed
        finally:
            self._stop_listening()

    def _closed(self) -> Closed:
        return Closed(f"the log {self.name!r} was closed")

    def _trimmed(self, offset: int) -> Trimmed:
        return Trimmed(
            f"offset {offset} of {self.name!r} was removed", first_offset=self._log_start
        )


def _producers_of(state: DiskState | None, limits: ProducerLimits) -> Producers:
    many, expiry_us = limits.producers_max, limits.expiry_us
    if state is None:
        return Producers(producers_max=many, expiry_us=expiry_us)
    return Producers.restored(state.producers, producers_max=many, expiry_us=expiry_us)


def _looked_at(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # whoever gave up waiting does not want it


def _start_of(epoch: int, partition: Partition) -> int:
    """The first offset of the newest epoch."""
    steps = partition.lineage.steps
    return steps[-1][0] - 1 if steps and steps[-1][1] == epoch else partition.last
