"""Small data directories in every state of journal and WAL, and what was promised of each.

Each is made in memory, by the node itself. ``State.files`` is the directory as the next process
finds it, ``State.shown`` what it has to show.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from segments.power import fail_next_sync, flushing_fails, play
from segments.witness import next_wal_prepared
from stratalog.errors import Corrupt, StratalogError
from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries
from stratalog.segments.format.clean_close import CLOSED
from stratalog.segments.format.data_directory import DISK
from stratalog.segments.format.frame import HEAD_BYTES, Head, find_frame, frame_at, frame_head
from stratalog.segments.format.layout import (
    Edit,
    Layout,
    Opened,
    WalFile,
    Whole,
    decode_edit,
    encode_edit,
)
from stratalog.segments.format.wal_file import batch_parts, batches
from stratalog.segments.inspect import disk_snapshot
from stratalog.segments.write_ahead import journal, next_wal
from stratalog.segments.write_ahead.read_journal import replay_journal
from stratalog.testing import FileCall, SimulatedFiles, Simulation, simulate

OPTIONS = DiskOptions(wal_file_bytes=512, segment_entries_max=4, major_after_minors=None)
FAR = 1 << 40
Shown = dict[str, tuple[dict[int, tuple[int, bytes]], bytes | None]]
"""Of each partition: its entries, and the state of its checkpoint."""
Script = Callable[[Disk, SimulatedFiles], Awaitable[None]]


@dataclass(frozen=True)
class State:
    """A directory. ``others`` is what it may show when its end is doubtful: without the last batch
    of its WAL, or without a record of which nobody was told."""

    name: str
    files: SimulatedFiles
    shown: Shown
    others: tuple[Shown, ...]
    is_closed: bool
    is_of_format_1: bool = False

    def copy(self) -> SimulatedFiles:
        return self.files.after_kill()

    def layout(self) -> Layout:
        return layout_of(self.files)

    def is_of_a_former_life(self, path: str, at: int) -> bool:
        """Whether a byte lies behind all that a WAL file that was prepared ahead has of its own."""
        return path in self.own_ends and at >= self.own_ends[path]

    @cached_property
    def own_ends(self) -> dict[str, int]:
        """Of the WAL files that were prepared ahead."""
        ends = {}
        for wal in self.layout().wals:
            data = content(self.copy(), wal.path)
            head = Head.from_bytes(data, wal.path)
            if not head.first:
                last = data.rfind(head.nonce)
                ends[wal.path] = max(HEAD_BYTES, last + 12)
        return ends

    def reached(self) -> list[str]:
        """The files that count, as a reader reaches them."""
        layout = self.layout()
        journals = [each for each in self.files.names() if each.startswith("journal/")]
        lives = [each.path.replace(".ckpt", ".live") for each in layout.checkpoints.values()]
        closed = [CLOSED] if self.is_closed else []
        return [DISK, *journals[-1:], *sorted(layout.paths), *lives, *closed]


def layout_of(files: SimulatedFiles) -> Layout:
    copy = files.after_kill()
    with_id = msgspec.json.decode(content(copy, DISK))
    found = replay_journal(copy, bytes.fromhex(with_id["disk"]))
    assert found is not None
    return found.layout


def content(files: SimulatedFiles, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


@contextmanager
def tiny() -> Iterator[None]:
    """With journals that are as small as they can be, and without pauses."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(journal, "FILE_BYTES_MIN", 64))
        stack.enter_context(patch.object(journal, "RECORDS_AHEAD", 1))
        stack.enter_context(patch.object(disk_snapshot, "PAUSE_S", 0.0))
        yield


@contextmanager
def unprepared() -> Iterator[None]:
    """No WAL file is prepared ahead: as in a directory that is hardly written."""
    with patch.object(next_wal, "PREPARED_AT", 0):
        yield


# What a life consists of


async def fresh(_disk: Disk, _files: SimulatedFiles) -> None:
    """A directory that was only made."""


async def empty_partition(disk: Disk, _files: SimulatedFiles) -> None:
    await disk.partition("a")


async def several_batches(disk: Disk, _files: SimulatedFiles) -> None:
    a, b = await disk.partition("a"), await disk.partition("b")
    await a.append([b"one", b"two"])
    await b.append([b"eins"])
    await a.append([b"three"])


async def two_wal_files(disk: Disk, files: SimulatedFiles) -> None:
    files.fail_if(flushing_fails)
    a = await disk.partition("a")
    await a.append([b"one" * 5, b"two"])
    await disk._engine.wal.end_file()
    await a.append([b"three"])
    await a.append([b"four"])


async def failed_sync(disk: Disk, files: SimulatedFiles) -> None:
    """The last batch of the first WAL file is there again in the second."""
    a = await disk.partition("a")
    await a.append([b"one"])
    fail_next_sync(files)
    await a.append([b"two"])
    await a.append([b"three"])


async def flushed(disk: Disk, _files: SimulatedFiles) -> None:
    """With a span in the segment, and a write of two partitions and a note in the WAL."""
    a, b = await disk.partition("a"), await disk.partition("b")
    await a.append([b"one", b"two"], spans=[1, 3])
    await disk.flush()
    sections = [
        (a, 4, Entries.following(4, 1, [b"three"], [2])),
        (b, 0, Entries.following(0, 1, [b"eins"])),
    ]
    await disk.submit(sections, {"note": b"value"})


async def checkpointed(disk: Disk, _files: SimulatedFiles) -> None:
    a = await disk.partition("a")
    await a.append([b"one", b"two", b"three"])
    await disk.flush()
    await a.checkpoint(2, b"state", IndexSet.of([1]))


async def compacted(disk: Disk, _files: SimulatedFiles) -> None:
    a = await disk.partition("a")
    for number in range(3):
        await a.append([b"%d" % each for each in range(4 * number, 4 * number + 4)])
        await disk.flush()
    await a.checkpoint(8, b"state", IndexSet.of([1, 5]))
    await a.compact()


async def removed(disk: Disk, _files: SimulatedFiles) -> None:
    a, b = await disk.partition("a"), await disk.partition("b")
    await a.append([b"gone"])
    await b.append([b"here"])
    await disk.remove("a")


async def prepared(disk: Disk, files: SimulatedFiles) -> None:
    """The next file is ready, and not begun."""
    files.fail_if(flushing_fails)
    await (await disk.partition("a")).append([b"one" * 30])


async def rolled_over(disk: Disk, files: SimulatedFiles) -> None:
    """A file that was prepared new has some batches."""
    files.fail_if(flushing_fails)
    a = await disk.partition("a")
    await fill_file(disk, 1)
    await a.append([b"two"])
    await a.append([b"three"])


async def written_over(disk: Disk, _files: SimulatedFiles) -> None:
    """The last batches lie in a file that was flushed, among batches of its former life."""
    a = await disk.partition("a")
    for number in range(1, 4):
        await fill_file(disk, number)
        await disk._engine.flusher.drain()
    assert "000000000001" not in disk._engine.journal.layout.wals[0].path
    await a.append([b"two"])
    await a.append([b"three"])


async def failed_in_written_over(disk: Disk, files: SimulatedFiles) -> None:
    """A batch could not be written to such a file, so a new one has it; a prepared one lies
    between, unused."""
    await written_over(disk, files)
    await next_wal_prepared(disk)
    a = await disk.partition("a")
    fail_next_sync(files)
    await a.append([b"four" * 10])
    assert len(disk._engine.journal.layout.wals) == 3
    await a.append([b"five"])


async def fill_file(disk: Disk, number: int) -> None:
    """Write to the WAL file with this place in the life of the disk until it is full."""
    a, wal = await disk.partition("a"), disk._engine.wal
    while wal._current is None:
        await a.append([b"begins a file"])
    opened = wal._current
    while wal._current is opened:
        await next_wal_prepared(disk)
        await a.append([b"%d fills it" % number * 4])


SCRIPTS: list[Script] = [
    fresh,
    empty_partition,
    several_batches,
    two_wal_files,
    failed_sync,
    flushed,
    checkpointed,
    compacted,
    removed,
]
PREPARING_SCRIPTS: list[Script] = [prepared, rolled_over, written_over, failed_in_written_over]


# Making and looking


async def shown_by(disk: Disk) -> Shown:
    shown: Shown = {}
    for name in disk.partitions():
        partition = await disk.partition(name)
        log = {
            entry.index: (entry.epoch, entry.payload)
            async for entries in partition.read(range(1, FAR))
            for entry in entries
        }
        shown[name] = (log, await partition.state())
    return shown


def opened_shows(files: SimulatedFiles, seed: int = 9) -> Shown:
    """What a node shows that opens it. Raises what it raises. Nothing is flushed."""
    found: list[Shown] = []

    async def main(simulation: Simulation) -> None:
        files.fail_if(flushing_fails)
        disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
        found.append(await shown_by(disk))
        files.crash()

    simulate(main, seed)
    return found[0]


def made(script: Script, *, is_closed: bool) -> SimulatedFiles:
    """A directory after a life that ended with a clean close, or with the power."""
    files = SimulatedFiles(random=Random(1))

    async def main(simulation: Simulation) -> None:
        disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
        await script(disk, files)
        await next_wal_prepared(disk)
        await disk._engine.file_remover.tasks.end()
        if is_closed:
            await disk.close()
        else:
            files.crash()

    simulate(main, 1)
    return files.after_kill()


def crashed_at(script: Script, find: Callable[[list[FileCall]], int]) -> SimulatedFiles:
    """A directory after the power was lost at one call of a life."""
    files = SimulatedFiles(random=Random(1))
    calls: list[FileCall] = []

    async def main(simulation: Simulation, files: SimulatedFiles) -> None:
        disk = await Disk.open(files, OPTIONS, runtime=simulation.runtime)
        try:
            await script(disk, files)
        except (StratalogError, OSError):
            files.crash()
        if not files.dead:
            await disk.close()

    simulate(lambda simulation: main(simulation, files), 1)
    calls = files.calls
    again = SimulatedFiles(random=Random(1))
    again.crash_at(find(calls), "after")
    until_crash(again, main)
    return again.after_power_loss(Random(0))


def until_crash(files: SimulatedFiles, main: Callable[[Any, SimulatedFiles], Any]) -> None:
    play(files, lambda simulation: main(simulation, files), seed=1)
    assert files.dead


def last_journal_sync(calls: list[FileCall]) -> int:
    """The first of the two syncs of the last record: then it is there once."""
    syncs = [
        call.number
        for call in calls
        if call.operation == "sync" and call.path.startswith("journal/")
    ]
    return syncs[-2]


def second_journal(calls: list[FileCall]) -> int:
    """The last removal of a journal: then there are two."""
    found = [
        call.number
        for call in calls
        if call.operation == "remove" and call.path.startswith("journal/")
    ]
    return found[-1] - 1


@cache
def states() -> dict[str, State]:
    """All of them, by name."""
    found: dict[str, SimulatedFiles] = {}
    with tiny():
        with unprepared():
            for script in SCRIPTS:
                found |= both_ends(script)
            found["between-two-copies"] = crashed_at(empty_partition, last_journal_sync)
            found["two-journals"] = crashed_at(several_batches, second_journal)
        for script in PREPARING_SCRIPTS:
            found |= both_ends(script)
        described_ = {name: described(name, files) for name, files in found.items()}
        untold = described_["between-two-copies"]
        described_["between-two-copies"] = replace(untold, others=({},))
        for script in (several_batches, failed_sync):
            name = f"{script.__name__}-format-2"
            described_[name] = described(name, as_format_2(found[f"{script.__name__}-crashed"]))
        for script in (empty_partition, several_batches, two_wal_files, checkpointed):
            old = as_format_1(found[f"{script.__name__}-crashed"])
            name = f"{script.__name__}-format-1"
            state = described(name, old)
            torn = without_last_record(old)
            others = (*state.others, opened_shows(torn)) if torn else state.others
            described_[name] = replace(state, others=others, is_of_format_1=True)
        return described_


def both_ends(script: Script) -> dict[str, SimulatedFiles]:
    return {
        f"{script.__name__}-{'closed' if is_closed else 'crashed'}": made(
            script, is_closed=is_closed
        )
        for is_closed in (False, True)
    }


def described(name: str, files: SimulatedFiles) -> State:
    is_closed = files.after_kill().exists(CLOSED)
    shown = opened_shows(files.after_kill())
    return State(name, files, shown, (shown_without_last_batch(files, shown),), is_closed)


def shown_without_last_batch(files: SimulatedFiles, shown: Shown) -> Shown:
    """As if the last batch of the last WAL file had never been written."""
    last = last_batch_of(files)
    if last is None:
        return shown
    path, at, end = last
    copy = files.after_kill()
    copy.damage(path, at, bytes(end - at))
    if copy.exists(CLOSED):
        copy.remove(CLOSED)
    return opened_shows(copy)


def last_batch_of(files: SimulatedFiles) -> tuple[str, int, int] | None:
    """The file of the last batch of the WAL, and where it begins and ends in it."""
    for wal in sorted(layout_of(files).wals, key=lambda wal: -wal.number):
        data = content(files.after_kill(), wal.path)
        head = Head.from_bytes(data, wal.path)
        at = data.rfind(b"SLFR")
        while at >= 0 and (frame := frame_at(memoryview(data), at, head.nonce)) is None:
            at = data.rfind(b"SLFR", 0, at)
        if at >= 0:
            assert frame is not None
            return wal.path, at, frame.end
        if head.first:
            return None
    return None


# Format 1


def as_format_1(files: SimulatedFiles) -> SimulatedFiles:
    """The directory as an older version would have left it: single records, and no sizes."""
    old = files.after_kill()
    for path in old.names():
        if path.startswith("wal/"):
            replace_file(old, path, with_major(content(old, path), 1))
        elif path.startswith("journal/"):
            replace_file(old, path, journal_of_format_1(content(old, path), path))
    return old


def replace_file(files: SimulatedFiles, path: str, data: bytes) -> None:
    files.remove(path)
    with contextlib.closing(files.create(path)) as file:
        file.write_at(0, data)
        file.sync()
    files.sync_folder(path.partition("/")[0])


def with_major(data: bytes, major: int) -> bytes:
    """A WAL file as that format had it."""
    head = Head.from_bytes(data, "")
    parts = [replace(head, major=major).to_bytes()]
    for batch in batches(data, head, head.first, ""):
        parts += map(bytes, batch_parts(head.nonce, batch.number, batch.sections, major))
    return b"".join(parts).ljust(len(data), b"\0")


def as_format_2(files: SimulatedFiles) -> SimulatedFiles:
    """The directory as the version before would have left it: no file is written over."""
    old = files.after_kill()
    for path in old.names():
        data = content(old, path)
        if path.startswith("wal/"):
            replace_file(old, path, with_major(data, 2))
        elif path.startswith("journal/"):
            head = replace(Head.from_bytes(data, path), major=2)
            replace_file(old, path, head.to_bytes() + data[HEAD_BYTES:])
    return old


def journal_of_format_1(data: bytes, path: str) -> bytes:
    head = replace(Head.from_bytes(data, path), major=1)
    parts, number, position = [head.to_bytes()], head.first, HEAD_BYTES
    while (frame := find_frame(data, position, head.nonce, number)) is not None:
        descriptor = encode_edit(without_size(decode_edit(frame.descriptor, path)))
        parts += [frame_head(head.nonce, number, descriptor, 0), descriptor]
        number, position = number + 1, frame.end
    return b"".join(parts)


def without_size(edit: Edit) -> Edit:
    if isinstance(edit, Opened):
        return Opened(WalFile(edit.wal.number, edit.wal.path))
    if isinstance(edit, Whole):
        wals = tuple(WalFile(wal.number, wal.path) for wal in edit.layout.wals)
        return Whole(msgspec.structs.replace(edit.layout, wals=wals))
    return edit


def without_last_record(files: SimulatedFiles) -> SimulatedFiles | None:
    """Unless opening would refuse that, because something proves that it was there."""
    torn = files.after_kill()
    (path,) = [each for each in torn.names() if each.startswith("journal/")]
    torn.damage(path, content(torn, path).rfind(b"SLFR"), 1)
    try:
        opened_shows(torn.after_kill())
    except Corrupt:
        return None
    return torn
