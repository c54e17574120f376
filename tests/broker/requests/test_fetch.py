"""Fetch at the wire: whole batches, within limits, with the errors that clients rely on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from broker.plugged import PluggedBroker, decoded, play
from broker.record_requests import fetch_request
from broker.requests.fetching import fetch, fetched, filled
from stratalog.broker.wire import FETCH_FIRST, FETCH_KEY, FETCH_LAST
from stratalog.errors import Unavailable
from stratalog.partitions import Fetched
from stratalog.testing import MemoryPartitionLog

VERSIONS = range(FETCH_FIRST, FETCH_LAST + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_whole_batches_come_with_offsets_and_ends_in_every_version(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1, 3, 2)
        (found,) = await fetch(broker.client(), ("t", 0, 0), version=version)
        assert found.error is ErrorCode.none
        assert found.offsets == [0, 1, 4]
        assert [each.count for each in found.batches] == [1, 3, 2]
        assert {each.leader_epoch for each in found.batches} == {broker.log("t").epoch}
        assert found.answer.high_watermark == found.answer.last_stable_offset == 6
        assert getattr(found.answer, "log_start_offset", 0) == 0
        assert getattr(found.answer, "preferred_read_replica", -1) == -1
        assert found.answer.aborted_transactions is None

    play(test)


@pytest.mark.parametrize("offset", range(1, 4))
def test_an_offset_inside_a_batch_gives_the_whole_batch(offset: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1, 3, 2)
        (found,) = await fetch(broker.client(), ("t", 0, offset))
        assert found.offsets == [1, 4]

    play(test)


def test_at_least_one_batch_comes_however_small_the_limits_are() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1, 1)
        client = broker.client()
        for limits in ({"bytes_max": 1}, {"partition_bytes_max": 1}, {"bytes_max": 0}):
            (found,) = await fetch(client, ("t", 0, 0), **limits)
            assert found.offsets == [0]

    play(test)


def test_a_partition_gives_no_more_than_its_limit() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        size = await filled(broker, *([1] * 5))
        client = broker.client()
        for limit, count in ((2 * size, 2), (3 * size - 1, 2), (3 * size, 3), (9 * size, 5)):
            (found,) = await fetch(client, ("t", 0, 0), partition_bytes_max=limit)
            assert len(found.batches) == count

    play(test)


def test_all_partitions_together_give_no_more_than_the_limit_of_the_request() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 3)
        sizes = [await filled(broker, 1, 1, partition=number) for number in range(3)]
        size = sizes[0]
        client = broker.client()
        wanted = [("t", number, 0) for number in range(3)]
        for limit, counts in (
            (1, [1, 0, 0]),
            (size, [1, 0, 0]),
            (3 * size, [2, 1, 0]),
            (4 * size + 1, [2, 2, 0]),
            (6 * size, [2, 2, 2]),
        ):
            found = await fetch(client, *wanted, bytes_max=limit)
            assert [len(each.batches) for each in found] == counts
            assert {each.error for each in found} == {ErrorCode.none}

    play(test)


def test_the_broker_has_a_limit_of_its_own() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, *([1] * 20))
        (found,) = await fetch(broker.client(), ("t", 0, 0))
        assert 1 < len(found.batches) < 20

    play(test, fetch_bytes_max=500)


def test_below_the_start_the_offset_is_out_of_range() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1, 1, 1)
        await broker.log("t").delete_before(2)
        client = broker.client()
        (below,) = await fetch(client, ("t", 0, 1))
        assert below.error is ErrorCode.offset_out_of_range
        assert (below.answer.high_watermark, below.answer.records) == (-1, b"")
        (at_start,) = await fetch(client, ("t", 0, 2))
        assert (at_start.offsets, at_start.answer.log_start_offset) == ([2], 2)

    play(test)


@pytest.mark.parametrize("offset", [4, 2**62, -1, -(2**63)])
def test_beyond_the_end_and_before_zero_the_offset_is_out_of_range(offset: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 3)
        begun = asyncio.get_running_loop().time()
        (found,) = await fetch(broker.client(), ("t", 0, offset), wait_ms=5000)
        assert found.error is ErrorCode.offset_out_of_range
        assert asyncio.get_running_loop().time() - begun < 0.1, "an error does not wait"

    play(test)


def test_what_is_not_committed_is_not_shown_and_waited_for() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        log, client = broker.log("t"), broker.client()
        log.hold()
        appended = asyncio.ensure_future(filled(broker, 2))
        await asyncio.sleep(0.1)
        assert (log.high_watermark, log.end) == (1, 3)
        for offset, offsets in ((0, [0]), (1, []), (2, []), (3, [])):
            (found,) = await fetch(client, ("t", 0, offset))
            assert found.error is ErrorCode.none
            assert found.offsets == offsets
            assert found.answer.high_watermark == 1
        number = client.request(fetch_request(11, [("t", 0, 1)], wait_ms=10_000))
        await asyncio.sleep(1)
        assert client.answers() == []
        log.let_go()
        (found,) = await fetched(client, number)
        assert (found.offsets, found.answer.high_watermark) == ([1], 3)
        await appended

    play(test)


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_clients_with_another_leader_epoch_are_told(version: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        client, epoch = broker.client(), broker.log("t").epoch
        for known, code in (
            (epoch - 1, ErrorCode.fenced_leader_epoch),
            (epoch + 1, ErrorCode.unknown_leader_epoch),
            (epoch, ErrorCode.none),
            (-1, ErrorCode.none),
        ):
            (found,) = await fetch(client, ("t", 0, 0), version=version, current_leader_epoch=known)
            assert found.error is code
            assert bool(found.batches) == (code is ErrorCode.none)

    play(test)


def test_a_client_with_records_of_another_history_is_told_where_it_diverged() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 2)
        client, epoch = broker.client(), broker.log("t").epoch
        (found,) = await fetch(
            client, ("t", 0, 5), version=12, last_fetched_epoch=epoch, wait_ms=5000
        )
        diverging = found.answer.diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (epoch, 2)
        (found,) = await fetch(client, ("t", 0, 1), version=12, last_fetched_epoch=epoch)
        assert found.offsets == [0]
        (found,) = await fetch(client, ("t", 0, 1), version=12, last_fetched_epoch=epoch + 1)
        assert found.error is ErrorCode.offset_out_of_range

    play(test)


def test_committed_reads_name_no_aborted_transactions() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        (found,) = await fetch(broker.client(), ("t", 0, 0), isolation=1)
        assert found.answer.aborted_transactions == ()
        assert found.answer.last_stable_offset == 1

    play(test)


@pytest.mark.parametrize("wanted", [("missing", 0, 0), ("t", 1, 0), ("t", -1, 0), ("../t", 0, 0)])
def test_what_is_not_there_is_told_beside_what_is(wanted: tuple[str, int, int]) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        found = await fetch(broker.client(), wanted, ("t", 0, 0), wait_ms=5000)
        assert [each.error for each in found] == [
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.none,
        ]
        assert found[1].offsets == [0]

    play(test)


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (0, -1, 0),
        (0, 0, 0),
        (5, 0, 0),  # a full fetch that gives up an old session
        (5, -1, 0),
        (5, 3, ErrorCode.fetch_session_id_not_found.value),
        (0, 1, ErrorCode.fetch_session_id_not_found.value),
    ],
)
@pytest.mark.parametrize("version", [7, 11, 12])
def test_there_are_no_sessions_and_clients_fetch_in_full(
    version: int, session_id: int, epoch: int, code: int
) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        client = broker.client()
        number = client.request(
            fetch_request(version, [("t", 0, 0)], session_id=session_id, session_epoch=epoch)
        )
        schema: Any = load_response_schema(FETCH_KEY, version)
        answer = decoded(await client.answer(), schema, number)
        assert (answer.session_id, answer.error_code.value) == (0, code)
        assert bool(answer.responses) == (not code)

    play(test)


# What is not in memory


class OnDisk(MemoryPartitionLog):
    """Nothing of it is in memory, and reading takes a second."""

    failure: Exception | None = None

    def fetch(self, offset: int, bytes_max: int) -> Fetched | None:
        return super().fetch(offset, bytes_max) and None

    async def fetch_stored(self, offset: int, bytes_max: int) -> Fetched:
        await asyncio.sleep(1)
        if self.failure is not None:
            raise self.failure
        found = super().fetch(offset, bytes_max)
        assert found is not None
        return found


def test_what_is_not_in_memory_is_read_one_request_of_a_client_at_a_time() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        client, loop = broker.client(), asyncio.get_running_loop()
        begun = loop.time()
        numbers = [client.request(fetch_request(11, [("t", 0, 0)])) for _ in range(3)]
        for seconds, number in enumerate(numbers, 1):
            (found,) = await fetched(client, number)
            assert found.offsets == [0]
            assert seconds <= loop.time() - begun < seconds + 0.1

    play(test, log_type=OnDisk)


def test_a_failure_to_read_is_told() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        log = broker.log("t")
        assert isinstance(log, OnDisk)
        log.failure = Unavailable("planted")
        (found,) = await fetch(broker.client(), ("t", 0, 0), wait_ms=5000)
        assert found.error is ErrorCode.kafka_storage_error

    play(test, log_type=OnDisk)


def test_an_unexpected_failure_to_read_closes_the_connection() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        log = broker.log("t")
        assert isinstance(log, OnDisk)
        log.failure = RuntimeError("planted")
        client = broker.client()
        client.request(fetch_request(11, [("t", 0, 0)]))
        await client.closed(patience_s=2)

    play(test, log_type=OnDisk)
