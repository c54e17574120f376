"""Behaviour 27: the next WAL file is prepared ahead, and a flushed one is written over."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from segments.power import flushing_fails, play
from segments.states import content, tiny
from segments.test_every_flip import check_files
from segments.witness import next_wal_prepared
from stratalog.errors import Full
from stratalog.segments import Disk, DiskOptions, Partition
from stratalog.segments.format.frame import HEAD_BYTES, Head
from stratalog.segments.inspect.check import DiskCheck, begin_check
from stratalog.segments.inspect.info import _inspect
from stratalog.testing import FileCall, SimulatedFiles, Simulation, simulate

OPTIONS = DiskOptions(wal_file_bytes=4096, wal_files_max=3, major_after_minors=None)
PAYLOAD = bytes(400)
Script = Callable[[Disk, Partition, SimulatedFiles], Awaitable[None]]


def played(script: Script) -> SimulatedFiles:
    """A disk with one partition, after a script that may end in a crash."""
    files = SimulatedFiles(random=Random(1))

    async def main(simulation: Simulation) -> None:
        disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
        await script(disk, await disk.partition("p"), files)
        files.fail_if(None)
        if not files.dead:
            await disk.close()

    play(files, main, seed=1)
    return files.after_kill() if files.dead else files


async def fill(disk: Disk, part: Partition, times: int) -> None:
    """Write until so many WAL files are full. All that can be prepared and flushed meanwhile is."""
    for _ in range(times):
        await part.append([PAYLOAD])
        opened = disk._engine.wal._current
        while disk._engine.wal._current is opened:
            await next_wal_prepared(disk)
            await part.append([PAYLOAD])
        await disk._engine.flusher.drain()
        await disk._engine.file_remover.tasks.end()


async def use(disk: Disk, part: Partition) -> None:
    """Write to a file that has had another life, and prepare the next one."""
    await fill(disk, part, times=3)
    await part.append([PAYLOAD] * 4)
    await next_wal_prepared(disk)


def wal_files(files: SimulatedFiles) -> list[str]:
    return [path for path in files.names() if path.startswith("wal/")]


def test_a_roll_over_makes_no_call_but_those_of_its_batches() -> None:
    """Nothing is created, allocated or named between the last batch and the first of the next."""

    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        files.fail_if(flushing_fails)
        await part.append([PAYLOAD] * 5)
        await next_wal_prepared(disk)
        first, before = disk._engine.wal._current, len(files.calls)
        while disk._engine.wal._current in (first, None):
            await part.append([PAYLOAD])
        made = [call for call in files.calls[before:] if not call.path.startswith("seg/")]
        assert {call.operation for call in made} == {"write", "sync"}
        assert len({call.path for call in made}) == 2

    played(script)


def test_a_steady_stream_that_is_flushed_in_time_needs_two_files() -> None:
    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        await fill(disk, part, times=10)
        made = [call for call in files.calls if call.operation == "create" and "wal/" in call.path]
        assert len(made) == 2
        assert disk._engine.journal.layout.next_wal > 10
        assert len(wal_files(files)) == 2

    played(script)


def test_at_most_one_spare_is_kept() -> None:
    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        files.fail_if(flushing_fails)
        while not disk._engine.flush_queue.is_full:
            await part.append([PAYLOAD])
            await next_wal_prepared(disk)
        assert len(wal_files(files)) <= OPTIONS.wal_files_max + 2
        files.fail_if(None)
        await disk._engine.flusher.drain()
        await disk._engine.file_remover.tasks.end()
        named = {wal.path for wal in disk._engine.journal.layout.wals}
        assert {*wal_files(files)} - named == {disk._engine.spare.path}

    played(script)


def test_what_was_not_full_is_not_kept() -> None:
    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        await part.append([PAYLOAD])
        await disk.flush()
        await disk._engine.file_remover.tasks.end()
        assert wal_files(files) == []

    played(script)


def test_a_close_removes_the_spare_and_leaves_a_clean_directory() -> None:
    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        await fill(disk, part, times=3)
        assert disk._engine.spare.path in files.names()

    files = played(script)
    report = check_files(files.after_kill())
    assert report.clean
    assert (report.remarks, report.leftovers, report.wals) == ((), (), 1)
    assert len(wal_files(files)) == 1


def test_a_prepared_file_stays_over_a_close_and_is_told() -> None:
    async def script(disk: Disk, part: Partition, _: SimulatedFiles) -> None:
        await use(disk, part)

    files = played(script)
    report = check_files(files.after_kill())
    assert report.clean
    assert (report.remarks, report.leftovers, report.wals) == ((), (), 2)
    opened, prepared = _inspect(files.after_kill()).wals
    assert opened.batches
    assert not opened.is_prepared
    assert (prepared.batches, prepared.is_prepared) == (0, True)


@pytest.mark.parametrize("has_spare", [True, False])
def test_the_next_opening_drops_a_prepared_file_and_a_spare(*, has_spare: bool) -> None:
    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        await fill(disk, part, times=3)
        if not has_spare:
            await use(disk, part)
        assert (disk._engine.spare.path in files.names()) == has_spare
        shown.append(part.last)
        files.crash()

    shown: list[int] = []
    files = played(script)
    assert len(wal_files(files)) == 2

    async def again(simulation: Simulation) -> None:
        async with await Disk.open(files, OPTIONS, runtime=simulation.runtime) as disk:
            assert (await disk.partition("p")).last == shown[0]
            await disk.flush()
            await disk._engine.file_remover.tasks.end()
            assert wal_files(files) == []

    simulate(again, 2)


@pytest.mark.parametrize("operation", ["open", "write", "sync", "rename", "sync_folder"])
def test_a_roll_over_that_could_not_be_prepared_makes_its_file_itself(operation: str) -> None:
    """It was tried once, so a disk that fails is not asked again with every batch."""

    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        await fill(disk, part, times=3)
        spare, before = disk._engine.spare.path, len(files.calls)
        tries: list[FileCall] = []

        def rule(call: FileCall) -> int | None:
            if call.operation == operation and call.path in (spare, "wal") and not tries:
                tries.append(call)
                return errno.EIO
            return None

        files.fail_if(rule)
        await fill(disk, part, times=2)
        made = [call for call in files.calls[before:] if call.operation == "create"]
        assert len(tries) == 1
        assert len([call for call in made if call.path.startswith("wal/")]) == 1
        assert spare not in files.names()

    played(script)


def test_a_full_disk_gets_the_room_of_the_spare() -> None:
    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        await fill(disk, part, times=3)
        spare = disk._engine.spare.path
        assert spare in files.names()
        files.fail_if(flushing_fails)
        with pytest.raises(Full):
            await disk.flush()
        await disk._engine.file_remover.tasks.end()
        assert spare not in files.names()

    played(script)


def test_a_check_beside_a_node_that_writes_over_a_file_looks_again() -> None:
    """The file was open, and has batches of another life now."""

    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        await fill(disk, part, times=2)
        await part.append([PAYLOAD] * 4)
        await next_wal_prepared(disk)
        begun = begin_check(files)
        assert isinstance(begun, DiskCheck)
        with contextlib.closing(begun.seen.files):
            before = begun.seen.is_written_over
            await fill(disk, part, times=3)
            assert (before, begun.seen.is_written_over) == (False, True)
            for work in begun.parts():
                work()
            report = begun.report(files)
        assert report.clean, report.damages
        assert not report.remarks

    played(script)


def test_a_prepared_file_under_the_name_of_another_is_refused() -> None:
    async def script(disk: Disk, part: Partition, files: SimulatedFiles) -> None:
        await use(disk, part)
        files.crash()

    files = played(script)
    with tiny():
        one, other = (path for path in wal_files(files) if path in named(files))
        head = Head.from_bytes(content(files, other), other)
        files.damage(one, 0, head.to_bytes())
        assert len(head.to_bytes()) == HEAD_BYTES
        kinds = {damage.kind.value for damage in check_files(files.after_kill()).damages}
    assert "wal-unreadable" in kinds


def named(files: SimulatedFiles) -> set[str]:
    return {wal.path for wal in _inspect(files.after_kill()).wals}
