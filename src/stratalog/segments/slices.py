"""Payloads that lie in one buffer: what was read from a file is cut only where it is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]


class Slices(Sequence[memoryview]):
    """Views of a buffer, from each start to each end, made when they are asked for."""

    __slots__ = ("_buffer", "_ends", "_starts")

    def __init__(self, buffer: memoryview, starts: Positions, ends: Positions) -> None:
        self._buffer = buffer
        self._starts = starts
        self._ends = ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> memoryview: ...

    @overload
    def __getitem__(self, place: slice) -> Slices: ...

    def __getitem__(self, place: int | slice) -> memoryview | Slices:
        starts, ends = self._starts[place], self._ends[place]
        if isinstance(place, slice):
            return Slices(self._buffer, starts, ends)
        return self._buffer[int(starts) : int(ends)]

    def __iter__(self) -> Iterator[memoryview]:
        return _cut(self._buffer, self._starts, self._ends)

    def at(self, places: npt.NDArray[np.intp]) -> Slices:
        """Those at some places."""
        return Slices(self._buffer, self._starts[places], self._ends[places])

    def runs(self) -> list[memoryview]:
        """The same bytes in as few views as possible: neighbours are one."""
        if not len(self):
            return []
        breaks = np.flatnonzero(self._starts[1:] != self._ends[:-1])
        starts = self._starts[np.append(0, breaks + 1)]
        ends = self._ends[np.append(breaks, len(self) - 1)]
        return list(_cut(self._buffer, starts, ends))


def _cut(buffer: memoryview, starts: Positions, ends: Positions) -> Iterator[memoryview]:
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return (buffer[start:end] for start, end in pairs)
