"""What every partition log must do, as tests that any implementation can inherit.

    class TestMyPartitionLog(PartitionLogConformance):
        async def make_log(self, runtime: Runtime) -> PartitionLog:
            return MyPartitionLog(...)                 # fresh and empty

        async def after_crash(self, log: PartitionLog, runtime: Runtime) -> PartitionLog:
            return ...                                 # what opens after its process was killed

Each test is a statement about ``stratalog.partitions.PartitionLog`` and runs its own event loop.
Set ``segment_batches`` to how many batches at most stay when retention drops all that it can.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

import pytest

from stratalog.errors import Closed, Invalid, Trimmed
from stratalog.partitions import (
    DEFAULT_LIMITS,
    Appended,
    Batch,
    Codec,
    Fetched,
    NewRecord,
    OutOfRange,
    PartitionLog,
    ProducerFault,
    RefusedProducer,
    batches_in,
    check_batch,
    decode_records,
    encode_batch,
)
from stratalog.runtime import Runtime

NOW_MS = 1_700_000_000_000
EVERYTHING = 1 << 30


class SetClock(Runtime):
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def now_us(self) -> int:
        return self.now_ms * 1000


def produced(
    values: Sequence[bytes],
    *,
    times: Sequence[int] | None = None,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> Batch:
    """A batch as it comes from a client. ``producer``: id, epoch, first sequence number."""
    stamps = [NOW_MS + place for place in range(len(values))] if times is None else times
    records = [NewRecord(None, value, time) for value, time in zip(values, stamps, strict=True)]
    producer_id, epoch, sequence = producer
    data = encode_batch(
        records, codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    return check_batch(data, DEFAULT_LIMITS, NOW_MS)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def fetched(log: PartitionLog, offset: int, bytes_max: int = EVERYTHING) -> Fetched:
    """From memory or from wherever it is."""
    found = log.fetch(offset, bytes_max)
    return await log.fetch_stored(offset, bytes_max) if found is None else found


async def read(log: PartitionLog, offset: int | None = None) -> dict[int, bytes]:
    """All values from an offset on, by their offsets."""
    at = log.log_start if offset is None else offset
    values: dict[int, bytes] = {}
    while at < log.high_watermark:
        found = await fetched(log, at)
        for batch in batches_in(found.parts):
            check_batch(_as_sent(batch), DEFAULT_LIMITS, NOW_MS)
            for record in decode_records(batch, batch.base_offset):
                if record.offset >= at:
                    values[record.offset] = record.value or b""
        assert found.next_offset > at
        at = found.next_offset
    return values


def _as_sent(batch: Batch) -> bytes:
    """With the base offset that a producer writes. All else is as it came."""
    return bytes(8) + bytes(batch.data)[8:]


Scenario = Callable[[PartitionLog, SetClock], Awaitable[None]]


class PartitionLogConformance(ABC):
    """Inherit, and say how to make a log."""

    timeout_s: ClassVar[float] = 60.0
    segment_batches: ClassVar[int] = 1

    @abstractmethod
    async def make_log(self, runtime: Runtime) -> PartitionLog:
        """A fresh, empty log, under epoch 1."""

    @abstractmethod
    async def after_crash(self, log: PartitionLog, runtime: Runtime) -> PartitionLog:
        """What the next process opens when that of a log was killed just now."""

    async def settle(self, log: PartitionLog) -> None:  # noqa: B027 - only some need it
        """Let retention see all that was appended, where it looks at closed segments only."""

    async def release(self) -> None:  # noqa: B027 - only some need it
        """Close everything that was opened."""

    def run(self, scenario: Scenario) -> None:
        async def main() -> None:
            clock = SetClock()
            try:
                async with asyncio.timeout(self.timeout_s):
                    await scenario(await self.make_log(clock), clock)
            finally:
                await self.release()

        asyncio.run(main())

    # Appending

    def test_offsets_are_dense_and_begin_with_0(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            assert (log.log_start, log.high_watermark, log.end) == (0, 0, 0)
            offset = 0
            for count in (1, 3, 1, 100, 2):
                appended = await log.append(produced(numbered(count, offset)))
                assert appended == Appended(offset, NOW_MS)
                offset += count
                assert (log.high_watermark, log.end) == (offset, offset)
            assert await read(log) == dict(enumerate(numbered(offset)))

        self.run(scenario)

    def test_appends_in_flight_together_are_in_the_order_of_the_calls(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            answers = [log.append(produced(numbered(2, 2 * place))) for place in range(200)]
            assert log.end == 400
            offsets = [(await answer).base_offset for answer in answers]
            assert offsets == list(range(0, 400, 2))
            assert await read(log) == dict(enumerate(numbered(400)))

        self.run(scenario)

    def test_an_append_is_not_done_when_it_returns_and_is_not_yet_read(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            answer = log.append(produced([b"a"]))
            assert not answer.done()
            assert (log.high_watermark, log.end) == (0, 1)
            nothing = await fetched(log, 0)
            assert (nothing.size, nothing.next_offset) == (0, 0)
            await answer
            assert log.high_watermark == 1

        self.run(scenario)

    def test_whoever_stops_waiting_does_not_stop_the_append(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            log.append(produced([b"a"])).cancel()
            await log.append(produced([b"b"]))
            assert await read(log) == {0: b"a", 1: b"b"}

        self.run(scenario)

    def test_the_append_time_is_the_clocks_and_never_goes_back(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            times = []
            for now_ms in (NOW_MS + 5, NOW_MS, NOW_MS + 9):
                clock.now_ms = now_ms
                times.append((await log.append(produced([b"a"]))).append_time_ms)
            assert times == [NOW_MS + 5, NOW_MS + 5, NOW_MS + 9]

        self.run(scenario)

    @pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
    def test_a_batch_comes_back_as_it_was_but_for_offset_and_epoch(self, codec: Codec) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            sent = [produced(numbered(count), codec=codec) for count in (3, 500, 1)]
            as_sent = [bytes(batch.data) for batch in sent]
            for batch in sent:
                await log.append(batch)
            found: list[Batch] = []
            while len(found) < len(sent):  # a fetch may end where a segment does
                offset = found[-1].base_offset + found[-1].count if found else 0
                found += batches_in((await fetched(log, offset)).parts)
            assert [batch.base_offset for batch in found] == [0, 3, 503]
            assert [batch.leader_epoch for batch in found] == [log.epoch] * 3
            for batch, before in zip(found, as_sent, strict=True):
                assert bytes(batch.data)[8:12] == before[8:12]
                assert bytes(batch.data)[16:] == before[16:]

        self.run(scenario)

    def test_large_and_small_batches_come_back_side_by_side(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            values = [b"s", b"L" * 20_000, b"s", b"s", b"L" * 70_000, b"s"]
            for value in values:
                await log.append(produced([value]))
            for _round in range(2):  # what was fetched is not changed by fetching
                assert await read(log) == dict(enumerate(values))
                found = await fetched(log, 0)
                assert found.size == sum(map(len, found.parts))
                offsets = [batch.base_offset for batch in batches_in(found.parts)]
                assert offsets == list(range(found.next_offset))

        self.run(scenario)

    # Fetching

    def test_a_fetch_begins_with_the_batch_that_covers_its_offset(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            for first in (0, 3, 6):
                await log.append(produced(numbered(3, first)))
            for offset in range(9):
                found = await fetched(log, offset, 1)
                (batch,) = batches_in(found.parts)
                assert batch.base_offset == offset // 3 * 3
                assert found.next_offset == batch.base_offset + 3

        self.run(scenario)

    def test_a_fetch_has_no_more_batches_than_there_is_room_for_but_at_least_one(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            for _round in range(5):
                await log.append(produced([b"x" * 100]))
            size = (await fetched(log, 0, 1)).size
            for bytes_max, count in ((0, 1), (1, 1), (size, 1), (2 * size, 2), (3 * size - 1, 2)):
                found = await fetched(log, 1, bytes_max)
                assert 2 <= found.next_offset <= 1 + count
                in_memory = log.fetch(1, bytes_max)
                assert in_memory is None or in_memory.next_offset == 1 + count

        self.run(scenario)

    def test_at_the_end_there_is_nothing_and_beyond_it_is_out_of_range(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            await log.append(produced(numbered(3)))
            nothing = await fetched(log, 3)
            assert (list(nothing.parts), nothing.size, nothing.next_offset) == ([], 0, 3)
            for offset in (4, 1 << 40):
                with pytest.raises(OutOfRange) as caught:
                    log.fetch(offset, 100)
                assert caught.value.actual == 3
                with pytest.raises(OutOfRange):
                    await log.fetch_stored(offset, 100)

        self.run(scenario)

    def test_listeners_hear_of_commits_until_they_stop(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            heard: list[int] = []
            stop = log.on_commit(lambda: heard.append(log.high_watermark))
            await log.append(produced([b"a"]))
            await log.append(produced([b"b"]))
            assert heard[-1] == 2
            await log.delete_before(1)
            count = len(heard)
            assert count >= 3
            stop()
            stop()
            await log.append(produced([b"c"]))
            assert len(heard) == count

        self.run(scenario)

    # Producers

    def test_a_duplicate_has_the_offset_of_its_original_and_is_written_once(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            await log.append(produced([b"other"]))
            for sequence in range(5):
                await log.append(produced([b"a"], producer=(7, 0, sequence)))
            clock.now_ms += 10
            for sequence in range(5):
                again = await log.append(produced([b"a"], producer=(7, 0, sequence)))
                assert again == Appended(1 + sequence, NOW_MS, is_duplicate=True)
            assert log.end == 6

        self.run(scenario)

    def test_a_duplicate_is_not_answered_before_its_original_is_durable(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            order: list[str] = []
            original = log.append(produced([b"a"], producer=(7, 0, 0)))
            duplicate = log.append(produced([b"a"], producer=(7, 0, 0)))
            assert not duplicate.done()
            original.add_done_callback(lambda _: order.append("original"))
            duplicate.add_done_callback(lambda _: order.append("duplicate"))
            assert (await duplicate).is_duplicate
            assert not (await original).is_duplicate
            assert log.high_watermark == 1
            assert order[0] == "original"

        self.run(scenario)

    def test_a_producer_that_skips_or_is_fenced_is_refused_and_changes_nothing(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            await log.append(produced(numbered(3), producer=(7, 1, 0)))
            epoch, order = (
                ProducerFault.INVALID_PRODUCER_EPOCH,
                ProducerFault.OUT_OF_ORDER_SEQUENCE_NUMBER,
            )
            for producer, fault in (
                ((7, 1, 4), order),
                ((7, 1, 1), order),
                ((7, 0, 3), epoch),
                ((7, 2, 3), order),
            ):
                with pytest.raises(RefusedProducer) as caught:
                    log.append(produced([b"x"], producer=producer))
                assert caught.value.fault == fault
            await log.append(produced([b"3"], producer=(7, 1, 3)))
            await log.append(produced([b"4"], producer=(7, 2, 0)))
            assert await read(log) == dict(enumerate(numbered(5)))
            (known,) = log.producers()
            assert (known.producer_id, known.epoch, known.last_sequence) == (7, 2, 0)

        self.run(scenario)

    def test_producers_are_remembered_over_a_crash(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            for sequence in range(6):
                await log.append(produced([b"a"], producer=(7, 0, sequence)))
            await log.append(produced([b"b"], producer=(8, 3, 10)))
            await log.delete_before(4)
            known = list(log.producers())
            log = await self.after_crash(log, clock)
            assert list(log.producers()) == known
            again = await log.append(produced([b"a"], producer=(7, 0, 5)))
            assert (again.base_offset, again.is_duplicate) == (5, True)
            with pytest.raises(RefusedProducer):
                log.append(produced([b"a"], producer=(7, 0, 7)))
            assert (await log.append(produced([b"a"], producer=(7, 0, 6)))).base_offset == 7

        self.run(scenario)

    # Times and epochs

    def test_an_offset_is_found_by_its_time(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            for times in ([100, 110, 105], [90, 95], [200, 150, 210], [-1]):
                await log.append(produced([b"x"] * len(times), times=times))
            expected = {0: 0, 100: 0, 101: 1, 110: 1, 111: 5, 200: 5, 201: 7, 210: 7}
            for time_ms, offset in expected.items():
                found = await log.offset_for_time(time_ms)
                assert found is not None
                assert (time_ms, found.offset) == (time_ms, offset)
                assert found.time_ms >= time_ms
                assert found.epoch == log.epoch
            assert await log.offset_for_time(211) is None
            latest = await log.offset_of_latest_time()
            assert latest is not None
            assert (latest.offset, latest.time_ms) == (7, 210)
            await log.delete_before(6)
            found = await log.offset_for_time(100)
            assert found is not None
            assert found.offset == 6
            await log.delete_before(8)
            assert await log.offset_for_time(0) is None

        self.run(scenario)

    @pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
    def test_times_are_found_in_compressed_batches(self, codec: Codec) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            await log.append(produced([b"x"] * 50, times=list(range(1000, 1050)), codec=codec))
            found = await log.offset_for_time(1033)
            assert found is not None
            assert (found.offset, found.time_ms) == (33, 1033)

        self.run(scenario)

    def test_the_latest_time_is_that_of_what_is_left(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            assert await log.offset_of_latest_time() is None
            for times in ([500, 100], [300], [300, 200]):
                await log.append(produced([b"x"] * len(times), times=times))
            for start, offset in ((0, 0), (1, 2), (3, 3), (4, 4)):
                await log.delete_before(start)
                for _round in range(2):
                    latest = await log.offset_of_latest_time()
                    assert latest is not None
                    assert (start, latest.offset) == (start, offset)
                    log = await self.after_crash(log, clock)

        self.run(scenario)

    def test_an_epoch_ends_where_the_next_one_begins(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            await log.append(produced(numbered(3)))
            assert log.end_of_epoch(log.epoch) == (log.epoch, 3)
            assert log.end_of_epoch(log.epoch + 1) is None
            assert log.end_of_epoch(0) == (0, 0)

        self.run(scenario)

    # What is removed

    def test_what_was_deleted_is_trimmed_also_in_the_middle_of_a_batch(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            for first in (0, 4, 8):
                await log.append(produced(numbered(4, first)))
            for start in (2, 4, 7, 11, 12):
                assert await log.delete_before(start) == start
                assert await log.delete_before(start - 1) == start
                for _round in range(2):
                    assert log.log_start == start
                    with pytest.raises(Trimmed) as caught:
                        log.fetch(start - 1, 100)
                    assert caught.value.first_offset == start
                    with pytest.raises(Trimmed):
                        await log.fetch_stored(start - 1, 100)
                    left = {offset: b"%d" % offset for offset in range(start, 12)}
                    assert await read(log) == left
                    log = await self.after_crash(log, clock)
            assert (await log.append(produced([b"12"]))).base_offset == 12
            assert await read(log) == {12: b"12"}
            with pytest.raises(OutOfRange):
                await log.delete_before(14)

        self.run(scenario)

    def test_retention_by_bytes_drops_the_oldest(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            for number in range(20):
                await log.append(produced([b"%d" % number * 100]))
            await self.settle(log)
            assert await log.retain(bytes_max=EVERYTHING, time_min_ms=None) == 0
            half = log.size // 2
            start = await log.retain(bytes_max=half, time_min_ms=None)
            assert 0 < start < 20
            assert start == log.log_start
            assert log.size >= half
            start = await log.retain(bytes_max=0, time_min_ms=None)
            assert 20 - self.segment_batches <= start <= 20
            log = await self.after_crash(log, clock)
            assert log.log_start == start
            assert list(await read(log)) == list(range(start, 20))

        self.run(scenario)

    def test_retention_by_time_drops_what_is_wholly_older(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            for number in range(20):
                await log.append(produced([b"x", b"y"], times=[number * 10, number * 10 + 5]))
                await self.settle(log)
            assert await log.retain(bytes_max=None, time_min_ms=5) == 0
            start = await log.retain(bytes_max=None, time_min_ms=106)
            assert 22 - 2 * self.segment_batches <= start <= 22
            found = await log.offset_for_time(106)
            assert found is not None
            assert found.offset == 22

        self.run(scenario)

    def test_appends_go_on_while_records_are_removed(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            async def append() -> None:
                for number in range(300):
                    await log.append(produced([b"%d" % number]))

            async def remove() -> None:
                while log.log_start < 250:
                    await log.delete_before(min(log.high_watermark, log.log_start + 13))
                    await asyncio.sleep(0)

            async def follow() -> None:
                at = 0
                while at < 300:
                    with contextlib.suppress(Trimmed):
                        found = await fetched(log, at, 1000)
                        for batch in batches_in(found.parts):
                            (record,) = decode_records(batch, batch.base_offset)
                            assert record.value == b"%d" % record.offset
                        at = found.next_offset
                    at = max(at, log.log_start)
                    await asyncio.sleep(0)

            await asyncio.gather(append(), remove(), follow())
            assert list(await read(log)) == list(range(log.log_start, 300))

        self.run(scenario)

    # State, opening, closing

    def test_a_snapshot_takes_the_place_of_the_records_below_it(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            assert await log.state() is None
            for number in range(10):
                await log.append(produced([b"%d" % number]))
            for offset in (4, 4, 9, 10):
                await log.snapshot(offset, b"up to %d" % offset)
                for _round in range(2):
                    assert await log.state() == (offset, b"up to %d" % offset)
                    assert list(await read(log)) == list(range(offset, 10))
                    log = await self.after_crash(log, clock)
            for offset in (9, 11):
                with pytest.raises(Invalid):
                    await log.snapshot(offset, b"")
            await log.append(produced([b"10"]))
            assert await log.state() == (10, b"up to 10")

        self.run(scenario)

    def test_all_that_was_acknowledged_is_there_after_a_crash(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            offset = 0
            for _round in range(4):
                for _batch in range(5):
                    await log.append(produced(numbered(3, offset)))
                    offset += 3
                log = await self.after_crash(log, clock)
                assert (log.log_start, log.high_watermark, log.end) == (0, offset, offset)
                assert await read(log) == dict(enumerate(numbered(offset)))

        self.run(scenario)

    def test_append_times_do_not_go_back_over_a_crash(self) -> None:
        async def scenario(log: PartitionLog, clock: SetClock) -> None:
            clock.now_ms = NOW_MS + 100
            await log.append(produced([b"a"]))
            clock.now_ms = NOW_MS
            log = await self.after_crash(log, clock)
            assert (await log.append(produced([b"b"]))).append_time_ms == NOW_MS + 100

        self.run(scenario)

    def test_a_closed_log_takes_and_gives_nothing(self) -> None:
        async def scenario(log: PartitionLog, _: SetClock) -> None:
            answer = log.append(produced([b"a"]))
            await log.close()
            await log.close()
            assert (await answer).base_offset == 0
            with pytest.raises(Closed):
                log.append(produced([b"b"]))
            with pytest.raises(Closed):
                log.fetch(0, 100)

        self.run(scenario)
