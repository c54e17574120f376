"""Whether the numbers of self-describing records follow each other: none missing, twice or late.

Records come in the order of the log, as *stretches*: neighbours of one writer with consecutive
numbers. Of each writer only the next number and what is missing so far are kept, so a log of any
length is checked in the memory of its writers. Pure; ``self_describing`` has the records.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stratalog.errors import Corrupt
from stratalog.objectlog.stored import MAGIC, body_views, decode_described

MISSING_RANGES_MAX = 10_000

How = Literal["new", "missing", "late", "twice", "late-or-twice"]


@dataclass(slots=True)
class Stretch:
    """Neighbouring records of one writer, whose numbers are consecutive."""

    run: str
    writer: int
    first: int
    count: int
    offset: int

    def is_followed_by(self, run: str, writer: int, number: int) -> bool:
        return self.first + self.count == number and self.writer == writer and self.run == run


class Broken(NamedTuple):
    """A record that begins like a self-describing one and is none."""

    offset: int
    reason: str


def stretches_of(batch: pa.RecordBatch) -> tuple[list[Stretch], list[Broken]]:
    """The self-describing records of a batch, in their order, and those that are broken."""
    column = batch.column(2)
    if not pc.any(pc.starts_with(column, pattern=MAGIC)).as_py():
        return [], []
    stretches: list[Stretch] = []
    broken: list[Broken] = []
    last: Stretch | None = None
    offsets = batch.column(0).to_pylist()
    for offset, body in zip(offsets, body_views(column), strict=True):
        try:
            found = decode_described(body)
        except Corrupt as error:
            broken.append(Broken(offset, str(error)))
            found = None
        if found is None:
            last = None
            continue
        run, writer, number, _ = found
        if last is not None and last.is_followed_by(run, writer, number):
            last.count += 1
        else:
            last = Stretch(run, writer, number, 1, offset)
            stretches.append(last)
    return stretches, broken


@dataclass(frozen=True, slots=True)
class Seen:
    """How a part of a stretch relates to what came before it.

    ``new`` continues the numbers, perhaps after ``missing`` ones; ``late`` was missing until now;
    ``twice`` was there before. ``late-or-twice`` is one of the two, where there were too many gaps
    to remember them all.
    """

    how: How
    first: int
    count: int


class Numbers:
    """The numbers of one writer, as far as they have come by."""

    __slots__ = ("_forgotten", "_missing", "next")

    def __init__(self, first: int = 0) -> None:
        self.next = first
        self._missing: list[tuple[int, int]] = []
        self._forgotten = (first, first)

    @property
    def missing(self) -> Sequence[tuple[int, int]]:
        """What was passed over and has not come: half-open ranges, as far as remembered."""
        return self._missing

    def see(self, first: int, count: int) -> list[Seen]:
        """Take in the next numbers of the log."""
        limit = first + count
        if first == self.next:
            self.next = limit
            return [Seen("new", first, count)]
        parts: list[Seen] = []
        if first > self.next:
            parts.append(Seen("missing", self.next, first - self.next))
            if len(self._missing) < MISSING_RANGES_MAX:
                self._missing.append((self.next, first))
            else:
                low, high = self._forgotten
                self._forgotten = (low if low < high else self.next, first)
        elif first < self.next:
            parts += self._again(first, min(limit, self.next))
        new = max(first, self.next)
        if limit > new:
            parts.append(Seen("new", new, limit - new))
        self.next = max(self.next, limit)
        return parts

    def _again(self, first: int, limit: int) -> Iterator[Seen]:
        """Numbers below the next one: each was missing so far, or is there for the second time.

        Between the first gap that was not remembered and the last, this is not known.
        """
        bounds = {first, limit}
        unclear_from, unclear_to = self._forgotten
        for low, high in (*self._missing, self._forgotten):
            bounds |= {each for each in (low, high) if first < each < limit}
        for low, high in pairwise(sorted(bounds)):
            index = bisect.bisect_right(self._missing, low, key=itemgetter(0)) - 1
            held = index >= 0 and low < self._missing[index][1]
            unclear = unclear_from <= low < unclear_to
            otherwise: How = "late-or-twice" if unclear else "twice"
            yield Seen("late" if held else otherwise, low, high - low)
            if held:
                start, end = self._missing.pop(index)
                left = [each for each in ((start, low), (high, end)) if each[0] < each[1]]
                self._missing[index:index] = left
