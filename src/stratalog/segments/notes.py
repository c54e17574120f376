"""Notes: a few durable values of the whole node, such as commit marks and promises.

They are a dictionary in memory, and a log in a partition of its own: each entry has some changes,
and the state of a checkpoint has the whole dictionary as it was then. A note that is written
together with entries (``Disk.submit``) is durable when they are, and not without them.

The partition takes its own checkpoints: when more has been logged since the last one than the
dictionary has bytes, and at least ``LOGGED_BYTES_MIN``.

Persisted: keep stable. A payload and a state are MessagePack: ``{key: value}``, where a value is
bytes, or nil in a payload for a note that is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

import msgspec

from stratalog.errors import Corrupt, Invalid, StratalogError
from stratalog.segments.format import NOTES, NOTES_NAME, Entries
from stratalog.segments.partition import DiskServices, Partition

LOGGED_BYTES_MIN = 1 << 20
EPOCH = 1

log = logging.getLogger(__name__)

Changes = Mapping[str, bytes | None]
_decoder = msgspec.msgpack.Decoder(dict[str, bytes | None])


class NotesDisk(DiskServices, Protocol):
    """The disk that the notes are on."""

    partitions: dict[int, Partition]

    def submit_notes(self, changes: Changes) -> asyncio.Future[None]:
        """Write changes of notes, and nothing else."""


class Notes:
    """Durable values by name. Few and small: all of them are in memory."""

    def __init__(self, disk: NotesDisk) -> None:
        self._disk = disk
        self._values: dict[str, bytes] = {}
        self._bytes = 0
        self._logged = 0
        """The bytes of the entries since the last checkpoint."""
        self._is_checkpointing = False

    @property
    def partition(self) -> Partition:
        """The partition that they are logged in."""
        return self._disk.partitions[NOTES]

    def get(self, key: str) -> bytes | None:
        """The durable value of a note."""
        return self._values.get(key)

    def items(self, prefix: str = "") -> list[tuple[str, bytes]]:
        """The durable notes whose names begin so, sorted."""
        return sorted(each for each in self._values.items() if each[0].startswith(prefix))

    def __len__(self) -> int:
        return len(self._values)

    def submit(self, changes: Changes) -> asyncio.Future[None]:
        """Change notes, all of them or none; ``None`` removes one. As ``Disk.submit``."""
        return self._disk.submit_notes(changes)

    # Calls by the engine

    def entries(self, changes: Changes) -> tuple[int, Entries]:
        """What changes notes: the index that it follows, and the entry."""
        if not all(type(key) is str for key in changes):
            raise Invalid("the name of a note is a string")
        if not all(value is None or type(value) is bytes for value in changes.values()):
            raise Invalid("a note is bytes, or None to remove it")
        previous, _ = self.partition.tail
        return previous, Entries.following(previous, EPOCH, [msgspec.msgpack.encode(changes)])

    def apply(self, entries: Entries) -> None:
        """Some changes became durable."""
        self._take_up(entries)
        if self._logged > max(LOGGED_BYTES_MIN, self._bytes) and not self._is_checkpointing:
            self._is_checkpointing = True
            self._disk.checkpoints.tasks.start(self._checkpoint())

    async def recover(self) -> None:
        """Read them, before anything is changed. ``Corrupt`` if they are damaged."""
        partition = self.partition
        state = await partition.state()
        if state is not None:
            self._change(_decoded(state))
        async for entries in partition.read(
            range(partition.checkpoint_index + 1, partition.last + 1)
        ):
            self._take_up(entries)

    def _take_up(self, entries: Entries) -> None:
        for payload in entries.payloads:
            self._change(_decoded(payload))
            self._logged += len(payload)

    def _change(self, changes: Changes) -> None:
        for key, value in changes.items():
            old = self._values.pop(key, None)
            if old is not None:
                self._bytes -= len(key) + len(old)
            if value is not None:
                self._values[key] = value
                self._bytes += len(key) + len(value)

    def _state(self) -> bytes:
        return msgspec.msgpack.encode(self._values)

    async def _checkpoint(self) -> None:
        partition, logged = self.partition, self._logged
        try:
            await partition.checkpoint(partition.last, self._state())
            self._logged -= logged
        except StratalogError as error:
            log.warning("the notes of the node could not be compacted: %s", error)
        finally:
            self._is_checkpointing = False


def _decoded(data: bytes | memoryview) -> Changes:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"an entry of {NOTES_NAME} is no notes: {error}") from None
