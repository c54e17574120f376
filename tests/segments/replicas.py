"""Two disks on a simulated machine, and copying a partition from one to the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random

from stratalog.errors import Unavailable
from stratalog.indexset import IndexSet
from stratalog.segments import (
    Disk,
    DiskOptions,
    Entries,
    Entry,
    MemoryTransport,
    Partition,
    TransferOptions,
    TransferReport,
    Transport,
    receive_partition,
    send_partition,
)
from stratalog.segments.io.files import FileSystem
from stratalog.segments.transfer.messages import Message, Put, decode_message
from stratalog.testing import SimulatedFiles, Simulation

SMALL = DiskOptions(wal_file_bytes=4096, segment_entries_max=8, major_after_minors=None)
TINY_MESSAGES = TransferOptions(message_bytes=40, window_bytes=80, timeout_s=5.0)
"""An entry or two in each message, so that there are many of them."""

STATE = b"the state at eight, which does not fit into one of those messages"


@contextlib.asynccontextmanager
async def opened(
    simulation: Simulation, files: FileSystem | None = None, options: DiskOptions = SMALL
) -> AsyncIterator[Partition]:
    """The partition ``orders`` of a disk."""
    there = files if files is not None else SimulatedFiles(random=Random(simulation.seed))
    async with await Disk.open(there, options, runtime=simulation.runtime) as disk:
        yield await disk.partition("orders")


def payload(index: int, epoch: int) -> bytes:
    """What the only writer of an epoch writes at an index."""
    return b"%d in epoch %d" % (index, epoch)


def entries_of(indexes: Iterable[int], epoch: int) -> Entries:
    return Entries.of(Entry(index, epoch, payload(index, epoch)) for index in indexes)


async def fill(partition: Partition, first: int, last: int, epoch: int = 1) -> None:
    """Entries from one index to another, in writes of five, in place of what was above them."""
    for start in range(first, last + 1, 5):
        await partition.write(start - 1, entries_of(range(start, min(start + 5, last + 1)), epoch))


async def copy(
    source: Partition,
    replica: Partition,
    options: TransferOptions = TINY_MESSAGES,
    ends: tuple[Transport, Transport] | None = None,
) -> tuple[TransferReport | BaseException, TransferReport | BaseException]:
    """What both sides say in the end."""
    near, far = ends or MemoryTransport.pair()
    sent, received = await asyncio.gather(
        send_partition(source, near, options),
        receive_partition(replica, far, options),
        return_exceptions=True,
    )
    return sent, received


async def copied(
    source: Partition, replica: Partition, options: TransferOptions = TINY_MESSAGES
) -> TransferReport:
    """The report of a copy that succeeds. Both sides make the same."""
    sent, received = await copy(source, replica, options)
    for report in (sent, received):
        if isinstance(report, BaseException):
            raise report
    assert sent == received
    assert isinstance(received, TransferReport)
    return received


@dataclass(frozen=True)
class Contents:
    """Everything about a partition that must be the same at a replica."""

    checkpoint: int
    live: IndexSet
    last: int
    steps: tuple[tuple[int, int], ...]
    state: bytes | None
    entries: tuple[Entry, ...]
    """Those that live, and those above the checkpoint."""


async def contents(partition: Partition) -> Contents:
    needed = partition.live | IndexSet(range(partition.checkpoint_index + 1, partition.last + 1))
    found: list[Entry] = []
    async for entries in partition.read(needed):
        found.extend(entries)
    assert IndexSet.of([entry.index for entry in found]) == needed
    return Contents(
        partition.checkpoint_index,
        partition.live,
        partition.last,
        partition.lineage.steps,
        await partition.state(),
        tuple(found),
    )


async def checkpointed_source(partition: Partition) -> None:
    """Twelve entries in two epochs, a checkpoint at 8 where 2, 5 and 8 live."""
    await fill(partition, 1, 6, epoch=1)
    await fill(partition, 7, 12, epoch=2)
    await partition.checkpoint(8, STATE, IndexSet.of([2, 5, 8]))


class CutTransport:
    """Carries so many messages, then it is gone, for both ends."""

    def __init__(self, inner: MemoryTransport, budget: list[int]) -> None:
        self._inner = inner
        self._budget = budget

    async def send(self, message: bytes) -> None:
        if self._budget[0] <= 0:
            self._inner.close()
            raise Unavailable("the connection broke")
        self._budget[0] -= 1
        await self._inner.send(message)

    async def receive(self) -> bytes:
        return await self._inner.receive()

    @classmethod
    def pair(cls, messages: int) -> tuple[CutTransport, CutTransport]:
        near, far = MemoryTransport.pair()
        budget = [messages]
        return cls(near, budget), cls(far, budget)


class SpyTransport:
    """Notes what its end sends, and may do something before or change it."""

    def __init__(
        self,
        inner: Transport,
        before: Callable[[int], Awaitable[None]] | None = None,
        change: Callable[[int, bytes], bytes] = lambda _, message: message,
    ) -> None:
        self._inner = inner
        self._before = before
        self._change = change
        self.sent: list[Message] = []

    async def send(self, message: bytes) -> None:
        self.sent.append(decode_message(message))
        number = len(self.sent)
        if self._before is not None:
            await self._before(number)
        await self._inner.send(self._change(number, message))

    async def receive(self) -> bytes:
        return await self._inner.receive()

    @property
    def indexes(self) -> IndexSet:
        """Of all entries that were sent."""
        puts = [message for message in self.sent if isinstance(message, Put)]
        return IndexSet.union(put.entries().indexes for put in puts)
