"""Soaks in virtual time: minutes take seconds, and a seed decides everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from stratalog.soak import Figures, History, OpenWriter, SoakOptions, SoakReport, soak
from stratalog.soak.writers import open_locally
from stratalog.store import MemoryStore, PrefixedStore
from stratalog.store.protocol import Store
from stratalog.testing import Faults, Simulation, simulate

STEPS_MAX = 20_000_000

Breaking = Callable[[OpenWriter, Store], OpenWriter]


def soaked(
    seed: int,
    *,
    faults: Faults | None = None,
    breaking: Breaking | None = None,
    store: Store | None = None,
    history: History | None = None,
    on_progress: Callable[[Figures], None] | None = None,
    **options: Any,
) -> SoakReport:
    """A soak below a prefix, through faults, with writers that a test may break."""

    async def scenario(simulation: Simulation) -> SoakReport:
        node = simulation.node("soak", store or MemoryStore(), faults)
        place = PrefixedStore(node.store, "log")
        abandoned: set[asyncio.Task[None]] = set()
        opening = open_locally(place, node.runtime, abandoned)
        report = await node.spawn(
            soak(
                place,
                options=SoakOptions(**{"rate": 20.0, "duration_s": 30.0, **options}),
                open_writer=breaking(opening, place) if breaking else opening,
                history=history,
                on_progress=on_progress,
                runtime=node.runtime,
            )
        )
        await simulation.settle()
        return report

    return simulate(scenario, seed, steps_max=STEPS_MAX)
