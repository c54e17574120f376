"""The layouts of Fetch, versions 4 to 12, by hand: records go out from where they lie.

    request     replica  i32 | wait  i32 ms | bytes min  i32 | bytes max  i32 | isolation  i8
                session  i32, its epoch  i32 (7)
                topics      name  string
                            partitions      index  i32 | leader epoch  i32 (9) | offset  i64
                                            last fetched epoch  i32 (12) | log start  i64 (5)
                                            bytes max  i32
                forgotten topics (7) | rack  string (11)
    response    throttle  i32 ms | error  i16, session  i32 (7)
                topics      name  string
                            partitions      index  i32 | error  i16 | high watermark  i64
                                            last stable offset  i64 | log start  i64 (5)
                                            aborted transactions | preferred replica  i32 (11)
                                            records  bytes?
                                            tag 0: epoch and end of where the client diverged (12)

There are no sessions: each answer has session 0, as that of a broker without them, so that a
client asks for all of its partitions each time.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stratalog.broker.wire.primitives import (
    NO_TAGS,
    Reader,
    count_bytes,
    string_bytes,
    varint_bytes,
)

FETCH_KEY: Final = 1
FETCH_FIRST: Final = 4
FETCH_LAST: Final = 12

FLEXIBLE_FROM: Final = 12
LOG_START_FROM: Final = 5
SESSION_FROM: Final = 7
EPOCH_FROM: Final = 9
RACK_FROM: Final = 11

NONE: Final = -1
JOINED_BYTES_MAX: Final = 4096
"""Shorter pieces are copied into one; longer ones are sent from where they lie."""

Buffer = bytes | bytearray | memoryview

_HEAD: Final = struct.Struct(">ii")
_SESSION: Final = struct.Struct(">ihi")
_PARTITION: Final = struct.Struct(">ihqq")
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_DIVERGED: Final = struct.Struct(">iqB")


@dataclass(slots=True)
class PartitionFetch:
    """What is asked of a partition."""

    index: int
    leader_epoch: int
    """The one that the client knows; −1 if it does not say."""
    offset: int
    last_epoch: int
    """The epoch of the last record that it has; −1 if it does not say."""
    log_start: int
    bytes_max: int


@dataclass(slots=True)
class TopicFetch:
    """The partitions of one topic in a request."""

    name: str
    partitions: list[PartitionFetch]


@dataclass(slots=True)
class FetchRequest:
    """A request."""

    version: int
    replica_id: int
    wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[TopicFetch]
    rack: str


class PartitionAnswer:
    """What a partition has to give."""

    __slots__ = ("diverged", "error", "high_watermark", "index", "log_start", "parts", "size")

    def __init__(self, index: int) -> None:
        self.index = index
        self.error = 0
        self.high_watermark = NONE
        self.log_start = NONE
        self.parts: Sequence[Buffer] = ()
        self.size = 0
        self.diverged: tuple[int, int] | None = None
        """An epoch and its end: the client has records that are not ours."""


@dataclass(slots=True)
class TopicAnswer:
    """The partitions of one topic in an answer."""

    name: str
    partitions: list[PartitionAnswer]


def read_fetch(version: int, frame: memoryview, at: int) -> FetchRequest:
    """The request after its header. ``Malformed`` if it is none."""
    reader = Reader(frame, at, flexible=version >= FLEXIBLE_FROM)
    replica_id, wait_ms, bytes_min, bytes_max = (reader.int32() for _ in range(4))
    isolation = reader.int8()
    session_id, session_epoch = 0, NONE
    if version >= SESSION_FROM:
        session_id, session_epoch = reader.int32(), reader.int32()
    topics = []
    for _ in range(reader.count()):
        name = reader.string()
        partitions = [_read_partition(reader, version) for _ in range(reader.count())]
        topics.append(TopicFetch(name, partitions))
        reader.skip_tags()
    if version >= SESSION_FROM:
        for _ in range(reader.count()):
            reader.string()
            for _ in range(reader.count()):
                reader.int32()
            reader.skip_tags()
    rack = reader.string() if version >= RACK_FROM else ""
    reader.skip_tags()
    return FetchRequest(
        version,
        replica_id,
        wait_ms,
        bytes_min,
        bytes_max,
        isolation,
        session_id,
        session_epoch,
        topics,
        rack,
    )


def _read_partition(reader: Reader, version: int) -> PartitionFetch:
    index = reader.int32()
    leader_epoch = reader.int32() if version >= EPOCH_FROM else NONE
    offset = reader.int64()
    last_epoch = reader.int32() if version >= FLEXIBLE_FROM else NONE
    log_start = reader.int64() if version >= LOG_START_FROM else NONE
    bytes_max = reader.int32()
    reader.skip_tags()
    return PartitionFetch(index, leader_epoch, offset, last_epoch, log_start, bytes_max)


class Pieces:
    """The buffers of a frame. Short pieces are joined, long ones left where they are."""

    __slots__ = ("buffers", "open", "size")

    def __init__(self) -> None:
        self.open = bytearray(_HEAD.size)
        self.buffers: list[Buffer] = [self.open]
        self.size = 0

    def add(self, piece: Buffer) -> None:
        size = len(piece)
        self.size += size
        if size <= JOINED_BYTES_MAX:
            self.open += piece
        else:
            self.buffers.append(piece)
            self.open = bytearray()
            self.buffers.append(self.open)

    def frame(self, correlation_id: int) -> list[Buffer]:
        first = self.buffers[0]
        assert isinstance(first, bytearray)
        _HEAD.pack_into(first, 0, self.size + 4, correlation_id)
        return [each for each in self.buffers if len(each)]


def fetch_answer(
    correlation_id: int,
    version: int,
    topics: Sequence[TopicAnswer],
    *,
    committed_only: bool = False,
    error: int = 0,
) -> list[Buffer]:
    """The whole frame that answers a request, in buffers."""
    flexible = version >= FLEXIBLE_FROM
    pieces = Pieces()
    if flexible:
        pieces.add(NO_TAGS)
    pieces.add(_SESSION.pack(0, error, 0) if version >= SESSION_FROM else b"\0\0\0\0")
    pieces.add(count_bytes(len(topics), flexible=flexible))
    for topic in topics:
        pieces.add(string_bytes(topic.name, flexible=flexible))
        pieces.add(count_bytes(len(topic.partitions), flexible=flexible))
        for each in topic.partitions:
            pieces.add(_partition_head(each, version, committed_only=committed_only))
            for part in each.parts:
                pieces.add(part)
            if flexible:
                pieces.add(_partition_tags(each))
        if flexible:
            pieces.add(NO_TAGS)
    if flexible:
        pieces.add(NO_TAGS)
    return pieces.frame(correlation_id)


def _partition_head(each: PartitionAnswer, version: int, *, committed_only: bool) -> bytes:
    """All of it up to the records. Without transactions all that is committed is stable."""
    flexible = version >= FLEXIBLE_FROM
    head = _PARTITION.pack(each.index, each.error, each.high_watermark, each.high_watermark)
    if version >= LOG_START_FROM:
        head += _INT64.pack(each.log_start)
    head += count_bytes(0 if committed_only else NONE, flexible=flexible)
    if version >= RACK_FROM:
        head += _INT32.pack(NONE)
    return head + count_bytes(each.size, flexible=flexible)


def _partition_tags(each: PartitionAnswer) -> bytes:
    if each.diverged is None:
        return NO_TAGS
    body = _DIVERGED.pack(*each.diverged, 0)
    return b"\1\0" + varint_bytes(len(body)) + body
