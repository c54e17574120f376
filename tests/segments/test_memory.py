"""The memory for entries that are not in segments yet is bounded, whoever writes and however."""

from __future__ import annotations

import asyncio
import errno
import gc
import tracemalloc
from pathlib import Path

import pytest

from segments.disks import WatchedFiles, as_after_a_crash, entries, epochs, run
from stratalog.errors import Full, Unavailable
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Entry, Partition

MEMORY = 1 << 20
QUEUE = MEMORY // 32
OPTIONS = DiskOptions(
    wal_file_bytes=1 << 24, memory_bytes_max=MEMORY, queue_bytes_max=QUEUE, timeout_s=30
)
"""WAL files that are never full."""
PARTITIONS = 2000


def held(partitions: list[Partition]) -> int:
    """What the entries in memory take, by their own account."""
    tables = (table for each in partitions for table in each._tables)
    return sum(run.memory_bytes for table in tables for run in table.runs())


async def fill(partitions: list[Partition], answers: set[asyncio.Future[IndexSet]]) -> int:
    """Small writes, each to another partition, until there is no room."""
    for number in range(1 << 20):
        partition = partitions[number % len(partitions)]
        last, _ = partition.tail
        payload = memoryview(bytearray(b"%d" % number).ljust(100)).toreadonly()
        try:
            answers.add(partition.submit(last, Entries.following(last, 1, [payload])))
        except Full:
            return number
        if number % 50 == 0:
            await asyncio.sleep(0)
    raise AssertionError("there is always room")


def test_thousands_of_partitions_with_tiny_writes_beside_a_slow_flush(tmp_path: Path) -> None:
    async def main() -> None:
        files = WatchedFiles(tmp_path)
        async with await Disk.open(files, OPTIONS) as disk:
            partitions = [await disk.partition(f"{number}") for number in range(PARTITIONS)]
            await partitions[0].append([b"first"])
            answers: set[asyncio.Future[IndexSet]] = set()
            with files.holding("create", "seg/") as gate:
                gc.collect()
                tracemalloc.start()
                count = await fill(partitions, answers)
                await asyncio.gather(*answers)
                while count and answers:  # what was queued has made room for a few more
                    answers.clear()
                    count = await fill(partitions, answers)
                    await asyncio.gather(*answers)
                gc.collect()
                taken, _ = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert MEMORY // 2 < held(partitions) < MEMORY + 6 * QUEUE
                assert taken < 1.5 * MEMORY
                await gate.reached()
                room = asyncio.ensure_future(disk.room())
                await asyncio.sleep(0)
                assert not room.done()
                gate.let_go()
                await room
            await disk.flush()
            assert held(partitions) == 0
            await partitions[0].append([b"last"])

    run(main())


def test_many_times_as_much_is_written_as_there_is_memory(tmp_path: Path) -> None:
    async def main() -> None:
        options = DiskOptions(wal_file_bytes=1 << 24, memory_bytes_max=20_000, timeout_s=30)
        async with await Disk.open(tmp_path, options) as disk:
            part, highest = await disk.partition("p"), 0

            def look(_: int) -> None:
                nonlocal highest
                highest = max(highest, held([part]))

            part.on_durable(look)
            for first in range(1, 400, 4):
                writes = (part.append([b"%d" % at]) for at in range(first, first + 4))
                await asyncio.gather(*writes)
            assert part.last == 400
            assert disk.stats.flushes.count > 10
            assert 10_000 < highest < 20_000 + 5 * Entries.following(0, 1, [b"x"]).memory_bytes
            assert [entry.index for entry in await _all(part)] == list(range(1, 401))

    run(main())


async def _all(part: Partition) -> list[Entry]:
    return [entry async for batch in part.read(range(1, 1000)) for entry in batch]


def test_one_write_that_is_larger_than_all_of_it_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        options = DiskOptions(wal_file_bytes=1 << 24, memory_bytes_max=1000, timeout_s=30)
        async with await Disk.open(tmp_path, options) as disk:
            part = await disk.partition("p")
            for _ in range(3):
                await part.append([bytes(5000)])
            assert part.last == 3

    run(main())


def test_what_a_restart_finds_in_the_wal_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, DiskOptions(wal_file_bytes=1 << 20)) as disk:
            await (await disk.partition("p")).write(0, entries(range(1, 101)))
        as_after_a_crash(tmp_path)
        files = WatchedFiles(tmp_path)
        options = DiskOptions(wal_file_bytes=1 << 20, memory_bytes_max=10_000, timeout_s=30)
        with files.failing("create", "seg/", errno.EIO):
            disk = await Disk.open(files, options)
            part = await disk.partition("p")
            with pytest.raises(Full):
                part.submit(100, entries([101]))
            with pytest.raises(Unavailable, match="writing segments"):
                await disk.flush()
            with pytest.raises(Full, match="cannot be flushed"):
                part.submit(100, entries([101]))
        async with disk:
            await disk.flush()
            await part.write(100, entries([101]))
            assert list(await epochs(part)) == list(range(1, 102))

    run(main())
