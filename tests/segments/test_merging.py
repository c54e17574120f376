"""Small neighbouring segments become one, dense or not, also of a log without checkpoints."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segments.disks import (
    WatchedFiles,
    entries,
    epochs,
    found,
    layout_of,
    names,
    payload,
    run,
    segments,
)
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, MergeLimits, Partition
from stratalog.segments.format.layout import SegmentFile
from stratalog.segments.maintenance import major_compaction
from stratalog.segments.maintenance.choose_merges import (
    MERGED_FILES_MAX,
    ON_REQUEST,
    MergeRule,
    after_flush,
    merges,
)
from stratalog.testing import SimulatedFiles

PARTITIONS, ROLLS = (1000, 1000) if "STRATALOG_EVERY_ROLL" in os.environ else (40, 150)
FILES_MAX = 16
MERGING = DiskOptions(wal_file_bytes=1 << 16, major_after_minors=None, merge_after_files=4)
ANY = MergeLimits()
KIB, MIB = 1 << 10, 1 << 20


def file(
    number: int,
    size: int,
    *,
    time: int | None = None,
    merged_from: int | None = None,
    count: int = 1,
) -> SegmentFile:
    return SegmentFile(
        path=f"seg/{number}",
        size=size,
        indexes=IndexSet(range(number, number + count)),
        previous=number - 1,
        steps=((number, 1),),
        lowest=number,
        highest=number,
        entries=count,
        time_max=time,
        merged_from=merged_from,
    )


def sizes_of(files: Sequence[SegmentFile], groups: list[list[SegmentFile]]) -> list[list[int]]:
    return [[each.size for each in group] for group in groups]


DRAWN = st.tuples(st.integers(1, 40), st.integers(1, 5), st.none() | st.integers(0, 30))


class TestWhatIsChosen:
    @given(
        st.lists(
            st.tuples(st.integers(1, 40), st.integers(1, 5), st.none() | st.integers(0, 30))
        ).map(
            lambda drawn: [file(at, size, count=n, time=t) for at, (size, n, t) in enumerate(drawn)]
        ),
        st.builds(
            MergeRule,
            st.integers(2, 5),
            st.integers(2, 4),
            st.sampled_from([0, 0, 5]),
            st.sampled_from([1, 100]),
        ),
        st.builds(MergeLimits, st.none() | st.integers(0, 99), st.none() | st.integers(0, 20)),
    )
    def test_they_are_neighbours_that_fit_together_and_are_worth_it(
        self, files: list[SegmentFile], rule: MergeRule, limits: MergeLimits
    ) -> None:
        options = DiskOptions(segment_entries_max=12, segment_bytes_max=120)
        groups = merges(files, rule, options, limits)
        places = [[files.index(each) for each in group] for group in groups]
        for group in places:
            assert group == list(range(group[0], group[-1] + 1))
        assert all(before[-1] < after[0] for before, after in pairwise(places))
        for chosen in groups:
            total = sum(each.size for each in chosen)
            largest = max(each.size for each in chosen)
            times = [each.time_max for each in chosen if each.time_max is not None]
            assert len(chosen) >= rule.files_min
            assert sum(each.entries for each in chosen) <= 12
            assert total <= min(120, 120 if limits.bytes_max is None else limits.bytes_max)
            assert largest * rule.growth_min <= total or largest <= rule.bytes_free
            if limits.time_max is not None and times:
                assert max(times) - min(times) <= limits.time_max

    def test_on_request_any_two_of_which_none_is_larger_than_the_rest(self) -> None:
        options = DiskOptions(segment_bytes_max=100)
        for sizes, expected in [
            ([10, 10], [[10, 10]]),
            ([10, 1, 1], [[1, 1]]),
            ([60, 60], []),
            ([40, 30, 30, 1], [[30, 30, 1]]),
            ([50, 50, 50, 50], [[50, 50], [50, 50]]),
        ]:
            files = [file(at, size) for at, size in enumerate(sizes)]
            assert sizes_of(files, merges(files, ON_REQUEST, options, ANY)) == expected

    def test_those_that_were_merged_keep_the_time_of_their_oldest_part(self) -> None:
        merged, newer = file(1, 10, time=90, merged_from=5), file(2, 10, time=100)
        for time_max, count in [(95, 1), (94, 0)]:
            groups = merges([merged, newer], ON_REQUEST, DiskOptions(), MergeLimits(None, time_max))
            assert len(groups) == count

    def test_a_record_of_the_journal_stays_small(self) -> None:
        files = [file(at, 100) for at in range(3 * MERGED_FILES_MAX)]
        groups = merges(files, after_flush(8), DiskOptions(), ANY)
        assert [len(group) for group in groups] == [MERGED_FILES_MAX] * 3

    @pytest.mark.parametrize("size", [200, 5 * KIB, 300 * KIB, 3 * MIB, 20 * MIB])
    def test_however_many_come_few_stay_and_few_bytes_are_written_again(self, size: int) -> None:
        """Three thousand flushes of one partition: the bounds of the design note."""
        options, rule = DiskOptions(), after_flush(8)
        files: list[SegmentFile] = []
        written = small_max = 0
        for number in range(3000):
            files.append(file(number, size))
            for group in merges(files[:-1], rule, options, ANY):
                merged = file(group[0].indexes.first or 0, sum(each.size for each in group))
                written += merged.size if merged.size > rule.bytes_free else 0
                at = files.index(group[0])
                files[at : at + len(group)] = [merged]
            small = [each for each in files[-200:] if each.size * 8 <= options.segment_bytes_max]
            small_max = max(small_max, len(small))
        levels = max(0, (options.segment_bytes_max // max(size, 64 * KIB)).bit_length() // 2)
        assert small_max <= 8 + 4 * levels
        assert len(files) <= 8 * (3000 * size // options.segment_bytes_max + 1) + 8 + 4 * levels
        assert written <= (levels + 1) * 3000 * size


def tiny(partition: Partition) -> asyncio.Future[IndexSet]:
    last, _ = partition.tail
    return partition.submit(last, entries([last + 1]))


async def merged(disk: Disk) -> None:
    """Until nobody merges any more."""
    await disk._engine.compactor.tasks.end()
    await disk._engine.file_remover.tasks.end()


def test_slow_partitions_beside_a_busy_one_have_few_segments_after_many_rolls() -> None:
    """Without a checkpoint, as topics are."""
    files = SimulatedFiles()

    async def main() -> None:
        options = DiskOptions(wal_file_bytes=1 << 16, segment_bytes_max=1 << 16)
        async with await Disk.open(files, options) as disk:
            busy = await disk.partition("busy")
            slow = [await disk.partition(f"slow-{number}") for number in range(PARTITIONS)]
            for _ in range(ROLLS):
                answers = [tiny(partition) for partition in slow]
                await asyncio.gather(busy.append([bytes(1 << 14)]), *answers)
                await disk.flush()
                assert max(len(each.segments()) for each in slow) <= 3 * FILES_MAX
            await merged(disk)
            assert max(len(each.segments()) for each in slow) <= FILES_MAX
            assert len(busy.segments()) >= ROLLS // 4 - 1, "full segments are left alone"
            stats = disk.stats
            assert stats.merges.bytes <= 8 * stats.flushes.bytes
        async with await Disk.open(files, options) as disk:
            for number in (0, PARTITIONS - 1):
                partition = await disk.partition(f"slow-{number}")
                assert list(await epochs(partition)) == list(range(1, ROLLS + 1))
            assert len(files.names()) < (PARTITIONS + 1) * FILES_MAX + ROLLS

    asyncio.run(main())


class TestOnADisk:
    def test_what_is_merged_is_as_it_was(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, MERGING) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *([at, at + 1] for at in range(1, 9, 2)))
                await merged(disk)
                assert len(part.segments()) == 4, "the newest is not merged, and three are few"
                await segments(disk, part, [9, 10])
                await merged(disk)
                assert [(first, last) for first, last, *_ in part.segments()] == [(1, 8), (9, 10)]
                assert len(names(tmp_path, "seg")) == 2
                assert disk.stats.merges.count == 1
                assert list(await epochs(part)) == list(range(1, 11))
            async with await Disk.open(tmp_path, MERGING) as disk:
                assert list(await epochs(await disk.partition("p"))) == list(range(1, 11))

        run(main())

    def test_it_can_be_turned_off(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(wal_file_bytes=1 << 16, merge_after_files=None)
            async with await Disk.open(tmp_path, options) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *([at] for at in range(1, 21)))
                await merged(disk)
                assert len(part.segments()) == 20
                assert await part.compact()
                assert len(part.segments()) == 2, "on request, whatever fits together"
                assert list(await epochs(part)) == list(range(1, 21))

        run(main())

    def test_what_gathered_before_is_merged_when_the_disk_opens(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(wal_file_bytes=1 << 16, merge_after_files=None)
            async with await Disk.open(tmp_path, options) as disk:
                await segments(disk, await disk.partition("p"), *([at] for at in range(1, 21)))
            async with await Disk.open(tmp_path, MERGING) as disk:
                await merged(disk)
                part = await disk.partition("p")
                assert len(part.segments()) == 2
                assert list(await epochs(part)) == list(range(1, 21))

        run(main())

    def test_entries_that_are_dead_are_left_out(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, MERGING) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *([at, at + 1] for at in range(1, 9, 2)))
                await part.checkpoint(8, b"state", IndexSet.of([1, 3, 4, 5, 8]))
                await segments(disk, part, [9])
                await merged(disk)
                (one, _) = layout_of(tmp_path).partitions[1].files
                assert one.entries == len(one.indexes) == 5
                assert list(await epochs(part)) == [1, 3, 4, 5, 8, 9]

        run(main())

    def test_it_keeps_the_limits_of_the_partition(self, tmp_path: Path) -> None:
        """Times are in the payloads here: 10, 20, …"""

        async def write(options: DiskOptions, limits: MergeLimits | None, name: str) -> list[int]:
            def time_of(_: str, stored: bytes | memoryview) -> int:
                return int(bytes(stored).split(b"/")[0]) * 10

            root = tmp_path / name
            async with await Disk.open(root, options, time_of=time_of) as disk:
                part = await disk.partition("p")
                if limits is not None:
                    part.merge_limits = limits
                for at in range(1, 15):
                    await segments(disk, part, [at])
                    await merged(disk)
                assert [part.first_at(time) for time in (10, 140, 141)] == [1, 14, None]
                times = [time for *_, time in part.segments()]
                assert times == [last * 10 for _, last, *_ in part.segments()]
            return [last - first + 1 for first, last, *_ in part.segments()]

        async def main() -> None:
            assert await write(MERGING, None, "any") == [13, 1]
            by_time = replace(MERGING, merge_time_max=50)
            assert max(await write(by_time, None, "disk")) <= 6
            assert max(await write(MERGING, MergeLimits(time_max=40), "time")) <= 5
            assert max(await write(MERGING, MergeLimits(time_max=39), "less time")) <= 4
            size = 64 + 24 + 24 + len(payload(1))
            assert max(await write(MERGING, MergeLimits(bytes_max=5 * size), "bytes")) < 13
            assert set(await write(MERGING, MergeLimits(bytes_max=0), "none")) == {1}

        run(main())

    def test_readers_beside_it_succeed(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(
                wal_file_bytes=1 << 16, merge_after_files=4, read_bytes=32, open_files_max=1
            )
            async with await Disk.open(tmp_path, options) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *([at, at + 1] for at in range(1, 9, 2)))
                reader = part.read(range(1, 100))
                read = [entry.index for entry in await anext(reader)]
                await segments(disk, part, [9])
                await merged(disk)
                assert len(part.segments()) == 2
                read += [entry.index async for batch in reader for entry in batch]
                assert read == list(range(1, 10))[: len(read)]
                assert read[:8] == list(range(1, 9))

        run(main())

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_a_disk_that_fails_loses_nothing_and_it_is_merged_later(
        self, tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, MERGING) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *([at] for at in range(1, 5)))
                await part.append([payload(5)])
                with files.holding("create", "seg/00000001.000000000001-") as gate:
                    flushing = asyncio.ensure_future(disk.flush())
                    await gate.reached()  # the merged segment; that of the flush is there
                    await flushing
                    with files.failing("write", "seg/", number):
                        gate.let_go()
                        await disk._engine.compactor.tasks.end()
                assert len(part.segments()) == 5
                assert "not merged" in caplog.text
                assert list(await epochs(part)) == [1, 2, 3, 4, 5]
                await segments(disk, part, [6])
                await merged(disk)
                assert len(part.segments()) == 2
                assert len(names(tmp_path, "seg")) == 2
                assert list(await epochs(part)) == list(range(1, 7))

        run(main())

    def test_what_is_overwritten_meanwhile_stays_overwritten(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, MERGING) as disk:
                part = await disk.partition("p")
                await segments(disk, part, *([at, at + 1] for at in range(1, 9, 2)))
                with files.holding("create", "seg/00000001.000000000001-") as gate:
                    await segments(disk, part, [9])
                    await gate.reached()
                    await part.write(3, entries([4, 5], epoch=2))
                await merged(disk)
                expected = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
                assert await epochs(part) == expected
                await disk.flush()
                assert await epochs(part) == expected
            async with await Disk.open(files, MERGING) as disk:
                assert await epochs(await disk.partition("p")) == expected

        run(main())

    def test_removing_the_partition_meanwhile_leaves_nothing(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, MERGING) as disk:
                part, other = await disk.partition("p"), await disk.partition("other")
                await segments(disk, other, [1])
                await segments(disk, part, *([at] for at in range(1, 5)))
                with files.holding("sync", "seg/00000001.") as gate:
                    flushing = asyncio.ensure_future(segments(disk, part, [5]))
                    await gate.reached()
                    await disk.remove("p")
                await flushing
                await merged(disk)
                assert len(names(tmp_path, "seg")) == 1
                assert list(await epochs(other)) == [1]

        run(main())

    def test_closing_does_not_wait_for_all_of_it(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = replace(MERGING, merge_after_files=None)
            async with await Disk.open(files, options) as disk:
                parts = [await disk.partition(f"{number}") for number in range(5)]
                for at in range(1, 7):
                    for part in parts:
                        await part.write(at - 1, entries([at]))
                    await disk.flush()
            one_by_one = patch.object(major_compaction, "MERGED_BYTES_MAX", 1)
            with one_by_one, files.holding("sync", "seg/") as gate:
                disk = await Disk.open(files, MERGING)
                await gate.reached()
                closing = asyncio.ensure_future(disk.close())
                await asyncio.sleep(0)
                gate.let_go()
                await closing
            counts = [len(each.files) for each in layout_of(tmp_path).partitions.values()]
            assert sorted(counts) == [2, 6, 6, 6, 6]
            async with await Disk.open(files, MERGING) as disk:
                for number in range(5):
                    part = await disk.partition(f"{number}")
                    assert list(await epochs(part)) == list(range(1, 7))

        run(main())

    def test_one_of_spans_keeps_them(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, MERGING) as disk:
                part = await disk.partition("p")
                for at in range(5):
                    await part.append([b"%d" % at, b"x"], spans=[3, 1])
                    await disk.flush()
                await merged(disk)
                assert len(part.segments()) == 2
                listed = await found(part)
                assert [entry.span for entry in listed] == [3, 1] * 5
                assert [entry.last for entry in listed][-1] == part.last == 20

        run(main())
