"""Major compaction against reading and writing the live bytes plainly.

One entry in four lives, scattered. The plain program knows the places of the live bytes. It reads
them from the same files, writes them to one new file, in pieces, and syncs it. It neither finds the
live entries, nor verifies a checksum, nor writes an index, nor records its work.

The copy of one file with just the live bytes is shown as well: no compaction can be faster.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.segments.folders import fresh_folder
from bench.session import Session
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Partition
from stratalog.segments.format.frame import HEAD_BYTES
from stratalog.segments.format.segment_file import SegmentIndex
from stratalog.segments.io.files import LocalFiles

TARGET = 0.5
TOTAL_BYTES = 512 * 1024 * 1024
ENTRY_BYTES = (1024, 16 * 1024)
LIVE_OF = 4
PIECE_BYTES = 1024 * 1024

Spans = Sequence[tuple[int, int]]
"""Where bytes lie in a file, and how many."""


@dataclass(frozen=True)
class Prepared:
    """A disk of which little lives."""

    folder: Path
    partition: Partition
    live_bytes: int
    spans: dict[Path, Spans]


async def compacting(session: Session) -> None:
    total = session.amount(TOTAL_BYTES, TOTAL_BYTES // 32)
    for entry_bytes in ENTRY_BYTES:

        async def ours(entry_bytes: int = entry_bytes) -> float:
            return await _rate(entry_bytes, total, lambda made: made.partition.compact())

        async def plain(entry_bytes: int = entry_bytes) -> float:
            return await _rate(
                entry_bytes, total, lambda made: asyncio.to_thread(_gather, made.folder, made.spans)
            )

        async def one_file() -> float:
            return await asyncio.to_thread(_copied, total // LIVE_OF)

        for against, side, target in (
            ("reading the live bytes and writing them plainly", plain, TARGET),
            ("copying one file of the live bytes", one_file, None),
        ):
            await session.compare(
                question="compacting",
                name=f"major compaction, 1 entry of {entry_bytes // 1024} KiB in {LIVE_OF} lives",
                place="directory",
                against=against,
                unit="MB/s",
                bound="at least",
                target=target,
                baseline=side,
                ours=ours,
            )


async def _rate(
    entry_bytes: int, total: int, work: Callable[[Prepared], Awaitable[object]]
) -> float:
    with fresh_folder() as folder:
        options = DiskOptions(segment_bytes_max=16 * 1024 * 1024, major_after_minors=None)
        async with await Disk.open(folder, options) as disk:
            made = await _prepared(folder, disk, entry_bytes, total)
            began_s = time.perf_counter()
            await work(made)
            return made.live_bytes / (time.perf_counter() - began_s) / 1e6


async def _prepared(folder: Path, disk: Disk, entry_bytes: int, total: int) -> Prepared:
    payloads = [os.urandom(entry_bytes) for _ in range(256)]
    partition = await disk.partition("orders")
    for _ in range(max(2, total // entry_bytes // len(payloads))):
        await partition.append(payloads, epoch=1)
    await disk.flush()
    await partition.append([b"newest"], epoch=1)
    await disk.flush()
    last = partition.last
    live = IndexSet.of(range(1, last, LIVE_OF))
    await partition.checkpoint(last, b"state", live)
    spans = {folder / file.path: _spans(folder, file.path, live) for file in partition.layout.files}
    return Prepared(folder, partition, len(live) * entry_bytes, spans)


def _spans(folder: Path, path: str, live: IndexSet) -> Spans:
    file = LocalFiles(folder).open(path)
    try:
        disk = file.read_at(0, HEAD_BYTES)[16:32]
        index = SegmentIndex.read(file, disk, 1, path)
    finally:
        file.close()
    chosen = live.contains(index.indexes)
    sizes = index.heads["size"][chosen].tolist()
    starts = (index.ends[chosen] - sizes + HEAD_BYTES).tolist()
    return list(zip(starts, sizes, strict=True))


def _gather(folder: Path, spans: dict[Path, Spans]) -> None:
    write, position = os.open(folder / "copy", os.O_CREAT | os.O_RDWR), 0
    for path, places in spans.items():
        read = os.open(path, os.O_RDONLY)
        parts: list[bytes] = []
        collected = 0
        for start, size in places:
            parts.append(os.pread(read, size, start))
            collected += size
            if collected >= PIECE_BYTES:
                position += os.pwrite(write, b"".join(parts), position)
                parts, collected = [], 0
        position += os.pwrite(write, b"".join(parts), position)
        os.close(read)
    os.fdatasync(write)
    os.close(write)


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
