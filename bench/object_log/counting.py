"""A store in memory that counts its requests."""

from __future__ import annotations

import asyncio

from stratalog.store.memory import MemoryStore
from stratalog.store.protocol import Blob


class CountingStore(MemoryStore):
    """Counts requests and weighs manifests. Each request lets others run, as a real one does."""

    def __init__(self) -> None:
        super().__init__("counting")
        self.reads = 0
        self.creations = 0
        self.swaps = 0
        self.largest_swap = 0
        self.largest_swap_lately = 0

    def copy(self) -> CountingStore:
        """An independent store with the same objects."""
        twin = CountingStore()
        twin._objects = dict(self._objects)
        return twin

    async def get(self, path: str) -> Blob:
        self.reads += 1
        await asyncio.sleep(0)
        return await super().get(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self.creations += 1
        await asyncio.sleep(0)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self.swaps += 1
        self.largest_swap = max(self.largest_swap, len(data))
        self.largest_swap_lately = max(self.largest_swap_lately, len(data))
        await asyncio.sleep(0)
        return await super().put_if_match(path, data, etag)
