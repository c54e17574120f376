"""Real data directories for tests: what is in them, and a file system that can be watched.

``WatchedFiles`` is the real one. It notes every call, holds one until it is let go, or fails it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from stratalog.indexset import IndexSet
from stratalog.segments import Disk, DiskOptions, Entries, Entry, Partition
from stratalog.segments.format.clean_close import CLOSED
from stratalog.segments.format.data_directory import read_identity
from stratalog.segments.format.frame import GROWING_MAJOR, Head
from stratalog.segments.format.layout import Layout
from stratalog.segments.io.files import Buffer, File, LocalFiles, write_then_sync
from stratalog.segments.write_ahead import journal
from stratalog.segments.write_ahead.read_journal import JOURNAL_KIND, journal_path, replay_journal

T = TypeVar("T")

PATIENCE_S = 60.0
EVERYTHING = IndexSet(range(1, 1 << 40))
SMALL = DiskOptions(wal_file_bytes=1 << 16, major_after_minors=None)
"""WAL files of 64 KiB, so that making one costs little; compaction only on request."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, or fail after a while."""
    return asyncio.run(asyncio.wait_for(main, PATIENCE_S))


def entries(indexes: Iterable[int], epoch: int = 1, text: str = "") -> Entries:
    """Entries whose payloads tell index and epoch."""
    return Entries.of(Entry(index, epoch, payload(index, epoch, text)) for index in indexes)


def payload(index: int, epoch: int = 1, text: str = "") -> bytes:
    return f"{index}/{epoch}/{text}".encode()


async def found(partition: Partition, wanted: IndexSet | range = EVERYTHING) -> list[Entry]:
    """All that reading gives."""
    return [entry async for batch in partition.read(wanted) for entry in batch]


async def epochs(partition: Partition, wanted: IndexSet | range = EVERYTHING) -> dict[int, int]:
    """The epoch of each entry, after looking whether each is where and what it should be."""
    listed = await found(partition, wanted)
    indexes = [entry.index for entry in listed]
    assert indexes == sorted(set(indexes)), "not in order"
    for entry in listed:
        assert entry.payload.startswith(f"{entry.index}/{entry.epoch}/".encode())
    return {entry.index: entry.epoch for entry in listed}


def names(root: Path, folder: str) -> list[str]:
    return sorted(path.name for path in (root / folder).iterdir())


def all_files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def one(root: Path, folder: str, ending: str = "") -> Path:
    """The only file in a folder."""
    (path,) = [each for each in (root / folder).iterdir() if each.name.endswith(ending)]
    return path


def damage(path: Path, at: int, by: int = 1) -> None:
    """Flip bits of one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= by
    path.write_bytes(data)


def as_after_a_crash(root: Path) -> None:
    """As if it had not been closed."""
    (root / CLOSED).unlink()


def frames_of(path: Path) -> list[int]:
    """Where the frames of a file begin."""
    data, at, places = path.read_bytes(), 0, list[int]()
    while (at := data.find(b"SLFR", at)) >= 0:
        places.append(at)
        at += 1
    return places


def layout_of(root: Path) -> Layout:
    """What the journal says."""
    files = LocalFiles(root)
    identity = read_identity(files)
    assert identity is not None
    replayed = replay_journal(files, bytes.fromhex(identity.disk))
    assert replayed is not None
    return replayed.layout


def rewrite_journal(root: Path, change: Callable[[Layout], Layout]) -> None:
    """Let the journal say something else, in whole records, after a crash."""
    files = LocalFiles(root)
    identity = read_identity(files)
    assert identity is not None
    disk = bytes.fromhex(identity.disk)
    replayed = replay_journal(files, disk)
    assert replayed is not None
    number, record, nonce = replayed.file_number + 1, replayed.last_record + 1, bytes(8)
    data, size = journal.first_record(change(replayed.layout), nonce, record)
    head = Head(JOURNAL_KIND, disk, nonce, number, record, GROWING_MAJOR).to_bytes()
    whole = (head + data + data).ljust(size, b"\0")
    (root / journal_path(number, nonce.hex())).write_bytes(whole)
    as_after_a_crash(root)


async def until(condition: Callable[[], object]) -> None:
    """Let others work until something is so."""
    while not condition():
        await asyncio.sleep(0.001)


async def segments(disk: Disk, partition: Partition, *groups: Sequence[int]) -> None:
    """One segment for each group of indexes, in epoch 1."""
    for group in groups:
        previous = partition.last
        await partition.write(previous, entries(group))
        await disk.flush()


class Gate:
    """Calls that wait here until they are let go."""

    def __init__(self, call: str, path: str) -> None:
        self.call = call
        self.path = path
        self._reached = threading.Event()
        self._open = threading.Event()

    def matches(self, call: str, path: str) -> bool:
        return call == self.call and path.startswith(self.path)

    def pass_through(self) -> None:
        self._reached.set()
        assert self._open.wait(PATIENCE_S), "nobody let it go"

    async def reached(self) -> None:
        """Until a call waits here."""
        await until(self._reached.is_set)

    def let_go(self) -> None:
        self._open.set()


class WatchedFiles(LocalFiles):
    """The real file system, watched."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls: list[tuple[str, str]] = []
        self._gates: list[Gate] = []
        self._failures: list[tuple[str, str, int]] = []

    def count(self, call: str, path: str = "") -> int:
        return sum(each == call and where.startswith(path) for each, where in list(self.calls))

    @contextmanager
    def holding(self, call: str, path: str) -> Iterator[Gate]:
        """Hold calls on paths that begin so."""
        gate = Gate(call, path)
        self._gates.append(gate)
        try:
            yield gate
        finally:
            self._gates.remove(gate)
            gate.let_go()

    @contextmanager
    def failing(self, call: str, path: str, number: int) -> Iterator[None]:
        """Fail calls on paths that begin so with an error of the operating system."""
        failure = (call, path, number)
        self._failures.append(failure)
        try:
            yield
        finally:
            self._failures.remove(failure)

    def enter(self, call: str, path: str) -> None:
        self.calls.append((call, path))
        for gate in list(self._gates):
            if gate.matches(call, path):
                gate.pass_through()
        for each, where, number in list(self._failures):
            if call == each and path.startswith(where):
                raise OSError(number, f"made to fail: {call} {path}")

    def create(self, path: str) -> File:
        self.enter("create", path)
        return WatchedFile(self, path, super().create(path))

    def open(self, path: str) -> File:
        self.enter("open", path)
        return WatchedFile(self, path, super().open(path))

    def open_again(self, path: str) -> File:
        self.enter("open", path)
        return WatchedFile(self, path, super().open_again(path))

    def rename(self, path: str, to: str) -> None:
        self.enter("rename", path)
        super().rename(path, to)

    def remove(self, path: str) -> None:
        self.enter("remove", path)
        super().remove(path)


class WatchedFile:
    """A file of it."""

    def __init__(self, files: WatchedFiles, path: str, file: File) -> None:
        self._files = files
        self._path = path
        self._file = file

    def write_at(self, position: int, *parts: Buffer) -> int:
        self._files.enter("write", self._path)
        return self._file.write_at(position, *parts)

    def write_durably(self, position: int, *parts: Buffer) -> int:
        return write_then_sync(self, position, *parts)

    def read_at(self, position: int, size: int) -> bytes:
        self._files.enter("read", self._path)
        return self._file.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._files.enter("read", self._path)
        return self._file.read_into(position, buffer)

    def size(self) -> int:
        return self._file.size()

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def sync(self) -> None:
        self._files.enter("sync", self._path)
        self._file.sync()

    def close(self) -> None:
        self._files.enter("close", self._path)
        self._file.close()
