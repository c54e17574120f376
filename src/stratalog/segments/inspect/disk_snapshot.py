"""A snapshot of a data directory, read-only and without a lock, also beside a running node.

The journal names the files. Files that may be removed soon are opened at once, since an open file
stays readable when its name is gone, unless it is a WAL file that is written over: then a new
snapshot is needed. If a file has already gone, there are two cases:

1. The journal has moved on. It is read again.
2. It has not. The file is missing.

``CLOSED`` is read first and last. If a node has opened or closed the directory in between, it has
changed, and all is read again.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stratalog.errors import Corrupt, Invalid, NotFound, Unavailable
from stratalog.segments.format import (
    DISK,
    FOLDERS,
    HEAD_BYTES,
    SUFFIXES,
    Checkpoint,
    CleanClose,
    Head,
    Identity,
    Layout,
    live_path,
    nonce_in,
    read_checkpoint,
    read_clean_close,
    read_identity,
)
from stratalog.segments.io import File, LocalFiles, ReadableFiles, opened
from stratalog.segments.recover import kept_doubtful
from stratalog.segments.write_ahead import Replayed, must_exist, replay_journal, replay_more

T = TypeVar("T")

ATTEMPTS_MAX = 50
READS_OF_DAMAGE = 3
"""A file may be read while it is written, so damage is reported only after this many reads."""
PAUSE_S = 0.03
"""Between two reads of a file that a node may be writing."""
FILES_HELD_MAX = 256


class _Borrowed:
    """An open file whose ``close`` is left to its holder."""

    def __init__(self, file: File) -> None:
        self.write_at, self.write_durably = file.write_at, file.write_durably
        self.read_at = file.read_at
        self.read_into = file.read_into
        self.size = file.size
        self.allocate = file.allocate
        self.sync = file.sync

    def close(self) -> None:
        pass


class HeldFiles:
    """A data directory that holds some files open: those that may be removed soon."""

    def __init__(self, files: ReadableFiles) -> None:
        self.source = files
        self._held: dict[str, File] = {}

    def hold_only(self, paths: Sequence[str]) -> None:
        """Hold exactly these files open, as far as they exist."""
        for path in self._held.keys() - set(paths):
            self._held.pop(path).close()
        for path in paths:
            if path not in self._held:
                with contextlib.suppress(FileNotFoundError):
                    self._held[path] = self.source.open(path)

    def open(self, path: str) -> File:
        held = self._held.get(path)
        return self.source.open(path) if held is None else _Borrowed(held)

    @property
    def paths(self) -> set[str]:
        """The held files."""
        return set(self._held)

    def exists(self, path: str) -> bool:
        return self.source.exists(path)

    def list(self, folder: str) -> list[str]:
        return self.source.list(folder)

    def close(self) -> None:
        while self._held:
            self._held.popitem()[1].close()


@dataclass(frozen=True)
class DiskSnapshot:
    """The journal at one moment, and the checkpoints that it names."""

    files: HeldFiles
    identity: Identity
    journal: Replayed
    checkpoints: dict[int, Checkpoint | Corrupt]
    """By number of the partition; ``Corrupt`` says why one is unreadable."""
    missing: frozenset[str]
    """Named files that do not exist."""
    leftovers: tuple[str, ...]
    """Files that are not named. The next opening removes them, unless a node is making them now."""
    closed: CleanClose | Corrupt | None
    """What it was when it was closed cleanly; ``Corrupt`` says why that is unreadable."""
    kept: tuple[str, ...]
    """What earlier openings have kept aside."""

    @property
    def is_still_closed(self) -> bool:
        """Whether ``CLOSED`` is what it was: no node has opened the directory since."""
        try:
            return _is_same(self.closed, _closed(self.files, self.disk))
        except FileNotFoundError:
            return False

    @property
    def disk(self) -> bytes:
        return bytes.fromhex(self.identity.disk)

    @property
    def layout(self) -> Layout:
        return self.journal.layout

    def is_still_named(self, path: str) -> bool:
        """Whether the current journal names a file."""
        return path in self.current_layout().paths

    def current_layout(self) -> Layout:
        """What the journal says now."""
        for _ in range(ATTEMPTS_MAX):
            with contextlib.suppress(FileNotFoundError):
                replayed = replay_journal(self.files, self.disk)
                return self.layout if replayed is None else replayed.layout
        return self.layout

    @property
    def is_written_over(self) -> bool:
        """Whether a node has flushed a WAL file of this snapshot since, and written over it.

        It writes the head first. So what was read before this is asked is of the file as it was.
        """
        for wal in self.layout.wals:
            with contextlib.suppress(FileNotFoundError, Corrupt), opened(self.files, wal.path) as f:
                nonce = Head.from_bytes(f.read_at(0, HEAD_BYTES), wal.path).nonce
                if nonce != (nonce_in(wal.path) or nonce):
                    return not self.is_still_named(wal.path)
        return False

    def again(self) -> "DiskSnapshot":
        """What is there now."""
        return take_snapshot(self.files.source)

    def journal_stays(self, is_clean: Callable[[Replayed], bool]) -> bool:
        """Whether the journal is not clean, and nobody is writing it."""
        for _ in range(READS_OF_DAMAGE):
            if is_clean(self.journal):
                return False
            time.sleep(PAUSE_S)
            with contextlib.suppress(FileNotFoundError, Corrupt):
                now = replay_journal(self.files, self.disk)
                if now is None or now.last_record != self.journal.last_record or is_clean(now):
                    return False
        return True


Where = str | os.PathLike[str] | ReadableFiles
"""A data directory: its path, or its files."""


def take_snapshot(path: Where) -> DiskSnapshot:
    """``NotFound`` if it is not a data directory, ``Corrupt`` if its journal is unreadable."""
    files = local_files(path) if isinstance(path, str | os.PathLike) else path

    def look() -> DiskSnapshot:
        with contextlib.ExitStack() as closing:
            held = closing.enter_context(contextlib.closing(HeldFiles(files)))
            found = _look(held, path)
            closing.pop_all()
            return found

    return retry_while_changing(look, path)


def name_of(path: Where) -> str:
    """For reports and errors."""
    return os.fspath(path) if isinstance(path, str | os.PathLike) else repr(path)


def retry_while_changing(look: Callable[[], T], path: Where) -> T:
    """Retry while files vanish, or seem damaged because a node is writing them.

    Raises ``Corrupt`` when damage was found each time, and ``Unavailable`` after many attempts.
    """
    looks = 0
    for _ in range(ATTEMPTS_MAX):
        try:
            return look()
        except FileNotFoundError:
            continue
        except Corrupt:
            looks += 1
            if looks == READS_OF_DAMAGE:
                raise
    raise Unavailable(
        f"the files in {name_of(path)} change faster than they can be read",
        hint="A node is busy there. Retry.",
        path=name_of(path),
    )


def local_files(path: str | os.PathLike[str]) -> LocalFiles:
    root = Path(path)
    if not root.exists():
        raise NotFound(f"there is no directory {root}", hint="Check the spelling.", path=str(root))
    if not root.is_dir():
        raise Invalid(
            f"{root} is a file, not a data directory",
            hint="Name the directory in which a node keeps its files.",
            path=str(root),
        )
    return LocalFiles(root)


def _look(held: HeldFiles, path: Where) -> DiskSnapshot:
    """``FileNotFoundError`` if the journal has moved on meanwhile, or was opened or closed."""
    identity = read_identity(held)
    if identity is None:
        raise NotFound(
            f"{name_of(path)} is not a data directory: it has no file {DISK}",
            hint="Name the directory in which a node keeps its files. "
            "For an object log, use `stratalog info`.",
            path=name_of(path),
        )
    disk = bytes.fromhex(identity.disk)
    closed = _closed(held, disk)
    listed = [f"{folder}/{name}" for folder in FOLDERS for name in held.list(folder)]
    replayed, missing = _held_together(held, must_exist(replay_journal(held, disk)))
    if missing:
        newest = must_exist(replay_journal(held, disk))
        if (newest.path, newest.last_record) != (replayed.path, replayed.last_record):
            raise FileNotFoundError
    checkpoints = _checkpoints(held, disk, replayed.layout, missing)
    named = replayed.layout.paths | {replayed.path}
    named |= {live_path(checkpoint.path) for checkpoint in replayed.layout.checkpoints.values()}
    ours = [each for each in listed if each.endswith(SUFFIXES) and each not in named]
    leftovers = [each for each in ours if held.exists(each)]
    seen = DiskSnapshot(
        held,
        identity,
        replayed,
        checkpoints,
        frozenset(missing),
        tuple(leftovers),
        closed,
        tuple(kept_doubtful(held)),
    )
    if not seen.is_still_closed:
        raise FileNotFoundError
    return seen


def _closed(held: HeldFiles, disk: bytes) -> CleanClose | Corrupt | None:
    try:
        return read_clean_close(held, disk)
    except Corrupt as error:
        return error


def _is_same(one: CleanClose | Corrupt | None, other: CleanClose | Corrupt | None) -> bool:
    if isinstance(one, Corrupt) and isinstance(other, Corrupt):
        return str(one) == str(other)
    return one == other


def _held_together(held: HeldFiles, replayed: Replayed) -> tuple[Replayed, set[str]]:
    """Open files that may be removed. If some are gone already, follow the journal and retry."""
    missing: set[str] = set()
    for _ in range(ATTEMPTS_MAX):
        held.hold_only(_may_go(replayed.layout))
        missing = {path for path in replayed.layout.paths if not held.exists(path)} - held.paths
        more = replay_more(held, replayed) if missing else replayed
        if more.last_record == replayed.last_record:
            break
        replayed = more
    return replayed, missing


def _may_go(layout: Layout) -> list[str]:
    """The files that a running node may remove soon, as many as may be held open."""
    segments = [file.path for each in layout.partitions.values() for file in each.files]
    checkpoints = [checkpoint.path for checkpoint in layout.checkpoints.values()]
    wals = [wal.path for wal in layout.wals]
    return [*wals, *checkpoints[:FILES_HELD_MAX], *segments[:FILES_HELD_MAX]]


def _checkpoints(
    held: HeldFiles, disk: bytes, layout: Layout, missing: set[str]
) -> dict[int, Checkpoint | Corrupt]:
    """Each with the live set that it has itself, not with that of the file beside it."""
    found: dict[int, Checkpoint | Corrupt] = {}
    for number, named in layout.checkpoints.items():
        if named.path in missing:
            continue
        try:
            with opened(held, named.path) as file:
                found[number] = read_checkpoint(file, disk, number, named.path)
        except Corrupt as error:
            found[number] = error
    return found
