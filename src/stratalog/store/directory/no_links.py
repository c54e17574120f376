"""Opening directories without following a symbolic link: what it leads to is not the store's.

Linux opens a whole path without links by one system call, ``openat2``. Python does not have it, and
older kernels and some sandboxes do not either. So whatever it does not open is walked part by part,
which also tells where the link is.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterator

from stratalog.errors import Denied

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
LINK_HINT = "Put what it leads to in its place, or mount it there; then remove the link."
_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_WAY = getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY
"""How a directory on the way is opened: without the right to list it, where the system can."""

_OPENAT2 = 437  # on every architecture
_FROM_THE_TOP = -100  # AT_FDCWD: the path is absolute
_RESOLVE_NO_SYMLINKS = 0x04
_HOW = struct.pack("=QQQ", _DIRECTORY | getattr(os, "O_CLOEXEC", 0), 0, _RESOLVE_NO_SYMLINKS)
_syscall = ctypes.CDLL(None).syscall if sys.platform == "linux" else None


@contextlib.contextmanager
def opened_below(path: str, root: str) -> Iterator[int]:
    """Open a directory at or below ``root``, which has no link in it. ``Denied`` at a link."""
    fd = _opened_at_once(path)
    if fd < 0:
        fd = _walked(path, root)
    try:
        yield fd
    finally:
        os.close(fd)


def _opened_at_once(path: str) -> int:
    """Below 0 if it cannot be opened, for whatever reason."""
    if _syscall is None:
        return -1
    return int(_syscall(_OPENAT2, _FROM_THE_TOP, os.fsencode(path), _HOW, len(_HOW)))


def _walked(path: str, root: str) -> int:
    parts = path[len(root) :].strip("/").split("/") if path != root else []
    fd = os.open(root, _WAY if parts else _DIRECTORY)
    for number, part in enumerate(parts, 1):
        above = fd
        try:
            fd = _next(part, above, path, last=number == len(parts))
        finally:
            os.close(above)
    return fd


def _next(name: str, fd: int, path: str, *, last: bool) -> int:
    try:
        return os.open(name, (_DIRECTORY if last else _WAY) | NO_LINK, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and is_link(name, fd):
            raise link_in_the_way(f"{name}, on the way to {path},", path) from None
        raise


def is_link(name: str, directory_fd: int | None = None) -> bool:
    """Whether this name is a symbolic link."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def link_in_the_way(what: str, path: str) -> Denied:
    """What is at the other end is not the store's: not to be read, let alone deleted."""
    return Denied(f"{what} is a symbolic link, and a store follows none", path=path, hint=LINK_HINT)
