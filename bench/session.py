"""A bench is a set of questions, each of which gets a session.

The session has the places to measure on, says how thorough to be, and takes the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.pairs import PAIRS, PAIRS_QUICK, Side, measure_pairs
from bench.places import Place
from bench.results import Bound, Measurement, Ratio


@dataclass(frozen=True)
class Session:
    """One run of a bench. Quick runs show that the harness works; their figures say little."""

    places: Sequence[Place]
    quick: bool
    record: Callable[[Measurement], None]

    def amount(self, thorough: int, quick: int) -> int:
        """How much to do: the first number in a full run."""
        return quick if self.quick else thorough

    async def compare(
        self,
        *,
        question: str,
        name: str,
        place: str,
        against: str,
        unit: str,
        bound: Bound,
        target: float | None,
        baseline: Side,
        ours: Side,
    ) -> None:
        """Measure interleaved pairs and record their ratio."""
        pairs = PAIRS_QUICK if self.quick else PAIRS
        baselines, mine = await measure_pairs(baseline, ours, pairs)
        self.record(
            Ratio(
                question=question,
                name=name,
                place=place,
                against=against,
                unit=unit,
                baseline=baselines,
                ours=mine,
                bound=bound,
                target=target,
            )
        )


Question = Callable[[Session], Awaitable[None]]


@dataclass(frozen=True)
class Bench:
    """The questions of one run, and the configuration of their answers."""

    name: str
    questions: Mapping[str, Question]
    config: dict[str, str | int | float]

    def help_of_only(self) -> str:
        return f"Only this question: {', '.join(self.questions)}."
