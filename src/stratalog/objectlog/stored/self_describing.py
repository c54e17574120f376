"""Records that say who wrote them and as which one, so that a log can be checked against itself.

    magic       8 bytes   93 53 4f 41 4b 0d 0a 01; the last one is the version
    run         8 bytes   drawn when a run begins
    writer      u32 BE    counts the writers of a run, from 1
    number      u64 BE    counts the records of a writer, from 0
    length      u32 BE    of the whole record, padding included
    checksum    u32 BE    CRC-32 of all other bytes in their order
    padding     any bytes, up to the length

A writer number is given up for good once one of its appends has failed or is in doubt, and has at
most one append under way. So in a log that keeps its promises the numbers of each writer follow
each other, whatever happened to it; only its beginning may have been collected. Persisted: keep
stable.
"""

import struct
from hashlib import shake_128
from typing import NamedTuple
from zlib import crc32

from stratalog.errors import Corrupt, Invalid

MAGIC = b"\x93SOAK\r\n\x01"
RUN_DIGITS = 16

_FIELDS = struct.Struct(">8s8sIQI")
_CHECKSUM = struct.Struct(">I")
_HEADER = struct.Struct(">8s8sIQII")
HEADER_BYTES = _HEADER.size
LENGTH_MAX = 2**32 - 1


class SelfDescribed(NamedTuple):
    """What such a record says about itself. ``run`` is 16 hex digits."""

    run: str
    writer: int
    number: int
    length: int


def encode_described(described: SelfDescribed) -> bytes:
    """The record. Its padding follows from the rest, and does not compress."""
    run, writer, number, length = described
    if not HEADER_BYTES <= length <= LENGTH_MAX:
        raise Invalid(f"such a record has {HEADER_BYTES} to {LENGTH_MAX} bytes, not {length}")
    fields = _FIELDS.pack(MAGIC, bytes.fromhex(run), writer, number, length)
    padding = shake_128(fields).digest(length - HEADER_BYTES)
    return fields + _CHECKSUM.pack(crc32(padding, crc32(fields))) + padding


def decode_described(body: bytes | memoryview) -> SelfDescribed | None:
    """What a record says about itself. None if it is of another kind.

    ``Corrupt`` if it begins like one of this kind and does not hold what it says.
    """
    header = bytes(body[:HEADER_BYTES])
    if not header.startswith(MAGIC):
        return None
    if len(header) < HEADER_BYTES:
        raise Corrupt(f"a self-describing record of {len(body)} bytes was cut off")
    _, run, writer, number, length, checksum = _HEADER.unpack(header)
    if length != len(body):
        raise Corrupt(
            f"a self-describing record has {len(body)} bytes and says {length}",
            expected=length,
            actual=len(body),
        )
    found = crc32(body[HEADER_BYTES:], crc32(header[: _FIELDS.size]))
    if found != checksum:
        raise Corrupt(
            "a self-describing record does not have the checksum that it says",
            expected=checksum,
            actual=found,
        )
    return SelfDescribed(run.hex(), writer, number, length)
