"""Behaviour 6: overwriting a suffix under a newer epoch never mixes epochs on read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from segments.disks import (
    SMALL,
    WatchedFiles,
    entries,
    epochs,
    layout_of,
    names,
    run,
    segments,
    until,
)
from stratalog.errors import Conflict
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, Partition

AFTER_FIVE = {**dict.fromkeys(range(1, 6), 1), **dict.fromkeys(range(6, 9), 2)}
"""Ten entries of epoch 1, then three of epoch 2 after the fifth."""


async def overwrite(part: Partition) -> None:
    await part.write(5, entries(range(6, 9), epoch=2))


class TestBehaviour06Overwriting:
    @pytest.mark.parametrize("flush_before", [False, True])
    @pytest.mark.parametrize("flush_after", [False, True])
    @pytest.mark.parametrize("opens", [0, 1, 3])
    def test_across_memtables_segments_and_restarts(
        self, tmp_path: Path, flush_before: bool, flush_after: bool, opens: int
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                if flush_before:
                    await disk.flush()
                await overwrite(part)
                if flush_after:
                    await disk.flush()
                assert await epochs(part) == AFTER_FIVE
                assert (part.last, part.epoch) == (8, 2)
                assert part.lineage.steps == ((1, 1), (6, 2))
            for _ in range(opens):
                async with await Disk.open(tmp_path, SMALL) as disk:
                    part = await disk.partition("p")
                    assert await epochs(part) == AFTER_FIVE
                    assert (part.last, part.epoch) == (8, 2)
                    assert part.lineage.steps == ((1, 1), (6, 2))

        run(main())

    def test_twice_in_one_wal_file_after_segments_and_opened_again_and_again(
        self, tmp_path: Path
    ) -> None:
        """What the WAL wrote before it overwrote it must find its predecessor at every opening."""

        async def main() -> None:
            expected = dict.fromkeys(range(1, 4), 1) | {4: 3, 5: 3}
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11))
                await part.write(10, entries(range(11, 21)))
                await part.write(5, entries(range(6, 31), epoch=2))
                await part.write(3, entries([4, 5], epoch=3))
                assert await epochs(part) == expected
            for _ in range(3):
                async with await Disk.open(tmp_path, SMALL) as disk:
                    assert await epochs(await disk.partition("p")) == expected

        run(main())

    @pytest.mark.parametrize("flush", [False, True])
    def test_with_a_checkpoint_above_the_place(self, tmp_path: Path, flush: bool) -> None:
        """The checkpoint knows the newer epoch, and what the WAL has before it does not."""

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                if flush:
                    await disk.flush()
                await part.write(10, entries(range(11, 21)))
                await overwrite(part)
                await part.checkpoint(8, b"state", IndexSet.of([2, 7]))
            for _ in range(2):
                async with await Disk.open(tmp_path, SMALL) as disk:
                    part = await disk.partition("p")
                    assert await epochs(part, IndexSet.of([2, 7, 9, 10, 11])) == {2: 1, 7: 2}
                    assert (part.last, part.lineage.steps) == (8, ((1, 1), (6, 2)))

        run(main())

    def test_a_wholly_overwritten_file_goes_and_a_partly_overwritten_one_stays(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 5), range(5, 11), range(11, 16))
                first, second, third = names(tmp_path, "seg")
                await part.write(6, entries([7, 8], epoch=2))
                assert names(tmp_path, "seg") == [first, second, third]
                await disk.flush()
                await until(lambda: third not in names(tmp_path, "seg"))
                fourth = names(tmp_path, "seg")[-1]
                assert names(tmp_path, "seg") == [first, second, fourth]
                assert await epochs(part) == dict.fromkeys(range(1, 7), 1) | {7: 2, 8: 2}
            valid = [list(file.indexes) for file in layout_of(tmp_path).partitions[1].files]
            assert valid == [[1, 2, 3, 4], [5, 6], [7, 8]]

        run(main())

    def test_a_file_with_the_same_range_is_not_taken_for_an_overwritten_one(
        self, tmp_path: Path
    ) -> None:
        """Two files that both begin at 5: the older is partly valid, and is told by its name."""

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 5), range(5, 11))
                await part.write(5, entries(range(6, 11), epoch=2))
                await disk.flush()
                await part.write(7, entries(range(8, 11), epoch=3))
                await disk.flush()
                expected = dict.fromkeys(range(1, 6), 1) | {6: 2, 7: 2} | {8: 3, 9: 3, 10: 3}
                assert await epochs(part) == expected
                assert len(names(tmp_path, "seg")) == 4
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert await epochs(await disk.partition("p")) == expected

        run(main())

    def test_everything_can_be_overwritten(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 5), range(5, 11))
                await part.write(0, entries([3], epoch=2))
                assert await epochs(part) == {3: 2}
                await disk.flush()
                await until(lambda: len(names(tmp_path, "seg")) == 1)
                assert await epochs(part) == {3: 2}

        run(main())

    def test_while_the_flush_of_what_is_overwritten_is_going_on(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                await disk.flush()
                await part.write(10, entries(range(11, 21)))
                with files.holding("sync", "seg/") as gate:
                    flushing = asyncio.ensure_future(disk.flush())
                    await gate.reached()
                    await overwrite(part)
                    assert await epochs(part) == AFTER_FIVE
                    gate.let_go()
                    await flushing
                assert await epochs(part) == AFTER_FIVE
                await disk.flush()
                assert await epochs(part) == AFTER_FIVE
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert await epochs(await disk.partition("p")) == AFTER_FIVE

        run(main())

    def test_what_lies_in_a_checkpoint_cannot_be_overwritten(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                await part.checkpoint(7, b"state")
                with pytest.raises(Conflict):
                    await part.write(5, entries([6], epoch=2))
                await part.write(7, entries([8], epoch=2))
                assert await epochs(part, range(8, 20)) == {8: 2}

        run(main())


class TestReadersBesideOverwriting:
    def test_one_that_cannot_go_on_in_the_same_history_says_so(self, tmp_path: Path) -> None:
        """Its next file is gone, and what stands in its place is of a newer epoch."""

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 21))
                reading = part.read(range(1, 100))
                first = await anext(reading)
                assert list(first.indexes) == list(range(1, 11))
                await part.write(5, entries(range(6, 31), epoch=2))
                await disk.flush()
                await until(lambda: len(names(tmp_path, "seg")) == 2)
                with pytest.raises(Conflict, match="overwritten"):
                    await anext(reading)

        run(main())


class TestTruncation:
    @pytest.mark.parametrize("flush", [False, True])
    def test_what_is_cut_off_is_gone_for_good(self, tmp_path: Path, flush: bool) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 6)))
                await part.write(5, entries(range(6, 11), epoch=2))
                if flush:
                    await disk.flush()
                await part.truncate(7)
                assert (part.last, part.epoch, len(await epochs(part))) == (7, 2, 7)
                await part.truncate(3)
                assert (part.last, part.epoch, len(await epochs(part))) == (3, 1, 3)
                await part.write(3, entries([4], epoch=3))
            for _ in range(2):
                async with await Disk.open(tmp_path, SMALL) as disk:
                    part = await disk.partition("p")
                    assert await epochs(part) == {1: 1, 2: 1, 3: 1, 4: 3}
                    assert part.lineage.steps == ((1, 1), (4, 3))

        run(main())

    def test_not_below_the_checkpoint(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                await part.checkpoint(5, b"state")
                with pytest.raises(Conflict):
                    await part.truncate(4)
                await part.truncate(5)
                assert part.last == 5

        run(main())
