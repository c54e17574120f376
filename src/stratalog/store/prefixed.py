"""A part of a store as a store of its own: what begins with a prefix, named without it.

Errors name the whole path in the store below, since that is what a person can look for.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from stratalog.errors import Invalid
from stratalog.runtime import Runtime
from stratalog.store.in_place import create_made, get_then
from stratalog.store.protocol import Blob, Head, Listed, Store, check_path

T = TypeVar("T")


class PrefixedStore:
    """The objects of ``store`` whose paths begin with ``prefix`` and a slash."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.inner: Store = store
        self._prefix: str = check_path(prefix.rstrip("/")) + "/"

    @property
    def url(self) -> str:
        return f"{self.inner.url.rstrip('/')}/{self._prefix.rstrip('/')}"

    async def get(self, path: str) -> Blob:
        return await self.inner.get(self._full(path))

    async def get_then(self, path: str, work: Callable[[bytes], T], runtime: Runtime) -> T:
        return await get_then(self.inner, self._full(path), work, runtime)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self.inner.get_range(self._full(path), start, length)

    async def head(self, path: str) -> Head:
        found = await self.inner.head(self._full(path))
        return replace(found, path=path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        return await self.inner.put_if_absent(self._full(path), data)

    async def create_made(self, path: str, make: Callable[[], bytes], runtime: Runtime) -> None:
        await create_made(self.inner, self._full(path), make, runtime)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        return await self.inner.put_if_match(self._full(path), data, etag)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        after = self._prefix + after if after else ""
        async for row in self.inner.list(self._prefix + prefix, after):
            yield Listed(row.path[len(self._prefix) :], row.size)

    async def delete_many(self, paths: Sequence[str]) -> None:
        await self.inner.delete_many([self._full(path) for path in paths])

    def _full(self, path: str) -> str:
        if path.startswith("/"):
            raise Invalid(f"not a legal object path: {path!r}", path=path)
        return self._prefix + path
