"""A data directory in memory that loses power, fails and fills up where a test wants it to.

``SimulatedFiles`` is a ``FileSystem``. Each call that reads or changes something is numbered, from
1, and kept in ``calls``: count the calls of a run, then crash other runs at each of them. Closing a
file and giving back a lock are not calls: they cannot fail, and work on a dead machine too.

    crash_at(n)            the power is lost at call n. It raises ``PowerLost``, and so does every
                           later call: ``before`` its effect, ``after`` it, or with a part of it
                           (``torn``: a beginning of a write, some sectors of a sync, some names of
                           a folder, some levels of a new folder; all or nothing of anything else)
    fail_at(n, errno)      call n raises ``OSError``
    fail_if(rule)          each call raises what the rule says of it
    damage(), truncate()   bytes rot, on the disk and in memory
    capacity_bytes         what does not fit raises ENOSPC, after as much of it as does

A write that fails has written a beginning. A sync that fails drops what it should have synced, as
Linux does: it can be read until the machine goes down, and no later sync makes it durable, only
writing it again. A write and a sync in one call (``at_once``) may fail in either half. Whatever
else fails has no effect.

``after_power_loss`` and ``after_kill`` give the directory as the next process finds it. They leave
this one as it is, so that a test may look at many outcomes of one crash. ``disk_state`` says what
can survive. After a kill everything is there that was written, still unsynced: power may be lost
later.
"""

from __future__ import annotations

import contextlib
import errno as errors
import threading
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple, TypeVar

from stratalog.invariants import invariant
from stratalog.segments.io import Buffer, write_then_sync
from stratalog.testing.disk_state import Inode, Luck
from stratalog.testing.memory_disk import MemoryDisk, error

T = TypeVar("T")
When = Literal["before", "after", "torn"]


class PowerLost(Exception):
    """The machine is off.

    Not an ``OSError``, so that no handler cleans up after it: the process is gone. Still an
    ``Exception``, because executors and tasks do not hand on everything else.
    """


class FileCall(NamedTuple):
    """One call as it was made. The path of an open file is the one that it was opened by."""

    number: int
    operation: str
    path: str


class SimulatedFile:
    """An open file of ``SimulatedFiles``."""

    __slots__ = ("_files", "_inode", "_is_open", "_path", "_writable")

    def __init__(self, files: SimulatedFiles, path: str, inode: Inode, *, writable: bool) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self._writable = writable
        self._is_open = True

    def write_at(self, position: int, *parts: Buffer) -> int:
        written = b"".join(parts)
        draw = self._files._random.randrange
        self._files._call(
            "write",
            self._path,
            lambda: self._write(position, written),
            torn=lambda: self._write(position, written[: draw(len(written) + 1)]),
            failed=lambda: self._write(position, written[: draw(max(1, len(written)))]),
        )
        return len(written)

    def write_durably(self, position: int, *parts: Buffer) -> int:
        """In one call, if this file system has it, within what was allocated; else in two."""
        written = b"".join(parts)
        if not self._files.at_once or position + len(written) > len(self._inode.current):
            return write_then_sync(self, position, *parts)

        def write_and_sync() -> None:
            self._write(position, written)
            self._opened().sync()

        def write_some() -> None:
            self._write(position, written[: self._files._random.randrange(len(written) + 1)])

        def tear() -> None:
            write_some()
            self._opened().sync_partly(Luck(self._files._random, mixed=True))

        def fail() -> None:
            write_some()
            self._opened().fail_to_sync()

        self._files._call("write_durably", self._path, write_and_sync, torn=tear, failed=fail)
        return len(written)

    def _write(self, position: int, data: bytes) -> None:
        self._files._disk.write(self._opened(writing=True), position, data)

    def read_at(self, position: int, size: int) -> bytes:
        def read() -> bytes:
            inode = self._opened()
            if position < 0:
                raise error(errors.EINVAL, self._path)
            return bytes(memoryview(inode.current)[position : position + size])

        return self._files._call("read", self._path, read)

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def size(self) -> int:
        return self._files._call("size", self._path, lambda: len(self._opened().current))

    def allocate(self, size: int) -> None:
        self._files._call(
            "allocate",
            self._path,
            lambda: self._files._disk.allocate(self._opened(writing=True), size),
        )

    def sync(self) -> None:
        self._files._call(
            "sync",
            self._path,
            lambda: self._opened().sync(),
            torn=lambda: self._opened().sync_partly(Luck(self._files._random, mixed=True)),
            failed=lambda: self._opened().fail_to_sync(),
        )

    def close(self) -> None:
        with self._files._mutex:
            inode = self._opened()
            self._is_open = False
            self._files._disk.close(inode)

    def _opened(self, *, writing: bool = False) -> Inode:
        if not self._is_open or (writing and not self._writable):
            raise error(errors.EBADF, self._path)
        return self._inode


class SimulatedFiles:
    """See the module's docstring for what may go wrong."""

    def __init__(
        self,
        *,
        random: Random | None = None,
        capacity_bytes: int | None = None,
        at_once: bool = False,
    ) -> None:
        """``random`` draws how much of a torn or failed call happens.

        ``at_once`` says whether this file system writes and syncs in one call, as Linux does.
        """
        self.at_once = at_once
        self.calls: list[FileCall] = []
        self.dead = False
        self._disk = MemoryDisk(capacity_bytes=capacity_bytes)
        self._random = random or Random(0)
        self._mutex = threading.RLock()
        self._crash_number = 0
        self._crash_when: When = "before"
        self._on_crash: Callable[[], None] | None = None
        self._failures: dict[int, int] = {}
        self._rule: Callable[[FileCall], int | None] | None = None

    def __repr__(self) -> str:
        return f"SimulatedFiles(calls={len(self.calls)}, dead={self.dead})"

    # ---- the file system

    def create(self, path: str) -> SimulatedFile:
        inode = self._call("create", path, lambda: self._disk.create(path))
        return SimulatedFile(self, path, inode, writable=True)

    def open(self, path: str) -> SimulatedFile:
        inode = self._call("open", path, lambda: self._disk.open(path))
        return SimulatedFile(self, path, inode, writable=False)

    def open_again(self, path: str) -> SimulatedFile:
        inode = self._call("open", path, lambda: self._disk.open(path))
        return SimulatedFile(self, path, inode, writable=True)

    def exists(self, path: str) -> bool:
        return self._call("exists", path, lambda: self._disk.exists(path))

    def list(self, folder: str) -> list[str]:
        return self._call("list", folder, lambda: self._disk.names(folder))

    def make_folder(self, folder: str) -> None:
        def make_some() -> None:
            levels = folder.split("/")
            self._disk.make_folder("/".join(levels[: self._random.randrange(len(levels) + 1)]))

        self._call("make_folder", folder, lambda: self._disk.make_folder(folder), torn=make_some)

    def rename(self, path: str, to: str) -> None:
        self._call("rename", path, lambda: self._disk.rename(path, to))

    def remove(self, path: str) -> None:
        self._call("remove", path, lambda: self._disk.remove(path))

    def sync_folder(self, folder: str) -> None:
        self._call(
            "sync_folder",
            folder,
            lambda: self._disk.folder(folder).sync(),
            torn=lambda: self._disk.folder(folder).sync_partly(Luck(self._random, mixed=True)),
        )

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[None]:
        inode = self._call("lock", path, lambda: self._disk.lock(path))
        try:
            yield
        finally:
            with self._mutex:
                self._disk.unlock(inode)

    # ---- what goes wrong

    def crash_at(self, number: int, when: When = "before") -> None:
        """Lose power at the call of this number."""
        self._crash_number = number
        self._crash_when = when

    def crash(self) -> None:
        """Lose power now."""
        with self._mutex:
            if self.dead:
                return
            self.dead = True
        self._report_crash()

    def on_crash(self, callback: Callable[[], None]) -> None:
        """What else dies with this machine. It is called by the thread that made the call."""
        self._on_crash = callback

    def fail_at(self, number: int, errno: int, times: int = 1) -> None:
        """Fail the call of this number, and as many after it as make up ``times``."""
        self._failures.update(dict.fromkeys(range(number, number + times), errno))

    def fail_if(self, rule: Callable[[FileCall], int | None] | None) -> None:
        """Fail each call with the errno that the rule gives for it. ``None`` ends the rule."""
        self._rule = rule

    def damage(self, path: str, position: int, damage: bytes | int) -> None:
        """Put other bytes there, or flip the bits of a mask in one byte."""
        with self._mutex:
            inode = self._disk.inode(path)
            size = 1 if isinstance(damage, int) else len(damage)
            there = bytes(inode.current[position : position + size])
            invariant(len(there) == size, f"{path} has no {size} bytes at {position} to damage")
            inode.damage(
                position, bytes([there[0] ^ damage]) if isinstance(damage, int) else damage
            )

    def truncate(self, path: str, size: int) -> None:
        """Lose the end of a file."""
        with self._mutex:
            self._disk.truncate(path, size)

    # ---- what is left

    def after_power_loss(self, random: Random) -> SimulatedFiles:
        """One of the states in which the machine may come up again."""
        with self._mutex:
            disk = self._disk.after_power_loss(random)
        return self._successor(disk, Random(random.getrandbits(64)))

    def after_kill(self) -> SimulatedFiles:
        """What the next process finds if this one was killed. Its locks are free."""
        random = Random(0)
        with self._mutex:
            disk = self._disk.after_kill()
            random.setstate(self._random.getstate())
        return self._successor(disk, random)

    def names(self) -> Sequence[str]:
        """The paths of all files, sorted."""
        with self._mutex:
            return sorted(path for path, _ in self._disk.walk())

    def size_of(self, path: str) -> int:
        with self._mutex:
            return len(self._disk.inode(path).current)

    @property
    def used_bytes(self) -> int:
        """The sizes of all files that have a name or are open."""
        return self._disk.used_bytes

    @property
    def capacity_bytes(self) -> int | None:
        return self._disk.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, capacity_bytes: int | None) -> None:
        self._disk.capacity_bytes = capacity_bytes

    def _successor(self, disk: MemoryDisk, random: Random) -> SimulatedFiles:
        successor = SimulatedFiles(random=random, at_once=self.at_once)
        successor._disk = disk
        return successor

    def _call(
        self,
        operation: str,
        path: str,
        effect: Callable[[], T],
        *,
        torn: Callable[[], object] | None = None,
        failed: Callable[[], object] | None = None,
    ) -> T:
        with self._mutex:
            if self.dead:
                raise PowerLost(f"{operation} of {path!r} on a machine without power")
            call = FileCall(len(self.calls) + 1, operation, path)
            self.calls.append(call)
            if call.number != self._crash_number:
                self._fail_on_purpose(call, failed)
                return effect()
            with contextlib.suppress(OSError):
                self._end_in(effect, torn)
            self.dead = True
        self._report_crash()
        raise PowerLost(f"in call {call.number}, {operation} of {path!r}")

    def _report_crash(self) -> None:
        """Outside the mutex, so that the callback may wait for threads that are in a call."""
        if self._on_crash is not None:
            self._on_crash()

    def _end_in(self, effect: Callable[[], object], torn: Callable[[], object] | None) -> None:
        if self._crash_when == "torn" and torn is not None:
            torn()
        elif self._crash_when == "after" or (
            self._crash_when == "torn" and self._random.random() < 0.5
        ):
            effect()

    def _fail_on_purpose(self, call: FileCall, failed: Callable[[], object] | None) -> None:
        number = self._failures.get(call.number)
        if number is None and self._rule is not None:
            number = self._rule(call)
        if number is not None:
            if failed is not None:
                with contextlib.suppress(OSError):
                    failed()
            raise error(number, call.path)
