"""What careless callers do: lists used again, strange payloads, stale epochs, giving up."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import cast

import pytest

from segments.disks import PATIENCE_S, SMALL, WatchedFiles, entries, epochs, run
from stratalog.errors import Conflict, Invalid, NotFound, Unknown
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Entry
from stratalog.segments.write_ahead import wal as wal_module


def test_a_list_of_payloads_can_be_used_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            payloads = [b"one", b"two"]
            await part.append(payloads)
            payloads[:] = [b"ten"]
            assert [(await part.get(index)).payload for index in (1, 2)] == [b"one", b"two"]
            await disk.flush()
            assert [(await part.get(index)).payload for index in (1, 2)] == [b"one", b"two"]

    run(main())


@pytest.mark.parametrize("payload", [memoryview(b"abcd")[::2], bytearray(b"x"), "text", None])
def test_a_payload_that_is_not_bytes_is_refused(payload: object) -> None:
    with pytest.raises(Invalid):
        Entries.following(0, 1, [cast(bytes, payload)])


@pytest.mark.parametrize("numbers", [(-1, 0), (0, 1), (1, 2**63)])
def test_an_epoch_out_of_range_is_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(Invalid):
        Entries.of([Entry(at, epoch, b"x") for at, epoch in enumerate(numbers, 1)])


def test_a_log_whose_writer_names_no_epoch_has_a_lineage_from_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            await part.append([b"x"])
            before = part.lineage
        async with await Disk.open(tmp_path, SMALL) as disk:
            assert (await disk.partition("p")).lineage == before
        assert before.steps == ((1, 1),)

    run(main())


def test_a_stale_writer_is_refused_also_below_the_checkpoint(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            await part.write(0, entries(range(1, 6)))
            await part.write(5, entries(range(6, 11), epoch=2))
            await part.checkpoint(10, b"state", IndexSet(range(6, 11)))
            with pytest.raises(Conflict):
                await part.write(0, Entries.following(0, 1, [b"stale"] * 10))

    run(main())


def test_nothing_is_built_on_an_overwrite_that_may_be_there(tmp_path: Path) -> None:
    """A checkpoint settles it first: the batch would take away what lives."""

    async def main() -> None:
        files = WatchedFiles(tmp_path)
        async with await Disk.open(files, SMALL) as disk:
            part = await disk.partition("p")
            await part.write(0, entries(range(1, 11)))
            with (
                files.failing("sync", "wal/", errno.EIO),
                files.failing("create", "seg/", errno.EIO),
                pytest.raises(Unknown),
            ):
                await part.write(5, entries([6], epoch=2))
            with files.failing("create", "seg/", errno.EIO):
                await part.checkpoint(10, b"state", IndexSet.of([7, 9]))
                await disk.close()
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            assert await epochs(part) == dict.fromkeys(range(1, 11), 1)
            assert part.live == IndexSet.of([7, 9])

    run(main())


def test_a_cut_that_waits_for_room_does_not_reach_below_a_checkpoint(tmp_path: Path) -> None:
    async def main() -> None:
        files = WatchedFiles(tmp_path)
        async with await Disk.open(files, DiskOptions(queue_bytes_max=10)) as disk:
            part, other = await disk.partition("p"), await disk.partition("other")
            await part.write(0, entries(range(1, 11)))
            with files.holding("sync", "wal/") as gate:
                writing = asyncio.ensure_future(other.append([b"fills the queue"]))
                await gate.reached()
                cutting = asyncio.ensure_future(part.truncate(5))
                await asyncio.sleep(0)
                taking = asyncio.ensure_future(part.checkpoint(10, b"", IndexSet.of([7])))
                await asyncio.sleep(0)
                gate.let_go()
                told = await asyncio.gather(cutting, taking, return_exceptions=True)
                await writing
            assert sum(isinstance(each, Exception) for each in told) == 1
            before = part.checkpoint_index, part.last
        async with await Disk.open(tmp_path) as disk:
            part = await disk.partition("p")
            assert (part.checkpoint_index, part.last) == before

    run(main())


def test_a_defect_in_the_thread_that_writes_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise MemoryError

    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            part = await disk.partition("p")
            with monkeypatch.context() as patch:
                patch.setattr(wal_module, "batch_parts", fail)
                with pytest.raises(Unknown):
                    await part.append([b"x"])

    run(main())


def test_a_write_on_its_way_when_its_partition_is_removed_is_not_found(tmp_path: Path) -> None:
    async def main() -> None:
        files = WatchedFiles(tmp_path)
        async with await Disk.open(files, SMALL) as disk:
            part = await disk.partition("p")
            await part.append([b"x"])
            with files.holding("sync", "wal/") as gate:
                writing = asyncio.ensure_future(part.append([b"y"]))
                await gate.reached()
                cutting = asyncio.ensure_future(part.truncate(1))
                await disk.remove("p")
                gate.let_go()
                told = await asyncio.gather(writing, cutting, return_exceptions=True)
            assert [type(each) for each in told] == [NotFound, NotFound]

    run(main())


def test_a_close_that_was_given_up_goes_on_and_a_second_one_waits_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        files = WatchedFiles(tmp_path)
        disk = await Disk.open(files, SMALL)
        part = await disk.partition("p")
        await part.append([b"x"])
        with files.holding("sync", "seg/") as gate:
            flushing = asyncio.ensure_future(disk.flush())
            await gate.reached()
            first = asyncio.ensure_future(disk.close())
            await asyncio.sleep(0)
            first.cancel()
            second = asyncio.ensure_future(disk.close())
            await asyncio.sleep(0)
            with pytest.raises(Conflict):
                await Disk.open(tmp_path, SMALL)
            gate.let_go()
            await second
        await asyncio.gather(first, flushing, return_exceptions=True)
        async with await Disk.open(tmp_path, SMALL) as disk:
            assert (await (await disk.partition("p")).get(1)).payload == b"x"

    run(main())


def test_an_opening_that_was_given_up_keeps_the_directory_until_its_threads_have_ended(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            await (await disk.partition("p")).append([b"x"])
        files = WatchedFiles(tmp_path)
        with files.holding("sync", "journal/") as gate:
            opening = asyncio.ensure_future(Disk.open(files, SMALL))
            await gate.reached()
            opening.cancel()
            await asyncio.wait([opening])
            with pytest.raises(Conflict):
                await Disk.open(tmp_path, SMALL)
            gate.let_go()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    disk = await Disk.open(tmp_path, SMALL)
                    break
                except Conflict:
                    await asyncio.sleep(0.01)
        assert (await (await disk.partition("p")).get(1)).payload == b"x"
        await disk.close()

    run(main())


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "line\nbreak", "half \ud800 a pair"])
def test_a_name_that_cannot_be_stored_is_invalid(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path, SMALL) as disk:
            with pytest.raises(Invalid, match="not a valid name"):
                await disk.partition(name)
            with pytest.raises(NotFound):
                await disk.partition(name, create=False)
            assert disk.partitions() == []

    run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"wal_file_bytes": 64},
        {"wal_file_bytes": 127},
        {"merge_after_files": 0},
        {"merge_time_max": -1},
        {"memory_bytes_max": 0},
        {"memory_bytes_max": None},
    ],
    ids=str,
)
def test_options_that_no_disk_can_have_are_invalid(wrong: dict[str, int]) -> None:
    """A WAL file without room for a batch would be followed by another one for ever."""
    with pytest.raises(Invalid):
        DiskOptions(**wrong)
