"""Behaviours 14, 15, 16 and 18: major compaction, alone and beside everything else."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from segments.disks import (
    SMALL,
    WatchedFiles,
    entries,
    epochs,
    found,
    layout_of,
    names,
    run,
    segments,
    until,
)
from stratalog.errors import Full, Unknown
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Partition
from stratalog.segments.format.entries import HEAD

TENS = [range(start, start + 10) for start in (1, 11, 21, 31)]
LIVE = IndexSet.of([3, 14, 15, 27])


async def mostly_dead(disk: Disk, name: str = "p") -> Partition:
    """Three segments of ten, of which little lives; and a newest one."""
    part = await disk.partition(name)
    await segments(disk, part, *TENS)
    await part.checkpoint(30, b"state", LIVE)
    return part


def valid(root: Path) -> list[list[int]]:
    return [list(file.indexes) for file in layout_of(root).partitions[1].files]


class TestBehaviour14WhatItDoes:
    def test_live_entries_are_bit_identical_in_fewer_files_and_bytes(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await mostly_dead(disk)
                before = [batch async for batch in part.read(LIVE)]
                status = part.status()
                assert await part.compact()
                after = [batch async for batch in part.read(LIVE)]
                heads = [batch.heads.tobytes() for batch in (*before, *after)]
                assert b"".join(heads[: len(before)]) == b"".join(heads[len(before) :])
                listed = [entry for batch in before for entry in batch]
                assert [entry for batch in after for entry in batch] == listed
                assert part.status().segments == 2 < status.segments
                assert part.status().segment_bytes < status.segment_bytes
                await until(lambda: len(names(tmp_path, "seg")) == 2)
            assert valid(tmp_path) == [list(LIVE), list(TENS[3])]
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                assert await found(part, LIVE) == listed

        run(main())

    def test_dense_segments_are_left_alone(self, tmp_path: Path) -> None:
        """Half of the second lives by entries and by bytes; of the others less."""

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *TENS)
                live = IndexSet.of([3, *range(12, 17), 27])
                await part.checkpoint(30, b"state", live)
                second = layout_of(tmp_path).partitions[1].files[1].path
                assert await part.compact()
                files = layout_of(tmp_path).partitions[1].files
                assert [file.entries for file in files] == [1, 10, 1, 10]
                assert files[1].path == second
                assert list(await epochs(part, live)) == list(live)

        run(main())

    @pytest.mark.parametrize(
        ("live", "is_rewritten"),
        [([1], True), ([1, 2], True), ([2, 3, 4], True), ([1, 2, 3], False)],
        ids=["few entries, many bytes", "half by both", "many entries, few bytes", "dense"],
    )
    def test_dense_means_by_entries_and_by_bytes(
        self, tmp_path: Path, live: list[int], is_rewritten: bool
    ) -> None:
        async def main() -> None:
            sizes = [1000, 10, 10, 10, 10, 10]
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.append([b"x" * size for size in sizes])
                await disk.flush()
                await part.append([b"newest"])
                await disk.flush()
                await part.checkpoint(6, b"state", IndexSet.of(live))
                before = layout_of(tmp_path).partitions[1].files[0].path
                await part.compact()
                after = layout_of(tmp_path).partitions[1].files[0]
                assert (after.path != before) is is_rewritten
                assert after.entries == (len(live) if is_rewritten else 6)

        run(main())

    def test_both_limits_are_obeyed(self, tmp_path: Path) -> None:
        async def main() -> None:
            for entries_max, bytes_max in [(3, 1 << 20), (100, 3 * (4 + 20 + HEAD.itemsize))]:
                options = DiskOptions(
                    wal_file_bytes=1 << 16,
                    segment_entries_max=entries_max if entries_max > 50 else 10,
                    segment_bytes_max=1 << 20,
                    major_after_minors=None,
                )
                root = tmp_path / str(entries_max)
                async with await Disk.open(root, options) as disk:
                    part = await disk.partition("p")
                    for last in range(0, 50, 10):
                        batch = Entries.following(last, 1, [b"x" * 20] * 10)
                        await part.write(last, batch)
                        await disk.flush()
                    await part.checkpoint(40, b"state", IndexSet.of([1, 2, 11, 12, 21, 22, 31, 32]))
                limited = DiskOptions(
                    wal_file_bytes=1 << 16,
                    segment_entries_max=entries_max,
                    segment_bytes_max=bytes_max,
                    major_after_minors=None,
                )
                async with await Disk.open(root, limited) as disk:
                    part = await disk.partition("p")
                    assert await part.compact()
                    assert len(await found(part)) == 8 + 10
                files = layout_of(root).partitions[1].files[:-1]
                assert [file.entries for file in files] == [2, 2, 2, 2]

        run(main())

    def test_what_alone_exceeds_a_limit_is_skipped(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *TENS)
                live = IndexSet.of([3, 12, 13, 14, 15, 27])
                await part.checkpoint(30, b"state", live)
            small = DiskOptions(
                wal_file_bytes=1 << 16, segment_entries_max=3, major_after_minors=None
            )
            second = layout_of(tmp_path).partitions[1].files[1].path
            async with await Disk.open(tmp_path, small) as disk:
                part = await disk.partition("p")
                assert await part.compact()
                assert list(await epochs(part, live)) == list(live)
            files = layout_of(tmp_path).partitions[1].files
            assert files[1].path == second
            assert [file.entries for file in files] == [1, 10, 1, 10]

        run(main())

    def test_what_was_overwritten_does_not_count_as_alive(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 101))
                await part.write(10, entries([11, 12], epoch=2))
                await disk.flush()
                await part.compact()
                assert await epochs(part) == dict.fromkeys(range(1, 11), 1) | {11: 2, 12: 2}
            assert [file.entries for file in layout_of(tmp_path).partitions[1].files] == [10, 2]

        run(main())

    def test_a_full_disk_changes_nothing_and_the_next_run_works(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await mostly_dead(disk)
                before = names(tmp_path, "seg")
                for call in ("create", "write", "sync"):
                    with files.failing(call, "seg/", errno.ENOSPC), pytest.raises(Full):
                        await part.compact()
                    await until(lambda: names(tmp_path, "seg") == before)
                    assert list(await epochs(part, LIVE)) == list(LIVE)
                with files.failing("sync", "journal/", errno.ENOSPC), pytest.raises(Unknown):
                    await part.compact()
                assert list(await epochs(part, LIVE)) == list(LIVE)
                assert await part.compact()
                await until(lambda: len(names(tmp_path, "seg")) == 2)
                assert list(await epochs(part, LIVE)) == list(LIVE)

        run(main())


class TestBehaviour15When:
    def test_never_twice_at_once_and_a_request_meanwhile_is_dropped(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await mostly_dead(disk)
                with files.holding("sync", "seg/") as gate:
                    first = asyncio.ensure_future(part.compact())
                    await gate.reached()
                    assert await part.compact() is False
                    assert await part.compact() is False
                    gate.let_go()
                    assert await first is True
                assert disk.stats.major_compactions.count == 1
                assert await part.compact() is True

        run(main())

    def test_two_requests_in_the_same_breath(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await mostly_dead(disk)
                told = await asyncio.gather(part.compact(), part.compact())
                assert sorted(told) == [False, True]

        run(main())

    def test_if_a_checkpoint_moved_meanwhile_a_minor_one_follows(self, tmp_path: Path) -> None:
        """The new file holds only what the newer checkpoint has made dead."""

        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await mostly_dead(disk)
                with files.holding("sync", "seg/") as gate:
                    compacting = asyncio.ensure_future(part.compact())
                    await gate.reached()
                    await part.checkpoint(35, b"newer", IndexSet.of([14]))
                    await part.checkpoint(36, b"newest")
                    gate.let_go()
                    assert await compacting
                assert part.status().segments == 1
                await until(lambda: len(names(tmp_path, "seg")) == 1)
                assert list(await epochs(part, range(37, 99))) == [37, 38, 39, 40]
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert (await disk.partition("p")).status().segments == 1

        run(main())

    def test_after_so_many_minor_ones_it_runs_by_itself(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(wal_file_bytes=1 << 16, major_after_minors=3)
            async with await Disk.open(tmp_path, options) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *TENS)
                for index in (28, 29):
                    await part.checkpoint(index, b"state", LIVE)
                assert part.status().segments == 4
                await part.checkpoint(30, b"state", LIVE)
                await until(lambda: part.status().segments == 2)
                await until(lambda: disk.stats.major_compactions.count == 1)
                for index in (31, 32):
                    await part.checkpoint(index, b"state", LIVE)
                assert disk.stats.major_compactions.count == 1
                await part.checkpoint(33, b"state", LIVE)
                await until(lambda: disk.stats.major_compactions.count == 2)
                assert list(await epochs(part, LIVE)) == list(LIVE)

        run(main())

    def test_or_only_on_request(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *TENS)
                for index in range(28, 39):
                    await part.checkpoint(index, b"state", LIVE)
                assert disk.stats.major_compactions.count == 0
                assert part.status().segments == 4
                await part.compact()
                assert part.status().segments == 2

        run(main())

    def test_closing_waits_for_it(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            disk = await Disk.open(files, SMALL)
            part = await mostly_dead(disk)
            with files.holding("sync", "seg/") as gate:
                compacting = asyncio.ensure_future(part.compact())
                await gate.reached()
                closing = asyncio.ensure_future(disk.close())
                await asyncio.sleep(0)
                gate.let_go()
                assert await compacting
                await closing
            assert valid(tmp_path) == [list(LIVE), list(TENS[3])]

        run(main())


class TestBehaviour16Readers:
    def test_that_opened_before_during_or_just_after(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, read_bytes=1, major_after_minors=None)
            expected = [*LIVE, *range(31, 41)]
            wanted = IndexSet.of(expected)
            async with await Disk.open(files, options) as disk:
                part = await mostly_dead(disk)
                before = part.read(wanted)
                seen = {"before": [entry.index for entry in await anext(before)]}
                with files.holding("sync", "seg/") as gate:
                    compacting = asyncio.ensure_future(part.compact())
                    await gate.reached()
                    during = part.read(wanted)
                    seen["during"] = [entry.index for entry in await anext(during)]
                    gate.let_go()
                    await compacting
                after = part.read(wanted)
                seen["after"] = [entry.index for entry in await anext(after)]
                await until(lambda: len(names(tmp_path, "seg")) == 2)
                for name, reading in {"before": before, "during": during, "after": after}.items():
                    seen[name] += [entry.index async for batch in reading for entry in batch]
                assert list(seen.values()) == [expected] * 3

        run(main())

    def test_many_small_reads_beside_one_compaction_after_another(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(
                wal_file_bytes=1 << 16, open_files_max=1, index_cache_bytes=1, major_after_minors=1
            )
            async with await Disk.open(tmp_path, options) as disk:
                part = await disk.partition("p")
                is_over = False
                reads = 0

                async def keep_reading() -> None:
                    nonlocal reads
                    while not is_over:
                        lived = part.live
                        listed = await epochs(part, lived)
                        assert set(part.live & lived) <= set(listed)
                        reads += 1
                        await asyncio.sleep(0)

                readers = [asyncio.ensure_future(keep_reading()) for _ in range(3)]
                live: list[int] = []
                for last in range(0, 120, 10):
                    await segments(disk, part, range(last + 1, last + 11))
                    live = [*live[-6:], last + 2, last + 7]
                    await part.checkpoint(last + 10, b"state", IndexSet.of(live))
                is_over = True
                await asyncio.gather(*readers)
                assert reads > 10
                assert disk.stats.major_compactions.count > 0
                assert list(await epochs(part, part.live)) == live

        run(main())


class TestBehaviour18BesideOthers:
    def test_segments_that_arrive_meanwhile_stand_after_its_result(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await mostly_dead(disk)
                with files.holding("sync", "seg/00000001.000000000001-000000000003") as gate:
                    compacting = asyncio.ensure_future(part.compact())
                    await gate.reached()
                    await segments(disk, part, [41, 42])
                    assert valid(tmp_path)[-1] == [41, 42]
                    gate.let_go()
                    await compacting
                expected = [*LIVE, *TENS[3], 41, 42]
                assert list(await epochs(part)) == expected
            assert valid(tmp_path) == [list(LIVE), list(TENS[3]), [41, 42]]
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert list(await epochs(await disk.partition("p"))) == expected

        run(main())

    @pytest.mark.parametrize("flush", [False, True])
    @pytest.mark.parametrize("call", ["sync seg/", "sync journal/"])
    def test_overwriting_meanwhile_is_merged_with_its_result(
        self, tmp_path: Path, flush: bool, call: str
    ) -> None:
        """It copies entries that are overwritten before its record is durable."""

        async def main() -> None:
            files = WatchedFiles(tmp_path)
            operation, path = call.split()
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                # The second has little alive because most of it lies below the checkpoint.
                await segments(disk, part, *TENS)
                await part.checkpoint(18, b"state", IndexSet.of([3, 14]))
                with files.holding(operation, path) as gate:
                    compacting = asyncio.ensure_future(part.compact())
                    await gate.reached()
                    writing = asyncio.ensure_future(part.write(19, entries([20, 21], epoch=2)))
                    if path == "seg/":
                        await writing
                    gate.let_go()
                    await asyncio.gather(compacting, writing)
                expected = {3: 1, 14: 1, 19: 1, 20: 2, 21: 2}
                if flush:
                    await disk.flush()
                assert await epochs(part) == expected
                assert await part.compact()
                assert await epochs(part) == expected
            for _ in range(2):
                async with await Disk.open(tmp_path, SMALL) as disk:
                    assert await epochs(await disk.partition("p")) == expected

        run(main())

    def test_all_of_its_sources_are_overwritten_meanwhile(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 21), range(21, 31))
                await part.write(12, entries([13], epoch=2))
                await disk.flush()
                with files.holding("sync", "seg/") as gate:
                    compacting = asyncio.ensure_future(part.compact())
                    await gate.reached()
                    await part.write(3, entries([4], epoch=3))
                    gate.let_go()
                    await compacting
                expected = {1: 1, 2: 1, 3: 1, 4: 3}
                assert await epochs(part) == expected
            for _ in range(2):
                async with await Disk.open(tmp_path, SMALL) as disk:
                    part = await disk.partition("p")
                    assert await epochs(part) == expected
                    await disk.flush()
                    assert await epochs(part) == expected

        run(main())

    def test_a_second_major_over_compacted_files(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await mostly_dead(disk)
                assert await part.compact()
                first = layout_of(tmp_path).partitions[1].files[0]
                assert (first.lowest, first.highest) == (1, 3)
                await segments(disk, part, range(41, 51))
                await part.checkpoint(40, b"state", IndexSet.of([14, 33]))
                assert await part.compact()
                assert list(await epochs(part)) == [14, 33, *range(41, 51)]
                second = layout_of(tmp_path).partitions[1].files[0]
                assert (second.lowest, second.highest, second.entries) == (1, 4, 2)
                before = names(tmp_path, "seg")
                assert await part.compact()
                assert layout_of(tmp_path).partitions[1].files[0] == second
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert list(await epochs(await disk.partition("p"))) == [14, 33, *range(41, 51)]
                assert set(names(tmp_path, "seg")) <= set(before)

        run(main())
