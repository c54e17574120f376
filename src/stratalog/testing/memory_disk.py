"""A file system over ``disk_state``: its calls, and the errors that it owes their callers.

It has no faults of its own, except that it can be full: ``capacity_bytes`` bounds the sizes of all
files that have a name or are open. A rename is for files, and stays in its folder: anything else
is a defect of the caller, and stops the test.
"""

import contextlib
import copy
import errno
import os
import sys
from collections.abc import Iterator
from random import Random
from typing import Self

from stratalog.invariants import invariant
from stratalog.testing.disk_state import Folder, Inode, Luck, Node


class MemoryDisk:
    """The calls of a file system, without faults but with the errors that it owes its callers."""

    def __init__(self, root: Folder | None = None, capacity_bytes: int | None = None) -> None:
        self.root = root or Folder()
        self.capacity_bytes = capacity_bytes
        self.used_bytes = sum(len(inode.current) for _, inode in self.walk())

    def after_power_loss(self, random: Random) -> Self:
        return type(self)(self.root.survivor(Luck(random)), self.capacity_bytes)

    def after_kill(self) -> Self:
        return type(self)(copy.deepcopy(self.root), self.capacity_bytes)

    def walk(self) -> Iterator[tuple[str, Inode]]:
        """Every file, with its path."""
        folders = [("", self.root)]
        for prefix, folder in folders:
            for name, node in folder.current.items():
                if isinstance(node, Inode):
                    yield prefix + name, node
                else:
                    folders.append((f"{prefix}{name}/", node))

    def node(self, path: str) -> Node:
        node: Node = self.root
        for name in _parts(path):
            if isinstance(node, Inode):
                raise error(errno.ENOTDIR, path)
            if name not in node.current:
                raise error(errno.ENOENT, path)
            node = node.current[name]
        return node

    def inode(self, path: str) -> Inode:
        node = self.node(path)
        if isinstance(node, Folder):
            raise error(errno.EISDIR, path)
        return node

    def folder(self, path: str) -> Folder:
        node = self.node(path)
        if isinstance(node, Inode):
            raise error(errno.ENOTDIR, path)
        return node

    def exists(self, path: str) -> bool:
        try:
            self.node(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def names(self, path: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(self.folder(path).current)
        return []

    def create(self, path: str) -> Inode:
        folder, name = self._place(path)
        if name in folder.current:
            raise error(errno.EEXIST, path)
        inode = Inode()
        folder.change({name: inode})
        inode.handles += 1
        return inode

    def open(self, path: str) -> Inode:
        inode = self.inode(path)
        inode.handles += 1
        return inode

    def close(self, inode: Inode) -> None:
        inode.handles -= 1
        self._free(inode)

    def lock(self, path: str) -> Inode:
        inode = self.open(path) if self.exists(path) else self.create(path)
        if inode.locked:
            self.close(inode)
            raise error(errno.EWOULDBLOCK, path)
        inode.locked = True
        return inode

    def unlock(self, inode: Inode) -> None:
        inode.locked = False
        self.close(inode)

    def make_folder(self, path: str) -> None:
        folder = self.root
        parts = _parts(path)
        for depth, name in enumerate(parts, 1):
            node = folder.current.get(name)
            if node is None:
                node = Folder()
                folder.change({name: node})
            if isinstance(node, Inode):
                raise error(errno.EEXIST if depth == len(parts) else errno.ENOTDIR, path)
            folder = node

    def rename(self, path: str, to: str) -> None:
        folder, name = self._place(path)
        to_folder, to_name = self._place(to)
        invariant(folder is to_folder, f"a rename stays in its folder, unlike {path} to {to}")
        inode = self.inode(path)
        replaced = self.inode(to) if to_name in folder.current else None
        if replaced is not inode:
            folder.change({name: None, to_name: inode})
            if replaced is not None:
                self._unlink(replaced)

    def remove(self, path: str) -> None:
        folder, name = self._place(path)
        inode = self.inode(path)
        folder.change({name: None})
        self._unlink(inode)

    def write(self, inode: Inode, position: int, data: bytes) -> None:
        """All of it, or as much as there is room for, as a disk does that is full."""
        if position < 0:
            raise error(errno.EINVAL)
        size = len(inode.current)
        growth = position + len(data) - size
        if data and growth > 0:
            if self._room_bytes() < growth:
                fitting = data[: max(0, size + self._room_bytes() - position)]
                if fitting:
                    self.write(inode, position, fitting)
                raise error(errno.ENOSPC)
            self.used_bytes += growth
        if data:
            inode.change(position, data)

    def allocate(self, inode: Inode, size: int) -> None:
        growth = size - len(inode.current)
        if growth > 0:
            if self._room_bytes() < growth:
                raise error(errno.ENOSPC)
            self.used_bytes += growth
            inode.change(size, b"")

    def truncate(self, path: str, size: int) -> None:
        inode = self.inode(path)
        invariant(0 <= size <= len(inode.current), f"{path} has no {size} bytes to keep")
        self.used_bytes -= len(inode.current) - size
        inode.truncate(size)

    def _place(self, path: str) -> tuple[Folder, str]:
        invariant(path != "", "the data directory itself is no file")
        *folders, name = _parts(path)
        return self.folder("/".join(folders)), name

    def _room_bytes(self) -> int:
        return sys.maxsize if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes

    def _unlink(self, inode: Inode) -> None:
        inode.linked = False
        self._free(inode)

    def _free(self, inode: Inode) -> None:
        if not inode.linked and not inode.handles:
            self.used_bytes -= len(inode.current)


def _parts(path: str) -> list[str]:
    parts = path.split("/") if path else []
    invariant(not {"", ".", ".."} & {*parts}, f"{path!r} is not a path within the data directory")
    return parts


def error(number: int, path: str | None = None) -> OSError:
    """As the operating system would raise it, of the class that belongs to the number."""
    return OSError(number, os.strerror(number), path)
