"""Connections: answers in order, bounds on what waits, and clients that mean no good."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.metadata.v4.response import MetadataResponse
from kio.schema.produce.v8.response import ProduceResponse

from broker.plugged import Client, PluggedBroker, decoded, framed, play, request_frame
from broker.record_requests import fetch_request, produce_all, produce_request
from stratalog.broker.requests import Dispatcher
from stratalog.errors import Unavailable
from stratalog.partitions import Batch, NewRecord, encode_batch
from stratalog.testing import MemoryPartitionLog

ALL_TOPICS = MetadataRequest(topics=None, allow_auto_topic_creation=False)
FRAME_S = 30.0
MIB = 2**20


def batch(value: bytes = b"value") -> bytes:
    return bytes(encode_batch([NewRecord(None, value)]))


class Narrow(MemoryPartitionLog):
    """A partition with room for one batch in flight."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"uncommitted_max": 1, **given})


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# Order


def test_answers_go_out_in_the_order_of_the_requests() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        broker.log("t").hold()
        client = broker.client()
        produced = client.request(produce_request(8, "t", batch()))
        listed = client.request(ListGroupsRequest(states_filter=()))
        described = client.request(ALL_TOPICS)
        await turns()
        assert client.answers() == []
        broker.log("t").let_go()
        decoded(await client.answer(), ProduceResponse, produced)
        decoded(await client.answer(), ListGroupsResponse, listed)
        decoded(await client.answer(), MetadataResponse, described)

    play(test)


def test_a_client_that_waits_keeps_no_other_waiting() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        broker.log("t").hold()
        waiting, other = broker.client(), broker.client()
        waiting.request(produce_request(8, "t", batch()))
        answer = await other.ask(ALL_TOPICS, MetadataResponse)
        assert [each.name for each in answer.topics] == ["t"]
        assert waiting.answers() == []

    play(test)


def test_requests_beyond_those_in_flight_wait_in_order() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        broker.log("t").hold()
        client = broker.client()
        for _ in range(10):
            client.request(produce_request(8, "t", batch()))
        await turns()
        assert broker.log("t").end == 4
        broker.log("t").let_go()
        for number in range(10):
            answer = decoded(await client.answer(), ProduceResponse, number + 1)
            assert answer.responses[0].partition_responses[0].base_offset == number

    play(test, in_flight_max=4)


def test_thousands_of_requests_that_waited_are_answered_in_turn() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        broker.log("t").hold()
        client = broker.client()
        client.request(produce_request(8, "t", batch()))
        versions = ApiVersionsRequest()
        client.send(b"".join(request_frame(versions, number) for number in range(2, 4000)))
        await turns()
        assert client.answers() == []
        broker.log("t").let_go()
        for number in range(1, 4000):
            assert int.from_bytes((await client.answer())[:4]) == number

    play(test, in_flight_max=1)


def test_a_partition_without_room_stops_its_connection_and_keeps_the_order() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 3)
        logs = [broker.log("t", number) for number in range(3)]
        client = broker.client()
        for log in logs[:2]:
            log.hold()
        client.request(produce_all(8, [("t", 0, batch()), ("t", 1, batch())]))
        client.request(produce_all(8, [("t", 0, batch()), ("t", 1, batch())]))
        client.request(produce_request(8, "t", batch(), partition=2))
        await turns()
        assert [log.end for log in logs] == [1, 1, 0]
        logs[0].let_go()  # now the second request waits for the other partition
        await turns()
        assert [log.end for log in logs] == [2, 1, 0], "a later request has overtaken"
        logs[1].let_go()
        for number in (1, 2, 3):
            decoded(await client.answer(), ProduceResponse, number)
        assert [log.end for log in logs] == [2, 2, 1]

    play(test, log_type=Narrow)


def test_a_request_that_is_late_while_there_is_no_room_is_answered_once() -> None:
    class Failing(Narrow):
        async def room(self) -> None:
            await asyncio.sleep(5)
            raise Unavailable("the disk is gone")

    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        broker.log("t").hold()
        client = broker.client()
        client.request(produce_request(8, "t", batch()))
        late = client.request(produce_request(8, "t", batch(), timeout_ms=1000))
        await asyncio.sleep(10)
        broker.log("t").let_go()
        decoded(await client.answer(), ProduceResponse, 1)
        answer = decoded(await client.answer(), ProduceResponse, late)
        code = answer.responses[0].partition_responses[0].error_code
        assert code is ErrorCode.request_timed_out
        assert broker.log("t").end == 1

    play(test, log_type=Failing)


def test_a_produce_that_takes_longer_than_its_client_waits_is_told_so() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        broker.log("t").hold()
        client = broker.client()
        begun = asyncio.get_running_loop().time()
        answer = await client.ask(
            produce_request(8, "t", batch(), timeout_ms=3000), ProduceResponse
        )
        assert 3 <= asyncio.get_running_loop().time() - begun <= 4
        code = answer.responses[0].partition_responses[0].error_code
        assert code is ErrorCode.request_timed_out

    play(test)


# Frames that are none


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100 * MIB + 1])
def test_a_length_that_cannot_be_closes_the_connection_at_once(length: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        client, other = broker.client(), broker.client()
        client.send(struct.pack(">i", length) + bytes(100))
        assert client.is_closed
        assert broker.shared.memory.used == 0
        await other.ask(ALL_TOPICS, MetadataResponse)

    play(test)


@pytest.mark.parametrize("size", range(11))
def test_a_request_too_short_for_its_header_closes_the_connection(size: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        client = broker.client()
        client.send(framed(b"\0\x03\0\x04\0\0\0\x01\0\x09a"[:size]))
        assert client.is_closed

    play(test)


@pytest.mark.parametrize(
    ("key", "version"),
    [(0, 2), (0, 10), (1, 3), (1, 13), (3, 13), (3, -1), (24, 0), (26, 0), (28, 0), (999, 0)],
)
def test_an_api_or_a_version_that_is_not_served_closes_the_connection(
    key: int, version: int
) -> None:
    # As Kafka does: there is no layout for an answer.
    async def test(broker: PluggedBroker) -> None:
        client = broker.client()
        client.send(framed(struct.pack(">hhih", key, version, 1, -1) + bytes(50)))
        assert client.is_closed
        assert broker.shared.broken == 1

    play(test)


def test_tagged_fields_of_the_header_are_skipped() -> None:
    async def test(broker: PluggedBroker) -> None:
        client = broker.client()
        plain = request_frame(ListGroupsRequest(states_filter=()))[4:]
        at = 10 + len("test")
        tags = b"\x02\x07\x03abc\x7f\x00"  # two that nobody knows
        client.send(framed(plain[:at] + tags + plain[at + 1 :]))
        decoded(await client.answer(), ListGroupsResponse, 1)

    play(test)


def test_an_answer_that_cannot_be_made_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wrong(*_: object) -> tuple[object, bool]:
        return object(), False

    monkeypatch.setattr(Dispatcher, "_answered", wrong)

    async def test(broker: PluggedBroker) -> None:
        client = broker.client()
        client.request(ALL_TOPICS)
        await client.closed()

    play(test)


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
        frame = request_frame(produce_request(8, "t", batch(bytes(8 * MIB))))
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
        honest.request(produce_request(8, "t", batch(bytes(MIB // 2))))
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
        small.request(produce_request(8, "t", batch(bytes(MIB // 2))))
        await turns()
        assert small.answers() == []
        large.leave()
        decoded(await small.answer(patience_s=1), ProduceResponse, 1)

    play(test, request_memory_bytes=8 * MIB)


def test_a_small_batch_does_not_keep_the_memory_of_a_large_request() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        small, large = batch(), bytes(2 * MIB)
        client = broker.client()
        await client.ask(produce_all(8, [("t", 0, small), ("missing", 0, large)]), ProduceResponse)
        (kept,) = kept_batches(broker.log("t"))
        assert memoryview(kept.data.obj).nbytes <= 4 * len(small)

    play(test)


def test_a_large_batch_is_not_copied() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        large = batch(bytes(500_000))
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
            await client.ask(produce_request(8, "t", batch(bytes(MIB // 2))), ProduceResponse)
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
        await client.ask(produce_request(8, "t", batch(bytes(MIB // 2))), ProduceResponse)
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
