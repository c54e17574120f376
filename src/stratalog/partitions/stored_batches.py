"""Reading the batches of a partition of a disk: from memory, from segments, or ahead of demand.

At rest a batch has its append time where clients expect its base offset. Batches in memory are
shared, so theirs is put in front of the rest; those that were read from a segment lie in memory of
their own, in which it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from stratalog.partitions.batch import base_offset_bytes, write_base_offset
from stratalog.partitions.protocol import Fetched
from stratalog.partitions.read_ahead import ReadAhead
from stratalog.segments import Entries, Partition

COPIED_BYTES_MAX: Final = 4096
"""Smaller batches are copied together: a part of its own costs a fetch more than the copy."""
BASE_OFFSET_BYTES: Final = 8


class StoredBatches:
    """The batches of one partition, as they are fetched: from the one that covers an offset on."""

    def __init__(
        self,
        partition: Partition,
        ahead: ReadAhead,
        must_cover: Callable[[int, Entries], None],
    ) -> None:
        """``must_cover`` raises if the entries that were found do not cover the offset."""
        self._partition = partition
        self._ahead = ahead
        self._must_cover = must_cover
        self._is_closed = False

    def at_hand(self, offset: int, bytes_max: int) -> Fetched | None:
        """What is in memory, or was read ahead. ``None`` if it has to be read."""
        entries = self._partition.fetch(offset + 1, bytes_max)
        if entries is not None:
            self._must_cover(offset, entries)
            return _as_read(entries)
        return self._read_before(offset, bytes_max)

    async def wait(self, offset: int) -> None:
        """Until what is being read ahead from an offset is there."""
        await self._ahead.wait((self._partition.name, offset))

    async def read(self, offset: int, bytes_max: int) -> Fetched:
        found = self._read_before(offset, bytes_max)
        if found is None:
            found = await self._read(offset, bytes_max)
            self._given(offset, found, bytes_max)
        return found

    def close(self) -> None:
        self._is_closed = True
        self._ahead.drop(self._partition.name)

    def _read_before(self, offset: int, bytes_max: int) -> Fetched | None:
        found = self._ahead.take((self._partition.name, offset), bytes_max)
        if found is not None:
            self._given(offset, found, bytes_max)
        return found

    def _given(self, offset: int, found: Fetched, bytes_max: int) -> None:
        following = found.next_offset
        if following < self._stored_end and not self._is_closed:
            place = self._partition.name, offset
            self._ahead.given(place, found, bytes_max, lambda: self._read(following, bytes_max))

    async def _read(self, offset: int, bytes_max: int) -> Fetched:
        entries = await self._partition.fetch_stored(offset + 1, bytes_max, writable=True)
        self._must_cover(offset, entries)
        for index, payload in zip(indexes_of(entries), entries.payloads, strict=True):
            write_base_offset(cast(memoryview, payload), index - 1)
        return Fetched(entries.parts(), entries.payload_bytes, entries.last)

    @property
    def _stored_end(self) -> int:
        """Batches below this offset are in segments."""
        files = self._partition.layout.files
        return (files[-1].indexes.last or 0) if files else 0


def indexes_of(entries: Entries) -> list[int]:
    indexes: list[int] = entries.heads["index"].tolist()
    return indexes


def _as_read(entries: Entries) -> Fetched:
    """With the base offset in place of the append time. The entries themselves are shared."""
    parts: list[bytearray | bytes | memoryview] = []
    together: bytearray | None = None
    for index, payload in zip(indexes_of(entries), entries.payloads, strict=True):
        if len(payload) <= COPIED_BYTES_MAX:
            if together is None:
                together = bytearray()
                parts.append(together)
            at = len(together)
            together += payload
            write_base_offset(together, index - 1, at)
        else:
            together = None
            parts.append(base_offset_bytes(index - 1))
            parts.append(memoryview(payload)[BASE_OFFSET_BYTES:])
    return Fetched(parts, entries.payload_bytes, entries.last)
