"""Connections: answers in the order of the requests, and frames that are none."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.metadata.v4.response import MetadataResponse
from kio.schema.produce.v8.response import ProduceResponse

from broker.plugged import ALL_TOPICS, PluggedBroker, decoded, framed, play, request_frame, turns
from broker.record_requests import one_record, produce_all, produce_request
from stratalog.broker.requests import Dispatcher
from stratalog.errors import Unavailable
from stratalog.testing import MemoryPartitionLog

MIB = 2**20


class Narrow(MemoryPartitionLog):
    """A partition with room for one batch in flight."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"uncommitted_max": 1, **given})


# Order


def test_answers_go_out_in_the_order_of_the_requests() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        broker.log("t").hold()
        client = broker.client()
        produced = client.request(produce_request(8, "t", one_record()))
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
        waiting.request(produce_request(8, "t", one_record()))
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
            client.request(produce_request(8, "t", one_record()))
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
        client.request(produce_request(8, "t", one_record()))
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
        client.request(produce_all(8, [("t", 0, one_record()), ("t", 1, one_record())]))
        client.request(produce_all(8, [("t", 0, one_record()), ("t", 1, one_record())]))
        client.request(produce_request(8, "t", one_record(), partition=2))
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


@pytest.mark.parametrize("times", ["CreateTime", "LogAppendTime"])
def test_a_batch_that_had_to_wait_for_room_is_taken_as_it_was_checked(times: str) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", 1, **{"message.timestamp.type": times})
        broker.log("t").hold()
        client = broker.client()
        for _ in range(3):
            client.request(produce_request(8, "t", one_record(bytes(20_000))))
        await turns()
        broker.log("t").let_go()
        for number in (1, 2, 3):
            answer = decoded(await client.answer(), ProduceResponse, number)
            said = answer.responses[0].partition_responses[0]
            assert (said.error_code, said.base_offset) == (ErrorCode.none, number - 1)

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
        client.request(produce_request(8, "t", one_record()))
        late = client.request(produce_request(8, "t", one_record(), timeout_ms=1000))
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
            produce_request(8, "t", one_record(), timeout_ms=3000), ProduceResponse
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
