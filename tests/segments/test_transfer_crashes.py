"""The replica's machine fails at every call of the file system while it receives a partition.

A small transfer that does all there is to do: its log is cut off, its WAL rolls over and is
flushed, its own checkpoint gives way to that of the source.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

import pytest

from segments.replicas import (
    TINY_MESSAGES,
    Contents,
    SpyTransport,
    checkpointed_source,
    contents,
    copied,
    copy,
    fill,
    opened,
)
from stratalog.errors import StratalogError
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments import (
    Disk,
    DiskOptions,
    MemoryTransport,
    Partition,
    TransferReport,
    receive_partition,
    send_partition,
)
from stratalog.segments.transfer.messages import Ack, End, Put, StatePart
from stratalog.testing import FileCall, SimulatedFiles, Simulation, simulate

OPTIONS = DiskOptions(wal_file_bytes=512, segment_entries_max=2, major_after_minors=None)
SEED = 7


@dataclass(frozen=True)
class Machines:
    """Two data directories as they are before a copy, and what comes of a copy."""

    source: SimulatedFiles
    replica: SimulatedFiles
    wanted: Contents


@cache
def machines() -> Machines:
    source, replica = SimulatedFiles(random=Random(1)), SimulatedFiles(random=Random(2))

    async def prepare(simulation: Simulation) -> Contents:
        async with opened(simulation, replica, OPTIONS) as partition:
            await fill(partition, 1, 3, epoch=1)
            await partition.checkpoint(2, b"its own", IndexSet.of([2]))
            await fill(partition, 4, 7, epoch=3)
        async with opened(simulation, source, OPTIONS) as partition:
            await checkpointed_source(partition)
            return await contents(partition)

    wanted = simulate(prepare, SEED)
    return Machines(source, replica, wanted)


async def open_disk(simulation: Simulation, files: SimulatedFiles) -> tuple[Disk, Partition]:
    disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
    return disk, await disk.partition("orders")


@cache
def calls_of_a_copy() -> range:
    """The numbers of all calls that the replica makes, from the first message to its close."""
    source, replica = machines().source.after_kill(), machines().replica.after_kill()

    async def main(simulation: Simulation) -> range:
        _, sending = await open_disk(simulation, source)
        disk, receiving = await open_disk(simulation, replica)
        first = len(replica.calls) + 1
        await copied(sending, receiving)
        await disk.flush()
        await disk.close()
        assert does_everything(replica, first)
        return range(first, len(replica.calls) + 1)

    return simulate(main, SEED)


def does_everything(files: SimulatedFiles, first: int) -> bool:
    """Whether it was a copy with a roll-over, a flush, and a checkpoint in place of another."""
    seen = {(call.operation, call.path.split("/")[0]) for call in files.calls[first - 1 :]}
    return seen >= {
        ("create", "wal"),
        ("create", "seg"),
        ("create", "ckpt"),
        ("remove", "wal"),
        ("remove", "ckpt"),
        ("sync", "journal"),
    }


@dataclass(frozen=True)
class Told:
    """What the source was told to be durable before the power went."""

    indexes: IndexSet
    checkpoint: int
    is_whole: bool


async def copy_until_power_is_lost(simulation: Simulation, replica: SimulatedFiles) -> Told:
    lost = asyncio.Event()
    replica.on_crash(lost.set)
    _, sending = await open_disk(simulation, machines().source.after_kill())
    disk, receiving = await open_disk(simulation, replica)
    near, far = MemoryTransport.pair()
    out, back = SpyTransport(near), SpyTransport(far)

    async def all_of_it() -> None:
        await asyncio.gather(
            send_partition(sending, out, TINY_MESSAGES),
            receive_partition(receiving, back, TINY_MESSAGES),
        )
        await disk.flush()
        await disk.close()

    work = asyncio.create_task(all_of_it())
    crash = asyncio.create_task(lost.wait())
    await asyncio.wait([work, crash], return_when=asyncio.FIRST_COMPLETED)
    numbers = {message.number for message in back.sent if isinstance(message, Ack)}
    acknowledged = [
        message
        for message in out.sent
        if isinstance(message, Put | StatePart | End) and message.number in numbers
    ]
    puts = [message.entries().indexes for message in acknowledged if isinstance(message, Put)]
    parts = [message for message in acknowledged if isinstance(message, StatePart)]
    has_state = sum(len(part.body) for part in parts) == len(machines().wanted.state or b"")
    return Told(
        IndexSet.union(puts) if puts else EMPTY,
        8 if has_state else 2,
        any(isinstance(message, End) for message in acknowledged),
    )


async def repeat(simulation: Simulation, replica: SimulatedFiles, told: Told) -> None:
    _, sending = await open_disk(simulation, machines().source.after_kill())
    disk, receiving = await open_disk(simulation, replica)
    assert told.indexes <= receiving.indexes | IndexSet(range(1, receiving.checkpoint_index + 1))
    assert receiving.live <= receiving.indexes
    assert receiving.checkpoint_index >= told.checkpoint
    if told.is_whole:
        assert await contents(receiving) == machines().wanted
    await copied(sending, receiving)
    assert await contents(receiving) == machines().wanted
    await disk.flush()
    await disk.close()
    await must_be_tidy(simulation, replica)


async def must_be_tidy(simulation: Simulation, files: SimulatedFiles) -> None:
    """Another opening finds the same, and nothing that nobody names."""
    disk, partition = await open_disk(simulation, files)
    assert await contents(partition) == machines().wanted
    await disk.close()
    named = disk._engine.journal.layout.paths
    there = {name for name in files.names() if name.split("/")[0] in ("wal", "seg", "ckpt")}
    assert {name for name in there if not name.endswith(".live")} == named


@pytest.mark.parametrize("when", ["before", "after", "torn"])
def test_power_lost_at_any_call_of_a_copy(when: Literal["before", "after", "torn"]) -> None:
    for number in calls_of_a_copy():
        replica = machines().replica.after_kill()
        replica.crash_at(number, when)

        async def crash(simulation: Simulation, replica: SimulatedFiles = replica) -> Told:
            return await copy_until_power_is_lost(simulation, replica)

        told = simulate(crash, SEED)
        assert replica.dead
        survivor = replica.after_power_loss(Random(number))

        async def again(
            simulation: Simulation, survivor: SimulatedFiles = survivor, told: Told = told
        ) -> None:
            await repeat(simulation, survivor, told)

        try:
            simulate(again, number)
        except BaseException as error:
            error.add_note(f"power lost {when} {replica.calls[-1]}")
            raise


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_call_that_fails_ends_a_copy_with_a_typed_error_and_it_is_repeated(number: int) -> None:
    ended_early = 0
    for call in calls_of_a_copy():
        replica = machines().replica.after_kill()

        def failing(each: FileCall, call: int = call) -> int | None:
            return number if each.number == call else None

        replica.fail_if(failing)

        async def main(simulation: Simulation, replica: SimulatedFiles = replica) -> bool:
            _, sending = await open_disk(simulation, machines().source.after_kill())
            disk, receiving = await open_disk(simulation, replica)
            sent, received = await copy(sending, receiving)
            for each in (sent, received):
                assert isinstance(each, TransferReport | StratalogError), each
            replica.fail_if(None)
            await copied(sending, receiving)
            assert await contents(receiving) == machines().wanted
            await disk.flush()
            await disk.close()
            await must_be_tidy(simulation, replica)
            return isinstance(received, StratalogError)

        try:
            ended_early += simulate(main, SEED)
        except BaseException as error:
            error.add_note(f"{errno.errorcode[number]} at {replica.calls[call - 1]}")
            raise
    assert ended_early > len(calls_of_a_copy()) / 5
