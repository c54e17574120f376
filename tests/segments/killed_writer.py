"""A process that writes to a disk until it is killed, and notes what it was told.

    python killed_writer.py DIRECTORY NOTES STEP

Each partition has one writer with several writes in flight, each of three entries whose indexes
are STEP apart. A line of the notes is ``partition last``: everything up to there is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque

from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Entry, Partition

IN_FLIGHT = 8
OPTIONS = DiskOptions(wal_file_bytes=1 << 14, major_after_minors=None)


def write_after(last: int, step: int) -> Entries:
    indexes = range(last + step, last + 3 * step + 1, step)
    return Entries.of(Entry(index, 1, f"{index}/1/".encode() + b"x" * 50) for index in indexes)


async def keep_writing(part: Partition, step: int, notes: int) -> None:
    sent: deque[tuple[int, asyncio.Future[IndexSet]]] = deque()
    last = part.last
    while True:
        while len(sent) < IN_FLIGHT:
            batch = write_after(last, step)
            sent.append((batch.last, asyncio.ensure_future(part.write(last, batch))))
            last = batch.last
            await asyncio.sleep(0)
        upto, answer = sent.popleft()
        await answer
        os.write(notes, f"{part.name} {upto}\n".encode())


async def main(directory: str, notes_path: str, step: str) -> None:
    notes = os.open(notes_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    disk = await Disk.open(directory, OPTIONS)
    parts = [await disk.partition(f"p{number}") for number in range(3)]
    await asyncio.gather(*(keep_writing(part, int(step), notes) for part in parts))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
