"""What self-describing records say about a log as a whole: each is there once, in order.

Fragments are taken in the order of the log. What is kept is the numbers of each writer, and the
first things that do not hold. Pure; ``numbering`` judges the numbers of one writer.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from stratalog.objectlog.check.numbering import Broken, Numbers, Stretch
from stratalog.objectlog.stored import FIRST_OFFSET

ODDITIES_MAX = 1000

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
        self._writers: set[tuple[str, int]] = set()
        self.records = 0

    def add(
        self,
        start: int,
        limit: int,
        stretches: Sequence[Stretch],
        broken: Sequence[Broken],
        *,
        sparse: bool = False,
    ) -> None:
        """The next fragment: its offsets, and what its records say.

        What is absent from a ``sparse`` one was compacted, so there is a hole around each stretch.
        """
        if start > self._next:
            self._pass_a_hole()
        self._next = limit
        for each in broken:
            self._note(Oddity(kind="broken", offset=each.offset, detail=each.reason))
        for stretch in stretches:
            if sparse:
                self._pass_a_hole()
            self.records += stretch.count
            self._add(stretch)
        if sparse:
            self._pass_a_hole()

    @property
    def writers(self) -> int:
        return len(self._writers)

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
        for (run, writer), numbers, offset in passed_over:
            for low, high in self._numbers[run, writer].missing:
                if low in numbers:
                    self._note(
                        Oddity(
                            kind="missing",
                            run=run,
                            writer=writer,
                            first=low,
                            count=high - low,
                            offset=offset,
                        )
                    )

    def _add(self, stretch: Stretch) -> None:
        key = (stretch.run, stretch.writer)
        numbers = self._numbers.get(key)
        if numbers is None:
            self._writers.add(key)
            numbers = Numbers(stretch.first if self._may_have_begun else 0)
            self._numbers[key] = numbers
        for seen in numbers.see(stretch.first, stretch.count):
            if seen.how == "missing":
                if len(self._passed_over) < ODDITIES_MAX:
                    passed = range(seen.first, seen.first + seen.count)
                    self._passed_over.append((key, passed, stretch.offset))
            elif seen.how != "new":
                self._note(
                    Oddity(
                        kind=seen.how,
                        run=stretch.run,
                        writer=stretch.writer,
                        first=seen.first,
                        count=seen.count,
                        offset=stretch.offset + seen.first - stretch.first,
                    )
                )

    def _note(self, oddity: Oddity) -> None:
        if len(self._oddities) < ODDITIES_MAX:
            self._oddities.append(oddity)
