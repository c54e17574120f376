"""Stores that break one promise each, to see that probes and doctor notice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from stratalog.errors import Conflict, Exists, NotFound
from stratalog.store import Blob, Head, Listed, MemoryStore, content_etag


class IgnoresIfAbsent(MemoryStore):
    """Overwrites what exists."""

    async def put_if_absent(self, path: str, data: bytes) -> str:
        try:
            return await super().put_if_absent(path, data)
        except Exists:
            return await super().put_if_match(path, data, (await self.head(path)).etag)


class IgnoresIfMatch(MemoryStore):
    """Replaces whatever is there, but not nothing."""

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        try:
            current = (await self.head(path)).etag
        except NotFound:
            raise Conflict(path) from None
        return await super().put_if_match(path, data, current)


class CreatesOnMatch(MemoryStore):
    """Takes an etag on a missing object for permission to create it."""

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        try:
            await self.head(path)
        except NotFound:
            return await super().put_if_absent(path, data)
        return await super().put_if_match(path, data, etag)


class RefusesCorrectMatch(MemoryStore):
    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        raise Conflict(f"{path} changed", path=path)


class ChangesEtags(MemoryStore):
    """Its reads give other etags than its puts."""

    async def get(self, path: str) -> Blob:
        blob = await super().get(path)
        return Blob(blob.data, f"W/{blob.etag}")


class HeadHasOtherEtag(MemoryStore):
    async def head(self, path: str) -> Head:
        head = await super().head(path)
        return Head(path, head.size, f"W/{head.etag}")


class ReadsStale(MemoryStore):
    """Gives the version before the last one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._before: dict[str, bytes] = {}

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        before = (await super().get(path)).data if path in self._objects else b""
        answer = await super().put_if_match(path, data, etag)
        self._before[path] = before
        return answer

    async def get(self, path: str) -> Blob:
        blob = await super().get(path)
        return Blob(self._before.get(path, blob.data), blob.etag)


class ListsLate(MemoryStore):
    """Forgets the newest object in listings."""

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        newest = next(reversed(self._objects), "")
        async for row in super().list(prefix, after):
            if row.path != newest:
                yield row


class ListsByDirectory(MemoryStore):
    """Orders part by part, as some servers do."""

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        rows = [row async for row in super().list(prefix, after)]
        for row in sorted(rows, key=lambda row: row.path.split("/")):
            yield row


class NeverDeletes(MemoryStore):
    async def delete_many(self, paths: Sequence[str]) -> None:
        return


class RangesAreOffByOne(MemoryStore):
    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return (await super().get(path)).data[start + 1 : start + 1 + length]


class DamagesLargeObjects(MemoryStore):
    async def put_if_absent(self, path: str, data: bytes) -> str:
        damaged = data[:-1] if len(data) >= 1 << 20 else data
        await super().put_if_absent(path, damaged)
        return content_etag(damaged)
