"""Kafka's primitive types: what the layouts are made of.

Two families. *Legacy*: lengths of 16 or 32 bits, −1 for null. *Flexible*: lengths are varints, one
too large, 0 for null; and each structure ends with tagged fields, which we skip.
"""

import struct
from typing import Final

from stratalog.errors import Invalid

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
UINT16: Final = struct.Struct(">H")
FLOAT64: Final = struct.Struct(">d")

VARINT_BYTES_MAX: Final = 5
ELEMENTS_MAX: Final = 100_000
"""Of all arrays of one request together. It bounds what a small frame can become in memory."""
NO_TAGS: Final = b"\0"


class Malformed(Invalid):
    """These bytes are not what the protocol says. The connection is closed."""

    kind = "malformed"
    default_hint = "Use a Kafka client; nothing else speaks this protocol."


class Reader:
    """Reads primitives from a frame, one after another. ``Malformed`` if they are not there."""

    __slots__ = ("at", "data", "elements_left", "end", "flexible")

    def __init__(self, data: memoryview, at: int, *, flexible: bool) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.flexible = flexible
        self.elements_left = ELEMENTS_MAX

    def int8(self) -> int:
        at = self._step(1)
        value = self.data[at]
        return value - 256 if value > 127 else value

    def int16(self) -> int:
        value: int = INT16.unpack_from(self.data, self._step(2))[0]
        return value

    def int32(self) -> int:
        value: int = INT32.unpack_from(self.data, self._step(4))[0]
        return value

    def int64(self) -> int:
        value: int = INT64.unpack_from(self.data, self._step(8))[0]
        return value

    def uint16(self) -> int:
        value: int = UINT16.unpack_from(self.data, self._step(2))[0]
        return value

    def float64(self) -> float:
        value: float = FLOAT64.unpack_from(self.data, self._step(8))[0]
        return value

    def boolean(self) -> bool:
        return self.data[self._step(1)] != 0

    def varint(self) -> int:
        """An unsigned number of at most 32 bits."""
        value = 0
        for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
            byte = self.data[self._step(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >= 1 << 32:
                    break
                return value
        raise Malformed("a number has more than 32 bits")

    def nullable_string(self) -> str | None:
        size = self.varint() - 1 if self.flexible else self.int16()
        if size == -1:
            return None
        try:
            return str(self.bytes_of(size), "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("a string is not UTF-8") from error

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise Malformed("a string is null that may not be")
        return value

    def nullable_records(self) -> memoryview | None:
        """Bytes of the frame, not copied."""
        size = self.varint() - 1 if self.flexible else self.int32()
        return None if size == -1 else self.bytes_of(size)

    def nullable_count(self) -> int:
        """How many elements follow; −1 for null. Each takes a byte at least."""
        count = self.varint() - 1 if self.flexible else self.int32()
        if count > 0:
            self.elements_left -= count
        if not -1 <= count <= self.end - self.at or self.elements_left < 0:
            raise Malformed(f"an array has {count} elements")
        return count

    def count(self) -> int:
        count = self.nullable_count()
        if count < 0:
            raise Malformed("an array is null that may not be")
        return count

    def bytes_of(self, size: int) -> memoryview:
        if size < 0:
            raise Malformed(f"a length is {size}")
        at = self._step(size)
        return self.data[at : at + size]

    def skip_tags(self) -> None:
        """At the end of a structure, in the flexible family."""
        if self.flexible:
            for _ in range(self.tag_count()):
                self.varint()
                self.bytes_of(self.varint())

    def tag_count(self) -> int:
        """How many tagged fields follow. Each takes two bytes at least."""
        count = self.varint()
        if count > (self.end - self.at) // 2:
            raise Malformed(f"a structure has {count} tagged fields")
        return count

    def _step(self, size: int) -> int:
        at = self.at
        self.at = after = at + size
        if after > self.end:
            raise Malformed("a request ends in the middle")
        return at


def varint_bytes(value: int) -> bytes:
    """An unsigned number."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_bytes(text: str, *, flexible: bool) -> bytes:
    raw = text.encode()
    return (varint_bytes(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw


def nullable_string_bytes(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    return string_bytes(text, flexible=flexible)


def count_bytes(count: int, *, flexible: bool) -> bytes:
    """The number of elements of an array, or of the bytes of records."""
    return varint_bytes(count + 1) if flexible else INT32.pack(count)
