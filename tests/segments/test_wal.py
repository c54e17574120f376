"""Behaviours 1, 2, 5 and 12: writing to the WAL, its acknowledgements, its roll-over."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import shutil
from collections.abc import Sequence
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
    one,
    payload,
    run,
    until,
)
from stratalog.errors import (
    Closed,
    Conflict,
    Full,
    Invalid,
    NotHappened,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments import Disk, DiskOptions, Partition
from stratalog.segments.io.threads import DISK_THREADS_MAX


class TestBehaviour01AcknowledgedAfterASync:
    def test_nothing_counts_as_written_before_the_sync(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.append([b"opens the file"])
                with files.holding("sync", "wal/") as gate:
                    writing = asyncio.ensure_future(part.append([b"held"]))
                    await gate.reached()
                    assert not writing.done()
                    assert part.last == 1
                    assert [entry.payload for entry in await found(part)] == [b"opens the file"]
                    gate.let_go()
                    assert await writing == IndexSet(range(2, 3))
                assert part.last == 2

        run(main())

    def test_one_sync_covers_a_batch_of_many_partitions(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                parts = [await disk.partition(f"p{number}") for number in range(50)]
                with files.holding("sync", "wal/") as gate:
                    first = asyncio.ensure_future(parts[0].append([b"held"]))
                    await gate.reached()
                    before = disk.stats.syncs.count
                    rest = [asyncio.ensure_future(part.append([b"a", b"b"])) for part in parts[1:]]
                    await asyncio.sleep(0)
                    gate.let_go()
                    assert await first == IndexSet(range(1, 2))
                    assert set(await asyncio.gather(*rest)) == {IndexSet(range(1, 3))}
                assert disk.stats.syncs.count <= before + 2
                assert disk.stats.entries == 1 + 49 * 2

        run(main())

    def test_each_writer_learns_its_exact_index_set(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                one_part, other = await disk.partition("one"), await disk.partition("other")
                told = await asyncio.gather(
                    one_part.write(0, entries([1, 2, 3])),
                    other.write(0, entries([5, 7, 100])),
                    one_part.write(3, entries([4])),
                    other.write(100, entries([101, 200])),
                )
                assert [list(each) for each in told] == [[1, 2, 3], [5, 7, 100], [4], [101, 200]]
                assert list(await epochs(other)) == [5, 7, 100, 101, 200]

        run(main())

    def test_a_failed_write_did_not_happen_and_neither_did_what_was_to_follow(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part, other = await disk.partition("p"), await disk.partition("other")
                await part.append([payload(1)], epoch=1)
                with files.failing("write", "wal/", errno.ENOSPC):
                    writes = [part.write(1, entries([2])), part.write(2, entries([3]))]
                    told = await asyncio.gather(*writes, return_exceptions=True)
                assert [type(each) for each in told] == [Full, Full]
                assert part.last == 1
                assert list(await part.write(1, entries([2, 3]))) == [2, 3]
                assert list(await other.append([b"another"])) == [1]
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert list(await epochs(await disk.partition("p"))) == [1, 2, 3]

        run(main())

    def test_a_failed_sync_is_made_up_for_in_a_new_file(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.append([payload(1)], epoch=1)
                path = "wal/" + names(tmp_path, "wal")[0]
                with files.failing("sync", path, errno.EIO):
                    assert list(await part.append([payload(2)])) == [2]
                    await disk.flush()
                assert await epochs(part) == {1: 1, 2: 1}
                await part.append([payload(3)])
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert await epochs(await disk.partition("p")) == {1: 1, 2: 1, 3: 1}

        run(main())

    def test_if_that_fails_too_nobody_knows(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.append([payload(1)], epoch=1)
                with files.failing("sync", "wal/", errno.EIO), pytest.raises(Unknown):
                    await part.append([payload(2)])
                assert part.last == 1
                await part.append([payload(2)])
                assert await epochs(part) == {1: 1, 2: 1}
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert await epochs(await disk.partition("p")) == {1: 1, 2: 1}

        run(main())


class TestBehaviour02Gaps:
    def test_refused_once_then_dropped_until_the_gap_is_filled(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries([1, 2, 3]))
                with pytest.raises(Conflict) as refused:
                    await part.write(5, entries([6]))
                assert refused.value.expected == 3
                for previous in (6, 7):
                    with pytest.raises(NotHappened) as dropped:
                        await part.write(previous, entries([previous + 1]))
                    assert type(dropped.value) is NotHappened
                assert part.last == 3
                await part.write(3, entries([4, 5, 6, 7, 8]))
                assert list(await epochs(part)) == [1, 2, 3, 4, 5, 6, 7, 8]

        run(main())

    def test_after_it_was_filled_the_next_gap_is_told_again(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                for last in (0, 1):
                    with pytest.raises(Conflict) as refused:
                        await part.write(last + 5, entries([last + 6]))
                    assert refused.value.expected == last
                    await part.write(last, entries([last + 1]))

        run(main())

    def test_a_gap_in_one_partition_does_not_concern_another(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part, other = await disk.partition("p"), await disk.partition("other")
                with pytest.raises(Conflict):
                    await part.write(5, entries([6]))
                with pytest.raises(Conflict):
                    await other.write(5, entries([6]))
                assert list(await other.write(0, entries([1]))) == [1]

        run(main())

    def test_in_a_sparse_log_an_index_between_two_entries_is_unknown(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries([2, 5, 9]))
                with pytest.raises(Conflict) as refused:
                    await part.write(7, entries([8], epoch=2))
                assert refused.value.expected == 9
                await part.write(5, entries([7], epoch=2))
                assert await epochs(part) == {2: 1, 5: 1, 7: 2}

        run(main())

    def test_what_an_overwrite_on_its_way_takes_away_is_unknown(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                with files.holding("sync", "wal/") as gate:
                    overwriting = asyncio.ensure_future(part.write(5, entries([6, 20], epoch=2)))
                    await gate.reached()
                    for gone in (8, 10):
                        with pytest.raises(NotHappened):
                            await part.write(gone, entries([12], epoch=3))
                    gate.let_go()
                    await overwriting
                assert list(await epochs(part)) == [1, 2, 3, 4, 5, 6, 20]

        run(main())

    def test_a_resend_repairs_a_pipeline_in_which_one_write_was_lost(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                sent = {index: part.write(index - 1, entries([index])) for index in (1, 2, 4, 5, 6)}
                told = await asyncio.gather(*sent.values(), return_exceptions=True)
                kinds = {index: type(each) for index, each in zip(sent, told, strict=True)}
                assert kinds == {1: IndexSet, 2: IndexSet, 4: Conflict} | dict.fromkeys(
                    (5, 6), NotHappened
                )
                for index in (3, 4, 5, 6):
                    await part.write(index - 1, entries([index]))
                assert list(await epochs(part)) == [1, 2, 3, 4, 5, 6]

        run(main())

    def test_an_older_epoch_is_refused(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries([1], epoch=3))
                for previous in (0, 1):
                    with pytest.raises(Conflict):
                        await part.write(previous, entries([previous + 1], epoch=2))
                with pytest.raises(Invalid):
                    await part.write(1, entries([1], epoch=3))

        run(main())


class TestBehaviour05RollOver:
    def test_the_segment_writer_gets_exactly_what_the_file_holds(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                dense, sparse = await disk.partition("dense"), await disk.partition("sparse")
                await dense.write(0, entries(range(1, 8)))
                await sparse.write(0, entries([3, 30, 300]))
                assert list(sparse.status().pending) == [3, 30, 300]
                await disk.flush()
                assert sparse.status().pending == dense.status().pending == EMPTY
            files = {each.name: each.files for each in layout_of(tmp_path).partitions.values()}
            assert list(files["dense"][0].indexes) == list(range(1, 8))
            assert list(files["sparse"][0].indexes) == [3, 30, 300]

        run(main())

    def test_files_roll_over_by_themselves_and_reading_sees_no_seam(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(wal_file_bytes=4096, major_after_minors=None)
            async with await Disk.open(tmp_path, options) as disk:
                part = await disk.partition("p")
                for last in range(0, 200, 10):
                    await part.write(last, entries(range(last + 1, last + 11), text="x" * 100))
                assert list(await epochs(part)) == list(range(1, 201))
                await disk.flush()
                assert len(names(tmp_path, "seg")) > 3
                assert list(await epochs(part)) == list(range(1, 201))

        run(main())

    def test_the_wal_file_goes_after_its_segments_are_synced(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.append([payload(1)], epoch=1)
                wal = names(tmp_path, "wal")
                with files.holding("sync", "seg/") as gate:
                    flushing = asyncio.ensure_future(disk.flush())
                    await gate.reached()
                    assert names(tmp_path, "wal") == wal
                    gate.let_go()
                    await flushing
                await until(lambda: not names(tmp_path, "wal"))
                made = files.calls.index(("sync", "seg/" + names(tmp_path, "seg")[0]))
                recorded = max(
                    at
                    for at, (call, path) in enumerate(files.calls)
                    if call == "sync" and path.startswith("journal/")
                )
                removed = files.calls.index(("remove", f"wal/{wal[0]}"))
                assert made < recorded < removed

        run(main())

    def test_a_flush_that_was_cut_off_is_done_again(self, tmp_path: Path) -> None:
        """The directory as it is with segments written and no record of them."""

        async def main() -> None:
            left, files = tmp_path / "left", WatchedFiles(tmp_path / "disk")
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 6)))
                with files.holding("write", "journal/") as gate:
                    flushing = asyncio.ensure_future(disk.flush())
                    await gate.reached()
                    shutil.copytree(files.root, left)
                    gate.let_go()
                    await flushing
            (leftover,) = names(left, "seg")
            async with await Disk.open(left, SMALL) as disk:
                part = await disk.partition("p")
                assert leftover not in names(left, "seg")
                assert list(await epochs(part)) == [1, 2, 3, 4, 5]
                await disk.flush()
                assert list(await epochs(part)) == [1, 2, 3, 4, 5]
                assert len(names(left, "seg")) == 1

        run(main())

    def test_a_wal_file_that_came_back_is_not_replayed_twice(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 6)))
                wal = one(tmp_path, "wal")
                kept = wal.read_bytes()
                await disk.flush()
                await part.write(3, entries([4], epoch=2))
            wal.write_bytes(kept)
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert await epochs(await disk.partition("p")) == {1: 1, 2: 1, 3: 1, 4: 2}
                assert not wal.exists()

        run(main())

    def test_a_flush_that_fails_is_tried_again_and_loses_nothing(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 6)))
                with files.failing("sync", "seg/", errno.ENOSPC):
                    with pytest.raises(Full):
                        await disk.flush()
                    assert names(tmp_path, "wal")
                    assert list(await epochs(part)) == [1, 2, 3, 4, 5]
                await until(lambda: not part.status().pending)
                await until(lambda: len(names(tmp_path, "seg")) == 1)
                assert list(await epochs(part)) == [1, 2, 3, 4, 5]

        run(main())

    def test_closing_waits_for_the_flush_that_was_begun(self, tmp_path: Path) -> None:
        """Otherwise a thread would still write to a directory that was given back."""

        async def main() -> None:
            files = WatchedFiles(tmp_path)
            disk = await Disk.open(files, SMALL)
            part = await disk.partition("p")
            await part.write(0, entries(range(1, 6)))
            with files.holding("sync", "seg/") as gate:
                flushing = asyncio.ensure_future(disk.flush())
                await gate.reached()
                closing = asyncio.ensure_future(disk.close())
                for _ in range(20):
                    await asyncio.sleep(0)
                assert not closing.done()
                gate.let_go()
                await closing
            with pytest.raises(Closed):
                await flushing
            assert list(layout_of(tmp_path).partitions[1].indexes) == [1, 2, 3, 4, 5]
            assert names(tmp_path, "wal") == []

        run(main())


class TestBehaviour12DeadEntries:
    def test_what_is_dead_already_is_acknowledged_and_not_written(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11)))
                await part.checkpoint(10, b"", IndexSet(range(7, 8)))
                before = files.count("write", "wal/")
                assert list(await part.write(2, entries([3, 4, 5]))) == [3, 4, 5]
                assert files.count("write", "wal/") == before
                assert disk.stats.skipped == 3
                assert list(await part.write(8, entries([9, 10, 11]))) == [9, 10, 11]
                assert disk.stats.entries == 11
                assert part.last == 11

        run(main())

    def test_of_another_history_it_is_refused(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 11), epoch=2))
                await part.checkpoint(10, b"")
                with pytest.raises(Conflict):
                    await part.write(2, entries([3, 4], epoch=1))
                with pytest.raises(Conflict):
                    await part.write(2, entries([3, 4], epoch=3))

        run(main())

    def test_the_flush_writes_exactly_what_lives_and_what_is_above_the_checkpoint(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(range(1, 21)))
                await part.checkpoint(15, b"state", IndexSet.of([2, 3, 11]))
                await disk.flush()
                assert disk.stats.flushed_entries == 3 + 5
                assert list(await epochs(part)) == [2, 3, 11, 16, 17, 18, 19, 20]
            (file,) = layout_of(tmp_path).partitions[1].files
            assert list(file.indexes) == [2, 3, 11, 16, 17, 18, 19, 20]
            assert file.entries == 8

        run(main())

    def test_a_file_of_which_nothing_is_needed_becomes_no_segment(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part, other = await disk.partition("p"), await disk.partition("other")
                await part.write(0, entries(range(1, 21)))
                await other.append([b"other"])
                await part.checkpoint(20, b"state")
                await disk.flush()
                assert len(names(tmp_path, "seg")) == 1
                assert await epochs(part) == {}
                assert list(await part.write(20, entries([21]))) == [21]
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                assert (part.last, list(await epochs(part))) == (21, [21])

        run(main())


class TestBackPressure:
    def test_writes_wait_for_room_and_then_go_on_in_order(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, queue_bytes_max=300)
            async with await Disk.open(files, options) as disk:
                part = await disk.partition("p")
                with files.holding("sync", "wal/") as gate:
                    writing = [
                        asyncio.ensure_future(part.append([b"%d" % number]))
                        for number in range(1, 31)
                    ]
                    await gate.reached()
                    gate.let_go()
                    told = await asyncio.gather(*writing)
                assert [list(each) for each in told] == [[number] for number in range(1, 31)]
                assert [int(each.payload) for each in await found(part)] == list(range(1, 31))

        run(main())

    def test_no_room_for_too_long_is_full(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, queue_bytes_max=50, timeout_s=0.05)
            async with await Disk.open(files, options) as disk:
                part = await disk.partition("p")
                with files.holding("sync", "wal/") as gate:
                    held = asyncio.ensure_future(part.append([payload(1)], epoch=1))
                    await gate.reached()
                    with pytest.raises(Full) as refused:
                        await part.append([payload(2)])
                    assert "queue_bytes_max" in refused.value.hint
                    gate.let_go()
                    await held
                await part.append([payload(2)])
                assert await epochs(part) == {1: 1, 2: 1}

        run(main())

    def test_wal_files_that_cannot_be_flushed_stop_the_writers(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=2000, wal_files_max=2, timeout_s=0.05)
            async with await Disk.open(files, options) as disk:
                part = await disk.partition("p")
                with files.failing("create", "seg/", errno.ENOSPC):
                    with pytest.raises(Full):
                        await write_on(part, 100)
                    assert len(names(tmp_path, "wal")) <= 4
                    reached = part.last
                await until(lambda: not disk._engine.flush_queue)
                # One is open, the next is prepared, and one is kept to be written over.
                await until(lambda: len(names(tmp_path, "wal")) <= 3)
                await part.write(reached, entries([reached + 1]))
                assert list(await epochs(part)) == list(range(1, reached + 2))

        run(main())

    def test_who_waits_for_room_when_the_disk_is_closed_learns_it_at_once(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=2000, wal_files_max=1, timeout_s=3600)
            disk = await Disk.open(files, options)
            part = await disk.partition("p")
            failing = files.failing("create", "seg/", errno.ENOSPC)
            with failing, files.holding("create", "seg/") as gate:
                await write_on(part, 3)
                await gate.reached()
                waiting = asyncio.ensure_future(part.append([b"waits"]))
                await asyncio.sleep(0)
                assert not waiting.done()
                closing = asyncio.ensure_future(disk.close())
                gate.let_go()
                await closing
                with pytest.raises(Closed):
                    await waiting

        run(main())

    def test_a_writer_that_gave_up_is_no_longer_in_the_way(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, queue_bytes_max=50)
            async with await Disk.open(files, options) as disk:
                part, other = await disk.partition("p"), await disk.partition("other")
                with files.holding("sync", "wal/") as gate:
                    held = asyncio.ensure_future(part.append([b"held"]))
                    await gate.reached()
                    waiting = asyncio.ensure_future(other.append([b"given up"]))
                    await asyncio.sleep(0)
                    waiting.cancel()
                    behind = asyncio.ensure_future(other.append([b"behind"]))
                    await asyncio.sleep(0)
                    gate.let_go()
                    await asyncio.gather(held, behind)
                assert waiting.cancelled()
                assert [entry.payload for entry in await found(other)] == [b"behind"]

        run(main())

    def test_the_entries_of_a_cancelled_writer_become_durable_all_the_same(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                with files.holding("sync", "wal/") as gate:
                    writing = asyncio.ensure_future(part.write(0, entries([1, 2])))
                    await gate.reached()
                    writing.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await writing
                    gate.let_go()
                assert list(await part.write(2, entries([3]))) == [3]
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert list(await epochs(await disk.partition("p"))) == [1, 2, 3]

        run(main())

    def test_a_write_that_is_too_large_is_refused(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(wal_file_bytes=1 << 16, write_bytes_max=100)
            async with await Disk.open(tmp_path, options) as disk:
                part = await disk.partition("p")
                with pytest.raises(Invalid, match="larger than 100"):
                    await part.append([b"x" * 101])
                await part.append([b"x" * 100])

        run(main())


async def write_on(part: Partition, count: int) -> None:
    for index in range(1, count):
        await part.write(index - 1, entries([index], text="x" * 1000))


class TestErrors:
    def test_they_pickle_with_what_they_say(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            raised: list[StratalogError] = []
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await part.append([b"one"])
                for previous in (5, 6):
                    with pytest.raises(NotHappened) as refused:
                        await part.write(previous, entries([previous + 1]))
                    raised.append(refused.value)
                with files.failing("write", "wal/", errno.EIO), pytest.raises(Unavailable) as eio:
                    await part.append([b"two"])
                raised.append(eio.value)
            with pytest.raises(Closed) as closed:
                await part.append([b"three"])
            raised.append(closed.value)
            for error in raised:
                twin = pickle.loads(pickle.dumps(error))
                assert type(twin) is type(error)
                assert vars(twin) == vars(error)

        run(main())


@pytest.mark.skipif(not hasattr(os, "RWF_DSYNC"), reason="this system has no such call")
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_batch_of_which_one_failed_call_says_nothing_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A write and its sync are one call: nobody knows which of them failed."""
    whole = os.pwritev
    left = [1]

    def failing(fd: int, parts: Sequence[bytes], at: int, flags: int = 0) -> int:
        written = whole(fd, parts, at)
        if flags and left:
            left.pop()
            raise OSError(number, os.strerror(number))
        return written

    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            await part.write(0, entries(range(1, 4)))
            monkeypatch.setattr(os, "pwritev", failing)
            await part.write(3, entries(range(4, 6)))
            await part.write(5, entries(range(6, 7)))
            assert not left
        async with await Disk.open(tmp_path, SMALL) as disk:
            assert list(await epochs(await disk.partition("p"))) == [1, 2, 3, 4, 5, 6]

    run(main())


def test_a_disk_that_is_full_is_told_as_such_and_a_checkpoint_frees_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last batch of a WAL file reaches beyond what was allocated for it."""
    whole, allocate = os.pwritev, os.posix_fallocate

    def full(fd: int, parts: Sequence[bytes], at: int, flags: int = 0) -> int:
        if sum(map(len, parts)) > 4000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(fd, parts, at, flags) if flags else whole(fd, parts, at)

    def nothing_left(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            for group in (range(1, 11), range(11, 21), range(21, 23)):
                await part.write(group[0] - 1, entries(group))
                await disk.flush()
            await part.write(22, entries(range(23, 24)))
            before = len(names(tmp_path, "seg"))
            monkeypatch.setattr(os, "pwritev", full)
            monkeypatch.setattr(os, "posix_fallocate", nothing_left)
            with pytest.raises(Full):
                await part.append([b"x" * 2 * SMALL.wal_file_bytes])
            await part.checkpoint(20, b"state")
            await until(lambda: len(names(tmp_path, "seg")) < before)
            monkeypatch.setattr(os, "pwritev", whole)
            monkeypatch.setattr(os, "posix_fallocate", allocate)
            await part.append([payload(24, 1)])
            assert list(await epochs(part, range(21, 30))) == [21, 22, 23, 24]

    if hasattr(os, "RWF_DSYNC"):
        run(main())


def test_writers_do_not_wait_for_readers_of_a_slow_disk(tmp_path: Path) -> None:
    async def main() -> None:
        files = WatchedFiles(tmp_path)
        async with await Disk.open(files, SMALL) as disk:
            part = await disk.partition("p")
            await part.write(0, entries(range(1, 11)))
            await disk.flush()
            with files.holding("read", "seg/") as gate:
                readers = [asyncio.ensure_future(found(part)) for _ in range(2 * DISK_THREADS_MAX)]
                await gate.reached()
                await part.write(10, entries(range(11, 13)))
                gate.let_go()
                for read in await asyncio.gather(*readers):
                    assert len(read) in (10, 12)

    run(main())
