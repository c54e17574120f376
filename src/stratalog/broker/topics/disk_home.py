"""Partitions of topics on one node's disk, and the notes beside them."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from stratalog.broker.topics.together import for_each
from stratalog.errors import Full, NotFound
from stratalog.partitions import (
    CheckpointTurns,
    DiskLog,
    PartitionLog,
    ProducerLimits,
    ReadAhead,
)
from stratalog.runtime import Runtime
from stratalog.segments import Disk

CLOSED_AT_ONCE_MAX = 16


class DiskHome:
    """Opens partitions of a disk as logs, one log for each."""

    def __init__(
        self, disk: Disk, runtime: Runtime, turns: CheckpointTurns, limits: ProducerLimits
    ) -> None:
        self._disk = disk
        self._runtime = runtime
        self._turns = turns
        self._limits = limits
        self._ahead = ReadAhead()
        self._logs: dict[str, DiskLog] = {}

    def names(self) -> list[str]:
        return self._disk.partitions()

    async def create(self, name: str) -> PartitionLog:
        """The open one, if it is open: it has one writer. It may be the partition of a growth whose
        note failed."""
        known = self._logs.get(name)
        if known is not None:
            return known
        log = self._logs[name] = await DiskLog.open(
            self._disk,
            name,
            runtime=self._runtime,
            turns=self._turns,
            ahead=self._ahead,
            limits=self._limits,
        )
        return log

    async def open(self, name: str) -> PartitionLog:
        await self._disk.partition(name, create=False)
        return await self.create(name)

    async def remove(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._disk.remove(name)
        log = self._logs.pop(name, None)
        if log is not None:  # after the removal, so that it takes no checkpoint
            await log.close()

    async def close(self) -> None:
        """Close all logs. The disk stays open."""
        logs = list(self._logs.values())
        self._logs.clear()
        await for_each(DiskLog.close, logs, CLOSED_AT_ONCE_MAX)


class DiskNotes:
    """The notes of a disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def get(self, key: str) -> bytes | None:
        return self._disk.notes.get(key)

    def items(self, prefix: str) -> Iterable[tuple[str, bytes]]:
        return self._disk.notes.items(prefix)

    async def change(self, changes: Mapping[str, bytes | None]) -> None:
        """Waits for room, as producers do: a disk is busy when it opens, and under load.

        A cancelled caller does not take the change back.
        """
        while True:
            try:
                changed = self._disk.notes.submit(changes)
            except Full:
                await self._disk.room()
            else:
                await asyncio.shield(changed)
                return
