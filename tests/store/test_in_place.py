"""Getting an object and using it on the thread that read it: the same as one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import stratalog as sl
from stratalog.errors import Corrupt, Invalid, NotFound, Unavailable
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import DirectoryStore, MemoryStore
from stratalog.store.counted import CountedStore
from stratalog.store.in_place import get_then
from stratalog.store.patient import PatientStore
from stratalog.store.protocol import Blob, Store

T = TypeVar("T")

FRAGMENTS, RECORD_BYTES = 4, 200_000
BYTES_TOLD = b"told"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Delegating:
    """A store of somebody who hooks into reading, and hands on the rest by name."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.got: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def get(self, path: str) -> Blob:
        self.got.append(path)
        return await self.inner.get(path)


class Subclass(DirectoryStore):
    """The same by inheritance."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.got: list[str] = []

    async def get(self, path: str) -> Blob:
        self.got.append(path)
        return await super().get(path)


@pytest.mark.parametrize("kind", ["delegating", "subclass"])
def test_who_hooks_into_reading_sees_every_read(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with sl.LogWriter.open(tmp_path / "log", create=True) as log:
            for _ in range(FRAGMENTS):
                await log.append(b"x" * RECORD_BYTES)
        root = tmp_path / "log"
        hooked: Delegating | Subclass = (
            Subclass(root) if kind == "subclass" else Delegating(DirectoryStore(root))
        )
        async with sl.LogReader.open(hooked) as reader:
            assert len([record async for record in reader.records()]) == FRAGMENTS
        assert (await sl.scrub(hooked)).clean
        fragments = [path for path in hooked.got if path.startswith("log/")]
        assert len(fragments) == 2 * FRAGMENTS

    run(main())


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_it_gives_what_the_work_makes_of_the_bytes(
    kind: str, wrapped: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        inner: Store = DirectoryStore(tmp_path) if kind == "directory" else MemoryStore()
        counted = CountedStore(inner)
        store = PatientStore(counted, DEFAULT_RUNTIME, 0.1) if wrapped else inner
        await inner.put_if_absent("a/b", b"bytes")

        def work(data: bytes) -> tuple[bytes, int]:
            return data.upper(), threading.get_ident()

        result, thread = await get_then(store, "a/b", work, DEFAULT_RUNTIME)
        assert result == b"BYTES"
        assert thread != threading.get_ident(), "the event loop stays free"
        assert counted.usage.class_b_requests == counted.usage.bytes_read // 5 == int(wrapped)
        with pytest.raises(NotFound):
            await get_then(store, "a/c", work, DEFAULT_RUNTIME)
        with pytest.raises(Invalid):
            await get_then(store, "../c", work, DEFAULT_RUNTIME)

    run(main())


def test_what_the_work_raises_is_raised_and_its_bytes_are_counted(tmp_path: Path) -> None:
    def work(data: bytes) -> None:
        raise Corrupt("it does not add up", path="a")

    async def main() -> None:
        store = CountedStore(DirectoryStore(tmp_path))
        await store.put_if_absent("a", BYTES_TOLD)
        with pytest.raises(Corrupt):
            await get_then(store, "a", work, DEFAULT_RUNTIME)
        assert store.usage.bytes_read == len(BYTES_TOLD)

    run(main())


def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    async def main() -> None:
        inner = DirectoryStore(tmp_path)
        await inner.put_if_absent("a", b"bytes")
        read, failures = inner._read, [1, 2]

        def failing(path: str) -> bytes:
            if failures:
                failures.pop()
                raise Unavailable("not now", path=path)
            return read(path)

        inner._read = failing  # type: ignore[method-assign]
        store = PatientStore(inner, DEFAULT_RUNTIME, 10.0)
        assert await get_then(store, "a", len, DEFAULT_RUNTIME) == 5

    run(main())
