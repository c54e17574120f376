"""Closing a disk while something is going on. Its directory may be another process's afterwards."""

from __future__ import annotations

import asyncio
from random import Random

from segments.replicas import SMALL, checkpointed_source, contents, copied, copy, fill, opened
from stratalog.errors import Closed
from stratalog.indexset import IndexSet
from stratalog.segments import Disk
from stratalog.testing import SimulatedFiles, Simulation, simulate


def test_closing_waits_for_a_checkpoint_that_has_begun() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        disk = await Disk.open(files, SMALL, runtime=simulation.runtime)
        partition = await disk.partition("orders")
        await fill(partition, 1, 9)
        taking = asyncio.create_task(partition.checkpoint(5, b"state", IndexSet.of([2])))
        await asyncio.sleep(simulation.random.uniform(0, 0.01))
        await disk.close()
        calls = len(files.calls)
        await taking
        assert files.calls[calls:] == []
        async with await Disk.open(files, SMALL, runtime=simulation.runtime) as disk:
            assert (await disk.partition("orders")).checkpoint_index == 5

    for seed in range(30):
        simulate(main, seed)


def test_a_copy_that_is_overtaken_by_a_close_does_not_touch_the_journal_any_more() -> None:
    async def main(simulation: Simulation) -> bool:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation) as source:
            await checkpointed_source(source)
            disk = await Disk.open(files, SMALL, runtime=simulation.runtime)
            copying = asyncio.create_task(copy(source, await disk.partition("orders")))
            await asyncio.sleep(simulation.random.uniform(0, 0.06))
            await disk.close()
            calls = len(files.calls)
            _, received = await copying
            late = [call for call in files.calls[calls:] if call.path.startswith("journal")]
            assert late == []
            async with opened(simulation, files) as replica:
                await copied(source, replica)
                assert await contents(replica) == await contents(source)
        return isinstance(received, Closed)

    assert sum(simulate(main, seed) for seed in range(40)) > 10
