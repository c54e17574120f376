"""Fetches that wait: for enough bytes, in any partition, as long as they say, and not busily."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from kio.schema.errors import ErrorCode

from broker.plugged import PluggedBroker, play
from broker.record_requests import fetch_request
from broker.requests.fetching import VERSION, Counting, batch, fetch, fetched, filled


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("wait_ms", [0, 1, 500, 30_000])
def test_without_records_it_waits_as_long_as_it_says(wait_ms: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        begun = now()
        (found,) = await fetch(broker.client(), ("t", 0, 0), wait_ms=wait_ms)
        assert wait_ms / 1000 <= now() - begun <= wait_ms / 1000 + 0.01
        assert (found.error, found.offsets) == (ErrorCode.none, [])
        assert found.answer.high_watermark == 0

    play(test)


def test_it_does_not_wait_if_it_wants_no_bytes_or_nothing() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client, begun = broker.client(), now()
        await fetch(client, ("t", 0, 0), wait_ms=5000, bytes_min=0)
        await fetch(client, wait_ms=5000)
        await fetch(client, ("t", 0, 0), wait_ms=-1)
        assert now() - begun < 0.1

    play(test)


@pytest.mark.parametrize("partition", range(3))
def test_records_in_any_of_its_partitions_wake_it_at_once(partition: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 3)
        client = broker.client()
        wanted = [("t", number, 0) for number in range(3)]
        number = client.request(fetch_request(VERSION, wanted, wait_ms=60_000))
        await asyncio.sleep(7)
        assert client.answers() == []
        begun = now()
        await filled(broker, 2, partition=partition)
        found = await fetched(client, number)
        assert now() - begun < 0.001
        assert [each.offsets for each in found] == [
            [0] if each == partition else [] for each in range(3)
        ]

    play(test)


def test_it_waits_until_there_are_enough_bytes_in_all_its_partitions() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 2)
        client = broker.client()
        size = await filled(broker, 1)
        wanted = [("t", 0, 0), ("t", 1, 0)]
        number = client.request(fetch_request(VERSION, wanted, wait_ms=60_000, bytes_min=3 * size))
        await asyncio.sleep(1)
        await filled(broker, 1, partition=1)
        await asyncio.sleep(1)
        assert client.answers() == []
        await filled(broker, 1)
        found = await fetched(client, number)
        assert [each.offsets for each in found] == [[0, 1], [0]]

    play(test)


def test_it_answers_with_what_there_is_when_its_time_is_over() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        begun = now()
        (found,) = await fetch(broker.client(), ("t", 0, 0), wait_ms=2000, bytes_min=10**6)
        assert found.offsets == [0]
        assert 2 <= now() - begun < 2.1

    play(test)


def test_it_is_not_busy_while_it_waits() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        log = cast(Counting, broker.log("t"))
        client = broker.client()
        log.looks = 0
        number = client.request(fetch_request(VERSION, [("t", 0, 0)], wait_ms=600_000))
        await asyncio.sleep(500)
        assert log.looks <= 5
        looks = log.looks
        for _ in range(10):  # committed together: they wake it once
            broker.log("t").append(batch())
        (found,) = await fetched(client, number)
        assert len(found.batches) == 10
        assert log.looks - looks <= 15 + 12, "each append looks once by itself"

    play(test, log_type=Counting)


def test_many_commits_look_once_each_at_most_for_a_client_that_wants_more() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        number = client.request(
            fetch_request(VERSION, [("t", 0, 0)], wait_ms=5000, bytes_min=10**6)
        )
        log = broker.log("t")
        fetches = 0
        original = log.fetch

        def counted(offset: int, bytes_max: int) -> object:
            nonlocal fetches
            fetches += 1
            return original(offset, bytes_max)

        log.fetch = counted  # type: ignore[method-assign,assignment]
        for _ in range(20):
            await filled(broker, 1)
            await asyncio.sleep(0.1)
        (found,) = await fetched(client, number)
        assert len(found.batches) == 20
        assert fetches <= 21

    play(test)


def test_a_request_that_asks_for_one_partition_thousands_of_times_closes_its_connection() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 2)
        client = broker.client()
        client.request(fetch_request(VERSION, [("t", 0, 0)] * 1001, wait_ms=60_000))
        assert client.is_closed
        other = broker.client()
        await fetch(other, ("t", 0, 0), ("t", 0, 0), ("t", 1, 0))

    play(test)


def test_a_client_that_leaves_leaves_nothing_behind() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 2)
        wanted = [("t", 0, 0), ("t", 1, 0)]
        for _ in range(5):
            client = broker.client()
            client.request(fetch_request(VERSION, wanted, wait_ms=60_000))
            await asyncio.sleep(0.1)
            client.leave()
        await asyncio.sleep(0.1)
        assert [broker.log("t", number)._callbacks for number in range(2)] == [[], []]
        assert broker.shared.memory.used == 0

    play(test)


def test_after_its_answer_it_watches_nothing_any_more() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        number = client.request(fetch_request(VERSION, [("t", 0, 0)], wait_ms=60_000))
        await asyncio.sleep(0.1)
        await filled(broker, 1)
        await fetched(client, number)
        assert broker.log("t")._callbacks == []

    play(test)


def test_records_that_are_removed_while_it_waits_are_told() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        await filled(broker, 1)
        client = broker.client()
        number = client.request(
            fetch_request(VERSION, [("t", 0, 0)], wait_ms=60_000, bytes_min=10**6)
        )
        await asyncio.sleep(1)
        await broker.log("t").delete_before(1)
        (found,) = await fetched(client, number)
        assert found.error is ErrorCode.offset_out_of_range

    play(test)


def test_a_topic_that_is_deleted_while_it_waits_is_told_at_the_next_fetch() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        number = client.request(fetch_request(VERSION, [("t", 0, 0)], wait_ms=5000))
        await asyncio.sleep(1)
        await broker.topics.delete("t")
        (found,) = await fetched(client, number)
        assert found.offsets == []
        (found,) = await fetch(client, ("t", 0, 0), wait_ms=5000)
        assert found.error is ErrorCode.unknown_topic_or_partition

    play(test)


def test_a_broker_that_stops_answers_what_waits() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        number = client.request(fetch_request(VERSION, [("t", 0, 0)], wait_ms=60_000))
        await asyncio.sleep(1)
        begun = now()
        client.connection.drain()
        (found,) = await fetched(client, number)
        assert found.error is ErrorCode.none
        assert now() - begun < 0.1
        await asyncio.wait_for(client.connection.when_quiet(), 1)

    play(test)
