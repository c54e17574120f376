"""What a store was asked for and how long it took: requests, bytes and latencies by operation.

Measuring costs a few additions for each request. ``CountedStore`` has what a bill is made of,
without the clock.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from stratalog.meter import Meter, Timing
from stratalog.store.counted import CountedStore, Usage
from stratalog.store.protocol import Blob, Head, Listed, Store

T = TypeVar("T")

OPERATIONS = (
    "get",
    "get_range",
    "head",
    "put_if_absent",
    "put_if_match",
    "list",
    "delete_many",
)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """A snapshot. Among the operations a listing counts as one, however long it is.

    ``usage`` has the requests by class, as a provider counts them.
    """

    operations: dict[str, Timing] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    @property
    def requests(self) -> int:
        return sum(each.count for each in self.operations.values())

    @property
    def bytes_read(self) -> int:
        return self.operations["get"].bytes + self.operations["get_range"].bytes

    @property
    def bytes_written(self) -> int:
        return self.operations["put_if_absent"].bytes + self.operations["put_if_match"].bytes


class MeteredStore:
    """The same store, with ``stats()``."""

    def __init__(self, store: Store) -> None:
        self.inner = CountedStore(store)
        self._meters = {name: Meter() for name in OPERATIONS}

    @property
    def url(self) -> str:
        return self.inner.url

    def stats(self) -> StoreStats:
        operations = {name: meter.timing() for name, meter in self._meters.items()}
        return StoreStats(operations, replace(self.inner.usage))

    async def get(self, path: str) -> Blob:
        return await self._timed("get", self.inner.get(path), lambda blob: len(blob.data))

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self._timed("get_range", self.inner.get_range(path, start, length), len)

    async def head(self, path: str) -> Head:
        return await self._timed("head", self.inner.head(path), _no_bytes)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        call = self.inner.put_if_absent(path, data)
        return await self._timed("put_if_absent", call, lambda _: len(data))

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        call = self.inner.put_if_match(path, data, etag)
        return await self._timed("put_if_match", call, lambda _: len(data))

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        """Timed until the first row: later rows wait for the caller as much as for the store."""
        rows = self.inner.list(prefix, after)
        first = await self._timed("list", anext(rows, None), _no_bytes)
        if first is not None:
            yield first
            async for row in rows:
                yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        await self._timed("delete_many", self.inner.delete_many(paths), _no_bytes)

    async def _timed(self, name: str, call: Awaitable[T], size_of: Callable[[T], int]) -> T:
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            answer = await call
        except BaseException:
            self._meters[name].add(clock() - started, 0, failed=True)
            raise
        self._meters[name].add(clock() - started, size_of(answer), failed=False)
        return answer


def _no_bytes(_: object) -> int:
    return 0
