"""A log on a disk that has no room, or that others keep busy."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from stratalog.errors import Full
from stratalog.partitions import (
    DEFAULT_LIMITS,
    Batch,
    DiskLog,
    NewRecord,
    check_batch,
    encode_batch,
    time_of,
)
from stratalog.segments import Disk, DiskOptions
from stratalog.testing import SimulatedFiles, Simulation, simulate

NOW_MS = 1_700_000_000_000
IN_FLIGHT = 8
LATEST = 2_000


def batch(size: int = 100) -> Batch:
    data = encode_batch([NewRecord(None, bytes(size), NOW_MS)])
    return check_batch(data, DEFAULT_LIMITS, NOW_MS)


def test_a_batch_for_which_there_was_no_room_is_as_it_came() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(1))
        options = DiskOptions(queue_bytes_max=1)
        disk = await Disk.open(files, options, runtime=simulation.runtime, time_of=time_of)
        log = await DiskLog.open(disk, "p", runtime=simulation.runtime)
        first, second = log.append(batch()), batch()
        with pytest.raises(Full):
            log.append(second)
        again = check_batch(second.data, DEFAULT_LIMITS, NOW_MS)
        await first
        assert (await log.append(again)).base_offset == 1
        await disk.close()

    simulate(main, 1, time_max_s=600.0)


def test_records_are_deleted_while_another_log_never_stops_being_written() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(1))
        disk = await Disk.open(files, runtime=simulation.runtime, time_of=time_of)
        busy = await DiskLog.open(disk, "busy", runtime=simulation.runtime)
        idle = await DiskLog.open(disk, "idle", runtime=simulation.runtime)
        await idle.append(batch())
        in_flight = [busy.append(batch()) for _ in range(IN_FLIGHT)]
        deleting = asyncio.ensure_future(idle.delete_before(1))
        for _ in range(LATEST):
            in_flight.append(busy.append(batch()))
            await in_flight.pop(0)
            if deleting.done():
                break
        assert deleting.done()
        await asyncio.gather(*in_flight)
        await disk.close()

    simulate(main, 1, time_max_s=600.0)
