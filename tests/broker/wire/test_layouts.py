"""The layouts that are written by hand, compared with kio's in every version."""

import contextlib
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from broker.wire.drawn_payloads import drawn_payload, written
from stratalog.broker.wire import (
    FETCH_FIRST,
    FETCH_KEY,
    FETCH_LAST,
    PRODUCE_FIRST,
    PRODUCE_KEY,
    PRODUCE_LAST,
    Malformed,
    PartitionAnswer,
    PartitionFetch,
    PartitionProduce,
    ProduceRequest,
    TopicAnswer,
    TopicFetch,
    TopicProduce,
    fetch_answer,
    produce_answer,
    read_fetch,
    read_produce,
)

PRODUCE_VERSIONS = range(PRODUCE_FIRST, PRODUCE_LAST + 1)
FETCH_VERSIONS = range(FETCH_FIRST, FETCH_LAST + 1)
PAYLOADS = 40
few_examples = settings(max_examples=25)

names = st.text(max_size=300)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def answer_payload(frame: bytes, *, flexible: bool, correlation_id: int) -> bytes:
    """Behind the length and the header."""
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert int.from_bytes(frame[4:8]) == correlation_id
    return frame[9:] if flexible else frame[8:]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_request_to_produce_is_read_as_kio_writes_it(version: int) -> None:
    for seed in range(PAYLOADS):
        request: Any = drawn_payload(load_request_schema(PRODUCE_KEY, version), Random(seed))
        check_produce(version, request)


def check_produce(version: int, request: Any) -> None:
    found = read_produce(version, written(request), 0)
    assert (found.transactional_id, found.acks) == (request.transactional_id, request.acks)
    assert timedelta(milliseconds=found.timeout_ms) == request.timeout
    assert [
        (topic.name, [(each.index, each.records) for each in topic.partitions])
        for topic in found.topics
    ] == [
        (topic.name, [(each.index, each.records) for each in topic.partition_data])
        for topic in request.topic_data
    ]


@st.composite
def produced(draw: st.DrawFn) -> PartitionProduce:
    made = PartitionProduce(draw(int32s), None)
    made.error = draw(st.sampled_from(ErrorCode)).value
    made.base_offset, made.append_time_ms = draw(int64s), draw(st.integers(-1, 2**40))
    made.log_start = draw(int64s)
    made.message = draw(st.none() | st.text(max_size=300))
    return made


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@few_examples
@given(
    topics=st.lists(st.builds(TopicProduce, names, st.lists(produced(), max_size=3)), max_size=3),
    correlation_id=st.integers(0, 2**31 - 1),
)
def test_kio_reads_the_answer_to_a_produce(
    version: int, topics: list[TopicProduce], correlation_id: int
) -> None:
    schema = load_response_schema(PRODUCE_KEY, version)
    request = ProduceRequest(version, None, -1, 0, topics)
    frame = produce_answer(correlation_id, request)
    payload = answer_payload(frame, flexible=schema.__flexible__, correlation_id=correlation_id)
    answer: Any
    answer, size = entity_reader(schema)(payload, 0)
    assert size == len(payload)
    assert [each.name for each in answer.responses] == [each.name for each in topics]
    for there, topic in zip(answer.responses, topics, strict=True):
        for found, each in zip(there.partition_responses, topic.partitions, strict=True):
            assert (found.index, found.error_code.value) == (each.index, each.error)
            assert found.base_offset == each.base_offset
            assert getattr(found, "log_start_offset", each.log_start) == each.log_start
            assert getattr(found, "error_message", each.message) == each.message


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_request_to_fetch_is_read_as_kio_writes_it(version: int) -> None:
    for seed in range(PAYLOADS):
        request: Any = drawn_payload(load_request_schema(FETCH_KEY, version), Random(seed))
        check_fetch(version, request)


def check_fetch(version: int, request: Any) -> None:
    found = read_fetch(version, written(request), 0)
    assert timedelta(milliseconds=found.wait_ms) == request.max_wait
    assert (found.bytes_min, found.bytes_max) == (request.min_bytes, request.max_bytes)
    assert found.isolation == request.isolation_level
    assert found.session_id == getattr(request, "session_id", 0)
    assert found.session_epoch == getattr(request, "session_epoch", -1)
    assert found.rack == getattr(request, "rack_id", "")
    assert found.topics == [
        TopicFetch(
            topic.topic,
            [
                PartitionFetch(
                    each.partition,
                    getattr(each, "current_leader_epoch", -1),
                    each.fetch_offset,
                    getattr(each, "last_fetched_epoch", -1),
                    getattr(each, "log_start_offset", -1),
                    each.partition_max_bytes,
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]


@st.composite
def fetched(draw: st.DrawFn) -> PartitionAnswer:
    made = PartitionAnswer(draw(int32s))
    made.error = draw(st.sampled_from(ErrorCode)).value
    made.high_watermark, made.log_start = draw(int64s), draw(int64s)
    made.parts = draw(st.lists(st.binary(max_size=40) | st.just(b"long" * 3000), max_size=4))
    made.size = sum(map(len, made.parts))
    made.diverged = draw(st.none() | st.tuples(int32s, int64s))
    return made


@pytest.mark.parametrize("committed_only", [False, True])
@pytest.mark.parametrize("version", FETCH_VERSIONS)
@few_examples
@given(
    topics=st.lists(st.builds(TopicAnswer, names, st.lists(fetched(), max_size=3)), max_size=3),
    correlation_id=st.integers(0, 2**31 - 1),
)
def test_kio_reads_the_answer_to_a_fetch(
    version: int, committed_only: bool, topics: list[TopicAnswer], correlation_id: int
) -> None:
    schema = load_response_schema(FETCH_KEY, version)
    buffers = fetch_answer(correlation_id, version, topics, committed_only=committed_only)
    frame = b"".join(buffers)
    payload = answer_payload(frame, flexible=schema.__flexible__, correlation_id=correlation_id)
    answer: Any
    answer, size = entity_reader(schema)(payload, 0)
    assert size == len(payload)
    assert [each.topic for each in answer.responses] == [each.name for each in topics]
    for there, topic in zip(answer.responses, topics, strict=True):
        for found, each in zip(there.partitions, topic.partitions, strict=True):
            assert (found.partition_index, found.error_code.value) == (each.index, each.error)
            assert found.high_watermark == found.last_stable_offset == each.high_watermark
            assert found.aborted_transactions == (() if committed_only else None)
            assert found.records == b"".join(each.parts)
            if version >= 12 and each.diverged is not None:
                diverged = found.diverging_epoch
                assert (diverged.epoch, diverged.end_offset) == each.diverged


def test_long_parts_of_an_answer_are_not_copied() -> None:
    answer = PartitionAnswer(0)
    large = memoryview(bytearray(100_000))
    answer.parts, answer.size = [large], len(large)
    buffers = fetch_answer(1, 12, [TopicAnswer("t", [answer])])
    assert any(each is large for each in buffers)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@few_examples
@given(data=st.binary(max_size=120))
def test_any_bytes_are_a_produce_or_malformed(version: int, data: bytes) -> None:
    with contextlib.suppress(Malformed):
        assert isinstance(read_produce(version, memoryview(data), 0), ProduceRequest)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@few_examples
@given(data=st.binary(max_size=120))
def test_any_bytes_are_a_fetch_or_malformed(version: int, data: bytes) -> None:
    with contextlib.suppress(Malformed):
        assert read_fetch(version, memoryview(data), 0).version == version
