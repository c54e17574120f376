"""All bugs that are planted in simulations: who has to find them, and in how many seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simulation import (
    branching,
    compacting,
    damaging,
    herding,
    keeping,
    planted,
    planted_branching,
    planted_compacting,
    planted_damaging,
    planted_herding,
    planted_keeping,
    planted_serving,
    planted_sinking,
    scenario,
    serving,
    sinking,
)
from simulation.planting import Found, Plant, first_seed_that_finds


class Bed(NamedTuple):
    """Plants, and the scenario that has to find each of them in so many seeds."""

    scenario: str
    run_seed: Callable[[int], str]
    plants: tuple[Plant, ...]
    seeds: int
    """More where two processes have to meet in one moment for a bug to be seen."""

    def found(self, plant: Plant) -> Found:
        """The seed that finds one of them."""
        return first_seed_that_finds(plant, self.run_seed, self.seeds)


WRITING = Bed("writing", scenario.run_seed, planted.PLANTED, 400)
KEEPING = Bed("keeping", keeping.run_seed, planted_keeping.PLANTED, 1_000)
BRANCHING = Bed("branching", branching.run_seed, planted_branching.PLANTED, 400)
COMPACTING = Bed("compacting", compacting.run_seed, planted_compacting.PLANTED, 1_000)
DAMAGING = Bed("damaging", damaging.run_seed, planted_damaging.PLANTED, 400)
HERDING = Bed("herding", herding.run_seed, planted_herding.PLANTED, 1_000)
SINKING = Bed("sinking", sinking.run_seed, planted_sinking.PLANTED, 400)
SERVING = Bed("serving", serving.run_seed, planted_serving.PLANTED, 400)

BEDS = (WRITING, KEEPING, BRANCHING, COMPACTING, DAMAGING, HERDING, SINKING, SERVING)
