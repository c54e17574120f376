"""A node of which a seed plays several lives.

Each ends well, or with a kill or a loss of power at a random file-system call. The files of the
next one are what it has left.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import ClassVar

from stratalog.testing import SimulatedFiles, Simulation
from stratalog.testing.disk_faults import When

WHENS: tuple[When, ...] = ("before", "after", "torn")
LOST_SHARE = 0.7
ROUNDS_MAX = 100


class MortalNode(ABC):
    """One seed."""

    crash_share: ClassVar[float]
    """The share of lives that end at a call."""
    calls_max: ClassVar[int]
    """Such a life ends after so many calls at the latest."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.random = simulation.random
        self.trace = simulation.trace
        self.files = SimulatedFiles(
            random=Random(self.random.getrandbits(32)), at_once=bool(simulation.seed % 2)
        )

    @abstractmethod
    async def live(self) -> None:
        """One life, from its opening to its end."""

    async def life(self) -> None:
        """A life, and what is left of the files after it."""
        random, files = self.random, self.files
        gone = asyncio.Event()
        files.on_crash(gone.set)
        if random.random() < self.crash_share:
            when: When = random.choice(WHENS)
            files.crash_at(len(files.calls) + random.randint(1, self.calls_max), when)
        before = self.simulation.loop.live_tasks()
        living = asyncio.ensure_future(self.live())
        dying = asyncio.ensure_future(gone.wait())
        await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        files.crash_at(0)
        if not files.dead:
            await living
            return
        if living.done():
            living.exception()
        await self._bury(before)
        if random.random() < LOST_SHARE:
            self.trace.note("power lost")
            self.files = files.after_power_loss(random)
        else:
            self.trace.note("killed")
            self.files = files.after_kill()

    async def _bury(self, before: Sequence[object]) -> None:
        """End all tasks of a dead process. Nothing that they still do has an effect."""
        for _ in range(ROUNDS_MAX):
            tasks = [task for task in self.simulation.loop.live_tasks() if task not in before]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1.0)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()
