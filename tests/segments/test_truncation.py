"""Cutting off the end of a partition's log, beside other partitions and other callers."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

from segments.replicas import SMALL, contents, fill, opened
from stratalog.indexset import IndexSet
from stratalog.segments import Disk
from stratalog.testing import SimulatedFiles, Simulation, simulate


def test_a_log_is_cut_off_while_other_partitions_never_stop_writing() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with await Disk.open(files, SMALL, runtime=simulation.runtime) as disk:
            orders, busy = await disk.partition("orders"), await disk.partition("busy")
            await fill(orders, 1, 9)

            async def write_on() -> None:
                while True:
                    await asyncio.gather(*(busy.append([b"x"]) for _ in range(3)))

            writers = [asyncio.create_task(write_on()) for _ in range(3)]
            async with asyncio.timeout(60):
                await orders.truncate(4)
            assert orders.indexes == IndexSet(range(1, 5))
            for writer in writers:
                writer.cancel()

    simulate(main, 1)


def test_who_gives_up_waiting_for_a_cut_leaves_a_log_that_can_be_written_and_opened() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation, files) as partition:
            await fill(partition, 1, 9)
            cutting = asyncio.create_task(partition.truncate(4))
            await asyncio.sleep(0)
            cutting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await cutting
            await partition.append([b"ten, or five"])
            there = await contents(partition)
            assert partition.is_whole
        async with opened(simulation, files) as partition:
            assert await contents(partition) == there

    for seed in range(20):
        simulate(main, seed)


def test_what_is_cut_off_while_it_is_flushed_does_not_come_back() -> None:
    """The record that names the new segment is on its way when the cut becomes durable."""

    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with await Disk.open(files, SMALL, runtime=simulation.runtime) as disk:
            partition = await disk.partition("orders")
            await fill(partition, 1, 9, epoch=1)

            async def cut() -> None:
                await asyncio.sleep(simulation.random.uniform(0, 0.02))
                await partition.truncate(4)

            await asyncio.gather(disk.flush(), cut())
            assert partition.indexes == IndexSet(range(1, 5))
            await fill(partition, 5, 12, epoch=2)
            there = await contents(partition)
            assert [entry.epoch for entry in there.entries] == [1] * 4 + [2] * 8
        async with opened(simulation, files) as partition:
            assert await contents(partition) == there

    for seed in range(60):
        simulate(main, seed)
