"""Losing power, being killed and failing at every file-system call of a step.

A ``Scenario`` has a prologue, which is played once, and a step, which is played again and again:
each time on a copy of what the prologue left, from the same seed, so that its calls have the same
numbers, and each time cut short at another of them. After that the directory is opened as it may be
then, compared with what was promised, used (``go_on``), opened again, and compared again.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from segments.model import DiskModel
from segments.witness import Witness
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions
from stratalog.testing import FileCall, SimulatedFiles, Simulation, simulate
from stratalog.testing.disk_faults import When
from stratalog.testing.disk_state import Inode

Step = Callable[[Witness], Awaitable[None]]

OPTIONS = DiskOptions(
    wal_file_bytes=1024,
    wal_files_max=8,
    batch_bytes_max=512,
    segment_entries_max=4,
    segment_bytes_max=1024,
    major_after_minors=None,
    read_bytes=256,
    open_files_max=2,
    timeout_s=5.0,
)
TEARABLE = {"write", "write_durably", "sync", "sync_folder", "make_folder"}
CHANGING = TEARABLE | {"create", "allocate", "rename", "remove"}
TIME_MAX_S = 600.0


async def nothing(_: Witness) -> None:
    """A prologue for a step that needs none, or a step that is only the opening."""


@dataclass(frozen=True)
class Scenario:
    """What is played, and what is cut short."""

    step: Step
    prologue: Step = nothing
    options: DiskOptions = OPTIONS
    is_opened_before: bool = True
    """Whether the opening is not part of the step."""

    @property
    def __name__(self) -> str:
        return self.step.__name__


@dataclass(frozen=True)
class Played:
    """A directory, and what is known of it."""

    files: SimulatedFiles
    model: DiskModel


@dataclass(frozen=True)
class CrashPoint:
    """Where the power is lost."""

    call: FileCall
    when: When

    def __str__(self) -> str:
        return f"{self.when} call {self.call.number}, {self.call.operation} of {self.call.path}"


def play(
    files: SimulatedFiles,
    script: Callable[[Simulation], Awaitable[None]],
    seed: int,
) -> None:
    """Run a script until it ends or the power is lost. What was on its way is cut off.

    Lives of one directory have different seeds, because their ids must differ.
    """

    async def main(simulation: Simulation) -> None:
        gone = asyncio.Event()
        files.on_crash(gone.set)
        playing = asyncio.ensure_future(script(simulation))
        waiting = asyncio.ensure_future(gone.wait())
        await asyncio.wait([playing, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not files.dead:
            await playing
            check_nothing_was_swallowed(simulation)
        elif playing.done() and not playing.cancelled():
            playing.exception()

    simulate(main, seed, time_max_s=TIME_MAX_S)


def check_nothing_was_swallowed(simulation: Simulation) -> None:
    assert not simulation.unhandled, simulation.unhandled


async def opened(
    files: SimulatedFiles, model: DiskModel, scenario: Scenario, simulation: Any
) -> Witness:
    disk = await Disk.open(files, scenario.options, runtime=simulation.runtime)
    return Witness(disk, files, model)


def prologue(scenario: Scenario, *, at_once: bool = False) -> Played:
    """The directory as the prologue leaves it, closed."""
    files, model = SimulatedFiles(random=Random(1), at_once=at_once), DiskModel()
    if scenario.prologue is not nothing:

        async def script(simulation: Simulation) -> None:
            witness = await opened(files, model, scenario, simulation)
            await scenario.prologue(witness)
            await witness.settle()
            await witness.disk.close()
            files.fail_if(None)

        play(files, script, seed=1)
    return Played(files, model)


def calls_of_step(scenario: Scenario, before: Played) -> list[FileCall]:
    """The calls of a step that nothing disturbs; and then everything is as promised."""
    files, model, start = before.files.after_kill(), before.model.copy(), []

    async def script(simulation: Simulation) -> None:
        witness = await opened(files, model, scenario, simulation)
        start.append(len(files.calls) if scenario.is_opened_before else 0)
        await scenario.step(witness)
        await witness.settle()
        start.append(len(files.calls))
        await witness.check()
        await witness.disk.flush()
        await witness.check_leftovers()

    play(files, script, seed=2)
    return files.calls[start[0] : start[1]]


def crash_points(calls: list[FileCall]) -> Iterator[CrashPoint]:
    """Before, after and in the middle of each call that changes something.

    Where nothing changes, the disk is as it was after the call before.
    """
    whens: tuple[When, When, When] = ("before", "after", "torn")
    for call in calls:
        if call.operation in CHANGING:
            for when in whens:
                if when != "torn" or call.operation in TEARABLE:
                    yield CrashPoint(call, when)


def crashed(scenario: Scenario, before: Played, point: CrashPoint) -> Played:
    """The step, cut short."""
    files, model = before.files.after_kill(), before.model.copy()
    files.crash_at(point.call.number, point.when)

    async def script(simulation: Simulation) -> None:
        witness = await opened(files, model, scenario, simulation)
        await scenario.step(witness)
        await witness.settle()

    play(files, script, seed=2)
    assert files.dead, "it did not get to the call at which it should have crashed"
    return Played(files, model)


def come_back(
    scenario: Scenario, left: Played, survivor: SimulatedFiles, *, goes_on: bool = True
) -> None:
    """What was left can be opened, is as promised, and can be used; and again after that."""
    model = left.model.copy()

    async def script(simulation: Simulation) -> None:
        witness = await opened(survivor, model, scenario, simulation)
        await witness.check(settles=True)
        if not goes_on:
            await witness.disk.flush()
            await witness.check_leftovers()
            return
        await go_on(witness)
        await witness.disk.close()
        again = await opened(survivor, model, scenario, simulation)
        await again.check(settles=True)

    play(survivor, script, seed=4)


def use_briefly(
    scenario: Scenario, left: Played, killed: SimulatedFiles
) -> tuple[Played, list[FileCall]]:
    """What the next process shows must not be lost with the power, synced or not before it came.

    Nothing is flushed meanwhile, since a segment would hide that a WAL file is not synced. Also
    gives the calls of the opening.
    """
    model, opening = left.model.copy(), list[FileCall]()
    killed.fail_if(flushing_fails)

    async def script(simulation: Simulation) -> None:
        witness = await opened(killed, model, scenario, simulation)
        opening.extend(killed.calls)
        await witness.check(settles=True)
        await witness.create("briefly")
        for name in model.partitions:
            epoch = max(1, (await witness.disk.partition(name)).epoch)
            await witness.append(name, [b"briefly"], epoch)
        killed.crash()

    play(killed, script, seed=3)
    return Played(killed, model), opening


def flushing_fails(call: FileCall) -> int | None:
    return errno.ENOSPC if call.path.startswith("seg/") and call.operation == "create" else None


def fail_next_sync(files: SimulatedFiles) -> None:
    """Of the WAL. From now on nothing is flushed."""
    number = len(files.calls)

    def rule(call: FileCall) -> int | None:
        is_sync = call.operation == "sync" and call.path.startswith("wal/")
        if is_sync and call.number > number and not failed:
            failed.append(call)
            return 5
        return flushing_fails(call)

    failed: list[FileCall] = []
    files.fail_if(rule)


async def go_on(witness: Witness) -> None:
    """Everything that a node does, on all partitions: it works, and leaves nothing behind."""
    await witness.create("later")
    names = list(witness.model.partitions)
    for name in names:
        partition = await witness.disk.partition(name)
        epoch = partition.epoch + 1
        await witness.append(name, [b"later %d" % number for number in range(3)], epoch)
    await witness.disk.flush()
    for name in names:
        known = witness.model.partitions[name]
        alive = [known.living(index) for index in known.log if known.is_alive(index)]
        live = IndexSet.of(alive[::2]).limit(known.last - 1)
        await witness.checkpoint(name, known.last - 1, b"later", live)
        assert await witness.compact(name)
    await witness.check()
    await witness.check_leftovers()


@contextmanager
def told(what: object) -> Iterator[None]:
    """A failure says where."""
    try:
        yield
    except BaseException as error:
        error.add_note(str(what))
        raise


def survive_power_loss(
    scenario: Scenario, *, losses: int = 2, thoroughly: bool = False, at_once: bool = False
) -> int:
    """At every call of the step. Gives how many different states of the disk that left.

    All of them are opened and compared. Unless it is done ``thoroughly``, one of four is used on,
    and one of three that a kill has left loses its power later.
    """
    before, random, seen = prologue(scenario, at_once=at_once), Random(0), set[int]()

    def is_new(left: Played, survivor: SimulatedFiles) -> bool:
        count = len(seen)
        seen.add(hash((fingerprint(survivor), repr(left.model))))
        return len(seen) > count

    def lose_power(left: Played, times: int) -> None:
        for seed in range(times):
            survivor = left.files.after_power_loss(Random(seed))
            if is_new(left, survivor):
                with told(f"loss {seed}"):
                    come_back(scenario, left, survivor, goes_on=thoroughly or len(seen) % 4 == 0)

    for point in crash_points(calls_of_step(scenario, before)):
        with told(f"power lost {point}"):
            left = crashed(scenario, before, point)
            lose_power(left, losses)
        killed = left.files.after_kill()
        if is_new(left, killed) and (thoroughly or point.call.number % 3 == 0):
            with told(f"killed {point}, then the power was lost after it was used again"):
                again, opening = use_briefly(scenario, left, killed)
                lose_power(again, losses)
            point_of_opening = random.choice(list(crash_points(opening)))
            with told(f"killed {point}, then opened and power lost {point_of_opening}"):
                killed = left.files.after_kill()
                killed.crash_at(point_of_opening.call.number, point_of_opening.when)
                use_briefly(scenario, left, killed)
                lose_power(Played(killed, left.model), 2)
    return len(seen)


def fingerprint(files: SimulatedFiles) -> int:
    """Equal for directories of which a node sees the same, now and after the next loss."""
    folders, parts = [files._disk.root], list[object]()
    for folder in folders:
        for names in (folder.current, folder.durable):
            parts.append(tuple(names))
            for node in names.values():
                if isinstance(node, Inode):
                    parts.append((bytes(node.current), bytes(node.durable), tuple(node.unsynced)))
                else:
                    folders.append(node)
        parts.extend(tuple(renaming) for renaming in folder.unsynced)
    return hash(tuple(parts))
