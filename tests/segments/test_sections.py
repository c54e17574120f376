"""Behaviour 26: several sections of one write become durable together, or not at all."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from random import Random

import pytest

from segments.disks import SMALL, WatchedFiles, entries, found, names, run
from segments.states import content, opened_shows
from stratalog.errors import Closed, Conflict, Full, Invalid, NotFound, NotHappened, Unknown
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Partition
from stratalog.testing import SimulatedFiles, Simulation, simulate

OPTIONS = DiskOptions(wal_file_bytes=2048, major_after_minors=None)


async def two(disk: Disk) -> tuple[Partition, Partition]:
    one, other = await disk.partition("a"), await disk.partition("b")
    await one.append([b"a1"])
    await other.append([b"b1", b"b2"])
    return one, other


def group(one: Partition, other: Partition) -> list[tuple[Partition, int, Entries]]:
    """An entry with a span, and two entries."""
    return [
        (one, one.tail[0], Entries.following(one.tail[0], 1, [b"span"], [3])),
        (other, other.tail[0], Entries.following(other.tail[0], 1, [b"x", b"y"])),
    ]


async def payloads(partition: Partition) -> list[bytes]:
    return [entry.payload for entry in await found(partition)]


class TestDurableTogether:
    def test_all_of_it_is_there_with_one_sync(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                one, other = await two(disk)
                before = files.count("sync", "wal/")
                await disk.submit(group(one, other), {"note": b"value"})
                assert files.count("sync", "wal/") == before + 1
                assert (one.last, other.last) == (4, 4)
                assert disk.notes.get("note") == b"value"
            async with await Disk.open(tmp_path, SMALL) as disk:
                one, other = await disk.partition("a"), await disk.partition("b")
                assert await payloads(one) == [b"a1", b"span"]
                assert await payloads(other) == [b"b1", b"b2", b"x", b"y"]
                assert disk.notes.get("note") == b"value"

        run(main())

    def test_a_cut_of_the_wal_at_any_byte_leaves_all_or_nothing(self) -> None:
        files = SimulatedFiles(random=Random(1))

        async def script(simulation: Simulation) -> None:
            disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
            one, other = await two(disk)
            await disk.submit(group(one, other), {"note": b"value"})
            files.crash()

        simulate(script, 1)
        (path,) = [each for each in files.after_kill().names() if each.startswith("wal/")]
        data = content(files.after_kill(), path)
        begins, ends = data.rfind(b"SLFR"), len(data.rstrip(b"\0"))
        seen = set[tuple[int, int, bytes | None]]()
        for at in range(begins, ends + 1):
            torn = files.after_kill()
            torn.damage(path, at, bytes(len(data) - at))
            shown = shows(torn, seed=at)
            assert shown == ((1, 2, None) if at < ends else (4, 4, b"value")), at
            seen.add(shown)
        assert len(seen) == 2

    def test_bytes_that_are_missing_in_the_middle_of_it_take_all_of_it(self) -> None:
        """A crash may leave any pages of a write that was not synced."""
        files = SimulatedFiles(random=Random(1))

        async def script(simulation: Simulation) -> None:
            disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
            one, other = await two(disk)
            await disk.submit(group(one, other), {"note": b"value"})
            files.crash()

        simulate(script, 1)
        (path,) = [each for each in files.after_kill().names() if each.startswith("wal/")]
        data = content(files.after_kill(), path)
        begins, ends = data.rfind(b"SLFR"), len(data.rstrip(b"\0"))
        for at in range(begins, ends):
            if data[at]:
                torn = files.after_kill()
                torn.damage(path, at, b"\0")
                assert shows(torn, seed=at) == (1, 2, None), at


def shows(files: SimulatedFiles, seed: int) -> tuple[int, int, bytes | None]:
    """The ends of both partitions, and the note."""
    found: list[tuple[int, int, bytes | None]] = []

    async def main(simulation: Simulation) -> None:
        disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
        one, other = await disk.partition("a"), await disk.partition("b")
        found.append((one.last, other.last, disk.notes.get("note")))
        files.crash()

    simulate(main, seed)
    return found[0]


class TestAdmission:
    def test_if_one_is_refused_nothing_happens_to_the_others(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                one, other = await two(disk)
                good = (one, 1, entries([2]))
                for error, bad in [
                    (NotHappened, (other, 5, entries([6]))),  # a Conflict the first time
                    (Conflict, (other, 0, entries([1], text="other"))),
                    (Invalid, (other, 2, entries([2]))),
                    (Invalid, (one, 2, entries([3]))),
                ]:
                    for order in ([good, bad], [bad, good]):
                        with pytest.raises(
                            error if error is not Conflict else (Conflict, NotHappened)
                        ):
                            disk.submit(order, {"note": b"value"})
                    assert (one.tail, other.tail) == ((1, 1), (2, 1))
                    assert disk.notes.partition.tail == (0, 0)
                assert disk.notes.get("note") is None
                await disk.submit([good])
                assert one.last == 2
                assert await payloads(other) == [b"b1", b"b2"]

        run(main())

    def test_a_write_of_nothing_is_invalid(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                for sections in ([], [(await disk.partition("a"), 0, Entries.of([]))]):
                    with pytest.raises(Invalid):
                        disk.submit(sections)

        run(main())

    def test_it_is_as_large_as_a_write_may_be(self, tmp_path: Path) -> None:
        async def main() -> None:
            options = DiskOptions(wal_file_bytes=1 << 16, write_bytes_max=100)
            async with await Disk.open(tmp_path, options) as disk:
                one, other = await two(disk)
                with pytest.raises(Invalid, match="larger"):
                    disk.submit(
                        [
                            (one, 1, Entries.following(1, 1, [bytes(60)])),
                            (other, 2, Entries.following(2, 1, [bytes(60)])),
                        ]
                    )
                assert (one.tail, other.tail) == ((1, 1), (2, 1))

        run(main())

    def test_without_room_it_is_full_and_nothing_moves(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, queue_bytes_max=100)
            async with await Disk.open(files, options) as disk:
                one, other = await two(disk)
                with files.holding("write", "wal/") as gate:
                    answer = one.submit(1, Entries.following(1, 1, [bytes(100)]))
                    await gate.reached()
                    with pytest.raises(Full):
                        disk.submit(group(one, other))
                    assert (one.tail, other.tail) == ((2, 1), (2, 1))
                    gate.let_go()
                await answer
                await disk.room()
                await disk.submit(group(one, other))
                assert (one.last, other.last) == (5, 4)

        run(main())

    def test_sections_that_are_here_already_are_not_written_again(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                one, other = await two(disk)
                sections = group(one, other)
                await disk.submit(sections)
                await disk.submit(sections)
                assert (one.tail, other.tail) == ((4, 1), (4, 1))
                first_again = [sections[0], (other, 4, Entries.following(4, 1, [b"z"]))]
                await disk.submit(first_again)
                assert await payloads(one) == [b"a1", b"span"]
                assert await payloads(other) == [b"b1", b"b2", b"x", b"y", b"z"]

        run(main())

    def test_a_closed_disk_and_a_removed_partition_take_nothing(self, tmp_path: Path) -> None:
        async def main() -> None:
            disk = await Disk.open(tmp_path, SMALL)
            one, other = await two(disk)
            await disk.remove("b")
            with pytest.raises(NotFound):
                disk.submit([(one, 1, entries([2])), (other, 2, entries([3]))])
            assert one.tail == (1, 1)
            await disk.close()
            with pytest.raises(Closed):
                disk.submit([(one, 1, entries([2]))])

        run(main())


class TestAFailure:
    def test_it_takes_followers_in_all_its_partitions_along(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                one, other = await two(disk)
                third = await disk.partition("c")
                path = f"wal/{names(tmp_path, 'wal')[0]}"
                with files.holding("write", "wal/") as gate:
                    failing = one.submit(1, entries([2]))
                    await gate.reached()
                    tied = disk.submit(group(one, other), {"note": b"value"})
                    follower = other.submit(4, entries([5]))
                    alone = third.submit(0, entries([1]))
                    with files.failing("write", path, errno.ENOSPC):
                        gate.let_go()
                        for each in (failing, tied, follower):
                            with pytest.raises(Full):
                                await each
                assert await alone == IndexSet.of([1])
                assert (one.tail, other.tail) == ((1, 1), (2, 1))
                assert disk.notes.get("note") is None
                await disk.submit(group(one, other), {"note": b"again"})
                assert (one.last, other.last, disk.notes.get("note")) == (4, 4, b"again")

        run(main())

    def test_a_sync_that_fails_twice_leaves_it_unknown(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                one, other = await two(disk)
                with files.failing("sync", "wal/", errno.EIO), pytest.raises(Unknown):
                    await disk.submit(group(one, other), {"note": b"value"})
                assert disk.notes.get("note") is None
                assert (one.last, other.last) == (1, 2)
                await disk.submit(group(one, other), {"note": b"again"})
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.notes.get("note") == b"again"
                assert (await disk.partition("a")).last == 4

        run(main())

    def test_a_caller_that_is_cancelled_does_not_divide_it(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                one, other = await two(disk)
                disk.submit(group(one, other), {"note": b"value"}).cancel()
                await asyncio.gather(one.append([b"then"]), other.append([b"then"]))
                assert (one.last, other.last) == (5, 5)
                assert disk.notes.get("note") == b"value"

        run(main())

    def test_removing_one_of_its_partitions_meanwhile_fails_it(self, tmp_path: Path) -> None:
        """What it says of the other partition is durable all the same."""

        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                one, other = await two(disk)
                with files.holding("write", "wal/") as gate:
                    answer = disk.submit(group(one, other))
                    await gate.reached()
                    await disk.remove("b")
                    gate.let_go()
                    with pytest.raises(NotFound):
                        await answer
                assert one.last == 4
                assert await payloads(one) == [b"a1", b"span"]

        run(main())


def test_nothing_shows_of_a_write_that_a_full_disk_refused(tmp_path: Path) -> None:
    files = SimulatedFiles(random=Random(1))

    async def script(simulation: Simulation) -> None:
        disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
        one, other = await two(disk)
        files.fail_if(lambda call: errno.ENOSPC if call.path.startswith("wal/") else None)
        with pytest.raises(Full):
            await disk.submit(group(one, other))
        files.crash()

    simulate(script, 1)
    shown = opened_shows(files.after_kill())
    assert {name: len(log) for name, (log, _) in shown.items()} == {"a": 1, "b": 2}
