"""Ids of idempotent producers. None is given twice, whatever happens to the broker.

A note on the disk holds the first id that is not reserved, in decimal digits. Ids are reserved in
blocks before any of them is given; what is left of a block when the broker stops is never used.
Persisted: keep stable.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from stratalog.errors import Corrupt

NOTE: Final = "producer-ids"
BLOCK: Final = 1000


class Notes(Protocol):
    """Small durable values by name."""

    def get(self, key: str) -> bytes | None:
        """The value of a key."""

    async def change(self, changes: Mapping[str, bytes | None]) -> None:
        """Change values, durably and all at once."""


class ProducerIds:
    """Gives ids out."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._next = self._reserved = _stored(notes.get(NOTE))
        self._reserving = asyncio.Lock()

    async def take(self) -> int:
        """An id that nobody has, nor ever had."""
        while self._next == self._reserved:
            async with self._reserving:
                if self._next == self._reserved:
                    end = self._reserved + BLOCK
                    await self._notes.change({NOTE: b"%d" % end})
                    self._reserved = end
        taken = self._next
        self._next += 1
        return taken


def _stored(value: bytes | None) -> int:
    if value is None:
        return 0
    if not value.isdigit():
        raise Corrupt("the note of producer ids is not a number", path=NOTE, actual=value)
    return int(value)
