"""Major compaction against reading and writing the live bytes plainly.

One entry in four lives, scattered. The plain program copies a file that has just these bytes, in
pieces, and syncs it: it neither finds them among the dead ones nor checks them.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from bench.segments.folders import fresh_folder
from bench.session import Session
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions

TARGET = 0.5
TOTAL_BYTES = 256 * 1024 * 1024
ENTRY_BYTES = (1024, 16 * 1024)
LIVE_OF = 4
PIECE_BYTES = 1024 * 1024


async def compacting(session: Session) -> None:
    total = session.amount(TOTAL_BYTES, TOTAL_BYTES // 32)
    for entry_bytes in ENTRY_BYTES:

        async def ours(entry_bytes: int = entry_bytes) -> float:
            with fresh_folder() as folder:
                return await _compacted(folder, entry_bytes, total)

        async def plain() -> float:
            return await asyncio.to_thread(_copied, total // LIVE_OF)

        await session.compare(
            question="compacting",
            name=f"major compaction, 1 entry of {entry_bytes // 1024} KiB in {LIVE_OF} lives",
            place="directory",
            against="copying the live bytes plainly",
            unit="MB/s",
            bound="at least",
            target=TARGET,
            baseline=plain,
            ours=ours,
        )


async def _compacted(folder: Path, entry_bytes: int, total: int) -> float:
    options = DiskOptions(segment_bytes_max=16 * 1024 * 1024, major_after_minors=None)
    payloads = [os.urandom(entry_bytes) for _ in range(256)]
    async with await Disk.open(folder, options) as disk:
        partition = await disk.partition("orders")
        for _ in range(max(2, total // entry_bytes // len(payloads))):
            await partition.append(payloads, epoch=1)
        await disk.flush()
        await partition.append([b"newest"], epoch=1)
        await disk.flush()
        last = partition.last
        live = IndexSet.of(range(1, last, LIVE_OF))
        await partition.checkpoint(last, b"state", live)
        began_s = time.perf_counter()
        await partition.compact()
        return len(live) * entry_bytes / (time.perf_counter() - began_s) / 1e6


def _copied(size: int) -> float:
    with fresh_folder() as folder:
        source = folder / "live"
        source.write_bytes(os.urandom(size))
        began_s = time.perf_counter()
        read, write = os.open(source, os.O_RDONLY), os.open(folder / "copy", os.O_CREAT | os.O_RDWR)
        position = 0
        while piece := os.pread(read, PIECE_BYTES, position):
            position += os.pwrite(write, piece, position)
        os.fdatasync(write)
        took_s = time.perf_counter() - began_s
        os.close(read)
        os.close(write)
    return size / took_s / 1e6
