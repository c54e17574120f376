"""Behaviours 3, 4 and 20: killed with writes in flight, torn and damaged files, restarts."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import msgspec
import pytest

from segments.disks import (
    SMALL,
    all_files,
    as_after_a_crash,
    damage,
    entries,
    epochs,
    found,
    frames_of,
    layout_of,
    names,
    one,
    rewrite_journal,
    run,
    segments,
    until,
)
from segments.killed_writer import OPTIONS, write_after
from stratalog.errors import Conflict, Corrupt, Invalid, NotHappened, Unknown
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions
from stratalog.segments.format.layout import Layout
from stratalog.segments.io.files import LocalFiles
from stratalog.testing import FileCall, SimulatedFiles, Simulation, simulate

WRITER = Path(__file__).with_name("killed_writer.py")
PATIENCE_S = 60.0


def kill_while_writing(directory: Path, notes: Path, step: int, count: int) -> dict[str, int]:
    """Start a writer, kill it after so many answers; what each partition was told last."""
    before = notes.read_bytes().count(b"\n") if notes.exists() else 0
    process = subprocess.Popen([sys.executable, str(WRITER), str(directory), str(notes), str(step)])
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not notes.exists() or notes.read_bytes().count(b"\n") < before + count:
            assert process.poll() is None, "it ended"
            assert time.monotonic() < deadline, "it makes no progress"
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    told: dict[str, int] = {}
    for line in notes.read_text().splitlines():
        name, last = line.split()
        told[name] = max(told.get(name, 0), int(last))
    return told


class TestBehaviour03Killed:
    @pytest.mark.parametrize("step", [1, 7], ids=["contiguous", "sparse"])
    def test_nothing_acknowledged_is_lost_and_the_rest_is_sent_again(
        self, tmp_path: Path, step: int
    ) -> None:
        directory, notes = tmp_path / "disk", tmp_path / "notes"

        async def check(told: dict[str, int]) -> None:
            async with await Disk.open(directory, OPTIONS) as disk:
                assert disk.partitions() == ["p0", "p1", "p2"]
                for name, last in told.items():
                    part = await disk.partition(name)
                    assert part.last >= last, "acknowledged, and lost"
                    for previous in range(last, last + 24 * step, 3 * step):
                        again = write_after(previous, step)
                        assert await part.write(previous, again) == again.indexes
                    assert list(await epochs(part)) == list(range(step, part.last + 1, step))
                    assert part.last == last + 24 * step

        for count in (5, 150):
            run(check(kill_while_writing(directory, notes, step, count)))

    @pytest.mark.parametrize("flush", [False, True])
    @pytest.mark.parametrize("indexes", [range(1, 11), range(5, 55, 5)], ids=["dense", "sparse"])
    def test_a_resend_of_what_is_there_is_acknowledged(
        self, tmp_path: Path, indexes: range, flush: bool
    ) -> None:
        """In the WAL or in segments already: a writer that was not told cannot know."""

        async def main() -> None:
            listed = list(indexes)
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries(listed[:6]))
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                if flush:
                    await disk.flush()
                assert list(await part.write(0, entries(listed[:3]))) == listed[:3]
                assert list(await part.write(listed[1], entries(listed[2:9]))) == listed[2:9]
                assert list(await part.write(listed[8], entries(listed[9:]))) == listed[9:]
                assert list(await epochs(part)) == listed

        run(main())

    def test_half_in_segments_and_half_in_the_wal_as_well(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 6))
                await part.write(5, entries(range(6, 11)))
                await part.write(10, entries([11, 12], epoch=2))
                again = [*entries(range(3, 11)), *entries([11, 12, 13], epoch=2)]
                wanted = type(entries([])).of(again)
                assert await part.write(2, wanted) == wanted.indexes
                assert list(await epochs(part)) == list(range(1, 14))

        run(main())

    @pytest.mark.parametrize("flush", [False, True])
    def test_what_only_looks_like_a_resend_is_refused(self, tmp_path: Path, flush: bool) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries([2, 4, 6]))
                await part.write(6, entries([8, 10], epoch=3))
                if flush:
                    await disk.flush()
                wrong = [
                    (0, entries([2, 3, 4])),
                    (0, entries([4, 6])),
                    (2, entries([6])),
                    (3, entries([4])),
                    (4, entries([6, 8, 10])),
                    (4, entries([6, 8], epoch=3)),
                    (2, entries([4, 6], epoch=2)),
                ]
                for previous, batch in wrong:
                    with pytest.raises(NotHappened):
                        await part.write(previous, batch)
                assert await epochs(part) == {2: 1, 4: 1, 6: 1, 8: 3, 10: 3}

        run(main())


async def two_batches(root: Path) -> tuple[Path, list[int]]:
    """A WAL file with two batches, and where each of them begins."""
    async with await Disk.open(root, SMALL) as disk:
        part = await disk.partition("p")
        await part.write(0, entries([1, 2], text="first"))
        await part.write(2, entries([3, 4], text="second"))
    wal = one(root, "wal")
    data = wal.read_bytes()
    first = data.index(b"SLFR")
    return wal, [first, data.index(b"SLFR", first + 1)]


def damaged_in_its_last_batch(wal: Path, second: int, what: str) -> bytes:
    data = bytearray(wal.read_bytes())
    if what == "payload":
        data[data.index(b"4/1/second")] ^= 1
    elif what == "head":
        data[second + 8] ^= 1
    else:
        data[second + 60 :] = bytes(len(data) - second - 60)
    return bytes(data)


class TestBehaviour04Damage:
    @pytest.mark.parametrize("what", ["payload", "head", "zeroed"])
    def test_after_a_crash_the_last_wal_record_is_kept_aside(
        self, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def main() -> None:
            wal, (_, second) = await two_batches(tmp_path)
            as_after_a_crash(tmp_path)
            damaged = damaged_in_its_last_batch(wal, second, what)
            wal.write_bytes(damaged)
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                assert list(await epochs(part)) == [1, 2]
                await part.write(2, entries([3], epoch=2))
            kept = one(tmp_path, "doubt")
            assert kept.name == f"{wal.name}.{second}"
            assert kept.read_bytes() == damaged[second:].rstrip(b"\0")
            assert f"doubt/{kept.name}" in caplog.text
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert await epochs(await disk.partition("p")) == {1: 1, 2: 1, 3: 2}

        run(main())

    @pytest.mark.parametrize("what", ["payload", "head", "zeroed"])
    def test_after_a_clean_close_it_refuses_to_start(self, tmp_path: Path, what: str) -> None:
        async def main() -> None:
            wal, (_, second) = await two_batches(tmp_path)
            wal.write_bytes(damaged_in_its_last_batch(wal, second, what))
            before = all_files(tmp_path)
            with pytest.raises(Corrupt, match=f"wal/{wal.name} was changed after it was closed"):
                await Disk.open(tmp_path, SMALL)
            assert all_files(tmp_path) == before

        run(main())

    @pytest.mark.parametrize("is_closed", [True, False])
    def test_a_file_that_was_cut_refuses_to_start(self, tmp_path: Path, is_closed: bool) -> None:
        async def main() -> None:
            wal, _ = await two_batches(tmp_path)
            if not is_closed:
                as_after_a_crash(tmp_path)
            for path in (wal, one(tmp_path, "journal")):
                whole = path.read_bytes()
                for size in (len(whole) - 1, 500, 64, 10):
                    path.write_bytes(whole[:size])
                    before = all_files(tmp_path)
                    with pytest.raises(Corrupt):
                        await Disk.open(tmp_path, SMALL)
                    assert all_files(tmp_path) == before
                path.write_bytes(whole)
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert list(await epochs(await disk.partition("p"))) == [1, 2, 3, 4]

        run(main())

    @pytest.mark.parametrize("at", ["head", "descriptor", "payload"])
    def test_damage_in_the_middle_of_the_wal_refuses_to_start_and_says_where(
        self, tmp_path: Path, at: str
    ) -> None:
        async def main() -> None:
            wal, (first, _) = await two_batches(tmp_path)
            places = {
                "head": first + 9,
                "descriptor": first + 45,
                "payload": wal.read_bytes().index(b"1/1/first"),
            }
            damage(wal, places[at])
            before = all_files(tmp_path)
            for _ in range(2):
                with pytest.raises(Corrupt) as refused:
                    await Disk.open(tmp_path, SMALL)
                assert f"wal/{wal.name} is damaged at byte {first}" in str(refused.value)
                assert refused.value.path == f"wal/{wal.name}"
            assert all_files(tmp_path) == before

        run(main())

    def test_the_end_of_a_file_that_another_follows_is_in_the_middle(self, tmp_path: Path) -> None:
        async def main() -> None:
            wal, (_, second) = await two_batches(tmp_path)
            kept, at = wal.read_bytes(), layout_of(tmp_path)
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await until(lambda: not part.status().pending)
                await part.write(4, entries([5]))
            wal.write_bytes(kept)
            seg = layout_of(tmp_path).partitions

            def with_both(layout: Layout) -> Layout:
                assert seg[1].files
                return msgspec.structs.replace(
                    layout,
                    wals=(*at.wals, *layout.wals),
                    next_batch=at.next_batch,
                    partitions=at.partitions,
                )

            rewrite_journal(tmp_path, with_both)
            damage(wal, second + 9)
            with pytest.raises(Corrupt) as refused:
                await Disk.open(tmp_path, SMALL)
            assert refused.value.path == f"wal/{wal.name}"
            assert f"at byte {second}" in str(refused.value)

        run(main())

    def test_a_head_of_a_wal_file_that_is_damaged_refuses_to_start(self, tmp_path: Path) -> None:
        async def main() -> None:
            wal, _ = await two_batches(tmp_path)
            damage(wal, 20)
            with pytest.raises(Corrupt, match=f"wal/{wal.name}"):
                await Disk.open(tmp_path, SMALL)

        run(main())

    def test_a_missing_wal_file_refuses_to_start(self, tmp_path: Path) -> None:
        async def main() -> None:
            wal, _ = await two_batches(tmp_path)
            wal.unlink()
            with pytest.raises(Corrupt, match=f"wal/{wal.name} is missing"):
                await Disk.open(tmp_path, SMALL)

        run(main())

    def test_the_last_record_of_the_journal_is_dropped_if_both_copies_are_torn(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                await disk.partition("first")
                await disk.partition("second")
            as_after_a_crash(tmp_path)
            journal = one(tmp_path, "journal")
            for place in frames_of(journal)[-2:]:
                damage(journal, place + 50)
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.partitions() == ["first"]
                await disk.partition("third")
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.partitions() == ["first", "third"]

        run(main())

    def test_a_record_with_only_its_first_copy_counts(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                await disk.partition("first")
            as_after_a_crash(tmp_path)
            journal = one(tmp_path, "journal")
            damage(journal, frames_of(journal)[-1] + 50)
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert disk.partitions() == ["first"]

        run(main())

    @pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
    def test_damage_of_a_copy_that_was_durable_refuses_to_start_and_says_where(
        self, tmp_path: Path, place: int
    ) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                await disk.partition("first")
                await disk.partition("second")
            journal = one(tmp_path, "journal")
            at = frames_of(journal)[place]
            damage(journal, at + 50)
            before = all_files(tmp_path)
            with pytest.raises(Corrupt) as refused:
                await Disk.open(tmp_path, SMALL)
            assert f"journal/{journal.name} is damaged at byte {at}" in str(refused.value)
            assert "would give up nothing" in refused.value.hint
            assert all_files(tmp_path) == before

        run(main())

    def test_a_data_directory_without_its_journal_or_identity_is_not_begun_anew(
        self, tmp_path: Path
    ) -> None:
        async def main() -> None:
            await two_batches(tmp_path)
            identity = (tmp_path / "DISK").read_bytes()
            (tmp_path / "DISK").unlink()
            with pytest.raises(Corrupt, match="no DISK"):
                await Disk.open(tmp_path, SMALL)
            (tmp_path / "DISK").write_bytes(identity)
            one(tmp_path, "journal").unlink()
            with pytest.raises(Corrupt, match="journal"):
                await Disk.open(tmp_path, SMALL)

        run(main())


class TestBehaviour20Restart:
    @pytest.mark.parametrize("flush", [False, True])
    def test_everything_is_as_it_was(self, tmp_path: Path, flush: bool) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 21))
                await part.write(20, entries([22, 24, 26], epoch=4))
                await part.checkpoint(15, b"state", IndexSet.of([3, 4, 12]))
                if flush:
                    await disk.flush()
                before, content = part.status(), await epochs(part)
                assert before.pending == (IndexSet() if flush else IndexSet.of([22, 24, 26]))
                assert (before.first, before.last, before.checkpoint) == (16, 26, 15)
            for opened in range(3):
                async with await Disk.open(tmp_path, SMALL) as disk:
                    part = await disk.partition("p")
                    after = part.status()
                    if flush or not opened:
                        assert after == before
                    assert (after.first, after.last, after.epoch) == (16, 26, 4)
                    assert (after.live, after.lineage) == (before.live, before.lineage)
                    assert await part.state() == b"state"
                    assert await epochs(part) == content

        run(main())

    def test_an_empty_partition_is_there_and_empty(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                before = (await disk.partition("p")).status()
                assert (before.first, before.last, before.epoch) == (1, 0, 0)
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert (await disk.partition("p", create=False)).status() == before

        run(main())

    def test_a_gap_between_the_checkpoint_and_the_log_is_corruption(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 21), range(21, 31))
                await part.checkpoint(10, b"state")

            def without_the_second(layout: Layout) -> Layout:
                files = layout.partitions[1].files
                left = [file for file in files if file.indexes.first != 11]
                assert len(left) == len(files) - 1
                return layout.having(
                    msgspec.structs.replace(layout.partitions[1], files=tuple(left))
                )

            rewrite_journal(tmp_path, without_the_second)
            with pytest.raises(Corrupt, match="lacks what lies between 10 and 20"):
                await Disk.open(tmp_path, SMALL)

        run(main())

    def test_a_gap_between_segments_and_the_wal_is_corruption(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11))
                await part.write(10, entries([11]))

            def without_files(layout: Layout) -> Layout:
                return layout.having(msgspec.structs.replace(layout.partitions[1], files=()))

            rewrite_journal(tmp_path, without_files)
            with pytest.raises(Corrupt, match="lacks what lies between 0 and 10"):
                await Disk.open(tmp_path, SMALL)

        run(main())

    def test_a_missing_live_entry_is_corruption(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await segments(disk, part, range(1, 11), range(11, 21))
                await part.checkpoint(20, b"state", IndexSet.of([7]))

            def without_the_first(layout: Layout) -> Layout:
                files = layout.partitions[1].files[1:]
                return layout.having(msgspec.structs.replace(layout.partitions[1], files=files))

            rewrite_journal(tmp_path, without_the_first)
            with pytest.raises(Corrupt, match="which its checkpoint needs"):
                await Disk.open(tmp_path, SMALL)

        run(main())


class TestOneProcessAtATime:
    def test_a_second_opening_conflicts_and_does_no_harm(self, tmp_path: Path) -> None:
        script = (
            "import asyncio, sys\n"
            "from stratalog.errors import Conflict\n"
            "from stratalog.segments import Disk\n"
            "try:\n    asyncio.run(Disk.open(sys.argv[1]))\n"
            "except Conflict:\n    sys.exit(7)\n"
        )

        async def main() -> None:
            async with await Disk.open(tmp_path, SMALL) as disk:
                part = await disk.partition("p")
                await part.write(0, entries([1]))
                other = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", script, str(tmp_path)
                )
                assert await other.wait() == 7
                with pytest.raises(Conflict, match="another process"):
                    await Disk.open(tmp_path, SMALL)
                await part.write(1, entries([2]))
            async with await Disk.open(tmp_path, SMALL) as disk:
                assert list(await epochs(await disk.partition("p"))) == [1, 2]

        run(main())

    def test_windows_is_refused_by_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.platform", "win32")
        with pytest.raises(Invalid, match="flock") as refused:
            LocalFiles(tmp_path)
        assert "Linux or macOS" in refused.value.hint

    def test_a_directory_that_is_something_else_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("three years of work")
        with pytest.raises(Invalid, match=r"thesis\.tex"):
            run(Disk.open(tmp_path, DiskOptions()))
        assert (tmp_path / "thesis.tex").read_text() == "three years of work"
        assert set(names(tmp_path, ".")) <= {"thesis.tex", "LOCK"}


def test_what_a_killed_process_could_not_sync_is_durable_once_it_is_shown() -> None:
    """Its pages count as clean: they can be read, and no sync writes them."""
    files = SimulatedFiles(random=Random(1))

    async def main(simulation: Simulation) -> None:
        disk = await Disk.open(files, SMALL, runtime=simulation.runtime)
        part = await disk.partition("p")
        await part.append([b"kept"])

        def broken(call: FileCall) -> int | None:
            return errno.EIO if call.operation in ("sync", "create") else None

        files.fail_if(broken)
        with pytest.raises(Unknown):
            await part.append([b"nobody knows"])

    simulate(main, 1)
    killed = files.after_kill()
    shown: list[bytes] = []

    async def open_and_look(simulation: Simulation) -> None:
        disk = await Disk.open(killed, SMALL, runtime=simulation.runtime)
        shown[:] = [entry.payload for entry in await found(await disk.partition("p"))]
        killed.crash()

    simulate(open_and_look, 2)
    assert shown == [b"kept", b"nobody knows"]
    after = killed.after_power_loss(Random(3))

    async def look_again(simulation: Simulation) -> None:
        async with await Disk.open(after, SMALL, runtime=simulation.runtime) as disk:
            part = await disk.partition("p")
            assert [entry.payload for entry in await found(part)] == shown

    simulate(look_again, 3)
