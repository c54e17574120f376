"""Opening a data directory with ten gigabytes of segments: only the journal is read."""

from __future__ import annotations

import os
import time

from bench.results import Figure
from bench.segments.folders import fresh_folder
from bench.session import Session
from stratalog.segments import Disk, DiskOptions

GIGABYTES = 10
PARTITIONS = 16
ENTRY_BYTES = 16 * 1024
SECONDS_MAX = 5.0


async def restarting(session: Session) -> None:
    megabytes = session.amount(GIGABYTES * 1000, 64)
    payloads = [os.urandom(ENTRY_BYTES) for _ in range(256)]
    writes = megabytes * 1_000_000 // PARTITIONS // (ENTRY_BYTES * len(payloads)) or 1
    with fresh_folder() as folder:
        options = DiskOptions(write_bytes_max=1 << 30)
        async with await Disk.open(folder, options) as disk:
            partitions = [await disk.partition(f"p{number}") for number in range(PARTITIONS)]
            for _ in range(writes):
                for partition in partitions:
                    await partition.append(payloads, epoch=1)
            await disk.flush()
            stored = sum(partition.status().segment_bytes for partition in partitions)
            segments = sum(partition.status().segments for partition in partitions)
        began_s = time.perf_counter()
        async with await Disk.open(folder, options) as disk:
            opened_s = time.perf_counter() - began_s
            first = await disk.partition("p0", create=False)
            await first.get(first.last)
            read_s = time.perf_counter() - began_s
    for name, value, unit, target in (
        (f"opening {stored / 1e9:.1f} GB in {segments} segments", opened_s, "s", SECONDS_MAX),
        ("the same, and reading an entry", read_s, "s", SECONDS_MAX),
    ):
        session.record(
            Figure(
                question="restarting",
                name=name,
                place="directory",
                unit=unit,
                value=value,
                target=target,
            )
        )
