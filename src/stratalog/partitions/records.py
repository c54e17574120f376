"""The records in a batch, for those who need them: look-up by time, keyed logs, people, tests.

    length  varint | attributes  i8 | time delta  varint | offset delta  varint
    key length  varint | key | value length  varint | value
    headers  varint | each: key length  varint | key | value length  varint | value

Varints are zigzag. A length of −1 stands for no key or no value. Any bytes give records or
``Undecodable``.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from stratalog.errors import Invalid
from stratalog.partitions.batch import (
    CODEC_BITS,
    HEAD,
    HEAD_BYTES,
    LENGTH_END,
    MAGIC,
    NO_TIMESTAMP,
    SWOLLEN_BYTES_MAX,
    Batch,
    checksum,
)
from stratalog.partitions.compression import Codec, Undecodable, compress, decompress

Headers = tuple[tuple[bytes, bytes | None], ...]
VARINT_BITS_MAX: Final = 70
TIME_LIMIT_MS: Final = 2**63
_CRC_AT: Final = 17


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record with its offset and time."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that has no offset yet."""

    key: bytes | None
    value: bytes | None
    time_ms: int = NO_TIMESTAMP
    headers: Headers = ()


def decode_records(
    batch: Batch, base_offset: int, bytes_max: int = SWOLLEN_BYTES_MAX
) -> Iterator[Record]:
    """The records of a batch, one after another."""
    data = decompress(batch.data[HEAD_BYTES:], batch.attributes & CODEC_BITS, bytes_max)
    at, previous = 0, -1
    for _ in range(batch.count):
        try:
            record, delta, at = _decode_record(data, at, batch, base_offset)
        except IndexError:
            raise Undecodable(f"the batch at {base_offset} ends within a record") from None
        if not previous < delta <= batch.last_offset_delta:
            raise Undecodable(f"in the batch at {base_offset}, offset delta {delta} is misplaced")
        previous = delta
        yield record
    if at != len(data):
        raise Undecodable(f"the batch at {base_offset} has {len(data) - at} bytes too many")


def _decode_record(data: bytes, at: int, batch: Batch, base_offset: int) -> tuple[Record, int, int]:
    size, at = _varint(data, at)
    end = at + size
    if not at < end <= len(data):
        raise Undecodable(f"a record in the batch at {base_offset} claims {size} bytes")
    time_delta, at = _varint(data, at + 1)  # after the attributes, of which none is in use
    delta, at = _varint(data, at)
    key, at = _blob(data, at)
    value, at = _blob(data, at)
    count, at = _varint(data, at)
    if not 0 <= count <= end - at:
        raise Undecodable(f"a record in the batch at {base_offset} claims {count} headers")
    headers = []
    for _ in range(count):
        name, at = _blob(data, at)
        if name is None:
            raise Undecodable(f"a header in the batch at {base_offset} has no key")
        content, at = _blob(data, at)
        headers.append((name, content))
    if at != end:
        raise Undecodable(f"a record in the batch at {base_offset} is not as long as it says")
    if batch.has_append_time:
        time_ms = batch.max_timestamp
    else:
        time_ms = batch.first_timestamp + time_delta
    if not -TIME_LIMIT_MS <= time_ms < TIME_LIMIT_MS:
        raise Undecodable(f"the time of a record in the batch at {base_offset} is {time_ms}")
    return Record(base_offset + delta, time_ms, key, value, tuple(headers)), delta, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift >= VARINT_BITS_MAX:
            raise Undecodable("a number in a record has more than 64 bits")


def _blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size == -1:
        return None, at
    end = at + size
    if size < 0 or end > len(data):
        raise Undecodable(f"a field of a record claims {size} bytes")
    return data[at:end], end


def encode_batch(
    records: Sequence[NewRecord],
    codec: Codec = Codec.NONE,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch as a producer sends it. ``Invalid`` without records."""
    if not records:
        raise Invalid("a batch has at least one record")
    first = records[0].time_ms
    body = compress(b"".join(_encode_records(records, first)), codec)
    data = bytearray(HEAD_BYTES) + body
    head = [0, len(data) - LENGTH_END, -1, MAGIC, 0, int(codec), len(records) - 1]
    head += [first, max(each.time_ms for each in records)]
    head += [producer_id, producer_epoch, base_sequence, len(records)]
    HEAD.pack_into(data, 0, *head)
    data[_CRC_AT : _CRC_AT + 4] = checksum(data).to_bytes(4, "big")
    return data


def _encode_records(records: Iterable[NewRecord], first_ms: int) -> Iterator[bytes]:
    for delta, record in enumerate(records):
        encoded = bytearray(1)
        _put_varint(encoded, record.time_ms - first_ms)
        _put_varint(encoded, delta)
        _put_blob(encoded, record.key)
        _put_blob(encoded, record.value)
        _put_varint(encoded, len(record.headers))
        for name, content in record.headers:
            _put_blob(encoded, name)
            _put_blob(encoded, content)
        size = bytearray()
        _put_varint(size, len(encoded))
        yield bytes(size + encoded)


def _put_varint(into: bytearray, number: int) -> None:
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        into.append(rest & 0x7F | 0x80)
        rest >>= 7
    into.append(rest)


def _put_blob(into: bytearray, blob: bytes | None) -> None:
    if blob is None:
        _put_varint(into, -1)
    else:
        _put_varint(into, len(blob))
        into += blob
