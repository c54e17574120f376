"""The few file-system steps that survive a crash, for the directory store.

Three promises are made here, and the store above is a short composition of them:

- What ``sync`` returned for is on the disk, not in the drive's cache.
- A directory's lock excludes threads and processes alike, belongs to the directory itself (so two
  stores whose roots overlap share it), and goes away with its holder, however that dies.
- A directory that ``opened_durable`` gives is durable in its parent, and so are all above it,
  even if another process made it a moment ago and was killed before it could sync. For that, a
  new directory is born with the sticky bit, which whoever has synced the parent takes away.
"""

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterator

from stratalog.errors import Unavailable
from stratalog.store.directory.no_links import opened_below

if sys.platform != "win32":
    import fcntl

UNSETTLED = stat.S_ISVTX
LOCK_WAIT_S_MAX = 30.0
_WAIT_S_FIRST = 0.0001
_WAIT_S_LONGEST = 0.005


def sync(fd: int) -> None:
    """Put a file's bytes, or a directory's names, onto the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked(fd: int, *, exclusive: bool) -> Iterator[None]:
    """Hold the directory's lock. Waiting has an end, because a holder may be a stopped process.

    The lock is given back by name and not by closing: a child forked meanwhile has the same file
    open, and would otherwise keep the lock as long as it lives.
    """
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    waited_s, wait_s = 0.0, _WAIT_S_FIRST
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if waited_s >= LOCK_WAIT_S_MAX:
                raise Unavailable(
                    f"the lock of the directory was not free for {LOCK_WAIT_S_MAX:.0f} s",
                    hint="Look for a stopped process that uses this directory, then retry.",
                ) from None
            time.sleep(wait_s)
            waited_s += wait_s
            wait_s = min(wait_s * 2, _WAIT_S_LONGEST)
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def make_missing(path: str, root: str) -> None:
    """Make a directory below ``root`` and its missing parents. None of them is durable yet.

    Making comes before the bytes are written and ``opened_durable`` after it, so that on most file
    systems the sync of the bytes has carried the new directories with it. A missing root is
    ``FileNotFoundError``: it needs more care, see ``found_root``.
    """
    if path == root:
        os.stat(root)
        return
    try:
        _make(path, root)
    except FileNotFoundError:
        make_missing(os.path.dirname(path), root)
        _make(path, root)


def _make(path: str, root: str) -> None:
    above, name = os.path.split(path)
    with opened_below(above, root) as fd, contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o777 | UNSETTLED, dir_fd=fd)
        if sys.platform == "darwin":
            os.chmod(name, os.stat(name, dir_fd=fd).st_mode | UNSETTLED, dir_fd=fd)


@contextlib.contextmanager
def opened_durable(path: str, root: str) -> Iterator[int]:
    """Open a directory at or below ``root``; see to it that power loss cannot take it away.

    A directory is settled only after the one above it, so one that is settled says so for all
    above. ``FileNotFoundError`` means that it, or one above it, is gone.
    """
    with opened_below(path, root) as fd:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & UNSETTLED and path != root:
            with opened_durable(os.path.dirname(path), root) as parent_fd:
                sync(parent_fd)
            with contextlib.suppress(PermissionError):
                os.fchmod(fd, mode & ~UNSETTLED)
        yield fd


def found_root(root: str) -> None:
    """Make a root and sync every directory above it, since nothing tells which of them are new."""
    os.makedirs(root, exist_ok=True)
    above = root
    while above != os.path.dirname(above):
        above = os.path.dirname(above)
        with contextlib.suppress(PermissionError), opened(above) as fd:
            sync(fd)


def sync_nearest(directory: str) -> None:
    """Make a removal durable: sync the directory, or what is left above it."""
    while True:
        try:
            with opened(directory) as fd:
                sync(fd)
            return
        except FileNotFoundError:
            directory = os.path.dirname(directory)


def write_durably(path: str, data: bytes) -> None:
    """Write a new file and sync it. Its name is not durable yet: that is the directory's part."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        sync(fd)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)
