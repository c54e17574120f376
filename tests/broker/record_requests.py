"""Requests to produce and to fetch, in any version."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.index import load_request_schema
from kio.static.protocol import RequestPayload

from stratalog.broker.wire import FETCH_KEY, PRODUCE_KEY
from stratalog.broker.wire.translate import shape_of
from stratalog.partitions import NewRecord, encode_batch


def produce_request(
    version: int, topic: str, records: bytes | None, *, partition: int = 0, **given: Any
) -> RequestPayload:
    """One batch for one partition."""
    return produce_all(version, [(topic, partition, records)], **given)


def produce_all(
    version: int,
    wanted: list[tuple[str, int, bytes | None]],
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    timeout_ms: int = 30_000,
) -> RequestPayload:
    """For topics and their partitions, a batch for each."""
    schema: Any = load_request_schema(PRODUCE_KEY, version)
    of_topic = _element(schema, "topic_data")
    of_partition = _element(of_topic, "partition_data")
    request: RequestPayload = schema(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            of_topic(name=name, partition_data=(of_partition(index=partition, records=records),))
            for name, partition, records in wanted
        ),
    )
    return request


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
    optional: dict[str, Any] = {
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
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


def one_record(value: bytes = b"value") -> bytes:
    """A batch with this record."""
    return bytes(encode_batch([NewRecord(None, value)]))
