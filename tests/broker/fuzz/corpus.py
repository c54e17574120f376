"""What is mutated: requests of every API in every version, arbitrary ones and plausible ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

from kio.index import load_request_schema
from kio.static.protocol import RequestPayload

from broker.plugged import request_frame
from broker.record_requests import fetch_request, produce_request
from broker.wire.drawn_payloads import drawn_payload
from stratalog.broker.requests import served
from stratalog.broker.wire import (
    FETCH_FIRST,
    FETCH_KEY,
    FETCH_LAST,
    PRODUCE_FIRST,
    PRODUCE_KEY,
    PRODUCE_LAST,
)
from stratalog.partitions import NewRecord, encode_batch
from stratalog.partitions.compression import Codec

TOPICS = ("fuzzed", "second")
NAMES = (
    *(*TOPICS, "missing", "group", "member", "consumer", "range", "retention.ms", "1000"),
    *("", "..", "a/b", "a\0b", "ä", "x" * 300),
)
API_VERSIONS_KEY = 18
API_VERSIONS = range(5)


def batches() -> list[bytes]:
    """Batches that are taken as they are."""
    records = [NewRecord(b"key", b"value" * 10, headers=((b"h", None),)), NewRecord(None, None)]
    made = [encode_batch(records, codec) for codec in Codec]
    made.append(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=0))
    made.append(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=2))
    made.append(encode_batch([NewRecord(b"", b"x" * 5000)]))
    return [bytes(each) for each in made]


@cache
def schemas() -> tuple[type[RequestPayload], ...]:
    """Of every request in every version that is served."""
    keys = {PRODUCE_KEY: range(PRODUCE_FIRST, PRODUCE_LAST + 1)}
    keys[FETCH_KEY] = range(FETCH_FIRST, FETCH_LAST + 1)
    keys[API_VERSIONS_KEY] = API_VERSIONS
    for each in served().advertised():
        keys[each.key] = range(each.first, each.last + 1)
    return tuple(
        load_request_schema(key, version) for key, versions in keys.items() for version in versions
    )


@cache
def corpus() -> tuple[bytes, ...]:
    """Requests without their lengths."""
    random = Random(0)
    requests = [drawn_payload(each, random, NAMES) for each in schemas() for _ in range(3)]
    requests += produces()
    requests += fetches()
    return tuple(request_frame(each)[4:] for each in requests)


def arbitrary_request(random: Random) -> bytes:
    """Well-formed, and with any values."""
    return request_frame(drawn_payload(random.choice(schemas()), random, NAMES))[4:]


def produces() -> Iterator[RequestPayload]:
    """Each batch in each version, with each kind of acknowledgement."""
    for version in range(PRODUCE_FIRST, PRODUCE_LAST + 1):
        for number, batch in enumerate(batches()):
            yield produce_request(version, TOPICS[number % 2], batch, acks=number % 3 - 1)


def fetches() -> Iterator[RequestPayload]:
    """Both topics in each version, some with patience."""
    for version in range(FETCH_FIRST, FETCH_LAST + 1):
        for wait_ms in (0, 500, 600_000):
            yield fetch_request(version, [("fuzzed", 0, 0), ("second", 0, 1)], wait_ms=wait_ms)
