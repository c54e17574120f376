"""Batches of fragments on their way: so many at a time, their results in log order.

Bounded by the number of batches and by their bytes. A batch that takes long does not stop those
behind it, but their results wait for their turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.objectlog.check.scrub_read import Examined, Examiner
from stratalog.objectlog.stored import Fragment

WAITING_MAX = 1024


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that was examined, and how many nodes the walk had read at its end."""

    batch: Sequence[Fragment]
    snapshots: int
    examined: Examined


@dataclass(frozen=True, slots=True)
class _Begun:
    batch: Sequence[Fragment]
    size: int
    snapshots: int
    task: asyncio.Task[Examined]


class BatchLine:
    """The batches of one scrub."""

    def __init__(self, examiner: Examiner, bytes_max: int) -> None:
        self._examiner = examiner
        self._bytes_max = bytes_max
        self._batch_bytes_max = bytes_max // examiner.batches
        self._open: list[Fragment] = []
        self._open_size = 0
        self._open_snapshots = 0
        self._begun: deque[_Begun] = deque()

    async def add(self, fragment: Fragment, snapshots: int) -> None:
        """Put a fragment at the end. Waits while there is too much under way."""
        size = self._open_size + fragment.num_bytes
        full = len(self._open) >= self._examiner.batch_fragments or size > self._batch_bytes_max
        if self._open and full:
            await self._begin()
        self._open.append(fragment)
        self._open_size += fragment.num_bytes
        self._open_snapshots = snapshots

    def take(self) -> Done | None:
        """The first batch, if it is done. Raises what its examiner raised."""
        if not self._begun or not self._begun[0].task.done():
            return None
        first = self._begun.popleft()
        return Done(first.batch, first.snapshots, first.task.result())

    async def finish(self) -> Done | None:
        """The first batch when it is done; None when all were taken."""
        if self._open:
            await self._begin()
        if self._begun:
            await asyncio.wait([self._begun[0].task])
        return self.take()

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = [each.task for each in self._begun]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin(self) -> None:
        await self._wait_for_room()
        task = asyncio.ensure_future(self._examiner.examine(self._open))
        self._begun.append(_Begun(self._open, self._open_size, self._open_snapshots, task))
        self._open, self._open_size = [], 0

    async def _wait_for_room(self) -> None:
        while True:
            busy = [each for each in self._begun if not each.task.done()]
            size = self._open_size + sum(each.size for each in busy)
            if not busy or (len(busy) < self._examiner.batches and size <= self._bytes_max):
                break
            await asyncio.wait([each.task for each in busy], return_when=asyncio.FIRST_COMPLETED)
        if len(self._begun) >= WAITING_MAX:
            await asyncio.wait([self._begun[0].task])
