"""The WAL against a plain write and fdatasync of the same bytes in the same batches.

Our own run goes first and notes the sizes of its batches. The plain program then writes as many
bytes, as often, also to a file that was allocated ahead. A second question compares a hundred
partitions at once with one: the same writes, with as many in flight.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

from bench.pairs import Side
from bench.segments.folders import NotingFiles, fresh_folder
from bench.session import Session
from stratalog.segments import Disk, Entries, Partition

TARGET = 0.8
WRITE_BYTES = 64 * 1024
TOTAL_BYTES = 256 * 1024 * 1024
WRITERS = 100
LARGE_WRITE_BYTES = 1024 * 1024
LARGE_WRITERS = 16
ENTRY_BYTES = (1024, 16 * 1024)


@dataclass(frozen=True)
class Load:
    """A number of bytes, in writes of one size, with a number of them in flight."""

    entry_bytes: int
    write_bytes: int
    writers: int
    total: int


async def wal(session: Session) -> None:
    total = session.amount(TOTAL_BYTES, TOTAL_BYTES // 32)
    sizes: list[int] = []
    loads = [
        Load(entry_bytes, write_bytes, writers, total)
        for write_bytes, writers in ((LARGE_WRITE_BYTES, LARGE_WRITERS), (WRITE_BYTES, WRITERS))
        for entry_bytes in ENTRY_BYTES
    ]
    for load in loads:

        async def ours(load: Load = load) -> float:
            with fresh_folder() as folder:
                files = NotingFiles(folder)
                rate = await _written(files, load)
                sizes[:] = files.wal_writes
                return rate

        await ours()
        await session.compare(
            question="wal",
            name=f"appends of {load.write_bytes // 1024:,} KiB, "
            f"entries of {load.entry_bytes // 1024} KiB",
            place="directory",
            against="write + fdatasync of the same batches",
            unit="MB/s",
            bound="at least",
            target=TARGET,
            baseline=_plain(sizes),
            ours=ours,
        )


async def partitions(session: Session) -> None:
    for entry_bytes in ENTRY_BYTES:
        total = session.amount(TOTAL_BYTES, TOTAL_BYTES // 32)

        load = Load(entry_bytes, WRITE_BYTES, WRITERS, total)

        async def with_partitions(count: int, load: Load = load) -> float:
            with fresh_folder() as folder:
                return await _written(NotingFiles(folder), load, partitions=count)

        async def one() -> float:
            return await with_partitions(1)

        async def many() -> float:
            return await with_partitions(WRITERS)

        await session.compare(
            question="partitions",
            name=f"{WRITERS} partitions at once, entries of {entry_bytes // 1024} KiB",
            place="directory",
            against=f"one partition, {WRITERS} writes on their way",
            unit="MB/s",
            bound="at least",
            target=TARGET,
            baseline=one,
            ours=many,
        )


async def _written(files: NotingFiles, load: Load, partitions: int = 1) -> float:
    payloads = [os.urandom(load.entry_bytes) for _ in range(load.write_bytes // load.entry_bytes)]
    turns = max(1, load.total // load.write_bytes // load.writers)
    count = turns * load.writers
    async with await Disk.open(files) as disk:
        opened = [await disk.partition(f"p{number}") for number in range(partitions)]
        await opened[0].append(payloads, epoch=1)
        began_s = time.perf_counter()
        if partitions == 1:
            await _pipelined(opened[0], payloads, count, load.writers)
        else:
            await asyncio.gather(*(_one_by_one(each, payloads, turns) for each in opened))
        return count * load.write_bytes / (time.perf_counter() - began_s) / 1e6


async def _pipelined(partition: Partition, payloads: list[bytes], count: int, writers: int) -> None:
    """Some writers of one partition, each of which knows the last write of the one before it."""
    last = partition.last
    left = iter(range(count))

    async def writer() -> None:
        nonlocal last
        for _ in left:
            previous = last
            last += len(payloads)
            await partition.write(previous, Entries.following(previous, 1, payloads))

    await asyncio.gather(*(writer() for _ in range(writers)))


async def _one_by_one(partition: Partition, payloads: list[bytes], count: int) -> None:
    for _ in range(count):
        await partition.append(payloads, epoch=1)


def _plain(sizes: list[int]) -> Side:
    async def side() -> float:
        return await asyncio.to_thread(_write_plainly, sizes)

    return side


def _write_plainly(sizes: list[int]) -> float:
    batches = {size: os.urandom(size) for size in set(sizes)}
    with fresh_folder() as folder:
        fd = _allocated(folder / "plain", sum(sizes))
        position = 0
        began_s = time.perf_counter()
        for size in sizes:
            position += os.pwrite(fd, batches[size], position)
            os.fdatasync(fd)
        took_s = time.perf_counter() - began_s
        os.close(fd)
    return sum(sizes) / took_s / 1e6


def _allocated(path: Path, size: int) -> int:
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
    return fd
