"""Reading beside overwriting: what a reader gets is one history."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stratalog.errors import Conflict
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Partition

SMALL = DiskOptions(read_bytes=1000, segment_entries_max=40, segment_bytes_max=10_000)


async def _written(disk: Disk, *, flushed: int, pending: int) -> Partition:
    partition = await disk.partition("p")
    await partition.append([bytes([1]) * 100] * flushed, epoch=1)
    await disk.flush()
    await partition.append([bytes([1]) * 100] * pending, epoch=1)
    return partition


async def _overwrite(partition: Partition, after: int, count: int) -> None:
    entries = Entries.following(after, 2, [bytes([2]) * 100] * count)
    await partition.write(after, entries)


@pytest.mark.parametrize("after", [5, 60, 95])
def test_a_reader_stops_if_what_it_has_given_out_is_overwritten(tmp_path: Path, after: int) -> None:
    seen: list[tuple[int, int]] = []

    async def scenario() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            partition = await _written(disk, flushed=100, pending=10)
            async for entries in partition.read(range(1, 200)):
                seen.extend((entry.index, entry.epoch) for entry in entries)
                if len(seen) > after and partition.epoch == 1:
                    await _overwrite(partition, after, 90)

    with pytest.raises(Conflict) as refused:
        asyncio.run(scenario())
    assert refused.value.actual == after
    assert [index for index, _ in seen] == list(range(1, len(seen) + 1))
    assert {epoch for _, epoch in seen} == {1}


@pytest.mark.parametrize("after", [30, 60, 95, 105])
def test_a_reader_that_is_not_there_yet_sees_what_was_written_over(
    tmp_path: Path, after: int
) -> None:
    async def scenario() -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        async with await Disk.open(tmp_path, SMALL) as disk:
            partition = await _written(disk, flushed=100, pending=10)
            async for entries in partition.read(range(1, 200)):
                if not seen:
                    await _overwrite(partition, after, 20)
                seen += [(entry.index, entry.epoch) for entry in entries]
        return seen

    seen = asyncio.run(scenario())
    assert seen == [(index, 1 if index <= after else 2) for index in range(1, after + 21)]


def test_a_reader_goes_on_when_its_files_are_dropped_and_rewritten(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        seen: list[int] = []
        live = IndexSet.of(range(3, 180, 3))
        async with await Disk.open(tmp_path, SMALL) as disk:
            partition = await _written(disk, flushed=200, pending=1)
            async for entries in partition.read(live):
                if not seen:
                    await partition.checkpoint(200, b"", live)
                    assert await partition.compact()
                    await asyncio.to_thread(lambda: None)
                seen += [entry.index for entry in entries]
        return seen

    assert asyncio.run(scenario()) == list(range(3, 180, 3))
