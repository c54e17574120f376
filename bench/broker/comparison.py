"""A run of this bench: the contenders take turns, and each round gives one ratio."""

from __future__ import annotations

import gc
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.broker.contenders import KAFKA, KAFKA_SYNCED, Contender
from bench.broker.plain import PlainLoop
from bench.results import Bound, Figure, Measurement, Ratio

ROUNDS, ROUNDS_QUICK = 3, 1
PLACE = "one node"

Values = dict[str, float]
"""What one run of one contender measured, by the name of the measure."""

Samples = Mapping[str, Mapping[str, list[float]]]
"""The same from all rounds: contender, measure, a value of each round."""


@dataclass(frozen=True)
class Comparison:
    """Who takes part, and where results go."""

    ours: Contender
    kafka: Sequence[Contender]
    nats: str | None
    plain: PlainLoop
    quick: bool
    record: Callable[[Measurement], None]

    @property
    def contenders(self) -> list[Contender]:
        return [*self.kafka, self.ours]

    def amount(self, thorough: int, quick: int) -> int:
        """How much to do: the first number in a full run."""
        return quick if self.quick else thorough

    def rounds(self, runs: Mapping[str, Callable[[], Values]]) -> Samples:
        """Let each of these run once in each round, every other round in the opposite order."""
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number in range(self.amount(ROUNDS, ROUNDS_QUICK)):
            for name in list(runs)[:: -1 if number % 2 else 1]:
                gc.collect()
                os.sync()
                for measure, value in runs[name]().items():
                    found[name][measure].append(value)
        return found

    def compare(
        self,
        samples: Samples,
        measure: str,
        *,
        question: str,
        name: str,
        unit: str,
        bound: Bound,
        targets: Mapping[str, float | None],
    ) -> None:
        """Record the ratio to each of the contenders in ``targets`` that took part.

        Alone, our own median is recorded.
        """
        if not any(measure in samples.get(against, {}) for against in targets):
            value = statistics.median(samples[self.ours.name][measure])
            self.figure(question, name, value, unit, bound=bound)
        for against, target in targets.items():
            if measure in samples.get(against, {}):
                ratio = Ratio(
                    question=question,
                    name=name,
                    place=PLACE,
                    against=against,
                    unit=unit,
                    baseline=samples[against][measure],
                    ours=samples[self.ours.name][measure],
                    bound=bound,
                    target=target,
                )
                self.record(ratio)

    def figure(
        self,
        question: str,
        name: str,
        value: float,
        unit: str,
        target: float | None = None,
        bound: Bound = "at most",
    ) -> None:
        self.record(
            Figure(
                question=question,
                name=name,
                place=PLACE,
                unit=unit,
                value=value,
                bound=bound,
                target=target,
            )
        )


def both_kafkas(unsynced: float | None, synced: float | None) -> dict[str, float | None]:
    return {KAFKA: unsynced, KAFKA_SYNCED: synced}
