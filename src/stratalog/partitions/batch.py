"""Record batches (v2): their heads, and the checks at the door.

A batch travels and rests as the producer made it. Its head, big-endian:

    base offset  i64 | length  i32 | leader epoch  i32 | magic  i8 | CRC-32C  u32
    attributes  i16 | last offset delta  i32 | first timestamp  i64 | max timestamp  i64
    producer id  i64 | producer epoch  i16 | base sequence  i32 | count  i32          61 bytes

``length`` counts the bytes after itself. The checksum covers everything from ``attributes`` on, so
that a broker may write the base offset and the leader epoch.

At rest the first eight bytes hold the append time in µs: the index of the entry tells the offset.
"""

import enum
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import google_crc32c
import msgspec
import numpy as np

from stratalog.errors import Corrupt, Invalid

HEAD: Final = struct.Struct(">qiibIhiqqqhii")
HEAD_BYTES: Final = HEAD.size
LENGTH_END: Final = 12
"""The length counts the bytes from here on."""
CHECKED_FROM: Final = 21
"""The checksum covers the bytes from here on."""
MAGIC: Final = 2
MAGIC_AT: Final = 16

CODEC_BITS: Final = 0x07
CODEC_MAX: Final = 4
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
RESERVED_BITS: Final = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
"""None of them is a client's to set here."""

NO_TIMESTAMP: Final = -1
RECORD_BYTES_MIN: Final = 7
SWOLLEN_BYTES_MAX: Final = 128 * 1024 * 1024
"""What the records of one batch may take when they are no longer compressed."""
BATCH_BYTES_MAX: Final = 1024 * 1024 + LENGTH_END
"""Kafka's default for ``max.message.bytes``."""
FOREVER_MS: Final = 2**63 - 1

_STORED: Final = struct.Struct(">qii")
_OFFSET: Final = struct.Struct(">q")
_CHECKSUM: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIME: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_TIMES: Final = struct.Struct(">qq")
_FIRST_TIMESTAMP_AT: Final = 27


class BatchFault(enum.Enum):
    """Why a batch was refused. The wire has an error code for each."""

    CORRUPT = "corrupt"
    INVALID_RECORD = "invalid-record"
    INVALID_TIMESTAMP = "invalid-timestamp"
    TOO_LARGE = "too-large"
    UNSUPPORTED_FORMAT = "unsupported-format"
    UNSUPPORTED_COMPRESSION = "unsupported-compression"
    TRANSACTIONAL = "transactional"


class RefusedBatch(Invalid):
    """A batch that cannot be appended as it is."""

    kind: ClassVar[str] = "refused-batch"
    default_hint = "Nothing was appended. Repeating the same batch will not help."

    def __init__(self, fault: BatchFault, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, actual=fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a topic accepts."""

    bytes_max: int = BATCH_BYTES_MAX
    """``max.message.bytes``."""
    before_ms_max: int = FOREVER_MS
    """``message.timestamp.before.max.ms``."""
    after_ms_max: int = 3_600_000
    """``message.timestamp.after.max.ms``."""
    uses_append_time: bool = False
    """``message.timestamp.type=LogAppendTime``: the times of clients do not count."""


DEFAULT_LIMITS: Final = BatchLimits()


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The head of a batch, and its memory, which is not copied."""

    data: memoryview
    """All of it, with the head."""
    base_offset: int
    """At rest, the append time in µs."""
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @classmethod
    def over(cls, data: memoryview | bytes | bytearray) -> Self:
        """The first batch in this memory, unchecked. ``Corrupt`` if it is not all there."""
        view = memoryview(data)
        size = len(view)
        if size >= HEAD_BYTES:
            fields = HEAD.unpack_from(view)
            end = fields[1] + LENGTH_END
            if HEAD_BYTES <= end <= size:
                return cls(view if end == size else view[:end], *fields)
        raise Corrupt("this is not a whole record batch", actual=size)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def has_append_time(self) -> bool:
        """Its records have the time of the append, not that of the producer."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id >= 0

    @property
    def time_ms(self) -> int:
        """The largest time of its records; −1 if none has one."""
        return max(self.first_timestamp, self.max_timestamp)

    @property
    def stored_time_us(self) -> int:
        """When it was appended. Only of a batch at rest."""
        return self.base_offset


def check_batch(data: memoryview | bytes | bytearray, limits: BatchLimits, now_ms: int) -> Batch:
    """The one batch that fills this memory, as a client may produce it. ``RefusedBatch`` if not.

    A producer sends one batch for each partition, as Kafka demands. The records themselves are not
    decoded.
    """
    view = memoryview(data)
    size = len(view)
    if size < HEAD_BYTES:
        _refuse_short(view)
    batch = Batch(view, *HEAD.unpack_from(view))
    if batch.magic != MAGIC or batch.length != size - LENGTH_END or size > limits.bytes_max:
        _refuse_frame(batch, limits)
    checked = np.frombuffer(view, np.uint8, size - CHECKED_FROM, CHECKED_FROM)
    if google_crc32c.value(checked) != batch.crc:  # it takes an array without a copy
        raise RefusedBatch(BatchFault.CORRUPT, "the checksum of the batch does not match")
    attributes, count = batch.attributes, batch.count
    if (
        attributes & RESERVED_BITS
        or attributes & CODEC_BITS > CODEC_MAX
        or count <= 0
        or count != batch.last_offset_delta + 1
        or count * RECORD_BYTES_MIN
        > (SWOLLEN_BYTES_MAX if attributes & CODEC_BITS else size - HEAD_BYTES)
        or batch.base_offset
        or (batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0))
    ):
        _refuse_head(batch)
    if not limits.uses_append_time:
        _check_times(batch, limits, now_ms)
    return batch


def _check_times(batch: Batch, limits: BatchLimits, now_ms: int) -> None:
    first, largest = batch.first_timestamp, batch.max_timestamp
    if first > largest != NO_TIMESTAMP or first < NO_TIMESTAMP or largest < NO_TIMESTAMP:
        raise RefusedBatch(
            BatchFault.INVALID_TIMESTAMP,
            f"the timestamps of the batch go from {first} to {largest}",
        )
    earliest, latest = now_ms - limits.before_ms_max, now_ms + limits.after_ms_max
    for time_ms in (first, largest):
        if time_ms != NO_TIMESTAMP and not earliest <= time_ms <= latest:
            raise RefusedBatch(
                BatchFault.INVALID_TIMESTAMP,
                f"timestamp {time_ms} is not between {earliest} and {latest}",
                hint="Set the producer's clock, or the topic's message.timestamp limits.",
            )


def _refuse_short(view: memoryview) -> None:
    if not len(view):
        raise RefusedBatch(BatchFault.INVALID_RECORD, "there is no record batch")
    if len(view) > MAGIC_AT and view[MAGIC_AT] < MAGIC:
        raise _old_format(view[MAGIC_AT])
    raise RefusedBatch(
        BatchFault.CORRUPT, f"a record batch has at least {HEAD_BYTES} bytes, not {len(view)}"
    )


def _old_format(magic: int) -> RefusedBatch:
    return RefusedBatch(
        BatchFault.UNSUPPORTED_FORMAT,
        f"record batches have magic {MAGIC}, not {magic}",
        hint="Use a client of Kafka 0.11 or newer.",
    )


def _refuse_frame(batch: Batch, limits: BatchLimits) -> None:
    size = len(batch.data)
    if batch.magic != MAGIC:
        raise _old_format(batch.magic)
    if size > limits.bytes_max:
        raise RefusedBatch(
            BatchFault.TOO_LARGE,
            f"the batch has {size} bytes, and the topic takes {limits.bytes_max}",
            hint="Raise the topic's max.message.bytes, or let the producer make smaller batches.",
        )
    if HEAD_BYTES - LENGTH_END <= batch.length < size - LENGTH_END:
        raise RefusedBatch(
            BatchFault.INVALID_RECORD, "a request has exactly one record batch for a partition"
        )
    raise RefusedBatch(
        BatchFault.CORRUPT, f"the batch says that it has {batch.length} bytes, and has {size}"
    )


def _refuse_head(batch: Batch) -> None:
    attributes, codec = batch.attributes, batch.codec
    if codec > CODEC_MAX:
        raise RefusedBatch(BatchFault.UNSUPPORTED_COMPRESSION, f"there is no codec {codec}")
    if attributes & CONTROL_BIT:
        raise RefusedBatch(BatchFault.INVALID_RECORD, "clients do not write control batches")
    if attributes & TRANSACTIONAL_BIT:
        raise RefusedBatch(
            BatchFault.TRANSACTIONAL,
            "transactions are not supported",
            hint="Use an idempotent producer without a transactional id.",
        )
    if attributes & LOG_APPEND_TIME_BIT:
        raise RefusedBatch(
            BatchFault.INVALID_TIMESTAMP, "a producer does not say that it has the append time"
        )
    if attributes & DELETE_HORIZON_BIT:
        raise RefusedBatch(BatchFault.INVALID_RECORD, "clients do not set a delete horizon")
    if batch.base_offset:
        raise RefusedBatch(
            BatchFault.INVALID_RECORD,
            f"the base offset of a produced batch is 0, not {batch.base_offset}",
        )
    if batch.producer_id >= 0 and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        raise RefusedBatch(
            BatchFault.INVALID_RECORD, "a producer id comes with an epoch and a sequence number"
        )
    raise RefusedBatch(
        BatchFault.INVALID_RECORD,
        f"the batch counts {batch.count} records in {len(batch.data)} bytes, "
        f"and its last offset delta is {batch.last_offset_delta}",
    )


def stamp_stored(data: memoryview | bytearray, append_time_us: int, leader_epoch: int) -> None:
    """Make a batch what lies at rest: its append time in place of the base offset."""
    _STORED.pack_into(data, 0, append_time_us, len(data) - LENGTH_END, leader_epoch)


def write_base_offset(data: memoryview | bytearray, base_offset: int, at: int = 0) -> None:
    """Make a stored batch readable, in place."""
    _OFFSET.pack_into(data, at, base_offset)


base_offset_bytes: Final = _OFFSET.pack
"""The first eight bytes of a batch that can be read: the others are those at rest."""


def set_append_time(batch: Batch, time_ms: int) -> Batch:
    """``LogAppendTime``: all its records have this time. Changes its memory, with the checksum."""
    data = batch.data
    _ATTRIBUTES.pack_into(data, CHECKED_FROM, batch.attributes | LOG_APPEND_TIME_BIT)
    _TIME.pack_into(data, _MAX_TIMESTAMP_AT, time_ms)
    _CHECKSUM.pack_into(data, MAGIC_AT + 1, checksum(data))
    return Batch.over(data)


def checksum(data: memoryview | bytes | bytearray) -> int:
    """The CRC-32C that belongs into the head of this batch."""
    view = np.frombuffer(data, np.uint8, len(data) - CHECKED_FROM, CHECKED_FROM)
    return int(google_crc32c.value(view))


def batches_in(parts: Iterable[bytes | bytearray | memoryview]) -> Iterator[Batch]:
    """The batches that were fetched, one after another. ``Corrupt`` if the last is cut off."""
    rest = memoryview(b"".join(parts))
    while len(rest):
        batch = Batch.over(rest)
        yield batch
        rest = rest[len(batch.data) :]


def time_of(_: str, payload: bytes | memoryview) -> int | None:
    """The largest time of a batch at rest, in ms, for ``Disk.open(time_of=…)``."""
    if len(payload) < HEAD_BYTES:
        return None
    time_ms = max(_TIMES.unpack_from(payload, _FIRST_TIMESTAMP_AT))
    return None if time_ms == NO_TIMESTAMP else time_ms
