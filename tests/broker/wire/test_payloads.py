"""Payloads by schema: read as kio would, and made into those of other versions."""

import contextlib
from dataclasses import fields
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.schema.metadata.v0.request import MetadataRequest as OldestMetadata
from kio.schema.metadata.v12.request import MetadataRequest
from kio.serial import entity_reader

from broker.wire.drawn_payloads import drawn_payload, written
from stratalog.broker.requests import served
from stratalog.broker.wire import Malformed, answer_frame, read_payload, read_request

SERVED = [
    (each.key, version)
    for each in served().advertised()
    for version in range(each.first, each.last + 1)
]
SEEDS = range(10)


each_version = pytest.mark.parametrize(
    ("key", "version"),
    SERVED,
    ids=[f"{api_key_map[key]}-v{version}" for key, version in SERVED],
)


@each_version
def test_every_request_that_is_served_is_read_as_kio_writes_it(key: int, version: int) -> None:
    for seed in SEEDS:
        payload = drawn_payload(load_request_schema(key, version), Random(seed))
        assert read_payload(type(payload), written(payload)) == payload


@each_version
def test_every_request_reaches_its_handler_in_the_newest_version_of_its_range(
    key: int, version: int
) -> None:
    api = served().find(key, version)
    assert api is not None
    for seed in SEEDS:
        payload = drawn_payload(load_request_schema(key, version), Random(seed))
        found = read_request(key, version, written(payload), 0, api.request)
        assert isinstance(found, api.request)
        for name in {each.name for each in fields(payload)} & {each.name for each in fields(found)}:
            before, after = getattr(payload, name), getattr(found, name)
            if not isinstance(before, tuple):  # structures have other types
                assert after == before or before is None


@each_version
def test_every_answer_can_be_given_in_every_version_of_its_range(key: int, version: int) -> None:
    api = served().find(key, version)
    assert api is not None
    schema = load_response_schema(key, version)
    at = 9 if schema.__flexible__ else 8
    for seed in SEEDS:
        frame = answer_frame(7, version, drawn_payload(api.response, Random(seed)))
        _, size = entity_reader(schema)(frame[at:], 0)
        assert at + size == len(frame)


def test_what_an_old_version_lacks_has_the_default_of_the_schema() -> None:
    data = written(OldestMetadata(topics=()))
    found = read_request(3, 0, data, 0, MetadataRequest)
    assert isinstance(found, MetadataRequest)
    assert found.allow_auto_topic_creation is True
    assert found.include_topic_authorized_operations is False


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\1\0\0"])
def test_an_array_that_cannot_be_there_is_malformed(count: bytes) -> None:
    # kio's own reader would ask for the memory of all of its elements, and end the process.
    with pytest.raises(Malformed):
        read_request(3, 1, memoryview(count + bytes(100)), 0, MetadataRequest)


def test_a_small_request_does_not_become_millions_of_objects() -> None:
    elements = 1_000_000
    data = memoryview(elements.to_bytes(4) + bytes(2 * elements))
    with pytest.raises(Malformed, match="elements"):
        read_request(3, 1, data, 0, MetadataRequest)


@given(data=st.binary(max_size=60), served_version=st.sampled_from(SERVED))
def test_any_bytes_are_a_request_or_malformed(data: bytes, served_version: tuple[int, int]) -> None:
    key, version = served_version
    schema = load_request_schema(key, version)
    with contextlib.suppress(Malformed):
        assert isinstance(read_payload(schema, memoryview(data)), schema)
