"""What a store was asked for, in the terms of a bill: requests by class, and bytes.

    class A    puts and listings, of which each page is one
    class B    reads
    free       deletions

Providers charge for a request also if they refuse it, so a request counts when it is sent. What a
client library repeats by itself is not seen here. Counting costs an addition for each request, so
writers and readers always do it.
"""

import operator
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Self, TypeVar

from stratalog.runtime import Runtime
from stratalog.store.in_place import create_made, get_then
from stratalog.store.protocol import Blob, Head, Listed, Store

T = TypeVar("T")

PAGE_ROWS = 1000
DELETES_PER_REQUEST = 1000


@dataclass(slots=True)
class Usage:
    """Requests by class, and the bytes that went to the store and came from it."""

    class_a_requests: int = 0
    class_b_requests: int = 0
    free_requests: int = 0
    bytes_written: int = 0
    bytes_read: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(operator.add, astuple(self), astuple(other)))


class CountedStore:
    """The same store, with ``usage``."""

    def __init__(self, store: Store, usage: Usage | None = None) -> None:
        self.inner = store
        self.usage = Usage() if usage is None else usage

    def around(self, store: Store) -> Self:
        """Another store, counted together with this one."""
        return type(self)(store, self.usage)

    @property
    def url(self) -> str:
        return self.inner.url

    async def get(self, path: str) -> Blob:
        self.usage.class_b_requests += 1
        blob = await self.inner.get(path)
        self.usage.bytes_read += len(blob.data)
        return blob

    async def get_then(self, path: str, work: Callable[[bytes], T], runtime: Runtime) -> T:
        sizes: list[int] = []

        def noting(data: bytes) -> T:
            sizes.append(len(data))
            return work(data)

        self.usage.class_b_requests += 1
        try:
            return await get_then(self.inner, path, noting, runtime)
        finally:
            self.usage.bytes_read += sum(sizes)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        self.usage.class_b_requests += 1
        data = await self.inner.get_range(path, start, length)
        self.usage.bytes_read += len(data)
        return data

    async def head(self, path: str) -> Head:
        self.usage.class_b_requests += 1
        return await self.inner.head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self.usage.class_a_requests += 1
        self.usage.bytes_written += len(data)
        return await self.inner.put_if_absent(path, data)

    async def create_made(self, path: str, make: Callable[[], bytes], runtime: Runtime) -> None:
        sizes: list[int] = []

        def noting() -> bytes:
            data = make()
            sizes.append(len(data))
            return data

        try:
            await create_made(self.inner, path, noting, runtime)
        finally:
            self.usage.class_a_requests += len(sizes)
            self.usage.bytes_written += sum(sizes)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self.usage.class_a_requests += 1
        self.usage.bytes_written += len(data)
        return await self.inner.put_if_match(path, data, etag)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        self.usage.class_a_requests += 1
        rows = 0
        async for row in self.inner.list(prefix, after):
            if rows == PAGE_ROWS:
                self.usage.class_a_requests += 1
                rows = 0
            rows += 1
            yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        self.usage.free_requests += -(-len(paths) // DELETES_PER_REQUEST)
        await self.inner.delete_many(paths)
