"""What a Parquet footer says of its columns, read without Arrow.

Arrow gives the same, but ends the whole process when a damaged footer leaves a column without a
description. Nothing here believes a length: whatever does not fit is a ``ValueError``.

The footer is Thrift in its compact form. Of its fields only these are looked at:

    FileMetaData    4  row groups         RowGroup  1  columns        ColumnChunk  3  description
    description     2  encodings    5  number of values    6  size without the codec
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")

MAGIC = b"PAR1"
DEPTH_MAX = 16

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_NUMBERS = (4, 5, 6)


class StoredColumn(NamedTuple):
    """A column of one row group."""

    encodings: tuple[int, ...]
    values: int
    decoded_bytes: int


def columns_in(data: bytes) -> list[list[StoredColumn]]:
    """The columns of each row group. ``ValueError`` if there is no such footer."""
    size = int.from_bytes(data[-8:-4], "little")
    if data[-4:] != MAGIC or size > len(data) - 12:
        raise ValueError("it does not end as Parquet does")
    try:
        return _row_groups(_Compact(data[-8 - size : -8]))
    except (IndexError, OverflowError) as error:
        raise ValueError(f"its footer does not hold together: {error}") from None


def _row_groups(footer: _Compact) -> list[list[StoredColumn]]:
    groups: list[list[StoredColumn]] = []
    for field, kind in footer.fields():
        if (field, kind) == (4, _LIST):
            groups += footer.items(lambda: _columns(footer))
        else:
            footer.skip(kind)
    return groups


def _columns(footer: _Compact) -> list[StoredColumn]:
    columns: list[StoredColumn] = []
    for field, kind in footer.fields():
        if (field, kind) == (1, _LIST):
            columns += footer.items(lambda: _chunk(footer))
        else:
            footer.skip(kind)
    return columns


def _chunk(footer: _Compact) -> StoredColumn:
    found: StoredColumn | None = None
    for field, kind in footer.fields():
        if (field, kind) == (3, _STRUCT):
            found = _description(footer)
        else:
            footer.skip(kind)
    if found is None:
        raise ValueError("its footer leaves out a column")
    return found


def _description(footer: _Compact) -> StoredColumn:
    encodings: tuple[int, ...] = ()
    numbers: dict[int, int] = {}
    for field, kind in footer.fields():
        if (field, kind) == (2, _LIST):
            encodings = tuple(footer.items(footer.number))
        elif field in (5, 6) and kind in _NUMBERS:
            numbers[field] = footer.number()
        else:
            footer.skip(kind)
    if len(numbers) < 2 or min(numbers.values()) < 0:
        raise ValueError("its footer does not say how large a column is")
    return StoredColumn(encodings, numbers[5], numbers[6])


class _Compact:
    """A place in the bytes of a footer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and the type of each field of a struct. The caller takes its value."""
        field = 0
        while head := self._byte():
            delta = head >> 4
            field = field + delta if delta else self.number()
            yield field, head & 15

    def items(self, take: Callable[[], T]) -> list[T]:
        """The values of a list, each of which takes a byte at least."""
        size, _ = self._list()
        return [take() for _ in range(size)]

    def number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, kind: int, depth: int = 0) -> None:
        """Go past a value of this type."""
        if depth > DEPTH_MAX:
            raise ValueError("its footer is nested too deep")
        if kind in _NUMBERS:
            self._varint()
        elif kind == _BINARY:
            self._past(self._varint())
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (_LIST, _SET):
            size, inner = self._list()
            for _ in range(size):
                self.skip(_BYTE if inner in (_TRUE, _FALSE) else inner, depth + 1)
        elif kind == _MAP:
            self._skip_map(depth)
        elif kind in (_BYTE, _DOUBLE):
            self._past(1 if kind == _BYTE else 8)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(f"its footer has a value of type {kind}")

    def _skip_map(self, depth: int) -> None:
        size = self._varint()
        kinds = self._byte() if size else 0
        if size > len(self._data) - self._at:
            raise ValueError("its footer has a map that is longer than itself")
        for _ in range(size):
            self.skip(kinds >> 4, depth + 1)
            self.skip(kinds & 15, depth + 1)

    def _list(self) -> tuple[int, int]:
        head = self._byte()
        size = head >> 4
        size = self._varint() if size == 15 else size
        if size > len(self._data) - self._at:
            raise ValueError("its footer has a list that is longer than itself")
        return size, head & 15

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _past(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("its footer is cut off")

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("its footer has a number that is too long")
