"""Behaviours 7 and 8: limits of segments, files without a name, damaged payloads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from segments.disks import (
    SMALL,
    WatchedFiles,
    damage,
    entries,
    epochs,
    found,
    layout_of,
    names,
    one,
    run,
    segments,
    until,
)
from stratalog.errors import Corrupt
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries
from stratalog.segments.format.entries import HEAD, Entry
from stratalog.segments.format.segment_file import GAP_BYTES_MAX, SEGMENT_OVERHEAD_BYTES
from stratalog.segments.io.threads import DISK_THREADS_MAX


def limited(entries_max: int = 65_536, bytes_max: int = 1 << 26) -> DiskOptions:
    return DiskOptions(
        wal_file_bytes=1 << 16,
        segment_entries_max=entries_max,
        segment_bytes_max=bytes_max,
        major_after_minors=None,
    )


class TestBehaviour07Limits:
    def test_no_segment_has_more_entries_than_it_may(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, limited(entries_max=4)) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11))
                assert list(await epochs(part)) == list(range(1, 11))
            sizes = [file.entries for file in layout_of(tmp_path).partitions[1].files]
            assert sizes == [4, 4, 2]

        run(main())

    def test_no_segment_has_more_bytes_than_it_may(self, tmp_path: Path) -> None:
        async def main() -> None:
            bytes_max = 3 * (100 + HEAD.itemsize)
            async with await Disk.open(tmp_path, limited(bytes_max=bytes_max)) as disk:
                part = await disk.partition("p")
                await part.append([b"x" * 100] * 7)
                await disk.flush()
                assert len(await found(part)) == 7
            files = layout_of(tmp_path).partitions[1].files
            assert [file.entries for file in files] == [3, 3, 1]
            for file in files:
                size = (tmp_path / file.path).stat().st_size
                assert size == file.size <= bytes_max + SEGMENT_OVERHEAD_BYTES

        run(main())

    def test_one_oversize_entry_is_accepted_and_has_a_file_of_its_own(self, tmp_path: Path) -> None:
        async def main() -> None:
            payloads = [b"a", b"b", b"c" * 5000, b"d"]
            async with await Disk.open(tmp_path, limited(bytes_max=1000)) as disk:
                part = await disk.partition("p")
                await part.append(payloads)
                await disk.flush()
            files = layout_of(tmp_path).partitions[1].files
            assert [file.entries for file in files] == [2, 1, 1]
            async with await Disk.open(tmp_path, limited(bytes_max=1000)) as disk:
                part = await disk.partition("p")
                assert [entry.payload for entry in await found(part)] == payloads

        run(main())

    @pytest.mark.parametrize("content", [b"", b"\0" * 64, b"STRATADK and then nothing"])
    @pytest.mark.parametrize("folder", ["seg", "wal", "ckpt"])
    def test_a_file_without_a_header_that_nobody_names_is_made_anew(
        self, tmp_path: Path, folder: str, content: bytes
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, [1, 2, 3])
            left = tmp_path / folder / f"000000000099.0123456789abcdef.{folder}"
            left.write_bytes(content)
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert not left.exists()
                part = await disk.partition("p")
                await part.write(3, entries([4]))
                await disk.flush()
                await part.checkpoint(1, b"state", IndexSet.of([1]))
                assert list(await epochs(part)) == [1, 2, 3, 4]

        run(main())

    def test_a_journal_without_a_header_is_no_journal(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                await disk.partition("p")
            left = tmp_path / "journal" / "000000000099.0123456789abcdef.journal"
            left.write_bytes(b"")
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.partitions() == ["p"]
                assert not left.exists()

        run(main())

    @pytest.mark.parametrize("what", ["missing", "cut off", "without a head"])
    def test_one_that_the_journal_names_is_never_made_anew(self, tmp_path: Path, what: str) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, [1, 2, 3])
            path = one(tmp_path, "seg")
            if what == "missing":
                path.unlink()
            elif what == "cut off":
                path.write_bytes(path.read_bytes()[:-1])
            else:
                path.write_bytes(bytes(64) + path.read_bytes()[64:])
            with pytest.raises(Corrupt) as refused:
                async with await Disk.open(tmp_path, SMALL) as disk:
                    await found(await disk.partition("p"))
            assert refused.value.path == f"seg/{path.name}"

        run(main())


class TestBehaviour08DamagedPayloads:
    @pytest.mark.parametrize("wanted", [range(1, 100), IndexSet.of([2, 7, 9]), range(7, 8)])
    def test_found_on_every_read(self, tmp_path: Path, wanted: IndexSet | range) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11))
                path = one(tmp_path, "seg")
                damage(path, path.read_bytes().index(b"7/1/"))
                with pytest.raises(Corrupt, match="entry 7") as refused:
                    await found(part, wanted)
                assert refused.value.path == f"seg/{path.name}"
                with pytest.raises(Corrupt):
                    await part.get(7)
                assert (await part.get(6)).payload == b"6/1/"

        run(main())

    def test_found_on_the_copy_of_a_compaction_which_changes_nothing(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 21), range(21, 23))
                await part.checkpoint(20, b"state", IndexSet.of([3, 7, 15]))
                before = names(tmp_path, "seg")
                path = tmp_path / "seg" / before[0]
                damage(path, path.read_bytes().index(b"7/1/"))
                with pytest.raises(Corrupt, match="entry 7"):
                    await part.compact()
                await until(lambda: names(tmp_path, "seg") == before)
                assert (await part.get(15)).epoch == 1
                damage(path, path.read_bytes().index(b"6/1/") + 4)
                assert await part.compact()
                assert list(await epochs(part)) == [3, 7, 15, 21, 22]

        run(main())

    def test_an_entry_in_the_place_of_another_does_not_pass_for_it(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries([3, 5]))
                await disk.flush()
                path = one(tmp_path, "seg")
                data = path.read_bytes()
                path.write_bytes(data.replace(b"3/1/5/1/", b"5/1/3/1/"))
                with pytest.raises(Corrupt, match="entry 3"):
                    await found(part)

        run(main())

    def test_a_damaged_index_of_a_segment_is_found(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11))
                path = one(tmp_path, "seg")
                damage(path, len(path.read_bytes()) - 30)
                with pytest.raises(Corrupt, match="index"):
                    await found(part)

        run(main())

    def test_a_segment_of_another_partition_is_refused(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                for name in ("a", "b"):
                    part = await disk.partition(name)
                    await part.write(0, entries([1, 2]))
                await disk.flush()
            ours, theirs = [tmp_path / "seg" / name for name in names(tmp_path, "seg")]
            ours.write_bytes(theirs.read_bytes())
            async with await Disk.open(tmp_path, SMALL) as disk:
                with pytest.raises(Corrupt, match="of partition 2"):
                    await found(await disk.partition("a"))

        run(main())


class TestGaps:
    """What is wanted may lie far apart, near to one another or side by side."""

    @pytest.mark.parametrize("size", [0, 10, GAP_BYTES_MAX // 2, GAP_BYTES_MAX + 1])
    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_are_read_over_or_left_out(self, tmp_path: Path, size: int, step: int) -> None:
        async def main() -> None:
            options = DiskOptions(read_bytes=5 * GAP_BYTES_MAX, major_after_minors=None)
            payloads = [bytes([number]) * (size + number) for number in range(40)]
            async with await Disk.open(tmp_path, options) as disk:
                part = await disk.partition("p")
                await part.append(payloads)
                await disk.flush()
                await part.append([b"newest"])
                await disk.flush()
                wanted = IndexSet.of([*range(1, 30, step), 35, 36, 40])
                expected = [Entry(index, 1, payloads[index - 1]) for index in wanted]
                assert await found(part, wanted) == expected
                await part.checkpoint(41, b"state", wanted)
                assert await part.compact()
                assert await found(part, wanted) == expected
                assert (await part.get(36)).payload == payloads[35]

        run(main())


def test_an_entry_that_is_kept_does_not_keep_the_heads_of_its_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path) as disk:
            part = await disk.partition("p")
            await part.append([b"x"] * 1000)
            await disk.flush()
            async for kept in part.read(range(500, 502)):
                base = kept.heads if kept.heads.base is None else kept.heads.base
                assert len(base) == 2

    run(main())


class TestReadingAhead:
    def test_what_came_before_the_damage_is_given_out(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, DiskOptions(read_bytes=100)) as disk:
                part = await disk.partition("p")
                await part.append([b"%03d" % number + b"x" * 50 for number in range(40)])
                await disk.flush()
                path = one(tmp_path, "seg")
                damage(path, path.read_bytes().index(b"029x"))
                seen: list[int] = []

                async def read() -> None:
                    async for chunk in part.read(range(1, 41)):
                        seen.extend(chunk.indexes)
                        await asyncio.sleep(0.001 * (len(seen) % 3))

                with pytest.raises(Corrupt, match="entry 30"):
                    await read()
                assert seen == list(range(1, len(seen) + 1))
                assert len(seen) in (28, 29)

        run(main())

    def test_a_slow_caller_holds_no_thread(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, DiskOptions(read_bytes=100)) as disk:
                part = await disk.partition("p")
                await part.append([b"x" * 60] * 30)
                await disk.flush()
                readers = [part.read(range(1, 31)) for _ in range(3 * DISK_THREADS_MAX)]
                firsts = [await anext(reader) for reader in readers]
                assert {each.first for each in firsts} == {1}
                assert (await part.get(30)).index == 30
                for reader in readers:
                    rest = [index async for chunk in reader for index in chunk.indexes]
                    assert rest == list(range(2, 31))

        run(main())


class TestReaders:
    def test_a_cancelled_read_ends_at_once_and_leaves_nothing_open(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11))
                with files.holding("read", "seg/") as gate:
                    reading = asyncio.ensure_future(found(part))
                    await gate.reached()
                    reading.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await reading
                    gate.let_go()
                assert len(await found(part)) == 10
            opened = files.count("open", "seg/") + files.count("create", "seg/")
            await until(lambda: files.count("close", "seg/") == opened)

        run(main())

    def test_the_space_of_a_removed_file_comes_back_when_its_last_reader_is_done(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(wal_file_bytes=1 << 16, read_bytes=1)
            async with await Disk.open(files, options) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 13))
                first = "seg/" + names(tmp_path, "seg")[0]
                written = files.count("close", first)
                reading = part.read(range(1, 11))
                await anext(reading)
                await part.checkpoint(10, b"state")
                await until(lambda: files.count("remove", first))
                assert files.count("close", first) == written
                rest = [entry.index async for batch in reading for entry in batch]
                assert rest == list(range(2, 11))
                await until(lambda: files.count("close", first) == written + 1)

        run(main())

    def test_nor_does_one_stay_open_that_is_removed_while_it_is_being_opened(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            async with await Disk.open(files, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 13))
                first = "seg/" + names(tmp_path, "seg")[0]
                written = files.count("close", first)
                with files.holding("read", first) as gate:
                    reading = asyncio.ensure_future(found(part, range(1, 11)))
                    await gate.reached()
                    await part.checkpoint(10, b"state")
                    await until(lambda: not names(tmp_path, "seg")[1:])
                    await asyncio.sleep(0.01)
                    gate.let_go()
                    assert [entry.index for entry in await reading] == list(range(1, 11))
                await until(lambda: files.count("close", first) == written + 1)

        run(main())

    def test_reads_go_on_with_few_open_files(self, tmp_path: Path) -> None:
        async def main() -> None:
            files = WatchedFiles(tmp_path)
            options = DiskOptions(
                wal_file_bytes=1 << 16, segment_entries_max=5, open_files_max=2, index_cache_bytes=1
            )
            async with await Disk.open(files, options) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 101))
                several = await asyncio.gather(*(epochs(part) for _ in range(3)))
                assert several == [dict.fromkeys(range(1, 101), 1)] * 3
                closed = files.count("close", "seg/") - files.count("create", "seg/")
                assert files.count("open", "seg/") - closed <= 2

        run(main())

    def test_empty_payloads_are_entries_too(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, Entries.following(0, 1, [b"", b"", b""]))
                await disk.flush()
                assert [entry.payload for entry in await found(part)] == [b"", b"", b""]

        run(main())
