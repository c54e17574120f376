"""Behaviour 23: removing a partition while it flushes or compacts harms nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from segments.disks import (
    SMALL,
    WatchedFiles,
    entries,
    epochs,
    found,
    names,
    run,
    segments,
    until,
)
from stratalog.errors import NotFound
from stratalog.indexset import IndexSet
from stratalog.segments import Disk


def of_the_second(root: Path) -> bool:
    """Whether only files of the second partition are left."""
    return all(
        name.startswith("00000002.") for folder in ("seg", "ckpt") for name in names(root, folder)
    )


class TestBehaviour23Removal:
    def test_with_all_that_it_had(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part, other = await disk.partition("gone"), await disk.partition("other")
                for each in (part, other):
                    await segments(disk, each, range(1, 6), range(6, 11))
                    await each.checkpoint(7, b"state", IndexSet.of([2]))
                await part.write(10, entries([11]))
                await disk.remove("gone")
                await until(lambda: of_the_second(tmp_path))
                assert disk.partitions() == ["other"]
                for call in (part.append([b"x"]), part.compact(), part.state(), found(part)):
                    with pytest.raises(NotFound):
                        await call
                with pytest.raises(NotFound):
                    await disk.remove("gone")
                before = await epochs(other)
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.partitions() == ["other"]
                assert await epochs(await disk.partition("other")) == before
                again = await disk.partition("gone")
                assert (again.last, await epochs(again)) == (0, {})

        run(main())

    @pytest.mark.parametrize("held", ["seg/", "journal/"])
    def test_while_it_flushes(self, tmp_path: Path, held: str) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part, other = await disk.partition("gone"), await disk.partition("other")
                await part.write(0, entries(range(1, 6)))
                await other.write(0, entries(range(1, 6)))
                with files.holding("sync", held) as gate:
                    flushing = asyncio.ensure_future(disk.flush())
                    await gate.reached()
                    removing = asyncio.ensure_future(disk.remove("gone"))
                    if held == "seg/":
                        await removing
                    gate.let_go()
                    await asyncio.gather(flushing, removing)
                await until(lambda: of_the_second(tmp_path))
                assert list(await epochs(other)) == [1, 2, 3, 4, 5]
                assert len(names(tmp_path, "seg")) == 1
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.partitions() == ["other"]
                assert list(await epochs(await disk.partition("other"))) == [1, 2, 3, 4, 5]

        run(main())

    def test_while_it_compacts(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part, other = await disk.partition("gone"), await disk.partition("other")
                for each in (part, other):
                    await segments(disk, each, range(1, 11), range(11, 21), range(21, 23))
                    await each.checkpoint(20, b"state", IndexSet.of([3, 13]))
                with files.holding("sync", "seg/") as gate:
                    compacting = asyncio.ensure_future(part.compact())
                    await gate.reached()
                    await disk.remove("gone")
                    waiting = asyncio.ensure_future(other.compact())
                    gate.let_go()
                    await compacting
                    assert await waiting
                await until(lambda: of_the_second(tmp_path))
                assert list(await epochs(other)) == [3, 13, 21, 22]
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert list(await epochs(await disk.partition("other"))) == [3, 13, 21, 22]

        run(main())

    def test_while_it_is_checkpointed(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part, other = await disk.partition("gone"), await disk.partition("other")
                await part.write(0, entries(range(1, 11)))
                await other.write(0, entries([1]))
                with files.holding("sync", "ckpt/") as gate:
                    taking = asyncio.ensure_future(part.checkpoint(5, b"state"))
                    await gate.reached()
                    await disk.remove("gone")
                    gate.let_go()
                    with pytest.raises(NotFound):
                        await taking
                await until(lambda: of_the_second(tmp_path))
                assert list(await epochs(other)) == [1]

        run(main())

    def test_while_it_is_written_and_read(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part, other = await disk.partition("gone"), await disk.partition("other")
                await segments(disk, part, range(1, 6), range(6, 11))
                reading = part.read(range(1, 100))
                assert len(await anext(reading)) == 5
                with files.holding("sync", "wal/") as gate:
                    writing = [
                        asyncio.ensure_future(each.write(each.last, entries([each.last + 1])))
                        for each in (part, other)
                    ]
                    await gate.reached()
                    await disk.remove("gone")
                    gate.let_go()
                    await asyncio.gather(*writing, return_exceptions=True)
                    assert list(writing[1].result()) == [1]
                await until(lambda: of_the_second(tmp_path))
                with pytest.raises(NotFound):
                    await anext(reading)
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.partitions() == ["other"]
                assert list(await epochs(await disk.partition("other"))) == [1]

        run(main())

    def test_its_number_is_not_used_again(self, tmp_path: Path) -> None:
        """The WAL still has entries of the old one."""

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 6)))
                await disk.remove("p")
                part = await disk.partition("p")
                await part.write(0, entries([3], epoch=2))
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert await epochs(await disk.partition("p")) == {3: 2}

        run(main())
