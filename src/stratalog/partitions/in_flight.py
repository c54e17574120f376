"""Appends on their way to the disk, in their order, and the duplicates that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from stratalog.indexset import IndexSet
from stratalog.partitions.protocol import Appended

Answer = asyncio.Future[Appended]
Written = asyncio.Future[IndexSet]


@dataclass(frozen=True, slots=True)
class Pending:
    """An append in flight."""

    answer: Answer
    written: Written
    """What the disk says of it."""
    appended: Appended
    next_offset: int
    time_ms: int
    size: int


class InFlight:
    """The appends of one log that are not durable."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.pending: deque[Pending] = deque()
        self._duplicates: dict[int, list[Answer]] = {}
        """Those that wait for the batch that ends at this offset."""

    def add(
        self, written: Written, appended: Appended, next_offset: int, time_ms: int, size: int
    ) -> Answer:
        answer: Answer = self._loop.create_future()
        self.pending.append(Pending(answer, written, appended, next_offset, time_ms, size))
        return answer

    def repeat(self, next_offset: int) -> Answer:
        """The answer to a duplicate of the batch that ends there: its original's."""
        answer: Answer = self._loop.create_future()
        self._duplicates.setdefault(next_offset, []).append(answer)
        return answer

    def durable(self, last: int) -> Iterator[Pending]:
        """Answer those that end at or below an offset; gives each of them."""
        pending = self.pending
        while pending and pending[0].next_offset <= last:
            done = pending.popleft()
            if not done.answer.done():
                done.answer.set_result(done.appended)
            if self._duplicates:
                for answer in self._duplicates.pop(done.next_offset, ()):
                    if not answer.done():
                        answer.set_result(as_duplicate(done.appended))
            yield done

    def has(self, written: Written) -> bool:
        return any(each.written is written for each in self.pending)

    def fail(self, error: BaseException) -> None:
        """None of them happened. A write that has an error of its own fails with that."""
        pending, self.pending = self.pending, deque()
        duplicates, self._duplicates = self._duplicates, {}
        for each in pending:
            own = each.written.exception() if each.written.done() else error
            for answer in (each.answer, *duplicates.get(each.next_offset, ())):
                if not answer.done():
                    answer.set_exception(own or error)
                    answer.exception()  # whoever waited may be gone: retrieve it

    async def settled(self) -> None:
        """Wait until the disk has said something of all of them."""
        if self.pending:
            await asyncio.wait([each.written for each in self.pending])


def as_duplicate(appended: Appended) -> Appended:
    return Appended(appended.base_offset, appended.append_time_ms, is_duplicate=True)
