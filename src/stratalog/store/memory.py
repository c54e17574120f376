"""A store in this process's memory: for tests, for trying things out, and as the others' model.

``memory://name`` is the same store everywhere in one process. Its etags are hashes of the content,
as S3's are, so that code which forgets a fresh write id fails here first.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence

from stratalog.errors import Conflict, Exists, Invalid, NotFound
from stratalog.store.protocol import Blob, Head, Listed, check_path, content_etag

_named: dict[str, MemoryStore] = {}
_named_lock = threading.Lock()


class MemoryStore:
    """Objects in a dictionary. Safe between threads and event loops."""

    def __init__(self, name: str = "anonymous") -> None:
        self._name = name
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @classmethod
    def named(cls, name: str) -> MemoryStore:
        """The one store of this name in this process."""
        with _named_lock:
            return _named.setdefault(name, cls(name))

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    async def get(self, path: str) -> Blob:
        return Blob(self._read(path))

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        data = self._read(path)
        if start < 0 or length < 0 or start + length > len(data):
            raise Invalid(f"bytes {start}+{length} are outside of {path}", path=path)
        return data[start : start + length]

    async def head(self, path: str) -> Head:
        data = self._read(path)
        return Head(path, len(data), content_etag(data))

    async def put_if_absent(self, path: str, data: bytes) -> str:
        check_path(path)
        with self._lock:
            if path in self._objects:
                raise Exists(f"{path} exists in {self.url}", path=path)
            self._objects[path] = bytes(data)
        return content_etag(data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        check_path(path)
        with self._lock:
            current = self._objects.get(path)
            found = None if current is None else content_etag(current)
            if found != etag:
                raise Conflict(
                    f"{path} changed in {self.url}", path=path, expected=etag, actual=found
                )
            self._objects[path] = bytes(data)
        return content_etag(data)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        with self._lock:
            rows = sorted(
                (path, len(data))
                for path, data in self._objects.items()
                if path.startswith(prefix) and path > after
            )
        for path, size in rows:
            yield Listed(path, size)

    async def delete_many(self, paths: Sequence[str]) -> None:
        with self._lock:
            for path in paths:
                self._objects.pop(path, None)

    def _read(self, path: str) -> bytes:
        check_path(path)
        with self._lock:
            data = self._objects.get(path)
        if data is None:
            raise NotFound(f"{path} is not in {self.url}", path=path)
        return data
