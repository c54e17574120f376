"""Records in a stream of bytes: one a line, or each behind its length.

    lines             the newline ends a record and is no part of it; the last one may lack it
    length-prefixed   u32 big-endian, then as many bytes; holds any bytes

A splitter is fed whatever chunks the input gives and keeps only the record that is not complete.
"""

from typing import Protocol

from stratalog.errors import Invalid

PREFIX_BYTES = 4


class Splitter(Protocol):
    def feed(self, chunk: bytes) -> list[bytes]:
        """The records that are complete with this chunk."""

    def end(self) -> list[bytes]:
        """What is left at the end of the input. ``Invalid`` if it is a torn record."""


class Lines:
    def __init__(self, record_bytes_max: int) -> None:
        self._max = record_bytes_max
        self._torn: list[bytes] = []
        self._torn_bytes = 0
        self._complete = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        first, newline, rest = chunk.partition(b"\n")
        self._keep(first)
        if not newline:
            return []
        *lines, last = rest.split(b"\n")
        records = [b"".join(self._torn), *lines]
        self._torn, self._torn_bytes = [], 0
        self._keep(last)
        self._complete += len(records)
        return records

    def end(self) -> list[bytes]:
        return [b"".join(self._torn)] if self._torn_bytes else []

    def _keep(self, piece: bytes) -> None:
        self._torn.append(piece)
        self._torn_bytes += len(piece)
        if self._torn_bytes > self._max:
            raise Invalid(
                f"line {self._complete + 1} is longer than {self._max} bytes",
                hint="Split it. If the input is not text, use --length-prefixed.",
                expected=self._max,
            )


class LengthPrefixed:
    def __init__(self, record_bytes_max: int) -> None:
        self._max = record_bytes_max
        self._buffer = bytearray()
        self._complete = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        self._buffer += chunk
        records: list[bytes] = []
        at = 0
        while len(self._buffer) - at >= PREFIX_BYTES:
            start = at + PREFIX_BYTES
            length = int.from_bytes(self._buffer[at:start], "big")
            if length > self._max:
                raise Invalid(
                    f"record {self._complete + len(records) + 1} claims {length} bytes, "
                    f"more than {self._max}",
                    hint="Is the input length-prefixed (u32, big-endian)? Without "
                    "--length-prefixed every line is a record.",
                    expected=self._max,
                    actual=length,
                )
            if len(self._buffer) - start < length:
                break
            at = start + length
            records.append(bytes(self._buffer[start:at]))
        del self._buffer[:at]
        self._complete += len(records)
        return records

    def end(self) -> list[bytes]:
        if self._buffer:
            raise Invalid(
                f"the input ends in the middle of record {self._complete + 1}",
                hint="The records before it were read. Check whether the input was cut off.",
            )
        return []


def with_length(body: bytes) -> bytes:
    return len(body).to_bytes(PREFIX_BYTES, "big") + body
