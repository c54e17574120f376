"""What is mutated: requests of every API in every version, arbitrary ones and plausible ones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any

from kio.index import load_request_schema
from kio.static.protocol import RequestPayload

from broker.plugged import request_frame
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
from stratalog.broker.wire.translate import shape_of
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


def produce_request(
    version: int,
    topic: str,
    records: bytes | None,
    *,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
    timeout_ms: int = 30_000,
) -> RequestPayload:
    """One batch for one partition."""
    schema: Any = load_request_schema(PRODUCE_KEY, version)
    of_topic = _element(schema, "topic_data")
    of_partition = _element(of_topic, "partition_data")
    data = of_partition(index=partition, records=records)
    request: RequestPayload = schema(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=(of_topic(name=topic, partition_data=(data,)),),
    )
    return request


def fetches() -> Iterator[RequestPayload]:
    """Both topics in each version, some with patience."""
    for version in range(FETCH_FIRST, FETCH_LAST + 1):
        for wait_ms in (0, 500, 600_000):
            yield fetch_request(version, [("fuzzed", 0, 0), ("second", 0, 1)], wait_ms=wait_ms)


def fetch_request(
    version: int,
    wanted: list[tuple[str, int, int]],
    *,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 2**26,
    partition_bytes_max: int = 2**20,
    isolation: int = 0,
    **given: Any,
) -> RequestPayload:
    """Of topics, partitions and offsets. Further fields are set wherever the version has them."""
    schema: Any = load_request_schema(FETCH_KEY, version)
    of_topic = _element(schema, "topics")
    of_partition = _element(of_topic, "partitions")
    optional = {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
    optional |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": (), "rack_id": ""}
    optional |= given

    def has(schema: Any) -> dict[str, Any]:
        return {name: optional[name] for name in optional if name in schema.__annotations__}

    request: RequestPayload = schema(
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        isolation_level=isolation,
        replica_id=-1,
        topics=tuple(
            of_topic(
                topic=name,
                partitions=(
                    of_partition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_bytes_max,
                        **has(of_partition),
                    ),
                ),
            )
            for name, partition, offset in wanted
        ),
        **has(schema),
    )
    return request


def _element(schema: Any, name: str) -> Any:
    """The structure of the elements of an array."""
    return shape_of(schema.__dataclass_fields__[name].type).inner
