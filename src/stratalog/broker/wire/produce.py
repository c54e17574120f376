"""The layouts of Produce, versions 3 to 9, by hand: this is the hot path.

request     transactional id  string?  (flexible from 9)
            acks  i16 | timeout  i32 ms
            topics      name  string
                        partitions      index  i32 | records  bytes?
response    topics      name  string
                        partitions      index  i32 | error  i16 | base offset  i64
                                        append time  i64 ms | log start  i64 (5) |
                                        record errors, message  string? (8)
            throttle  i32 ms
"""

import struct
from typing import Final

from stratalog.broker.wire.primitives import (
    NO_TAGS,
    Reader,
    count_bytes,
    nullable_string_bytes,
    string_bytes,
)

PRODUCE_KEY: Final = 0
PRODUCE_FIRST: Final = 3
PRODUCE_LAST: Final = 9
PRODUCE_ADVERTISED_FIRST: Final = 0
"""librdkafka asks whether version 0 is there before it produces at all. It never uses it."""

FLEXIBLE_FROM: Final = 9
LOG_START_FROM: Final = 5
MESSAGE_FROM: Final = 8
NO_OFFSET: Final = -1

_HEAD: Final = struct.Struct(">ii")
_ANSWER_3: Final = struct.Struct(">ihqq")
_ANSWER_5: Final = struct.Struct(">ihqqq")
_NO_THROTTLE: Final = b"\0\0\0\0"


class PartitionProduce:
    """What is produced to a partition, and what became of it."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "error",
        "index",
        "log_start",
        "message",
        "records",
    )

    def __init__(self, index: int, records: memoryview | None) -> None:
        self.index = index
        self.records = records
        self.error = 0
        self.base_offset = NO_OFFSET
        self.append_time_ms = NO_OFFSET
        self.log_start = NO_OFFSET
        self.message: str | None = None

    def refuse(self, code: int, message: str | None = None) -> None:
        self.error = code
        self.message = message
        self.base_offset = self.append_time_ms = self.log_start = NO_OFFSET


class TopicProduce:
    """The partitions of one topic in a request."""

    __slots__ = ("name", "partitions")

    def __init__(self, name: str, partitions: list[PartitionProduce]) -> None:
        self.name = name
        self.partitions = partitions


class ProduceRequest:
    """A request. The records lie in the memory of its frame."""

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id", "version")

    def __init__(
        self,
        version: int,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topics: list[TopicProduce],
    ) -> None:
        self.version = version
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


def read_produce(version: int, frame: memoryview, at: int) -> ProduceRequest:
    """The request after its header. ``Malformed`` if it is none."""
    reader = Reader(frame, at, flexible=version >= FLEXIBLE_FROM)
    transactional_id = reader.nullable_string()
    acks = reader.int16()
    timeout_ms = reader.int32()
    topics = []
    for _ in range(reader.count()):
        name = reader.string()
        partitions = []
        for _ in range(reader.count()):
            partitions.append(PartitionProduce(reader.int32(), reader.nullable_records()))
            reader.skip_tags()
        topics.append(TopicProduce(name, partitions))
        reader.skip_tags()
    reader.skip_tags()
    return ProduceRequest(version, transactional_id, acks, timeout_ms, topics)


def produce_answer(correlation_id: int, request: ProduceRequest) -> bytes:
    """The whole frame that answers a request."""
    version = request.version
    flexible = version >= FLEXIBLE_FROM
    parts = [NO_TAGS] if flexible else []
    parts.append(count_bytes(len(request.topics), flexible=flexible))
    for topic in request.topics:
        parts.append(string_bytes(topic.name, flexible=flexible))
        parts.append(count_bytes(len(topic.partitions), flexible=flexible))
        for each in topic.partitions:
            if version < LOG_START_FROM:
                parts.append(
                    _ANSWER_3.pack(each.index, each.error, each.base_offset, each.append_time_ms)
                )
                continue
            parts.append(
                _ANSWER_5.pack(
                    each.index, each.error, each.base_offset, each.append_time_ms, each.log_start
                )
            )
            if version >= MESSAGE_FROM:
                parts.append(b"\1" if flexible else b"\0\0\0\0")
                parts.append(nullable_string_bytes(each.message, flexible=flexible))
            if flexible:
                parts.append(NO_TAGS)
        if flexible:
            parts.append(NO_TAGS)
    parts.append(_NO_THROTTLE)
    if flexible:
        parts.append(NO_TAGS)
    body = b"".join(parts)
    return _HEAD.pack(len(body) + 4, correlation_id) + body
