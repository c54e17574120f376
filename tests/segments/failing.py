"""A file system that fails at every call of a step, and then works again. Nobody restarts."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from segments.power import (
    CHANGING,
    Played,
    Scenario,
    calls_of_step,
    go_on,
    opened,
    play,
    prologue,
    told,
)
from stratalog.errors import Corrupt, StratalogError
from stratalog.testing import FileCall, SimulatedFiles, Simulation

FILLING = CHANGING - {"remove"}
"""What a full disk refuses."""
NEVER_FAIL = {"lock"}
A_WHILE = 12


@dataclass(frozen=True)
class Failure:
    """From which call on it fails, and how often."""

    call: FileCall
    error: int
    times: int

    def __str__(self) -> str:
        return (
            f"{errno.errorcode[self.error]} {self.times} times from call {self.call.number} on, "
            f"{self.call.operation} of {self.call.path}"
        )

    def rule(self, call: FileCall) -> int | None:
        hits = self.call.number <= call.number < self.call.number + self.times
        if not hits or (self.error == errno.ENOSPC and call.operation not in FILLING):
            return None
        return self.error


def failures(calls: list[FileCall]) -> Iterator[Failure]:
    """Each call once with EIO; and a full disk, and a broken one, for a while."""
    for place, call in enumerate(calls):
        if call.operation in NEVER_FAIL:
            continue
        yield Failure(call, errno.EIO, 1)
        if call.operation in FILLING:
            yield Failure(call, errno.ENOSPC, A_WHILE if place % 2 else 1)
        if call.operation in CHANGING and place % 2:
            yield Failure(call, errno.EIO, A_WHILE)


def survive_failures(scenario: Scenario, *, at_once: bool = False) -> int:
    """At every call of the step. Gives how many failures that were.

    After one of three the disk is used on; after the others the power goes at once, with whatever
    the failure has left open.
    """
    before, count = prologue(scenario, at_once=at_once), 0
    for failure in failures(calls_of_step(scenario, before)):
        is_used_on = count % 3 == 0
        with told(f"{failure}, then {'used on' if is_used_on else 'the power was lost'}"):
            left = failed(scenario, before, failure, is_used_on=is_used_on)
            open_again(scenario, left, left.files.after_power_loss(Random(count)))
            count += 1
    return count


def failed(scenario: Scenario, before: Played, failure: Failure, *, is_used_on: bool) -> Played:
    """The step, with errors of known kinds; then everything works, and then the power goes."""
    files, model = before.files.after_kill(), before.model.copy()
    files.fail_if(failure.rule)

    async def script(simulation: Simulation) -> None:
        witness = None
        try:
            witness = await opened(files, model, scenario, simulation)
            await scenario.step(witness)
        except Corrupt:
            raise
        except StratalogError:
            if not is_used_on:
                files.crash()
        if witness is None:
            files.fail_if(None)
            witness = await opened(files, model, scenario, simulation)
        await witness.settle()
        files.fail_if(None)
        await witness.check()
        if is_used_on:
            await go_on(witness)
        files.crash()

    play(files, script, seed=2)
    return Played(files, model)


def open_again(scenario: Scenario, left: Played, survivor: SimulatedFiles) -> None:
    """Everything is as promised, also after a restart."""

    async def script(simulation: Simulation) -> None:
        witness = await opened(survivor, left.model, scenario, simulation)
        await witness.check(settles=True)
        await witness.disk.flush()
        await witness.check_leftovers()

    play(survivor, script, seed=3)
