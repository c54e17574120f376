"""Reading ahead: what a consumer asks for next is read while it takes in what it has.

A consumer of old batches asks for one stretch after another, each where the one before ended. So
when a stretch has been read from the disk, and it began where another had ended, the next one is
read at once, and waits here in memory. All logs of a node share a bound; beyond it, the stretch
that has waited longest is given up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from stratalog.partitions.protocol import Fetched

BYTES_MAX: Final = 64 * 1024 * 1024
ENDS_MAX: Final = 1024

Place = tuple[str, int]
"""The name of a log, and an offset in it."""
Reading = Coroutine[Any, Any, Fetched]


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A stretch that is being read, or was."""

    bytes_max: int
    reading: asyncio.Task[Fetched]


class ReadAhead:
    """The stretches that were read before somebody asked for them."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._ahead: OrderedDict[Place, _Ahead] = OrderedDict()
        self._ends: OrderedDict[Place, None] = OrderedDict()
        """Where stretches ended that somebody got."""

    def take(self, place: Place, bytes_max: int) -> Fetched | None:
        """What was read of this place, if it is there and not larger."""
        ahead = self._ahead.get(place)
        if ahead is None or not ahead.reading.done():
            return None
        self._forget(place)
        if ahead.reading.cancelled() or ahead.reading.exception() is not None:
            return None  # whoever reads it now gets the error
        found = ahead.reading.result()
        return found if found.size <= bytes_max else None

    async def wait(self, place: Place) -> None:
        """Until what is being read of this place is there."""
        ahead = self._ahead.get(place)
        if ahead is not None:
            await asyncio.wait([ahead.reading])

    def given(
        self, place: Place, found: Fetched, bytes_max: int, read: Callable[[], Reading]
    ) -> None:
        """Somebody got a stretch that began here. ``read`` reads the next one."""
        name, _ = place
        following = (name, found.next_offset)
        is_next = self._ends.pop(place, place) is None
        self._ends[following] = None
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
        fits = 0 < bytes_max <= self._bytes_max
        if is_next and fits and following not in self._ahead:
            reading = asyncio.get_running_loop().create_task(read())
            self._ahead[following] = _Ahead(bytes_max, reading)
            self._bytes += bytes_max
            while self._bytes > self._bytes_max:
                self._forget(next(iter(self._ahead)))

    def drop(self, name: str) -> None:
        """A log was closed."""
        for place in [each for each in self._ahead if each[0] == name]:
            self._forget(place)
        for place in [each for each in self._ends if each[0] == name]:
            del self._ends[place]

    def _forget(self, place: Place) -> None:
        ahead = self._ahead.pop(place)
        self._bytes -= ahead.bytes_max
        if ahead.reading.done() and not ahead.reading.cancelled():
            ahead.reading.exception()  # it has been looked at
        ahead.reading.cancel()
