"""Produce at the wire: every version, every kind of acknowledgement, every reason to refuse."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v4.response import MetadataResponse

from broker.plugged import ALL_TOPICS, Client, PluggedBroker, decoded, play
from broker.record_requests import produce_all, produce_request
from stratalog.broker.wire import PRODUCE_FIRST, PRODUCE_KEY, PRODUCE_LAST
from stratalog.partitions import NewRecord, decode_records, encode_batch
from stratalog.partitions.batch import checksum
from stratalog.partitions.compression import Codec

VERSIONS = range(PRODUCE_FIRST, PRODUCE_LAST + 1)
IN_A_DAY_MS = 1_700_000_000_000 + 86_400_000
RECORDS = [NewRecord(b"k", b"v" * 20), NewRecord(None, None)]
GOOD = bytes(encode_batch(RECORDS))


def response(version: int) -> Any:
    return load_response_schema(PRODUCE_KEY, version)


async def produce(client: Client, records: bytes | None, version: int = 8, **given: Any) -> Any:
    """What is said of the only partition."""
    answer: Any = await client.ask(
        produce_request(version, "t", records, **given), response(version)
    )
    assert answer.throttle_time.total_seconds() == 0
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_records_get_their_offsets_in_every_version(version: int, acks: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        for number in range(3):
            answer = await produce(client, GOOD, version, acks=acks)
            assert answer.error_code is ErrorCode.none
            assert answer.base_offset == 2 * number
            assert getattr(answer, "log_start_offset", 0) == 0
            assert getattr(answer, "error_message", None) is None
        assert broker.log("t").high_watermark == 6

    play(test)


@pytest.mark.parametrize("acks", [1, -1])
def test_no_acknowledgement_precedes_the_commit(acks: int) -> None:
    # Also for acks=1: there is one copy, and what is acknowledged is kept.
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        broker.log("t").hold()
        client = broker.client()
        client.request(produce_request(8, "t", GOOD, acks=acks))
        await asyncio.sleep(1)
        assert client.answers() == []
        broker.log("t").let_go()
        decoded(await client.answer(), response(8), 1)

    play(test)


def test_without_acknowledgement_there_is_no_answer_and_the_next_request_has_its_own() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        for _ in range(3):
            client.request(produce_request(8, "t", GOOD, acks=0))
        await client.ask(ALL_TOPICS, MetadataResponse)
        await asyncio.sleep(1)
        assert client.answers() == []
        assert broker.log("t").high_watermark == 6
        assert broker.shared.memory.used == 0

    play(test)


@pytest.mark.parametrize("topic", ["t", "missing"])
def test_without_acknowledgement_a_failure_closes_the_connection(topic: str) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        client.request(produce_request(8, topic, b"nonsense", acks=0))
        assert client.is_closed
        assert client.answers() == []

    play(test)


@pytest.mark.parametrize("acks", [-2, 2, 3, 32767])
def test_other_acknowledgements_are_refused(acks: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        answer = await produce(broker.client(), GOOD, acks=acks)
        assert answer.error_code is ErrorCode.invalid_required_acks
        assert broker.log("t").end == 0

    play(test)


def with_field(layout: str, at: int, value: int) -> Callable[[], bytes]:
    """The good batch with another value in its head, and the right checksum."""

    def make() -> bytes:
        data = bytearray(GOOD)
        struct.pack_into(layout, data, at, value)
        data[17:21] = checksum(data).to_bytes(4)
        return bytes(data)

    return make


def flipped() -> bytes:
    data = bytearray(GOOD)
    data[-1] ^= 1
    return bytes(data)


def of_old_format(magic: int) -> bytes:
    data = bytearray(GOOD)
    data[16] = magic
    return bytes(data)


INVALID = ErrorCode.invalid_record
CORRUPT = ErrorCode.corrupt_message
TIME = ErrorCode.invalid_timestamp
BAD: dict[str, tuple[Callable[[], bytes | None], ErrorCode]] = {
    "null": (lambda: None, INVALID),
    "empty": (lambda: b"", INVALID),
    "too short": (lambda: GOOD[:60], CORRUPT),
    "cut": (lambda: GOOD[:-1], CORRUPT),
    "longer than it says": (lambda: GOOD + b"x", INVALID),
    "two batches": (lambda: GOOD + GOOD, INVALID),
    "says it is longer": (with_field(">i", 8, len(GOOD)), CORRUPT),
    "negative length": (with_field(">i", 8, -1), CORRUPT),
    "wrong checksum": (flipped, CORRUPT),
    "magic 0": (lambda: of_old_format(0), ErrorCode.unsupported_for_message_format),
    "magic 1": (lambda: of_old_format(1), ErrorCode.unsupported_for_message_format),
    "magic 3": (lambda: of_old_format(3), ErrorCode.unsupported_for_message_format),
    "base offset": (with_field(">q", 0, 5), INVALID),
    "no records": (with_field(">i", 57, 0), INVALID),
    "negative count": (with_field(">i", 57, -1), INVALID),
    "more records than it holds": (with_field(">i", 57, 2**31 - 1), INVALID),
    "another last offset": (with_field(">i", 23, 7), INVALID),
    "control": (with_field(">h", 21, 0x20), INVALID),
    "transactional": (with_field(">h", 21, 0x10), ErrorCode.transactional_id_authorization_failed),
    "append time": (with_field(">h", 21, 0x08), TIME),
    "no such codec": (with_field(">h", 21, 5), ErrorCode.unsupported_compression_type),
    "negative time": (with_field(">q", 27, -2), TIME),
    "tomorrow": (lambda: bytes(encode_batch([NewRecord(None, b"", IN_A_DAY_MS)])), TIME),
    "producer without epoch": (with_field(">q", 43, 9), INVALID),
    "too large": (
        lambda: bytes(encode_batch([NewRecord(None, bytes(2000))])),
        ErrorCode.message_too_large,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_batch_is_refused_by_its_code_and_keeps_no_other_out(name: str) -> None:
    make, code = BAD[name]

    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", max_message_bytes="1000")
        await broker.create("good")
        request = produce_all(8, [("t", 0, make()), ("good", 0, GOOD)])
        answer: Any = await broker.client().ask(request, response(8))
        bad, good = (each.partition_responses[0] for each in answer.responses)
        assert bad.error_code is code
        assert bad.base_offset == -1
        assert bad.error_message
        assert good.error_code is ErrorCode.none
        assert (broker.log("t").end, broker.log("good").end) == (0, 2)

    play(test)


@pytest.mark.parametrize("codec", Codec)
def test_batches_are_kept_as_they_came_in_every_codec(codec: Codec) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        data = bytes(encode_batch(RECORDS, codec))
        assert (await produce(broker.client(), data)).error_code is ErrorCode.none
        (kept,) = broker.log("t")._kept
        assert bytes(kept.batch.data)[16:] == data[16:]

    play(test)


@pytest.mark.parametrize("index", [1, -1, 2**31 - 1])
def test_an_unknown_partition_is_told(index: int) -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        answer = await produce(broker.client(), GOOD, partition=index)
        assert answer.index == index
        assert answer.error_code is ErrorCode.unknown_topic_or_partition

    play(test)


def test_an_unknown_topic_is_told_and_not_made() -> None:
    async def test(broker: PluggedBroker) -> None:
        answer = await produce(broker.client(), GOOD)
        assert answer.error_code is ErrorCode.unknown_topic_or_partition
        assert broker.topics.all() == []

    play(test)


def test_a_transactional_id_is_refused_in_a_way_that_is_not_retried() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        answer = await produce(broker.client(), GOOD, transactional_id="mine")
        assert answer.error_code is ErrorCode.transactional_id_authorization_failed
        assert broker.log("t").end == 0

    play(test)


def test_producers_are_judged_by_epoch_and_sequence() -> None:
    def numbered(sequence: int, epoch: int = 1) -> bytes:
        return bytes(
            encode_batch(RECORDS, producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        )

    async def test(broker: PluggedBroker) -> None:
        await broker.create("t")
        client = broker.client()
        for data, code, offset in [
            (numbered(0), ErrorCode.none, 0),
            (numbered(2), ErrorCode.none, 2),
            (numbered(0), ErrorCode.none, 0),  # a duplicate has the offset of its original
            (numbered(9), ErrorCode.out_of_order_sequence_number, -1),
            (numbered(4, epoch=0), ErrorCode.invalid_producer_epoch, -1),
            (numbered(4), ErrorCode.none, 4),
        ]:
            answer = await produce(client, data)
            assert (answer.error_code, answer.base_offset) == (code, offset)
        assert broker.log("t").end == 6

    play(test)


def test_the_append_time_is_set_and_told_where_the_topic_wants_it() -> None:
    async def test(broker: PluggedBroker) -> None:
        await broker.create("t", message_timestamp_type="LogAppendTime")
        now_ms = broker.context.runtime.now_us() // 1000
        answer = await produce(broker.client(), GOOD)
        assert now_ms <= answer.log_append_time.timestamp() * 1000 <= now_ms + 1000
        (kept,) = broker.log("t")._kept
        assert kept.batch.crc == checksum(kept.batch.data)
        assert {each.time_ms for each in decode_records(kept.batch, 0)} == {now_ms}

    play(test)
