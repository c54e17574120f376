"""Whether self-describing records follow each other: each there once, in order, none missing.

Fragments come in the order of the log, and their records as *stretches*: neighbours of one writer
with consecutive numbers. Of each writer only the next number and what is missing so far are kept,
and of the log the first things that do not hold. So a log of any length is checked in the memory of
its writers. Pure; ``self_describing`` has the records.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.errors import Corrupt
from stratalog.objectlog.stored import FIRST_OFFSET, MAGIC, Fragment, body_views, decode_described

MISSING_RANGES_MAX = 10_000
ODDITIES_MAX = 1000

Odd = Literal["missing", "late", "twice", "late-or-twice"]
How = Odd | Literal["new"]


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

    __slots__ = ("_forgotten", "missing", "next")

    def __init__(self, first: int = 0) -> None:
        self.next = first
        self.missing: list[tuple[int, int]] = []
        """What was passed over and has not come: half-open ranges, as far as remembered."""
        self._forgotten = (first, first)

    def see(self, first: int, count: int) -> list[Seen]:
        limit = first + count
        if first == self.next:
            self.next = limit
            return [Seen("new", first, count)]
        parts: list[Seen] = []
        if first > self.next:
            parts.append(Seen("missing", self.next, first - self.next))
            if len(self.missing) < MISSING_RANGES_MAX:
                self.missing.append((self.next, first))
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
        for low, high in (*self.missing, self._forgotten):
            bounds |= {each for each in (low, high) if first < each < limit}
        for low, high in pairwise(sorted(bounds)):
            index = bisect.bisect_right(self.missing, low, key=itemgetter(0)) - 1
            held = index >= 0 and low < self.missing[index][1]
            unclear = unclear_from <= low < unclear_to
            otherwise: How = "late-or-twice" if unclear else "twice"
            yield Seen("late" if held else otherwise, low, high - low)
            if held:
                start, end = self.missing.pop(index)
                left = [each for each in ((start, low), (high, end)) if each[0] < each[1]]
                self.missing[index:index] = left


_MEANINGS = {
    "missing": "These records were passed over: lost, or never linked.",
    "late": "These records come after later ones of the same writer.",
    "twice": "These records are in the log a second time.",
    "late-or-twice": "These records come after later ones of the same writer, late or a second "
    "time: its numbers have too many gaps to tell.",
    "broken": "This record begins like a self-describing one and does not hold what it says.",
}


class Oddity(msgspec.Struct, frozen=True, kw_only=True):
    """What does not hold between self-describing records."""

    kind: Literal["missing", "late", "twice", "late-or-twice", "broken"]
    run: str = ""
    writer: int = 0
    first: int = 0
    """The first number concerned."""

    count: int = 1
    offset: int = 0
    """Where in the log it was noticed."""

    detail: str = ""

    @property
    def meaning(self) -> str:
        return _MEANINGS[self.kind]


class DescriptionCheck:
    """What the records say about themselves, taken in the order of the log."""

    def __init__(self, first_offset: int) -> None:
        self._next = first_offset
        self._may_have_begun = first_offset > FIRST_OFFSET
        self._numbers: dict[tuple[str, int], Numbers] = {}
        self._passed_over: list[tuple[tuple[str, int], range, int]] = []
        self._oddities: list[Oddity] = []
        self.writers: set[tuple[str, int]] = set()
        self.records = 0

    def add(
        self, fragment: Fragment, stretches: Sequence[Stretch], broken: Sequence[Broken]
    ) -> None:
        """The next fragment, and what its records say.

        What is absent from a sparse one was compacted, so there is a hole around each stretch.
        """
        if fragment.start.offset > self._next:
            self._pass_a_hole()
        self._next = fragment.limit.offset
        for each in broken:
            self._note(Oddity(kind="broken", offset=each.offset, detail=each.reason))
        for stretch in stretches:
            if fragment.is_sparse:
                self._pass_a_hole()
            self.records += stretch.count
            self._add(stretch)
        if fragment.is_sparse:
            self._pass_a_hole()

    def oddities(self) -> tuple[Oddity, ...]:
        """All that does not hold. Called when the log was read to its end."""
        self._settle_missing()
        return tuple(sorted(self._oddities, key=lambda each: each.offset))

    def _pass_a_hole(self) -> None:
        """Some of the log was compacted or collected, or is damaged, which the scrub reports.

        Any writer may have written there, so each may go on with any number.
        """
        self._settle_missing()
        self._numbers.clear()
        self._may_have_begun = True

    def _settle_missing(self) -> None:
        """What was passed over and did not come is missing."""
        passed_over, self._passed_over = self._passed_over, []
        for key, numbers, offset in passed_over:
            for low, high in self._numbers[key].missing:
                if low in numbers:
                    self._note(_oddity("missing", key, low, high - low, offset))

    def _add(self, stretch: Stretch) -> None:
        key = (stretch.run, stretch.writer)
        numbers = self._numbers.get(key)
        if numbers is None:
            self.writers.add(key)
            numbers = Numbers(stretch.first if self._may_have_begun else 0)
            self._numbers[key] = numbers
        for seen in numbers.see(stretch.first, stretch.count):
            if seen.how == "missing":
                if len(self._passed_over) < ODDITIES_MAX:
                    passed = range(seen.first, seen.first + seen.count)
                    self._passed_over.append((key, passed, stretch.offset))
            elif seen.how != "new":
                offset = stretch.offset + seen.first - stretch.first
                self._note(_oddity(seen.how, key, seen.first, seen.count, offset))

    def _note(self, oddity: Oddity) -> None:
        if len(self._oddities) < ODDITIES_MAX:
            self._oddities.append(oddity)


def _oddity(kind: Odd, key: tuple[str, int], first: int, count: int, offset: int) -> Oddity:
    run, writer = key
    return Oddity(kind=kind, run=run, writer=writer, first=first, count=count, offset=offset)
