"""Behaviours 10, 11, 13, 19 and 20: checkpoints, live sets, and minor compaction."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from segments.disks import (
    SMALL,
    WatchedFiles,
    damage,
    entries,
    epochs,
    layout_of,
    names,
    one,
    run,
    segments,
    until,
)
from stratalog.errors import Conflict, Corrupt, Full, Invalid, NotFound, StratalogError, Trimmed
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments import Disk

LIVE = IndexSet.of([2, 3, 14])


class TestBehaviour10NothingLives:
    def test_all_closed_segments_at_or_below_go_and_no_other(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 6), range(6, 11), range(11, 16), [16])
                before = names(tmp_path, "seg")
                await part.checkpoint(12, b"state")
                await until(lambda: len(names(tmp_path, "seg")) == 2)
                assert names(tmp_path, "seg") == before[2:]
                assert list(await epochs(part, range(13, 99))) == [13, 14, 15, 16]
                assert part.status().first == 13

        run(main())

    def test_one_whose_last_entry_is_the_checkpoint_goes(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 6), range(6, 11))
                await part.checkpoint(4, b"state")
                assert part.status().segments == 2
                await part.checkpoint(5, b"state")
                assert part.status().segments == 1

        run(main())

    def test_the_newest_never_goes(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 6), range(6, 11))
                newest = names(tmp_path, "seg")[-1]
                await part.checkpoint(10, b"state")
                await until(lambda: names(tmp_path, "seg") == [newest])
                await segments(disk, part, [11])
                await part.checkpoint(11, b"state")
                await until(lambda: newest not in names(tmp_path, "seg"))
                assert len(names(tmp_path, "seg")) == 1
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                assert (part.last, part.checkpoint_index) == (11, 11)

        run(main())

    def test_the_checkpoint_before_goes_too(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                await part.checkpoint(4, b"one", IndexSet.of([2]))
                await part.checkpoint(9, b"two", IndexSet.of([2]))
                await until(lambda: len(names(tmp_path, "ckpt")) == 2)
                assert await part.state() == b"two"

        run(main())


class TestBehaviour11SomeLive:
    def test_only_segments_without_live_entries_go(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                groups = [range(start, start + 5) for start in (1, 6, 11, 16, 21)]
                await segments(disk, part, *groups)
                before = names(tmp_path, "seg")
                await part.checkpoint(22, b"state", LIVE)
                await until(lambda: len(names(tmp_path, "seg")) == 3)
                assert names(tmp_path, "seg") == [before[0], before[2], before[4]]
                assert list(await epochs(part, LIVE)) == [2, 3, 14]

        run(main())

    def test_in_sparse_segments_a_live_index_between_two_entries_does_not_count(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries([1, 9]))
                await disk.flush()
                await part.write(9, entries([10]))
                await disk.flush()
                with pytest.raises(Invalid):
                    await part.checkpoint(10, b"state", IndexSet.of([5]))
                assert part.status().segments == 2
                await part.checkpoint(10, b"state")
                assert part.status().segments == 1

        run(main())

    def test_what_died_stays_dead(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 21))
                await part.checkpoint(10, b"state", IndexSet.of([3]))
                with pytest.raises(Invalid, match="not there any more"):
                    await part.checkpoint(15, b"state", IndexSet.of([3, 4]))
                await part.checkpoint(15, b"state", IndexSet.of([3, 12]))
                assert part.live == IndexSet.of([3, 12])

        run(main())

    def test_one_dead_entry_is_trimmed_and_one_never_written_not_found(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 21))
                await part.checkpoint(12, b"state", IndexSet.of([12]))
                assert (await part.get(12)).index == 12
                with pytest.raises(Trimmed) as trimmed:
                    await part.get(5)
                assert trimmed.value.first_offset == 13
                with pytest.raises(NotFound):
                    await part.get(21)

        run(main())

    @pytest.mark.parametrize(("index", "live"), [(0, []), (21, []), (10, [11]), (10, [3, 10, 12])])
    def test_what_no_checkpoint_can_say_is_refused(
        self, tmp_path: Path, index: int, live: list[int]
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 21)))
                with pytest.raises(Invalid):
                    await part.checkpoint(index, b"state", IndexSet.of(live))
                assert (part.checkpoint_index, await part.state()) == (0, None)
                await until(lambda: not names(tmp_path, "ckpt"))

        run(main())

    def test_an_older_checkpoint_conflicts(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 21)))
                await part.checkpoint(10, b"ten")
                with pytest.raises(Conflict):
                    await part.checkpoint(9, b"nine")
                assert await part.state() == b"ten"

        run(main())

    def test_one_that_cannot_be_written_changes_nothing(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 6), range(6, 11))
                await part.checkpoint(3, b"three", IndexSet.of([2]))
                before = names(tmp_path, "ckpt")
                with files.failing("sync", "ckpt/", errno.ENOSPC), pytest.raises(Full):
                    await part.checkpoint(8, b"eight")
                await until(lambda: names(tmp_path, "ckpt") == before)
                assert (await part.state(), part.status().segments) == (b"three", 2)
                await part.checkpoint(8, b"eight")
                assert (await part.state(), part.status().segments) == (b"eight", 1)

        run(main())


class TestCheckpointsBesideOverwriting:
    """A checkpoint contains a history; if that were overwritten meanwhile it would be of no log."""

    @pytest.mark.parametrize("held", ["ckpt/", "journal/"])
    def test_what_one_contains_is_not_overwritten_while_it_is_taken(
        self, tmp_path: Path, held: str
    ) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                with files.holding("sync", held) as gate:
                    taking = asyncio.ensure_future(part.checkpoint(8, b"of epoch 1"))
                    await gate.reached()
                    with pytest.raises(Conflict):
                        await part.write(5, entries([6], epoch=2))
                    gate.let_go()
                    await taking
                assert (part.checkpoint_index, part.epoch, part.last) == (8, 1, 10)
                before = part.status()
            async with await Disk.open(tmp_path, SMALL) as disk:
                after = (await disk.partition("p")).status()
                assert (after.last, after.lineage) == (before.last, before.lineage)

        run(main())

    def test_an_overwrite_on_its_way_when_it_becomes_current(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                with files.holding("sync", "wal/") as gate:
                    overwriting = asyncio.ensure_future(part.write(5, entries([6], epoch=2)))
                    await gate.reached()
                    with pytest.raises(Conflict):
                        await part.checkpoint(8, b"of epoch 1")
                    gate.let_go()
                    await overwriting
                await part.checkpoint(6, b"of epoch 2")
                assert part.lineage.steps == ((1, 1), (6, 2))

        run(main())


class TestBehaviour13OnlyInMemory:
    @pytest.mark.parametrize("held", ["nothing", "seg/"])
    def test_live_entries_that_are_only_in_memory_are_not_lost(
        self, tmp_path: Path, held: str
    ) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 21)))
                if held == "nothing":
                    await part.checkpoint(20, b"state", LIVE)
                    await disk.flush()
                else:
                    with files.holding("sync", held) as gate:
                        flushing = asyncio.ensure_future(disk.flush())
                        await gate.reached()
                        await part.checkpoint(20, b"state", LIVE)
                        gate.let_go()
                        await flushing
                assert list(await epochs(part, LIVE)) == list(LIVE)
                await part.write(20, entries([21]))
                await disk.flush()
                assert await part.compact()
                assert list(await epochs(part)) == [*LIVE, 21]
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert list(await epochs(await disk.partition("p"))) == [*LIVE, 21]

        run(main())

    def test_a_restart_before_the_flush_finds_them_in_the_wal(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 21)))
                await part.checkpoint(20, b"state", LIVE)
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await until(lambda: not part.status().pending)
                assert list(await epochs(part)) == list(LIVE)

        run(main())

    def test_two_checkpoints_during_one_flush(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 21)))
                await part.checkpoint(10, b"one", IndexSet.of([2, 9]))
                with files.holding("sync", "seg/") as gate:
                    flushing = asyncio.ensure_future(disk.flush())
                    await gate.reached()
                    await part.checkpoint(20, b"two", IndexSet.of([9, 15]))
                    gate.let_go()
                    await flushing
                assert list(await epochs(part, IndexSet.of([2, 9, 15]) & part.live)) == [9, 15]

        run(main())


class TestBehaviour19LiveIndexFile:
    @pytest.mark.parametrize("what", ["missing", "empty", "corrupt", "cut off"])
    def test_it_is_made_again_from_the_checkpoint(self, tmp_path: Path, what: str) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 21), [21])
                await part.checkpoint(20, b"state", LIVE)
            path = one(tmp_path, "ckpt", ".live")
            whole = path.read_bytes()
            if what == "missing":
                path.unlink()
            elif what == "empty":
                path.write_bytes(b"")
            elif what == "corrupt":
                damage(path, len(whole) - 1)
            else:
                path.write_bytes(whole[:-1])
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                assert (part.live, await part.state()) == (LIVE, b"state")
                assert path.read_bytes() == whole
                assert await part.compact()
                assert list(await epochs(part)) == [*LIVE, 21]

        run(main())

    @pytest.mark.parametrize("part", ["head", "description", "live set"])
    def test_a_damaged_checkpoint_refuses_to_start(self, tmp_path: Path, part: str) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                partition = await disk.partition("p")
                await partition.write(0, entries(range(1, 21)))
                await partition.checkpoint(20, b"state", LIVE)
            path = one(tmp_path, "ckpt", ".ckpt")
            one(tmp_path, "ckpt", ".live").unlink()
            data = path.read_bytes()
            places = {
                "head": 20,
                "description": data.index(b"lineage"),
                "live set": data.index(b"IXS1") + 9,
            }
            damage(path, places[part])
            with pytest.raises(Corrupt) as refused:
                await Disk.open(tmp_path, SMALL)
            assert refused.value.path == f"ckpt/{path.name}"

        run(main())

    def test_a_damaged_state_is_found_when_it_is_read(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 21)))
                await part.checkpoint(20, b"state", LIVE)
                damage(one(tmp_path, "ckpt", ".ckpt"), -1)
                with pytest.raises(Corrupt, match="state"):
                    await part.state()

        run(main())


class TestBehaviour20AfterRestart:
    def test_a_checkpoint_with_everything_below_it_gone(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 6)))
                await part.write(5, entries(range(6, 21), epoch=7))
                await part.checkpoint(20, b"state", EMPTY)
                await disk.flush()
                before = part.status()
            assert layout_of(tmp_path).partitions[1].files == ()
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                assert part.status() == before
                assert (part.last, part.epoch) == (20, 7)
                assert list(await part.append([b"next"])) == [21]
                with pytest.raises(StratalogError):
                    await part.write(20, entries([21], epoch=6))

        run(main())
