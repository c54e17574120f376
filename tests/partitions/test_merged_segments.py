"""Segments of a slow partition are merged, as far as its retention allows."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from stratalog.partitions import MERGED_SHARE, DiskLog, time_of
from stratalog.segments import Disk, DiskOptions
from stratalog.testing import SimulatedFiles
from stratalog.testing.partition_conformance import NOW_MS, SetClock, fetched, produced

HOUR_MS = 3_600_000
HOURS = 100
OPTIONS = DiskOptions(wal_file_bytes=1 << 16, merge_after_files=4)


async def an_hour(disk: Disk, log: DiskLog, clock: SetClock) -> None:
    """With a small batch, and then the WAL rolls."""
    await log.append(produced([b"x" * 20], times=[clock.now_ms]))
    await disk.flush()
    await disk._engine.compactor.tasks.end()
    clock.now_ms += HOUR_MS


def segments(log: DiskLog) -> list[int]:
    """How many hours each has."""
    return [last - first + 1 for first, last, *_ in log._partition.segments()]


def run(retention_hours: int | None, bytes_max: int | None = None) -> tuple[list[int], int]:
    """The segments after a hundred hours under some retention, and how much is left of them."""

    async def main() -> tuple[list[int], int]:
        clock, files = SetClock(), SimulatedFiles(random=Random(1))
        clock.now_ms = NOW_MS - HOURS * HOUR_MS
        disk = await Disk.open(files, OPTIONS, runtime=clock, time_of=time_of)
        log = await DiskLog.open(disk, "slow-0", runtime=clock)
        for _ in range(HOURS):
            time_min = None if retention_hours is None else clock.now_ms - retention_hours * HOUR_MS
            await log.retain(bytes_max=bytes_max, time_min_ms=time_min)
            await an_hour(disk, log, clock)
        for offset in range(log.log_start, HOURS):
            assert (await fetched(log, offset, 1)).next_offset > offset
        found = segments(log), HOURS - log.log_start
        await log.close()
        await disk.close()
        return found

    return asyncio.run(main())


def test_without_retention_few_segments_are_left() -> None:
    sizes, kept = run(None)
    assert sum(sizes) == kept == HOURS
    assert len(sizes) < 10


@pytest.mark.parametrize("hours", [80, 40, 8])
def test_by_time_a_record_stays_an_eighth_longer_at_most(hours: int) -> None:
    sizes, kept = run(hours)
    assert max(sizes) <= hours // MERGED_SHARE + 1
    assert hours <= kept <= hours + hours // MERGED_SHARE + 1
    assert len(sizes) < 4 * MERGED_SHARE


def test_by_bytes_no_more_than_an_eighth_goes_at_once() -> None:
    sizes, kept = run(None, bytes_max=10_000)
    one_alone = 250
    assert max(sizes) > 1
    assert 10_000 * (1 - 2 / MERGED_SHARE) / one_alone < kept < HOURS
