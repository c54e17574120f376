"""A store in a local directory: the default for a program that embeds a log.

Safe between threads and processes, across SIGKILL and across loss of power. An object is a file;
its path is its path. How each promise is kept:

- **Create**: the bytes are staged in ``.stage``, synced, then linked to the name under the
  exclusive lock of its directory, which is synced before the lock is given back. ``link`` never
  replaces anything: the loser learns that the name exists.
- **Replace**: staged and synced first; then, under that same lock, the current bytes are read,
  compared and replaced by ``rename``, and the directory is synced.
- **Read**: the file is opened under the shared lock, so nobody acts on a version that a loss of
  power could still take back. It is read outside: a version, once opened, does not change.
- **Doubt**: a version keeps its name in ``.stage`` beside its own until the directory is synced. If
  that sync fails, or the writer is killed before it, the file is left with both. Whoever opens or
  lists one with two names syncs file and directory first, and answers ``Unavailable`` until that
  succeeds. What is left to chance: Linux may call a sync a success after one that failed, although
  it has dropped what it could not write. A file system that stops at its first error, as ext4 and
  XFS do for what directories hold, does not.
- **Lock**: ``flock`` on the object's own directory. A store at ``/data`` and one at ``/data/a``
  exclude each other. The kernel frees the lock of a dead process.

A directory removed while somebody waits for its lock takes no links any more; the put notices and
starts again. Staged files of dead processes are removed after an hour, by the first write of a
store object; one that marks a doubt stays as long as its object. Names that start with a dot are
not objects. No symbolic link below the root is followed, nor passed over: a listing that meets one
is refused, since a cursor that it left out would not hold anything back. The root itself may be
one; it is resolved when the store is opened. One limit that buckets do not have: a name cannot be
an object and the beginning of other objects' paths at once.
"""

import contextlib
import errno
import itertools
import os
import stat
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from stratalog.errors import (
    Conflict,
    Denied,
    Exists,
    Invalid,
    NotFound,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.runtime import CPU_THREADS_MAX, DEFAULT_RUNTIME, Runtime, cpu_turn, run_blocking
from stratalog.store.directory.durable import locked, opened_durable, sync, sync_nearest
from stratalog.store.directory.mounts import warn_if_unsafe
from stratalog.store.directory.no_links import NO_LINK, is_link, link_in_the_way, opened_below
from stratalog.store.directory.staged_file import (
    STAGED_DIRECTORY,
    StagedFiles,
    discard,
    is_doubtful,
    link_over,
)
from stratalog.store.listing import can_match
from stratalog.store.protocol import Blob, Head, Listed, check_path, content_etag

T = TypeVar("T")

ATTEMPTS_MAX = 1000
LIST_ROWS_PER_HOP = 1000
READ_BYTES_MAX = 1 << 30
UNKNOWN_SIZE_BYTES = 1 << 16

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | NO_LINK
_LINK = -1
"""In place of a size: a symbolic link."""

_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ILLEGAL = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EXDEV, errno.EINVAL, errno.EILSEQ)


class DirectoryStore:
    """Objects as files under ``root``, which is made by the first write."""

    def __init__(self, root: str | os.PathLike[str], *, runtime: Runtime = DEFAULT_RUNTIME) -> None:
        if sys.platform == "win32":
            raise Invalid(
                "a directory store needs flock and atomic links, which Windows does not have",
                hint="Use s3://, gs:// or az://, or memory:// to try things out.",
            )
        place = os.path.abspath(os.fspath(root))
        if "\0" in place:
            raise Invalid(
                f"no directory has a zero byte in its name: {place!r}",
                hint="Remove it from the path.",
            )
        self._url = Path(place).as_uri()
        self._root = os.path.realpath(place)
        self._staged = StagedFiles(self._root, runtime)
        warn_if_unsafe(self._root)

    @property
    def url(self) -> str:
        return self._url

    async def get(self, path: str) -> Blob:
        check_path(path)
        return await run_blocking(lambda: Blob(self._read(path)))

    async def get_then(self, path: str, work: Callable[[bytes], T], _runtime: Runtime) -> T:
        """On as many threads as there are cores, and not on those for computing: work there would
        have to wait for the disk."""
        check_path(path)
        return await run_blocking(lambda: work(self._read(path)), "read", CPU_THREADS_MAX)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        check_path(path)
        return await run_blocking(lambda: self._read_range(path, start, length))

    async def head(self, path: str) -> Head:
        check_path(path)

        def work() -> Head:
            data = self._read(path)
            return Head(path, len(data), content_etag(data))

        return await run_blocking(work)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        check_path(path)

        def work() -> str:
            self._retried(path, lambda: self._create(path, data))
            return content_etag(data)

        return await run_blocking(work)

    async def create_made(self, path: str, make: Callable[[], bytes], _runtime: Runtime) -> None:
        check_path(path)

        def work() -> None:
            with cpu_turn():
                data = make()
            self._retried(path, lambda: self._create(path, data))

        await run_blocking(work, "put")

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        check_path(path)
        return await run_blocking(
            lambda: self._retried(path, lambda: self._replace(path, data, etag))
        )

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        rows = self._walk(prefix, after)
        while batch := await run_blocking(lambda: [*itertools.islice(rows, LIST_ROWS_PER_HOP)]):
            for row in batch:
                yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        names_in: dict[str, set[str]] = defaultdict(set)
        for path in paths:
            directory, name = self._place(check_path(path))
            names_in[directory].add(name)
        await run_blocking(lambda: self._delete(names_in))

    def _place(self, path: str) -> tuple[str, str]:
        """The directory and the name in it."""
        return os.path.split(os.path.join(self._root, path))

    # Reading

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, int]]:
        """The current version of an object, none that is not durable yet, and its size."""
        try:
            fd, size = self._open(path)
            try:
                yield fd, size
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in _MISSING:
                raise NotFound(f"{path} is not in {self.url}", path=path) from None
            raise self._refusal(error, path) from error

    def _open(self, path: str) -> tuple[int, int]:
        directory, name = self._place(path)
        with opened_below(directory, self._root) as fd, locked(fd, exclusive=False):
            file_fd = os.open(name, _READ, dir_fd=fd)
            try:
                found = os.fstat(file_fd)
                if is_doubtful(found):
                    self._settle(path, file_fd, fd)
                if not stat.S_ISREG(found.st_mode):
                    raise IsADirectoryError(errno.EISDIR, "not a file")
            except BaseException:
                os.close(file_fd)
                raise
            return file_fd, found.st_size

    def _settle(self, path: str, *fds: int) -> None:
        """Make durable what a writer could not, or did not live to."""
        try:
            for fd in fds:
                sync(fd)
        except OSError as error:
            raise Unavailable(
                f"{path} in {self.url} is not known to be durable: {error.strerror}",
                path=path,
                hint="Check the disk and the system's log.",
            ) from error

    def _read(self, path: str) -> bytes:
        with self._opened(path) as (fd, size):
            if not size:  # not every file system tells it
                return b"".join(iter(lambda: os.read(fd, UNKNOWN_SIZE_BYTES), b""))
            return _read_at(fd, 0, size, path)

    def _read_range(self, path: str, start: int, length: int) -> bytes:
        with self._opened(path) as (fd, size):
            if start < 0 or length < 0 or start + length > size:
                raise Invalid(f"bytes {start}+{length} are outside of {path}", path=path)
            return _read_at(fd, start, length, path)

    # Writing

    def _retried(self, path: str, attempt: Callable[[], T]) -> T:
        """Try until no directory and no staged file vanished on the way."""
        try:
            self._staged.sweep_once()
            for _ in range(ATTEMPTS_MAX):
                with contextlib.suppress(FileNotFoundError):
                    return attempt()
        except OSError as error:
            raise self._refusal(error, path) from error
        raise Unavailable(f"directories on the way to {path} keep disappearing", path=path)

    def _create(self, path: str, data: bytes) -> None:
        """Without the etag: hashing takes as long as encoding, and most callers do not need it."""
        directory, name = self._place(path)
        self._staged.make_missing(directory)
        with self._staged.staged(data) as staged, opened_durable(directory, self._root) as fd:
            try:
                with locked(fd, exclusive=True):
                    self._publish(path, fd, staged, lambda: os.link(staged, name, dst_dir_fd=fd))
            except FileExistsError:
                if is_link(name, fd):
                    raise link_in_the_way(path, path) from None
                if os.path.isdir(os.path.join(directory, name)):
                    raise Invalid(f"{path} is the beginning of other paths", path=path) from None
                raise Exists(f"{path} exists in {self.url}", path=path) from None

    def _replace(self, path: str, data: bytes, etag: str) -> str:
        directory, name = self._place(path)
        if not os.path.isdir(directory):
            raise self._conflict(path, etag, None)
        with (
            self._staged.staged(data) as staged,
            opened_below(directory, self._root) as fd,
            locked(fd, exclusive=True),
        ):
            found = self._etag(name, fd)
            if found != etag:
                raise self._conflict(path, etag, found)
            self._publish(path, fd, staged, lambda: link_over(staged, name, fd))
        return content_etag(data)

    def _publish(self, path: str, directory_fd: int, staged: str, step: Callable[[], None]) -> None:
        """Give staged bytes their second name, durably, and then take the first away.

        From the step on, a failure leaves it open.
        """
        begun = False
        try:
            step()
            begun = True
            sync(directory_fd)
        except OSError as error:
            if begun or error.errno == errno.EIO:
                raise Unknown(
                    f"the directory of {path} could not be synced: {error.strerror}", path=path
                ) from error
            raise
        discard(staged)

    def _etag(self, name: str, directory_fd: int) -> str | None:
        """The version that is there now, or none."""
        try:
            fd = os.open(name, _READ, dir_fd=directory_fd)
            with open(fd, "rb", buffering=0) as file:
                return content_etag(file.readall())
        except OSError as error:
            if error.errno in _MISSING:
                return None
            raise

    # Deleting

    def _delete(self, names_in: dict[str, set[str]]) -> None:
        if not os.path.isdir(self._root):
            return
        try:
            for directory, names in names_in.items():
                self._unlink(directory, names)
            # Synced even if nothing was there: this may be the second try.
            for directory in {self._prune(directory) for directory in names_in}:
                sync_nearest(directory)
        except OSError as error:
            raise self._refusal(error, error.filename) from error

    def _unlink(self, directory: str, names: set[str]) -> None:
        missing = contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with missing, opened_below(directory, self._root) as fd, locked(fd, exclusive=True):
            for name in names:
                with missing:
                    os.unlink(name, dir_fd=fd)

    def _prune(self, directory: str) -> str:
        """Remove emptied directories upwards. Gives the first that stays."""
        while directory != self._root:
            try:
                os.rmdir(directory)
            except OSError:
                try:
                    os.rmdir(os.path.join(directory, STAGED_DIRECTORY))
                except OSError:
                    return directory
                continue
            directory = os.path.dirname(directory)
        return directory

    # Listing

    def _walk(self, prefix: str, after: str) -> Iterator[Listed]:
        """Rows in byte order, holding one directory's names for each level."""
        base = prefix[: prefix.rfind("/") + 1]
        if not can_match(prefix):
            return
        try:
            yield from self._walk_directory(base, prefix, after)
        except OSError as error:
            raise self._refusal(error, prefix) from error

    def _walk_directory(self, base: str, prefix: str, after: str) -> Iterator[Listed]:
        for key, size in self._rows(base):
            if not key.startswith(prefix):
                continue
            if size == _LINK:
                raise link_in_the_way(key, key)
            if size is None:
                if key > after or after.startswith(key):
                    yield from self._walk_directory(key, prefix, after)
            elif key > after:
                yield Listed(key, size)

    def _rows(self, base: str) -> Iterator[tuple[str, int | None]]:
        """One directory in byte order of full paths: a directory counts as its name and a slash."""
        rows: dict[str, int | None] = {}
        doubtful = False
        missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        directory = os.path.join(self._root, base).rstrip("/") or "/"
        with (
            missing,
            opened_below(directory, self._root) as fd,
            locked(fd, exclusive=False),
            os.scandir(fd) as found,
        ):
            for entry in found:
                if entry.name.startswith("."):
                    continue
                with missing:
                    if entry.is_symlink():
                        rows[f"{base}{entry.name}"] = _LINK
                    elif entry.is_dir(follow_symlinks=False):
                        rows[f"{base}{entry.name}/"] = None
                    elif entry.is_file(follow_symlinks=False):
                        stats = entry.stat(follow_symlinks=False)
                        rows[f"{base}{entry.name}"] = stats.st_size
                        doubtful = doubtful or is_doubtful(stats)
            if doubtful:
                self._settle(base, fd)
        return iter(sorted(rows.items(), key=lambda row: row[0]))

    # Errors

    def _conflict(self, path: str, expected: str, found: str | None) -> Conflict:
        message = f"{path} changed in {self.url}" if found else f"{path} is not in {self.url}"
        return Conflict(message, path=path, expected=expected, actual=found)

    def _refusal(self, error: OSError, path: str | None) -> StratalogError:
        """What an error of the file system means, when nothing was changed."""
        if error.errno == errno.ELOOP:
            return link_in_the_way(f"{path} in {self.url}", path or "")
        reason = f"{path} in {self.url}: {error.strerror or error}"
        if error.errno in _DENIED:
            return Denied(
                reason, path=path, hint="Check who owns the directory and how it is mounted."
            )
        if error.errno in _FULL:
            return Unavailable(reason, path=path, hint="The disk is full: free some space.")
        if error.errno in _ILLEGAL:
            blocked = self._file_in_the_way()
            if blocked is not None:
                return Invalid(
                    f"{blocked} is a file, not a directory",
                    path=path,
                    hint="Choose another place, or move the file away.",
                )
            return Invalid(
                f"the file system cannot keep this path: {reason}",
                path=path,
                hint="Choose a place with a shorter or simpler name.",
            )
        return Unavailable(reason, path=path, hint="Check the disk and the system's log.")

    def _file_in_the_way(self) -> str | None:
        """The root, or what should be a directory above it, if that is a file."""
        place = self._root
        while not os.path.lexists(place):
            place = os.path.dirname(place)
        return None if os.path.isdir(place) else place


def _read_at(fd: int, start: int, length: int, path: str) -> bytes:
    """As one piece, and so without a copy, unless it is larger than a system reads at once."""
    pieces = [os.pread(fd, min(length, READ_BYTES_MAX), start)]
    while (done := sum(map(len, pieces))) < length:
        pieces.append(os.pread(fd, min(length - done, READ_BYTES_MAX), start + done))
        if not pieces[-1]:
            raise Unavailable(f"{path} became shorter while it was read", path=path)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
