"""What a log on a disk knows is a function of its batches, whenever its process ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

from stratalog.partitions import (
    Batch,
    CheckpointTurns,
    DiskLog,
    NewRecord,
    ProducerState,
    encode_batch,
    time_of,
)
from stratalog.segments import Disk, DiskOptions
from stratalog.testing import SimulatedFiles, Simulation, simulate

OPTIONS = DiskOptions(
    wal_file_bytes=1024, wal_files_max=8, segment_entries_max=2, read_bytes=256, timeout_s=5.0
)


def batch(sequence: int, *, producer: int = 7, epoch: int = 0) -> Batch:
    value = b"%d" % sequence
    data = encode_batch(
        [NewRecord(None, value)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return Batch.over(data)


class Directory:
    """A data directory with one log, which is opened again and again."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.files = SimulatedFiles(random=Random(1))

    @asynccontextmanager
    async def opened(
        self, turns: CheckpointTurns | None = None, epoch: int | None = None
    ) -> AsyncIterator[DiskLog]:
        """The log, until the power is lost."""
        runtime = self.simulation.runtime
        self.disk = disk = await Disk.open(self.files, OPTIONS, runtime=runtime, time_of=time_of)
        yield await DiskLog.open(disk, "orders-0", runtime=runtime, turns=turns, epoch=epoch)
        self.files.crash()
        self.files = self.files.after_power_loss(Random(2))

    async def producers(self) -> list[ProducerState]:
        async with self.opened() as log:
            return list(log.producers())


def on_a_disk(check: Callable[[Directory], Coroutine[Any, Any, None]]) -> None:
    simulate(lambda simulation: check(Directory(simulation)), 1, time_max_s=600.0)


def test_a_checkpoint_that_an_opening_brings_about_has_all_producers() -> None:
    async def check(directory: Directory) -> None:
        async with directory.opened() as log:
            for sequence in range(40):
                await log.append(batch(sequence // 3, producer=sequence % 3))
            await directory.disk.flush()  # so that it is read in parts
            before = list(log.producers())
        async with directory.opened(CheckpointTurns(log_bytes_max=1500)):
            await asyncio.sleep(1.0)
        assert await directory.producers() == before

    on_a_disk(check)


def test_a_caller_that_is_cancelled_does_not_stop_a_checkpoint() -> None:
    async def check(directory: Directory) -> None:
        async with directory.opened() as log:
            for sequence in range(4):
                await log.append(batch(sequence))
            deleting = asyncio.ensure_future(log.delete_before(2))
            await asyncio.sleep(0)
            deleting.cancel()
            await asyncio.wait([deleting])
            await log.append(batch(4))
            await log.take_checkpoint()
            assert log.log_start == 2
        async with directory.opened() as log:
            assert (log.log_start, log.high_watermark) == (2, 5)

    on_a_disk(check)


def test_append_times_do_not_go_back_with_a_clock_that_was_set_back() -> None:
    async def check(directory: Directory) -> None:
        times: list[int] = []
        for _ in range(3):
            async with directory.opened() as log:
                times.append((await log.append(batch(len(times)))).append_time_ms)
                await log.take_checkpoint()
            runtime = directory.simulation.runtime
            runtime.now_us = partial(itself, runtime.now_us() - 5_000_000)  # type: ignore[method-assign]
        assert times == sorted(times)

    on_a_disk(check)


def test_the_epoch_outlives_all_records() -> None:
    async def check(directory: Directory) -> None:
        async with directory.opened(epoch=7) as log:
            await log.append(batch(0))
            await log.delete_before(1)
        async with directory.opened() as log:
            assert (log.epoch, log.log_start, log.end) == (7, 1, 1)
            assert log.end_of_epoch(7) == (7, 1)

    on_a_disk(check)


def itself(value: int) -> int:
    return value
