"""Writing without a task: ``submit``, ``room``, ``on_durable``; repeated writes; times."""

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
    names,
    payload,
    run,
    segments,
)
from stratalog.errors import Closed, Conflict, Full, Invalid, NotFound, NotHappened
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Partition


def following(partition: Partition, *payloads: bytes, epoch: int = 1) -> Entries:
    return Entries.following(partition.tail[0], epoch, payloads)


def submit(partition: Partition, *payloads: bytes) -> asyncio.Future[IndexSet]:
    return partition.submit(partition.tail[0], following(partition, *payloads))


class TestSubmit:
    def test_the_future_has_the_indexes_when_they_are_durable(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                first = submit(part, b"one", b"two")
                second = submit(part, b"three")
                assert part.tail == (3, 1)
                assert part.last == 0
                assert not first.done()
                assert await second == IndexSet.of([3])
                assert await first == IndexSet.of([1, 2])
                assert part.last == 3
                assert files.count("sync", "wal/") > 0

        run(main())

    def test_it_makes_no_task(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.append([b"one"])
                before = asyncio.all_tasks()
                answers = [submit(part, b"x") for _ in range(50)]
                assert asyncio.all_tasks() == before
                await asyncio.gather(*answers)

        run(main())

    def test_what_does_not_fit_is_refused_at_once_and_changes_nothing(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.append([b"one", b"two"])
                for error, previous, wrong in [
                    (Conflict, 3, entries([4])),
                    (NotHappened, 3, entries([4])),
                    (Conflict, 0, entries([1, 2], text="other")),
                    (Conflict, 1, entries([2, 3])),
                    (Invalid, 2, entries([2])),
                    (Invalid, 2, Entries.of([])),
                ]:
                    with pytest.raises(error):
                        part.submit(previous, wrong)
                assert part.tail == (2, 1)
                await submit(part, b"three")
                assert [entry.payload for entry in await found(part)] == [b"one", b"two", b"three"]

        run(main())

    def test_cancelling_the_future_does_not_stop_the_write(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                answer = submit(part, b"one")
                answer.cancel()
                assert await submit(part, b"two") == IndexSet.of([2])
                assert [entry.payload for entry in await found(part)] == [b"one", b"two"]

        run(main())

    def test_a_closed_disk_and_a_removed_partition_take_nothing(self, tmp_path: Path) -> None:
        async def main() -> None:
            disk = await Disk.open(tmp_path, SMALL)
            part, other = await disk.partition("p"), await disk.partition("other")
            await disk.remove("other")
            with pytest.raises(NotFound):
                submit(other, b"x")
            await disk.close()
            with pytest.raises(Closed):
                submit(part, b"x")
            with pytest.raises(Closed):
                await disk.room()

        run(main())

    def test_a_payload_may_be_a_view_of_memory(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                whole = memoryview(b"..one|two..")
                await part.submit(0, Entries.following(0, 1, [whole[2:5], whole[6:9]]))
                in_memory = part.fetch(1, 100)
                assert in_memory is not None
                assert [bytes(each) for each in in_memory.payloads] == [b"one", b"two"]
                await disk.flush()
                assert [entry.payload for entry in await found(part)] == [b"one", b"two"]
                for wrong in (bytearray(b"x"), "x", memoryview(b"abcd")[::2], None):
                    with pytest.raises(Invalid):
                        Entries.following(2, 1, [wrong])  # type: ignore[list-item]

        run(main())


class TestRoom:
    def test_it_is_full_until_there_is_room_again(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, queue_bytes_max=300, timeout_s=30)
            async with await Disk.open(files, options) as disk:
                part = await disk.partition("p")
                await part.append([b"first"])
                with files.holding("write", "wal/") as gate:
                    answers = [submit(part, bytes(100))]
                    await gate.reached()
                    answers.append(submit(part, bytes(100)))
                    with pytest.raises(Full, match="room"):
                        submit(part, b"x")
                    assert part.tail == (3, 1)
                    room = asyncio.ensure_future(disk.room())
                    await asyncio.sleep(0)
                    assert not room.done()
                    gate.let_go()
                    await room
                answers.append(submit(part, b"x"))
                assert [list(each) for each in await asyncio.gather(*answers)] == [[2], [3], [4]]

        run(main())

    def test_who_waits_longer_comes_first(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, queue_bytes_max=100, timeout_s=30)
            async with await Disk.open(files, options) as disk:
                part = await disk.partition("p")
                await part.append([b"first"])
                with files.holding("write", "wal/") as gate:
                    submit(part, bytes(100))
                    await gate.reached()
                    waiting = asyncio.ensure_future(part.append([b"waits"]))
                    await asyncio.sleep(0)
                    gate.let_go()
                    with pytest.raises(Full):
                        submit(part, b"pushes in")
                assert await waiting == IndexSet.of([3])

        run(main())

    def test_it_times_out(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, queue_bytes_max=100, timeout_s=0.05)
            async with await Disk.open(files, options) as disk:
                part = await disk.partition("p")
                await part.append([b"first"])
                with files.holding("write", "wal/") as gate:
                    answer = submit(part, bytes(100))
                    await gate.reached()
                    with pytest.raises(Full, match="within"):
                        await disk.room()
                    gate.let_go()
                await answer
                await disk.room()

        run(main())


class TestOnDurable:
    def test_it_is_told_once_for_each_batch_and_after_a_cut(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part, other = await disk.partition("p"), await disk.partition("other")
                await part.append([b"first"])
                told: list[int] = []
                end = part.on_durable(told.append)
                with files.holding("write", "wal/") as gate:
                    first = submit(part, b"one")
                    await gate.reached()
                    rest = [submit(part, b"x") for _ in range(5)]
                    gate.let_go()
                    await asyncio.gather(first, *rest)
                assert told == [2, 7]
                await submit(other, b"not ours")
                await part.truncate(2)
                assert told == [2, 7, 2]
                end()
                await submit(part, b"unheard")
                assert told == [2, 7, 2]

        run(main())

    def test_it_is_told_before_the_futures_have_their_results(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                seen: list[bool] = []
                answer = submit(part, b"one")
                part.on_durable(lambda last: seen.append(answer.done() or part.last != last))
                await answer
                assert seen == [False]

        run(main())

    def test_one_that_fails_harms_nobody(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(_: int) -> None:
            raise ValueError("a listener's own bug")

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                told: list[int] = []
                part.on_durable(fails)
                part.on_durable(told.append)
                assert await submit(part, b"one") == IndexSet.of([1])
                assert told == [1]
                assert "a listener of 'p' failed" in caplog.text

        run(main())


class TestAFailure:
    def test_followers_fail_too_and_others_go_on(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part, other = await disk.partition("p"), await disk.partition("other")
                await part.append([b"one"])
                with files.holding("write", "wal/") as gate:
                    failing = submit(part, b"fails")
                    await gate.reached()
                    follower, third = submit(part, b"follows"), submit(other, b"goes on")
                    with files.failing("write", f"wal/{names(tmp_path, 'wal')[0]}", errno.ENOSPC):
                        gate.let_go()
                        for each in (failing, follower):
                            with pytest.raises(Full):
                                await each
                assert await third == IndexSet.of([1])
                assert part.tail == (1, 1)
                assert await submit(part, b"again") == IndexSet.of([2])
                assert [entry.payload for entry in await found(part)] == [b"one", b"again"]

        run(main())


class TestRepeatedWrites:
    """Behaviour 25: the same index and epoch with other bytes is a ``Conflict``."""

    @pytest.mark.parametrize("is_flushed", [False, True], ids=["memtable", "segment"])
    @pytest.mark.parametrize("at_restart", [False, True], ids=["", "restarted"])
    def test_other_bytes_are_never_taken_for_those_that_are_here(
        self, tmp_path: Path, is_flushed: bool, at_restart: bool
    ) -> None:
        async def main() -> None:
            disk = await Disk.open(tmp_path, SMALL)
            part = await disk.partition("p")
            await part.write(0, Entries.following(0, 5, [b"%d" % at for at in range(20)]))
            if is_flushed:
                await disk.flush()
            if at_restart:
                await disk.close()
                disk = await Disk.open(tmp_path, SMALL)
                part = await disk.partition("p")
                if is_flushed:
                    await disk.flush()
            same = Entries.following(10, 5, [b"10", b"11"])
            assert await part.write(10, same) == IndexSet.of([11, 12])
            assert list(await part.submit(10, same)) == [11, 12]
            for other in (
                Entries.following(10, 5, [b"xx"]),
                Entries.following(10, 5, [b"10", b"xx"]),
                Entries.following(10, 5, [b"10x"]),
                Entries.following(10, 5, [b"10"], [2]),
                Entries.following(18, 5, [b"18", b"xx", b"beyond the end"]),
            ):
                with pytest.raises(Conflict):
                    await part.write(other.first - 1, other)
                with pytest.raises(Conflict):
                    part.submit(other.first - 1, other)
            assert part.tail == (20, 5)
            longer = Entries.following(18, 5, [b"18", b"19", b"20"])
            assert list(await part.write(18, longer)) == [19, 20, 21]
            assert [entry.payload for entry in await found(part)] == [
                b"%d" % at for at in range(21)
            ]
            assert disk.stats.skipped == 2 + 2 + 2
            await disk.close()

        run(main())

    def test_also_of_what_lives_below_a_checkpoint(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11))
                await part.checkpoint(8, b"state", IndexSet.of([3]))
                assert list(await part.write(2, entries([3, 4]))) == [3, 4]
                with pytest.raises(Conflict):
                    await part.write(2, entries([3], text="other"))
                assert list(await epochs(part)) == list(range(1, 11))

        run(main())


class TestFetch:
    def test_from_memory_over_several_wal_files(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, [1, 2])
                with files.failing("create", "seg/", errno.EIO):
                    for at in (3, 5, 7):
                        await part.write(at - 1, entries([at, at + 1]))
                        await disk._engine.wal.end_file()
                    whole = part.fetch(3, 1 << 20)
                    assert whole is not None
                    assert list(whole.indexes) == [3, 4, 5, 6, 7, 8]
                    some = part.fetch(4, 3 * len(payload(4)))
                    assert some is not None
                    assert list(some.indexes) == [4, 5, 6]
                    assert part.fetch(2, 100) is None
                    assert part.fetch(9, 100) == Entries.of([])
                    assert list((await part.fetch_stored(1, 1 << 20)).indexes) == [1, 2]
                await disk.flush()
                assert part.fetch(8, 100) is None
                assert list((await part.fetch_stored(8, 100)).indexes) == [8]
                assert len(names(tmp_path, "seg")) >= 2

        run(main())

    def test_a_writable_answer_belongs_to_the_caller(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, [1, 2])
                await part.append([b"in memory"])
                for index in (1, 3):
                    mine = await part.fetch_stored(index, 100, writable=True)
                    before = [bytes(each) for each in mine.payloads]
                    (view,) = (memoryview(each) for each in mine.parts())
                    view[:] = b"!" * len(view)
                    again = await part.fetch_stored(index, 100)
                    assert [bytes(each) for each in again.payloads] == before

        run(main())

    def test_dead_entries_are_left_out(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11))
                await part.checkpoint(8, b"state", IndexSet.of([2, 7]))
                await segments(disk, part, [11])
                assert await part.compact()
                assert list((await part.fetch_stored(1, 1 << 20)).indexes) == [2, 7, 9, 10]
                assert list((await part.fetch_stored(3, 1 << 20)).indexes) == [7, 9, 10]

        run(main())


class TestTimes:
    def test_the_first_index_of_what_may_have_a_time_is_found(self, tmp_path: Path) -> None:
        """Times are in the payloads; ``-`` has none."""

        def time_of(name: str, stored: bytes | memoryview) -> int | None:
            assert name == "p"
            return None if bytes(stored) == b"-" else int(bytes(stored))

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL, time_of=time_of) as disk:
                part = await disk.partition("p")
                for batch in ([b"10", b"30"], [b"-"], [b"20", b"40"]):
                    await part.append(batch)
                    await disk.flush()
                await part.append([b"50", b"5"])
                await part.append([b"60"])
                assert [time for *_, time in part.segments()] == [30, None, 40]
                times = (0, 30, 31, 40, 41, 60, 61)
                expected = [1, 1, 3, 3, 3, 3, 3]
                assert [part.first_at(time) for time in times] == expected
            async with await Disk.open(tmp_path, SMALL, time_of=time_of) as disk:
                part = await disk.partition("p")
                assert [part.first_at(time) for time in times] == expected

        run(main())

    def test_in_memory_each_write_is_looked_at(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(
                tmp_path, SMALL, time_of=lambda _, stored: int(bytes(stored))
            ) as disk:
                part = await disk.partition("p")
                for batch in ([b"10"], [b"40", b"20"], [b"30"]):
                    await part.append(batch)
                times = (5, 11, 40, 41)
                assert [part.first_at(time) for time in times] == [1, 2, 2, None]
                await part.truncate(1)
                assert [part.first_at(time) for time in (10, 11)] == [1, None]
                await part.append([b"15"], epoch=2)
                assert [part.first_at(time) for time in (10, 11, 16)] == [1, 2, None]

        run(main())

    def test_a_hook_that_fails_costs_the_time_and_nothing_else(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(_: str, __: bytes | memoryview) -> int:
            raise ValueError("no time")

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL, time_of=fails) as disk:
                part = await disk.partition("p")
                await segments(disk, part, [1, 2])
                assert [time for *_, time in part.segments()] == [None]
                assert part.first_at(5) == 1
                assert "the time of an entry of 'p' could not be told" in caplog.text

        run(main())
