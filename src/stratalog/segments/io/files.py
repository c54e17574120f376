"""The file-system calls that the node's disk needs, and their implementation by the real ones.

All other modules use a ``FileSystem``, never the operating system, so that a simulation can
substitute one that loses unsynced data, tears writes and forgets names.

A caller may rely on this and nothing else:

- Bytes of a file are durable after its ``sync``, and its name after ``sync_folder`` of its folder.
  Neither implies the other. Unsynced data may survive in part and in any order.
- An open file stays readable after its name is gone.
- Failures are ``OSError``. ``typed`` turns one into an error of this library at its border.

Paths are relative to the data directory, with ``/`` between their parts.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from stratalog.errors import Denied, Full, Invalid, NotFound, StratalogError, Unavailable

if sys.platform != "win32":
    import fcntl

Buffer = bytes | bytearray | memoryview

PARTS_MAX = 1024
"""How many parts Linux and macOS take in one call."""
SMALL_PART_BYTES = 1024
"""Smaller parts are joined: a copy costs less than describing each of them to the kernel."""
JOINED_BYTES = 512 * 1024
"""Joined parts are kept below this size: see ``_in_fewer_parts``."""

SYNC_EACH_BYTES = 4 * 1024 * 1024
"""About how many bytes of a new file wait for their sync at most."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_UNKNOWN_CALL = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


class File(Protocol):
    """An open file."""

    def write_at(self, position: int, *parts: Buffer) -> int:
        """Write all parts, one after another. Returns the number of bytes.

        If it raises, a prefix may have been written.
        """

    def write_durably(self, position: int, *parts: Buffer) -> int:
        """``write_at`` and ``sync``, possibly in one call.

        ``NotWritten`` if the end was certainly not written; ``OSError`` if that is unknown.
        """

    def read_at(self, position: int, size: int) -> bytes:
        """``size`` bytes, fewer only at the end of the file."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill the buffer as far as the file goes. Returns the number of bytes."""

    def size(self) -> int: ...

    def allocate(self, size: int) -> None:
        """Extend the file to this size with zeros, with room on the disk if that is possible."""

    def sync(self) -> None:
        """Make the bytes durable, and the size if reading them back needs it."""

    def close(self) -> None: ...


class NotWritten(Exception):
    """A durable write failed before its last byte was written."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def write_then_sync(file: File, position: int, *parts: Buffer) -> int:
    """``File.write_durably`` in two calls."""
    try:
        size = file.write_at(position, *parts)
    except OSError as error:
        raise NotWritten(error) from error
    file.sync()
    return size


class ReadableFiles(Protocol):
    """A data directory, read-only."""

    def open(self, path: str) -> File:
        """An existing file to read."""

    def exists(self, path: str) -> bool: ...

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none if there is no such folder."""


class FileSystem(ReadableFiles, Protocol):
    """A data directory."""

    def create(self, path: str) -> File:
        """A new file to write and read. ``FileExistsError`` if there is one."""

    def open_again(self, path: str) -> File:
        """An existing file to write and read."""

    def make_folder(self, folder: str) -> None:
        """Make it and its parents. Idempotent."""

    def rename(self, path: str, to: str) -> None:
        """Within one folder, replacing what has the name."""

    def remove(self, path: str) -> None: ...

    def sync_folder(self, folder: str) -> None:
        """Make the names in the folder durable."""

    def lock(self, path: str) -> contextlib.AbstractContextManager[None]:
        """An exclusive lock, or ``BlockingIOError``. It ends with the process at the latest."""


class LocalFile:
    """A file of the operating system."""

    __slots__ = ("_allocated", "_fd", "_syncs_as_it_writes")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._allocated = 0
        self._syncs_as_it_writes = hasattr(os, "RWF_DSYNC")

    def write_at(self, position: int, *parts: Buffer) -> int:
        at = position
        for start in range(0, len(parts), PARTS_MAX):
            some = parts[start : start + PARTS_MAX]
            size = sum(map(len, some))
            if size < len(some) * SMALL_PART_BYTES:
                some = (b"".join(some),)
            written = os.pwritev(self._fd, some, at)
            if written < size:
                self._write_rest(at + written, memoryview(b"".join(some))[written:])
            at += size
        return at - position

    def write_durably(self, position: int, *parts: Buffer) -> int:
        """One call if the system has it: after each call a thread waits for the interpreter.

        If that call fails, nobody knows whether the write or the sync did. So it is used only
        within preallocated space: a full disk must be reported as a write that did not happen.
        """
        size = sum(map(len, parts))
        if not self._syncs_as_it_writes or position + size > self._allocated:
            return write_then_sync(self, position, *parts)
        some = parts if len(parts) <= PARTS_MAX else _in_fewer_parts(parts, size)
        try:
            written = os.pwritev(self._fd, some, position, os.RWF_DSYNC)
        except OSError as error:
            if error.errno not in _UNKNOWN_CALL:
                raise
            self._syncs_as_it_writes = False
            return write_then_sync(self, position, *parts)
        if written < size:
            try:
                self._write_rest(position + written, memoryview(b"".join(some))[written:])
            except OSError as error:
                raise NotWritten(error) from error
            self.sync()
        return size

    def _write_rest(self, position: int, rest: memoryview) -> None:
        while rest:
            written = os.pwrite(self._fd, rest, position)
            position, rest = position + written, rest[written:]

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data and (left := size - sum(map(len, parts))):
            data = os.pread(self._fd, left, position + size - left)
            parts.append(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        filled = size = os.preadv(self._fd, [buffer], position)
        while size and filled < len(buffer):
            size = os.preadv(self._fd, [buffer[filled:]], position + filled)
            filled += size
        return filled

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def allocate(self, size: int) -> None:
        if sys.platform == "linux":
            try:
                os.posix_fallocate(self._fd, 0, size)
                self._allocated = size
            except OSError as error:
                if error.errno not in _UNKNOWN_CALL:
                    raise
        if self.size() < size:
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        if sys.platform == "linux":
            os.fdatasync(self._fd)
        else:
            _sync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _in_fewer_parts(parts: Sequence[Buffer], size: int) -> list[Buffer]:
    """Few enough for one call. A joined part has less than a megabyte: to copy more, Python would
    release the interpreter and wait for it again."""
    step = max(1, min(PARTS_MAX, len(parts) * JOINED_BYTES // max(1, size)))
    return [b"".join(parts[start : start + step]) for start in range(0, len(parts), step)]


class LocalFiles:
    """A folder of the operating system."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if sys.platform == "win32":
            raise Invalid(
                "a node's disk needs flock, fdatasync and names that outlive their files",
                hint="Run it on Linux or macOS.",
            )
        self.root = Path(root).absolute()

    def __repr__(self) -> str:
        return f"LocalFiles({str(self.root)!r})"

    def create(self, path: str) -> File:
        return LocalFile(
            os.open(self.root / path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
        )

    def open(self, path: str) -> File:
        return LocalFile(os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC))

    def open_again(self, path: str) -> File:
        return LocalFile(os.open(self.root / path, os.O_RDWR | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        try:
            os.stat(self.root / path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / folder))
        except FileNotFoundError:
            return []

    def make_folder(self, folder: str) -> None:
        (self.root / folder).mkdir(parents=True, exist_ok=True)

    def rename(self, path: str, to: str) -> None:
        os.replace(self.root / path, self.root / to)

    def remove(self, path: str) -> None:
        os.unlink(self.root / path)

    def sync_folder(self, folder: str) -> None:
        fd = os.open(self.root / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[None]:
        fd = os.open(self.root / path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(fd)


def _sync(fd: int) -> None:
    """Also flushes the drive's cache, which macOS does only on request."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL):
                raise
        else:
            return
    os.fsync(fd)


def write_file(files: FileSystem, path: str, parts: Iterable[Buffer]) -> int:
    """A new file with these bytes, synced. Its name is not durable before ``sync_folder``.

    If writing fails, the partial file is removed if possible.
    """
    return write_pieces(files, path, ([part] for part in parts))


def write_pieces(files: FileSystem, path: str, pieces: Iterable[Sequence[Buffer]]) -> int:
    """As ``write_file``. Each piece is written before the next one is requested.

    It is synced as it grows, so that the sync of another file never waits for all of it.
    """
    file = files.create(path)
    try:
        with contextlib.closing(file):
            size = synced = 0
            for step in _steps(pieces):
                size += file.write_at(size, *step)
                if size - synced >= SYNC_EACH_BYTES:
                    file.sync()
                    synced = size
            file.sync()
    except Exception:  # also one that was raised while a piece was made
        with contextlib.suppress(OSError):
            files.remove(path)
        raise
    return size


def _steps(pieces: Iterable[Sequence[Buffer]]) -> Iterator[Sequence[Buffer]]:
    """The pieces, the large ones in parts of about ``SYNC_EACH_BYTES``."""
    for piece in pieces:
        start = size = 0
        for at, part in enumerate(piece, 1):
            size += len(part)
            if size >= SYNC_EACH_BYTES:
                yield piece[start:at]
                start, size = at, 0
        if start < len(piece) or not piece:
            yield piece[start:]


def opened(files: ReadableFiles, path: str) -> contextlib.closing[File]:
    """An existing file to read, closed at the end."""
    return contextlib.closing(files.open(path))


def read_file(files: ReadableFiles, path: str) -> bytes:
    with opened(files, path) as file:
        return file.read_at(0, file.size())


def typed(error: OSError, doing: str, path: str | None = None) -> StratalogError:
    """An ``OSError`` as an error of this library."""
    why = f"{doing} failed: {error.strerror or error}"
    if error.errno in _FULL:
        return Full(
            why,
            hint="The disk is full. Free some space: the node continues by itself.",
            path=path,
        )
    if error.errno in _DENIED:
        return Denied(why, hint="Let the node read and write its data directory.", path=path)
    if error.errno == errno.ENOENT:
        return NotFound(why, path=path)
    return Unavailable(why, hint="Look at the disk and at the system's log, then retry.", path=path)


@contextlib.contextmanager
def typed_errors(doing: str, path: str | None = None) -> Iterator[None]:
    """Turns each ``OSError`` into an error of this library."""
    try:
        yield
    except OSError as error:
        raise typed(error, doing, path) from error
