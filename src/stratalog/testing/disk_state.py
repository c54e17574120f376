"""A disk in memory that knows what a machine sees and what would survive the loss of its power.

A file is an inode: its *current* bytes, its *durable* bytes, and the writes between them. A folder
is the same for names. Neither knows of the other, because a file system promises no more: a synced
file may lose its name, and a synced name may stand for a file without bytes.

What the loss of power leaves of unsynced changes:

- Of writes, any sectors of 512 bytes. A sector is as it was at some moment: if a later write to it
  is there, so is every earlier one, since the kernel writes sectors and not writes. Where nothing
  landed, below a place where something did, are zeros; and a torn write may leave its length alone.
- Of changes of names, any that do not depend on a lost one: changes of the same name keep their
  order, and a rename is a change of two names at once. So a file has its old name or its new one.

``Luck`` draws which ones. The order of everything is the order of the calls, so that a seed gives
the same disk every time.
"""

from __future__ import annotations

from random import Random
from typing import TypeAlias

SECTOR = 512

# A position, and what was written there. No bytes: the file was made to reach so far.
Change: TypeAlias = tuple[int, bytes]


class Luck:
    """Which changes survive. Often none or all, since that is where mistakes hide."""

    __slots__ = ("changes", "names", "random")

    def __init__(self, random: Random, *, mixed: bool = False) -> None:
        self.random = random
        kind = 1.0 if mixed else random.random()
        if kind < 0.5:
            self.names = self.changes = 0.0 if kind < 0.25 else 1.0
        else:
            self.names = random.choice((0.1, 0.5, 0.9))
            self.changes = random.choice((0.1, 0.5, 0.9))

    def keeps_name(self) -> bool:
        return self.random.random() < self.names

    def keeps_bytes(self) -> bool:
        return self.random.random() < self.changes

    def tears(self) -> bool:
        return self.random.random() < 0.5


class Inode:
    """The bytes of a file, whatever it is called."""

    __slots__ = ("current", "durable", "handles", "linked", "locked", "unsynced")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.current = bytearray(data)
        self.durable = bytearray(data)
        self.unsynced: list[Change] = []
        self.handles = 0
        self.linked = True
        self.locked = False

    def change(self, position: int, data: bytes) -> None:
        _put(self.current, position, data)
        self.unsynced.append((position, data))

    def sync(self) -> None:
        self._land(self.unsynced)
        self.unsynced = []

    def sync_partly(self, luck: Luck) -> None:
        landed, self.unsynced = self._part(luck)
        self._land(landed)

    def fail_to_sync(self) -> None:
        """As Linux does: the pages count as clean, so no later sync will write them."""
        self.unsynced = []

    def damage(self, position: int, data: bytes) -> None:
        """Change what is there already, on the disk as well as in memory."""
        self.current[position : position + len(data)] = data
        durable = data[: max(0, len(self.durable) - position)]
        self.durable[position : position + len(durable)] = durable
        if self.unsynced:
            self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        for data in (self.current, self.durable):
            del data[size:]
        self.unsynced = [
            (min(position, size), data[: max(0, size - position)])
            for position, data in self.unsynced
        ]

    def survivor(self, luck: Luck) -> Inode:
        survivor = Inode(self.durable)
        survivor._land(self._part(luck)[0])
        survivor.current[:] = survivor.durable
        return survivor

    def __deepcopy__(self, _: dict[int, object]) -> Inode:
        """Neither open nor locked."""
        copy = Inode()
        copy.current[:] = self.current
        copy.durable[:] = self.durable
        copy.unsynced = self.unsynced.copy()
        copy.linked = self.linked
        return copy

    def _land(self, changes: list[Change]) -> None:
        for position, data in changes:
            _put(self.durable, position, data)

    def _part(self, luck: Luck) -> tuple[list[Change], list[Change]]:
        """What of the unsynced changes lands, and the rest."""
        if luck.changes == 1.0:
            return self.unsynced, []
        landed: list[Change] = []
        left: list[Change] = []
        if luck.changes == 0.0:
            return landed, self.unsynced
        newest: dict[int, int] = {}  # of each sector, the newest write that landed
        for number, (position, data) in enumerate(self.unsynced):
            if not data:
                (landed if luck.keeps_bytes() else left).append((position, data))
            elif luck.tears():
                newest.update(
                    (each, number) for each in _sectors(position, data) if luck.keeps_bytes()
                )
                if luck.keeps_bytes():
                    landed.append((position + len(data), b""))
            elif luck.keeps_bytes():
                newest.update((each, number) for each in _sectors(position, data))
        for number, (position, data) in enumerate(self.unsynced):
            for sector in _sectors(position, data):
                start = max(position, sector * SECTOR)
                piece = data[start - position : (sector + 1) * SECTOR - position]
                (landed if newest.get(sector, -1) >= number else left).append((start, piece))
        return landed, left


class Folder:
    """Names of files and folders."""

    __slots__ = ("current", "durable", "unsynced")

    def __init__(self) -> None:
        self.current: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.unsynced: list[Renaming] = []

    def change(self, renaming: Renaming) -> None:
        _rename(self.current, [renaming])
        self.unsynced.append(renaming)

    def sync(self) -> None:
        _rename(self.durable, self.unsynced)
        self.unsynced = []

    def sync_partly(self, luck: Luck) -> None:
        landed, self.unsynced = self._part(luck)
        _rename(self.durable, landed)

    def survivor(self, luck: Luck) -> Folder:
        names = self.durable.copy()
        _rename(names, self._part(luck)[0])
        survivor = Folder()
        survivor.current = {name: node.survivor(luck) for name, node in names.items()}
        survivor.durable = survivor.current.copy()
        return survivor

    def _part(self, luck: Luck) -> tuple[list[Renaming], list[Renaming]]:
        """What of the unsynced changes lands, with all that it depends on, and the rest."""
        landed: list[Renaming] = []
        left: list[Renaming] = []
        needed: dict[str, None] = {}
        for renaming in reversed(self.unsynced):
            if luck.keeps_name() or not needed.keys().isdisjoint(renaming):
                landed.append(renaming)
                needed.update(dict.fromkeys(renaming))
            else:
                left.append(renaming)
        return landed[::-1], left[::-1]


Node: TypeAlias = Inode | Folder

# What names stand for from now on, all of them or none. Nothing: the name is gone.
Renaming: TypeAlias = dict[str, Node | None]


def _put(data: bytearray, position: int, new: bytes) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(new)] = new


def _rename(names: dict[str, Node], renamings: list[Renaming]) -> None:
    for renaming in renamings:
        for name, node in renaming.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


def _sectors(position: int, data: bytes) -> range:
    return range(position // SECTOR, -(-(position + len(data)) // SECTOR)) if data else range(0)
