"""Losing the power at every call of a step, for whatever lives in a data directory.

A ``Stage`` says how a directory is opened and what is known of it, its *ledger*. A step is played,
and played again and again, each time cut short at another call of the file system. After each the
directory is opened as the loss may have left it, compared with the ledger, used, and compared once
more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

from segments.power import CrashPoint, crash_points, fingerprint, play, told
from stratalog.testing import FileCall, SimulatedFiles, Simulation


class Lives(Protocol):
    """An open directory, with its ledger."""

    async def check(self) -> None:
        """Everything is as it was promised."""

    async def go_on(self) -> None:
        """Everything can be used."""


L = TypeVar("L", bound=Lives)
K = TypeVar("K")

Step = Callable[[L], Awaitable[None]]


@dataclass(frozen=True)
class Stage(Generic[K, L]):
    """Where steps are played."""

    opened: Callable[[SimulatedFiles, K, Simulation], AbstractAsyncContextManager[L]]
    new_ledger: Callable[[], K]
    losses: int = 2
    """How often the power is lost at one call: each time other writes survive."""
    used_every: int = 1
    """Only every so many states are also used, at once or after one more clean close. All of them
    are compared."""

    def survive(self, step: Step[L], prologue: Step[L] | None = None) -> int:
        """Gives how many different states were left. Nothing of the prologue is cut short."""
        files, ledger = SimulatedFiles(random=Random(1)), self.new_ledger()
        if prologue is not None:
            self._play(files, ledger, prologue, seed=1)
        files = files.after_kill()
        seen = set[int]()
        for point in crash_points(self._calls_of(files.after_kill(), deepcopy(ledger), step)):
            for seed in range(point.call.number, point.call.number + self.losses):
                with told(f"power lost {point}, seed {seed}"):
                    self._lose_power(files.after_kill(), deepcopy(ledger), step, point, seed, seen)
        return len(seen)

    def _calls_of(self, files: SimulatedFiles, ledger: K, step: Step[L]) -> list[FileCall]:
        """The calls of a step that nothing disturbs; and then everything is as promised."""
        start = list[int]()

        async def undisturbed(life: L) -> None:
            start.append(len(files.calls))
            await step(life)
            start.append(len(files.calls))
            await life.check()
            await life.go_on()

        self._play(files, ledger, undisturbed, seed=2)
        return files.calls[start[0] : start[1]]

    def _lose_power(
        self,
        files: SimulatedFiles,
        ledger: K,
        step: Step[L],
        point: CrashPoint,
        seed: int,
        seen: set[int],
    ) -> None:
        files.crash_at(point.call.number, point.when)
        self._play(files, ledger, step, seed=2)
        assert files.dead, "it did not get to the call at which it should have crashed"
        survivor = files.after_power_loss(Random(seed))
        state = hash((fingerprint(survivor), repr(ledger)))
        if state in seen:
            return
        seen.add(state)
        is_used = len(seen) % self.used_every == 0

        async def compare(life: L) -> None:
            await life.check()

        async def compare_and_use(life: L) -> None:
            await life.check()
            await life.go_on()

        lives = [compare_and_use, compare] if is_used else [compare]
        for number, step_of_life in enumerate(lives if seed % 2 else reversed(lives)):
            self._play(survivor, ledger, step_of_life, seed=3 + number)

    def _play(self, files: SimulatedFiles, ledger: K, step: Step[L], seed: int) -> None:
        async def script(simulation: Simulation) -> None:
            async with self.opened(files, ledger, simulation) as life:
                await step(life)

        play(files, script, seed)
