"""A topic is deleted, and made again, while clients use it: everybody gets an answer, and the new
topic has nothing of the old one."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.broker_lives import BROKER, DISK, GROUP
from simulation.serving_client import PARTITIONS, Refused
from simulation.serving_life import open_life
from stratalog.testing import SimulatedFiles, Simulation, simulate

CLIENTS = 6
ANSWER_S_MAX = 10.0


@pytest.mark.parametrize("seed", range(10))
def test_nobody_waits_for_a_topic_that_is_gone(seed: int) -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(seed))
        life = await open_life(files, DISK, BROKER, simulation.runtime)
        admin = life.client()
        await admin.create_topic("t", PARTITIONS)
        old = list[int]()

        async def produce(number: int) -> None:
            client = life.client()
            while True:
                old.append(await client.produce_values("t", 0, [b"old %d" % number] * 3))

        async def read() -> None:
            client, at = life.client(), 0
            while True:
                found = await client.fetch("t", 0, at)
                assert all(value.startswith(b"old") for value in found.values.values())
                at = max(found.values, default=at - 1) + 1

        async def commit() -> None:
            client = life.client()
            while True:
                await client.commit(GROUP, "t", 1)

        work = [asyncio.ensure_future(produce(number)) for number in range(CLIENTS)]
        work += [asyncio.ensure_future(read()), asyncio.ensure_future(commit())]
        await asyncio.sleep(simulation.random.uniform(0.0, 0.1))
        await admin.delete_topic("t")
        done, waiting = await asyncio.wait(work, timeout=ANSWER_S_MAX)
        assert not waiting
        assert all(isinstance(each.exception(), Refused) for each in done)
        assert old
        await admin.create_topic("t", PARTITIONS)
        await admin.produce_values("t", 0, [b"new"])
        found = await admin.everything("t")
        assert found is not None
        assert found[0].values == {0: b"new"}
        assert await admin.committed(GROUP) == {}
        await life.close()

    simulate(main, seed, time_max_s=600.0)
