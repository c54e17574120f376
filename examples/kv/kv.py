"""A key–value store over a node's disk: small, complete, and meant to be read.

    set, delete ──► an entry of the log, durable ──► places: key → index of its last write
    get         ──► the entry at that index
    checkpoint  ──► state: places;  live: the indexes in it

Values stay in the log. The state of a checkpoint has the index of the last write of each key, and
these entries live. Entries that were overwritten or deleted are dead, and compaction frees their
space. A restart loads the checkpoint and replays the entries above it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from types import TracebackType
from typing import Any, Self

import msgspec

from stratalog import IndexSet
from stratalog.errors import StratalogError, Trimmed
from stratalog.segments import Disk, DiskOptions, Entry, Partition

log = logging.getLogger(__name__)


class Write(msgspec.Struct, frozen=True, array_like=True):
    """One entry: a key and its new value, or none if it was deleted."""

    key: bytes
    value: bytes | None


class Store:
    """Keys and values on a data directory, for one process at a time."""

    def __init__(self, disk: Disk, partition: Partition, checkpoint_every: int) -> None:
        self._disk = disk
        self._log = partition
        self._checkpoint_every = checkpoint_every
        self._places: dict[bytes, int] = {}
        """Where the last write of each key lies."""
        self._applied = 0
        """The index up to which ``_places`` contains all writes."""
        self._checkpointing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    # Opening and closing

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        checkpoint_every: int = 1000,
        options: DiskOptions | None = None,
    ) -> Store:
        """Open a store, or create one. It takes a checkpoint every ``checkpoint_every`` writes."""
        disk = await Disk.open(path, options)
        try:
            store = cls(disk, await disk.partition("kv"), checkpoint_every)
            await store._restart()
        except BaseException:
            await disk.close()
            raise
        return store

    async def _restart(self) -> None:
        """Load the state of the checkpoint and replay the entries above it."""
        state = await self._log.state()
        if state is not None:
            self._places = msgspec.msgpack.decode(state, type=dict[bytes, int])
        self._applied = self._log.checkpoint_index
        async for entries in self._log.read(range(self._applied + 1, self._log.last + 1)):
            for entry in entries:
                self._apply(entry.index, _write_in(entry))

    async def close(self) -> None:
        """Finish running tasks. Writes are durable without a checkpoint."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._disk.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # Reading

    def __len__(self) -> int:
        return len(self._places)

    @property
    def applied(self) -> int:
        """The number of writes so far: each is one entry of the log."""
        return self._applied

    @property
    def live(self) -> IndexSet:
        """The index of the last write of each key."""
        return IndexSet.of(list(self._places.values()))

    async def get(self, key: bytes) -> bytes | None:
        """The value of a key; ``None`` if there is none."""
        while (index := self._places.get(key)) is not None:
            try:
                return _write_in(await self._log.get(index)).value
            except Trimmed:
                # A newer write and a checkpoint came between lookup and read: look it up again.
                if self._places.get(key) == index:
                    raise
        return None

    async def items(self) -> AsyncIterator[tuple[bytes, bytes]]:
        """All keys in order, each with its value at that moment."""
        for key in sorted(self._places):
            value = await self.get(key)
            if value is not None:
                yield key, value

    # Writing

    async def set(self, key: bytes, value: bytes) -> None:
        """Durable when it returns. Concurrent calls share a sync and keep their order."""
        await self._to_its_end(self._write(Write(key, value)))

    async def delete(self, key: bytes) -> None:
        """Durable when it returns. Idempotent."""
        await self._to_its_end(self._write(Write(key, None)))

    async def _write(self, write: Write) -> None:
        (index,) = await self._log.append([msgspec.msgpack.encode(write)])
        self._apply(index, write)
        is_due = self._applied - self._log.checkpoint_index >= self._checkpoint_every
        if is_due and not self._checkpointing.locked():
            self._start(self._checkpoint_in_background())

    def _apply(self, index: int, write: Write) -> None:
        """Called in the order of the indexes: writes become durable in that order."""
        if write.value is None:
            self._places.pop(write.key, None)
        else:
            self._places[write.key] = index
        self._applied = index

    # Checkpoints and compaction

    async def checkpoint(self) -> None:
        """Store where the last writes lie. All other entries are dead then."""
        async with self._checkpointing:
            if self._applied > self._log.checkpoint_index:
                state = msgspec.msgpack.encode(self._places)
                await self._log.checkpoint(self._applied, state, self.live)

    async def compact(self) -> None:
        """Free the space of dead entries, in the WAL and in segments."""
        await self._disk.flush()
        await self._log.compact()

    async def _checkpoint_in_background(self) -> None:
        try:
            await self.checkpoint()
        except StratalogError as error:
            log.warning("no checkpoint, it is tried again after the next write: %s", error)

    # Tasks that end although their caller is cancelled: ``_places`` must get all durable writes.

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.shield(self._start(work))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _write_in(entry: Entry) -> Write:
    return msgspec.msgpack.decode(entry.payload, type=Write)
