"""Payloads in one buffer, sliced lazily."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]


class Slices(Sequence[memoryview]):
    """Views of a buffer from each start to each end, made on access."""

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
        buffer = self._buffer
        pairs = zip(self._starts.tolist(), self._ends.tolist(), strict=True)
        return (buffer[start:end] for start, end in pairs)

    def at(self, places: npt.NDArray[np.intp]) -> Slices:
        """The slices at some places."""
        return Slices(self._buffer, self._starts[places], self._ends[places])

    def parts(self) -> list[memoryview]:
        """All slices, as a single view if they are adjacent."""
        if len(self) and (self._starts[1:] == self._ends[:-1]).all():
            return [self._buffer[int(self._starts[0]) : int(self._ends[-1])]]
        return list(self)
