"""Batches of fragments on their way: so many at a time, their results in log order.

Bounded by the number of batches and by their bytes. A batch that takes long does not stop those
behind it, but their results wait for their turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.objectlog.check.scrub_read import Examined, Examiner
from stratalog.objectlog.stored import Fragment
from stratalog.ordered import OrderedTasks

WAITING_MAX = 1024


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that was examined, and how many nodes the walk had read at its end."""

    batch: Sequence[Fragment]
    snapshots: int
    examined: Examined


class BatchLine:
    """The batches of one scrub."""

    def __init__(self, examiner: Examiner, bytes_max: int) -> None:
        self._examiner = examiner
        self._batch_bytes_max = bytes_max // examiner.batches
        self._open: list[Fragment] = []
        self._open_size = 0
        self._open_snapshots = 0
        self._begun: OrderedTasks[Done] = OrderedTasks(examiner.batches, bytes_max)

    async def add(self, fragment: Fragment, snapshots: int) -> None:
        """Put a fragment at the end. Waits while there is too much under way."""
        size = self._open_size + fragment.num_bytes
        full = len(self._open) >= self._examiner.batch_fragments or size > self._batch_bytes_max
        if self._open and full:
            await self._begin()
        self._open.append(fragment)
        self._open_size += fragment.num_bytes
        self._open_snapshots = snapshots

    async def take(self) -> Done | None:
        """The first batch, if it is done. Raises what its examiner raised."""
        return await self._begun.take() if self._begun.is_ready else None

    async def finish(self) -> Done | None:
        """The first batch when it is done; None when all were taken."""
        if self._open:
            await self._begin()
        await self._begun.wait()
        return await self.take()

    async def close(self) -> None:
        """Give up what is under way."""
        await self._begun.close()

    async def _begin(self) -> None:
        await self._begun.wait_for_room(self._open_size)
        if len(self._begun) >= WAITING_MAX:
            await self._begun.wait()
        self._begun.start(self._examine(self._open, self._open_snapshots), self._open_size)
        self._open, self._open_size = [], 0

    async def _examine(self, batch: Sequence[Fragment], snapshots: int) -> Done:
        return Done(batch, snapshots, await self._examiner.examine(batch))
