"""Writes that find no room wait for it, and then land after those that came before them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stratalog import IndexSet
from stratalog.errors import Full
from stratalog.segments import Disk, DiskOptions, Entries, Partition


def test_appends_that_waited_for_room_land_in_the_order_of_their_calls(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = DiskOptions(queue_bytes_max=256, batch_bytes_max=256)
        async with await Disk.open(tmp_path, options) as disk:
            partition = await disk.partition("p")
            written = await asyncio.gather(
                *(partition.append([b"%d" % number] * 2) for number in range(50))
            )
            assert written == [IndexSet(range(n, n + 2)) for n in range(1, 100, 2)]
            payloads = [
                payload
                async for entries in partition.read(range(1, 101))
                for payload in entries.payloads
            ]
            assert payloads == [b"%d" % number for number in range(50) for _ in range(2)]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_writers_that_submit_when_there_is_room_all_get_their_turn(tmp_path: Path) -> None:
    """None of them waits in a circle for the turns of the others, which then never come."""

    async def submit(disk: Disk, partition: Partition, number: int) -> None:
        while True:
            try:
                previous = partition.tail[0]
                written = partition.submit(
                    previous, Entries.following(previous, 1, [b"%d" % number])
                )
            except Full:
                await disk.room()
            else:
                await written
                return

    async def check() -> None:
        async with await Disk.open(tmp_path, DiskOptions(queue_bytes_max=100)) as disk:
            partitions = [await disk.partition(f"p{number}") for number in range(5)]
            writers = [submit(disk, each, number) for number, each in enumerate(partitions)]
            await asyncio.gather(*writers)
            assert [each.last for each in partitions] == [1] * 5

    asyncio.run(check())
