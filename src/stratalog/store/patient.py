"""Reads that wait out a store's bad moments.

Reads are idempotent, so a reader need not fail because a store did not answer for a second. Puts
and deletions pass through untouched: their caller settles what became of them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Self, TypeVar

from stratalog.errors import Unavailable
from stratalog.runtime import Runtime
from stratalog.store.cas import Patience
from stratalog.store.in_place import get_then
from stratalog.store.protocol import Blob, Head, Listed, Store

T = TypeVar("T")


class PatientStore:
    """The same store, whose reads are repeated for up to ``timeout_s``."""

    def __init__(self, store: Store, runtime: Runtime, timeout_s: float) -> None:
        self.inner = store
        self._runtime = runtime
        self._timeout_s = timeout_s

    def around(self, store: Store) -> Self:
        """Another store, with the same patience."""
        return type(self)(store, self._runtime, self._timeout_s)

    @property
    def url(self) -> str:
        return self.inner.url

    async def get(self, path: str) -> Blob:
        return await self._repeat(lambda: self.inner.get(path))

    async def get_then(self, path: str, work: Callable[[bytes], T], runtime: Runtime) -> T:
        return await self._repeat(lambda: get_then(self.inner, path, work, runtime))

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self._repeat(lambda: self.inner.get_range(path, start, length))

    async def head(self, path: str) -> Head:
        return await self._repeat(lambda: self.inner.head(path))

    async def put_if_absent(self, path: str, data: bytes) -> str:
        return await self.inner.put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        return await self.inner.put_if_match(path, data, etag)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        """Goes on after the last row that was given."""
        patience: Patience | None = None
        while True:
            try:
                async for row in self.inner.list(prefix, after):
                    after = row.path
                    yield row
                return
            except Unavailable:
                patience = patience or Patience(self._runtime, self._timeout_s)
                if not await patience.pause():
                    raise

    async def delete_many(self, paths: Sequence[str]) -> None:
        await self.inner.delete_many(paths)

    async def _repeat(self, read: Callable[[], Awaitable[T]]) -> T:
        try:
            return await read()
        except Unavailable:
            patience = Patience(self._runtime, self._timeout_s)
        while True:
            more_time = await patience.pause()
            try:
                return await read()
            except Unavailable:
                if not more_time:
                    raise
