"""Reading a partition's segments in order, against reading the same files plainly with checksums.

The plain program reads the files in pieces of the same size and takes the CRC-32 of as many bytes
at a time as an entry has. It does not find entries, compare their checksums or return them in
batches. It uses Python's own ``zlib``. The same program with the disk's CRC-32, which is ten times
as fast if ``isal`` is installed, is shown as well.
"""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from bench.segments.folders import fresh_folder
from bench.session import Session
from stratalog.segments import Disk, DiskOptions
from stratalog.segments.format.checksum import crc32

TARGET = 0.7
TOTAL_BYTES = 256 * 1024 * 1024
ENTRY_BYTES = (1024, 16 * 1024)
PIECE_BYTES = DiskOptions().read_bytes

Checksum = Callable[[memoryview], int]


async def reading(session: Session) -> None:
    total = session.amount(TOTAL_BYTES, TOTAL_BYTES // 32)
    for entry_bytes in ENTRY_BYTES:
        with fresh_folder() as folder:
            async with await Disk.open(folder) as disk:
                partition = await disk.partition("orders")
                count = total // entry_bytes
                payloads = [os.urandom(entry_bytes) for _ in range(1024)]
                for _ in range(max(1, count // len(payloads))):
                    await partition.append(payloads, epoch=1)
                await disk.flush()

                async def ours() -> float:
                    began_s, size = time.perf_counter(), 0
                    async for entries in partition.read(range(1, partition.last + 1)):  # noqa: B023
                        size += entries.payload_bytes
                    return size / (time.perf_counter() - began_s) / 1e6

                for against, checksum, target in (
                    ("plain reading with zlib's CRC-32", zlib.crc32, TARGET),
                    ("plain reading with the disk's CRC-32", crc32, None),
                ):

                    async def plain(checksum: Checksum = checksum) -> float:
                        return await asyncio.to_thread(
                            _read_plainly,
                            folder / "seg",
                            entry_bytes,  # noqa: B023
                            checksum,
                        )

                    await session.compare(
                        question="reading",
                        name=f"sequential read, entries of {entry_bytes // 1024} KiB",
                        place="directory",
                        against=against,
                        unit="MB/s",
                        bound="at least",
                        target=target,
                        baseline=plain,
                        ours=ours,
                    )


def _read_plainly(folder: Path, entry_bytes: int, checksum: Checksum) -> float:
    began_s, size = time.perf_counter(), 0
    for path in sorted(folder.iterdir()):
        fd = os.open(path, os.O_RDONLY)
        position = 0
        while piece := os.pread(fd, PIECE_BYTES, position):
            view = memoryview(piece)
            for start in range(0, len(piece), entry_bytes):
                checksum(view[start : start + entry_bytes])
            position += len(piece)
        os.close(fd)
        size += position
    return size / (time.perf_counter() - began_s) / 1e6
