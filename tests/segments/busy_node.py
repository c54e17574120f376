"""A node that writes, flushes, checkpoints and compacts until its standard input ends."""

from __future__ import annotations

import asyncio
import sys
import threading

from stratalog import IndexSet
from stratalog.segments import Disk, DiskOptions

OPTIONS = DiskOptions(wal_file_bytes=16 * 1024, segment_entries_max=50, major_after_minors=2)
PARTITIONS = 3


async def main(path: str) -> None:
    stopped = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    async with await Disk.open(path, OPTIONS) as disk:
        partitions = [await disk.partition(f"p{number}") for number in range(PARTITIONS)]
        rounds = 0
        while not stopped.is_set():
            await asyncio.gather(
                *(
                    partition.append([b"%d" % rounds * 20] * 7)
                    for partition in partitions
                    for _ in range(5)
                )
            )
            each = partitions[rounds % PARTITIONS]
            last = each.last
            live = (each.live | IndexSet(range(max(1, last - 40), last + 1, 1))).floor(last - 200)
            await each.checkpoint(last, b"state" * 100, live)
            if rounds % 3 == 0:
                await disk.flush()
            if rounds % 5 == 0:
                await each.compact()
            rounds += 1
            if rounds == 10:
                print("busy", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
