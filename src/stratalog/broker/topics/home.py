"""Where the partitions of topics live, as the catalogue sees it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from stratalog.partitions import PartitionLog


class Notes(Protocol):
    """Small values by key; a submitted change is durable as a whole when its future is done."""

    def get(self, key: str) -> bytes | None:
        """The value of a key."""

    def items(self, prefix: str) -> Iterable[tuple[str, bytes]]:
        """Keys that begin with the prefix, and their values."""

    async def change(self, changes: Mapping[str, bytes | None]) -> None:
        """Set keys, and remove those that are given ``None``, durably and all at once."""


class PartitionHome(Protocol):
    """What holds partitions, by their names."""

    def names(self) -> list[str]:
        """All that are there, leftovers included."""

    async def create(self, name: str) -> PartitionLog:
        """A partition, durable and open. Idempotent."""

    async def open(self, name: str) -> PartitionLog:
        """A partition that is there. ``NotFound`` if it is not."""

    async def remove(self, name: str) -> None:
        """Remove a partition with its data. Idempotent."""

    async def close(self) -> None:
        """Close all partitions that are open."""
