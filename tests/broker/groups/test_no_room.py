"""A disk that is full: members wait for it, and hear nothing that a restart could take back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from segments.power import flushing_fails
from stratalog.broker import BrokerOptions
from stratalog.broker.groups import Groups, JoinCall
from stratalog.errors import Full
from stratalog.partitions import DiskLog, KeyedLog, time_of
from stratalog.segments import Disk, DiskOptions
from stratalog.testing import SimulatedFiles, Simulation, simulate

OPTIONS = BrokerOptions(data=Path("unused"), group_initial_delay_ms=0)
DISK = DiskOptions(wal_file_bytes=1024, wal_files_max=1, timeout_s=5.0)
JOIN = JoinCall("", "", "consumer", (("range", b""),), 10.0, 10.0, instance_id="static")


class FullDisk:
    """Groups on a disk on which no segment can be made, and whose WAL is full."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.files = SimulatedFiles(random=Random(1))

    async def open(self) -> Groups:
        runtime = self.simulation.runtime
        disk = await Disk.open(self.files, DISK, runtime=runtime, time_of=time_of)
        self.durable = await KeyedLog.open(await DiskLog.open(disk, "groups", runtime=runtime))
        return await Groups.open(self.durable, OPTIONS, runtime, lambda _: True)

    async def fill(self) -> None:
        self.files.fail_if(flushing_fails)
        try:
            while True:
                await self.durable.put({b"\x93\x01\xa1g\xa1x": None, b"\x93\x01\xa1g\xa1y": None})
        except Full:
            return


def on_a_full_disk(check: Callable[[FullDisk, Groups], Coroutine[Any, Any, None]]) -> None:
    async def main(simulation: Simulation) -> None:
        full = FullDisk(simulation)
        groups = await full.open()
        await full.fill()
        await check(full, groups)

    simulate(main, 1, time_max_s=600.0)


def test_a_member_is_answered_when_its_generation_is_stored_and_not_before() -> None:
    async def check(full: FullDisk, groups: Groups) -> None:
        joining = asyncio.ensure_future(groups.join("g", JOIN))
        await asyncio.sleep(30.0)
        assert not joining.done()
        full.files.fail_if(None)
        joined = await joining
        assert (joined.error, joined.generation) == (ErrorCode.none, 1)
        full.files.crash()
        full.files = full.files.after_power_loss(Random(2))
        found = (await full.open()).find("g")
        assert found is not None
        assert found.generation == 1

    on_a_full_disk(check)


def test_groups_close_all_the_same() -> None:
    async def check(full: FullDisk, groups: Groups) -> None:
        joining = asyncio.ensure_future(groups.join("g", JOIN))
        await asyncio.sleep(1.0)
        async with asyncio.timeout(30.0):
            await groups.close()
        assert (await joining).error is ErrorCode.coordinator_not_available

    on_a_full_disk(check)
