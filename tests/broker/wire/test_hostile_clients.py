"""Clients that mean no good: they send slowly, hoard memory, take no answers, come in crowds."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.metadata.v4.response import MetadataResponse
from kio.schema.produce.v8.response import ProduceResponse

from broker.plugged import (
    ALL_TOPICS,
    Client,
    PluggedBroker,
    decoded,
    framed,
    play,
    request_frame,
    turns,
)
from broker.record_requests import fetch_request, one_record, produce_all, produce_request
from stratalog.partitions import Batch
from stratalog.testing import MemoryPartitionLog

FRAME_S = 30.0
MIB = 2**20


# Frames that do not come


def test_half_a_frame_and_then_silence_closes_the_connection_in_time() -> None:
    async def test(broker: PluggedBroker) -> None:
        for half in (b"\0", b"\0\0\0", framed(bytes(1000))[:500]):
            client = broker.client()
            begun = asyncio.get_running_loop().time()
            client.send(half)
            await client.closed()
            assert FRAME_S <= asyncio.get_running_loop().time() - begun <= FRAME_S + 1
        assert broker.shared.memory.used == 0

    play(test)


def test_a_byte_now_and_then_does_not_keep_a_connection_open() -> None:
    async def test(broker: PluggedBroker) -> None:
        client = broker.client()
        begun = asyncio.get_running_loop().time()
        client.send(framed(bytes(1000))[:4])
        while not client.is_closed:
            client.send(b"x")
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() - begun <= FRAME_S + 2

    play(test)


@pytest.mark.parametrize("others_wait", [False, True])
def test_a_large_request_may_take_its_time_while_it_comes_on_and_nobody_waits_for_memory(
    others_wait: bool,
) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", max_message_bytes=str(20 * MIB))
        client, other = broker.client(), broker.client()
        frame = request_frame(produce_request(8, "t", one_record(bytes(8 * MIB))))
        client.send(frame[:100])
        if others_wait:
            other.send(framed(bytes(2 * MIB))[:MIB])
        for at in range(100, len(frame), MIB):  # 2 MiB in the time for a request
            if not client.is_closed:
                client.send(frame[at : at + MIB])
                await asyncio.sleep(15)
        if others_wait:
            assert client.is_closed
        else:
            decoded(await client.answer(), ProduceResponse, 1)

    play(test, request_memory_bytes=9 * MIB)


# Memory


def test_those_who_hoard_memory_starve_others_for_no_longer_than_a_request_may_take() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        hoarders = [broker.client() for _ in range(3)]
        for each in hoarders:
            each.send(framed(bytes(4 * MIB))[:100])
        honest, small = broker.client(), broker.client()
        begun = asyncio.get_running_loop().time()
        honest.request(produce_request(8, "t", one_record(bytes(MIB // 2))))
        await small.ask(ALL_TOPICS, MetadataResponse)  # what arrives whole is not held up
        assert asyncio.get_running_loop().time() - begun < 0.1
        decoded(await honest.answer(), ProduceResponse, 1)
        # Two hoarders fit, the third waits before the honest one.
        assert asyncio.get_running_loop().time() - begun <= 2 * FRAME_S + 2
        for each in hoarders:
            await each.closed()
        assert broker.shared.memory.used == 0

    play(test, request_memory_bytes=8 * MIB)


def test_when_a_large_request_gives_up_waiting_a_small_one_behind_it_goes_on() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        holder, large, small = (broker.client() for _ in range(3))
        holder.send(framed(bytes(4 * MIB))[:100])
        large.send(framed(bytes(6 * MIB))[:100])
        small.request(produce_request(8, "t", one_record(bytes(MIB // 2))))
        await turns()
        assert small.answers() == []
        large.leave()
        decoded(await small.answer(patience_s=1), ProduceResponse, 1)

    play(test, request_memory_bytes=8 * MIB)


def test_a_small_batch_does_not_keep_the_memory_of_a_large_request() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        small, large = one_record(), bytes(2 * MIB)
        client = broker.client()
        await client.ask(produce_all(8, [("t", 0, small), ("missing", 0, large)]), ProduceResponse)
        (kept,) = kept_batches(broker.log("t"))
        assert memoryview(kept.data.obj).nbytes <= 4 * len(small)

    play(test)


def test_a_large_batch_is_not_copied() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        large = one_record(bytes(500_000))
        await client.ask(produce_request(8, "t", large), ProduceResponse)
        (kept,) = kept_batches(broker.log("t"))
        assert memoryview(kept.data.obj).nbytes > len(large), "it lies in the request's memory"

    play(test)


def kept_batches(log: MemoryPartitionLog) -> list[Batch]:
    return [each.batch for each in log._kept]


# Answers that nobody takes


def test_a_client_that_takes_no_answers_is_not_read_from_and_given_up_on() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        for _ in range(8):
            await client.ask(produce_request(8, "t", one_record(bytes(MIB // 2))), ProduceResponse)
        client.plug.reads = False
        for _ in range(200):  # 4 MiB each
            client.request(fetch_request(11, [("t", 0, 0)], partition_bytes_max=8 * MIB))
        await turns()
        assert len(client.plug.waiting) + backlog_bytes(client) > 100 * 60
        assert unsent_bytes(client) <= 8 * MIB
        begun = asyncio.get_running_loop().time()
        await client.closed(patience_s=1000)
        assert 600 <= asyncio.get_running_loop().time() - begun <= 602

    play(test)


def test_a_client_that_takes_its_answers_again_gets_all_of_them() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        await client.ask(produce_request(8, "t", one_record(bytes(MIB // 2))), ProduceResponse)
        client.plug.reads = False
        numbers = [client.request(fetch_request(11, [("t", 0, 0)])) for _ in range(30)]
        await turns()
        assert unsent_bytes(client) < 4 * MIB
        client.plug.read_on()
        for number in numbers:
            answer = decoded(await client.answer(), FetchResponse, number)
            assert len(answer.responses[0].partitions[0].records or b"") > MIB // 2

    play(test, unsent_bytes_max=2 * MIB)


def unsent_bytes(client: Client) -> int:
    sending = client.connection._sending
    assert sending is not None
    return sending.unsent


def backlog_bytes(client: Client) -> int:
    return sum(map(len, client.connection._backlog))


# Many connections


def test_connections_beyond_the_limit_are_closed_at_once_and_others_stay() -> None:
    async def test(broker: PluggedBroker) -> None:
        first = [broker.client() for _ in range(3)]
        further = [broker.client() for _ in range(50)]
        assert [each.is_closed for each in first] == [False] * 3
        assert all(each.is_closed for each in further)
        assert broker.shared.refused == 50
        await first[0].ask(ALL_TOPICS, MetadataResponse)
        first[1].leave()
        await turns()
        await broker.client().ask(ALL_TOPICS, MetadataResponse)

    play(test, connections_max=3)


def test_an_idle_connection_is_closed_in_the_end_and_one_that_waits_is_not() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        idle, waiting = broker.client(), broker.client()
        waiting.request(fetch_request(11, [("t", 0, 0)], wait_ms=5000))
        await idle.closed()
        assert 2 <= asyncio.get_running_loop().time() <= 3
        assert not waiting.is_closed
        decoded(await waiting.answer(), FetchResponse, 1)

    play(test, idle_ms_max=2000)
