"""A checkpoint and a cut of the same entries at the same time: one of them is refused."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from segments.replicas import contents, entries_of, fill, opened
from stratalog.errors import Conflict, Invalid, NotHappened
from stratalog.indexset import IndexSet
from stratalog.testing import SimulatedFiles, Simulation, simulate


@pytest.mark.parametrize("how", ["truncate", "overwrite"])
def test_what_a_checkpoint_contains_is_not_cut_off_at_the_same_time(how: str) -> None:
    kept: set[bool] = set()

    async def main(simulation: Simulation) -> bool:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation, files) as partition:
            await fill(partition, 1, 9)

            async def checkpoint() -> None:
                await asyncio.sleep(simulation.random.uniform(0, 0.004))
                await partition.checkpoint(8, b"state", IndexSet.of([2, 7]))

            async def cut() -> None:
                await asyncio.sleep(simulation.random.uniform(0, 0.01))
                if how == "truncate":
                    await partition.truncate(4)
                else:
                    await partition.write(4, entries_of(range(5, 7), 2))

            taken, cut_off = await asyncio.gather(checkpoint(), cut(), return_exceptions=True)
            assert (taken is None) != (not isinstance(cut_off, BaseException))
            assert isinstance(taken, NotHappened | Invalid | None)
            if taken is None:
                assert isinstance(cut_off, Conflict)
                assert partition.checkpoint_index == 8
            else:
                assert partition.checkpoint_index == 0
            there = await contents(partition)
        async with opened(simulation, files) as partition:
            assert await contents(partition) == there
        return taken is None

    for seed in range(40):
        kept.add(simulate(main, seed))
    assert kept == {True, False}


def test_a_checkpoint_is_taken_although_its_caller_gives_up() -> None:
    async def main(simulation: Simulation) -> None:
        async with opened(simulation) as partition:
            await fill(partition, 1, 9)
            taking = asyncio.create_task(partition.checkpoint(8, b"state", IndexSet.of([2])))
            await asyncio.sleep(simulation.random.uniform(0, 0.005))
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            await asyncio.sleep(1)
            assert partition.checkpoint_index == 8
            await partition.truncate(8)
            assert partition.last == 8

    for seed in range(10):
        simulate(main, seed)
