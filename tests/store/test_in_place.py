"""Getting an object and using it on the thread that read it: the same as one after the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import stratalog as sl
from stratalog.errors import Corrupt, Exists, Invalid, NotFound, Unavailable, Unknown
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import DirectoryStore, MemoryStore
from stratalog.store.cas import Patience, put_made_once
from stratalog.store.counted import CountedStore
from stratalog.store.in_place import create_made, get_then
from stratalog.store.patient import PatientStore
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Blob, Store

T = TypeVar("T")

PATH = "a/b"
FRAGMENTS, RECORD_BYTES = 4, 200_000
BYTES_TOLD = b"told"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Delegating:
    """A store of somebody who hooks into reading, and hands on the rest by name."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.got: list[str] = []
        self.created: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def get(self, path: str) -> Blob:
        self.got.append(path)
        return await self.inner.get(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self.created.append(path)
        return await self.inner.put_if_absent(path, data)


class Subclass(DirectoryStore):
    """The same by inheritance."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.got: list[str] = []
        self.created: list[str] = []

    async def get(self, path: str) -> Blob:
        self.got.append(path)
        return await super().get(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self.created.append(path)
        return await super().put_if_absent(path, data)


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


@pytest.mark.parametrize("kind", ["delegating", "subclass"])
def test_who_hooks_into_writing_sees_every_fragment(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        hooked: Delegating | Subclass = (
            Subclass(tmp_path) if kind == "subclass" else Delegating(DirectoryStore(tmp_path))
        )
        async with sl.LogWriter.open(hooked, create=True) as log:
            for _ in range(FRAGMENTS):
                await log.append(b"x" * RECORD_BYTES)
        assert len([path for path in hooked.created if path.startswith("log/")]) == FRAGMENTS

    run(main())


def test_a_wrapper_that_is_changed_by_inheritance_is_asked_in_its_own_way(tmp_path: Path) -> None:
    class Counting(CountedStore):
        plain = 0

        async def get(self, path: str) -> Blob:
            self.plain += 1
            return await super().get(path)

        async def put_if_absent(self, path: str, data: bytes) -> str:
            self.plain += 1
            return await super().put_if_absent(path, data)

    async def main() -> None:
        store = Counting(DirectoryStore(tmp_path))
        await create_made(store, PATH, lambda: b"bytes", DEFAULT_RUNTIME)
        assert await get_then(store, PATH, len, DEFAULT_RUNTIME) == 5
        assert store.plain == 2

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


def test_an_object_is_created_of_what_is_made_on_another_thread(store_url: str) -> None:
    threads: list[int] = []

    def make() -> bytes:
        threads.append(threading.get_ident())
        return b"bytes"

    async def main() -> None:
        inner = sl.open_store(store_url)
        store = CountedStore(inner)
        await create_made(store, PATH, make, DEFAULT_RUNTIME)
        assert (await inner.get(PATH)).data == b"bytes"
        assert store.usage.class_a_requests == store.usage.bytes_written // 5 == 1
        with pytest.raises(Exists):
            await create_made(store, PATH, make, DEFAULT_RUNTIME)
        with pytest.raises(Invalid):
            await create_made(store, "../c", make, DEFAULT_RUNTIME)

    run(main())
    assert threading.get_ident() not in threads


def test_a_part_of_a_store_is_written_and_read_in_place_too(tmp_path: Path) -> None:
    """A log on S3 is nearly always one: its place is a bucket and a prefix."""

    def on_thread(_data: bytes = b"") -> bytes:
        return threading.current_thread().name.encode()

    async def main() -> None:
        inner = DirectoryStore(tmp_path)
        store = PrefixedStore(inner, "part/of")
        await create_made(store, PATH, on_thread, DEFAULT_RUNTIME)
        assert (await inner.get(f"part/of/{PATH}")).data.startswith(b"stratalog-put")
        name = await get_then(store, PATH, on_thread, DEFAULT_RUNTIME)
        assert name.startswith(b"stratalog-read")
        for illegal in ("/a", "../a"):
            with pytest.raises(Invalid):
                await create_made(store, illegal, on_thread, DEFAULT_RUNTIME)

    run(main())


def test_what_the_making_raises_is_raised_and_nothing_is_created(tmp_path: Path) -> None:
    def make() -> bytes:
        raise Invalid("too large")

    async def main() -> None:
        store = CountedStore(DirectoryStore(tmp_path))
        for work in (
            create_made(store, PATH, make, DEFAULT_RUNTIME),
            put_made_once(
                store, lambda: PATH, make, Patience(DEFAULT_RUNTIME, 1.0), DEFAULT_RUNTIME
            ),
        ):
            with pytest.raises(Invalid, match="too large"):
                await work
        assert store.usage.class_a_requests == 0
        with pytest.raises(NotFound):
            await store.get(PATH)

    run(main())


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("error", [Unknown("lost"), Unavailable("down")], ids=lambda e: e.kind)
def test_what_was_made_once_is_stored_once_after_a_lost_answer(
    error: Exception, landed: bool, tmp_path: Path
) -> None:
    made: list[bytes] = []

    def make() -> bytes:
        made.append(b"bytes")
        return b"bytes"

    async def main() -> None:
        store = DirectoryStore(tmp_path)
        create, failures = store._create, [error]

        def failing(path: str, data: bytes) -> None:
            if not failures:
                create(path, data)
                return
            if landed:
                create(path, data)
            raise failures.pop()

        store._create = failing  # type: ignore[method-assign]
        names = iter(["first", "second"])
        patience = Patience(DEFAULT_RUNTIME, 5.0)
        path = await put_made_once(store, lambda: next(names), make, patience, DEFAULT_RUNTIME)
        assert path == "first"
        assert (await store.get(path)).data == b"bytes"
        assert made == [b"bytes"]

    run(main())


def test_a_name_that_has_other_bytes_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        store = DirectoryStore(tmp_path)
        await store.put_if_absent("taken", b"others")
        names, patience = iter(["taken", "free"]), Patience(DEFAULT_RUNTIME, 5.0)
        path = await put_made_once(
            store, lambda: next(names), lambda: b"mine", patience, DEFAULT_RUNTIME
        )
        assert path == "free"

    run(main())


def test_who_is_cancelled_while_it_is_made_puts_nothing(tmp_path: Path) -> None:
    begun, let = threading.Event(), threading.Event()

    def make() -> bytes:
        begun.set()
        assert let.wait(30)
        return b"bytes"

    async def main() -> None:
        store = DirectoryStore(tmp_path)
        patience = Patience(DEFAULT_RUNTIME, 5.0)
        putting = asyncio.ensure_future(
            put_made_once(store, lambda: PATH, make, patience, DEFAULT_RUNTIME)
        )
        await asyncio.to_thread(begun.wait, 30)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        let.set()
        # The pool's thread is free again when it has noticed.
        await create_made(store, "after", lambda: b"", DEFAULT_RUNTIME)
        for _ in range(100):
            await asyncio.sleep(0.001)
            with pytest.raises(NotFound):
                await store.get(PATH)

    run(main())


def test_the_time_to_make_it_is_not_the_stores(tmp_path: Path) -> None:
    """A store that does not answer at once has all of its time after that."""

    async def main() -> None:
        store = DirectoryStore(tmp_path)
        create, failures = store._create, [1]

        def failing(path: str, data: bytes) -> None:
            if failures:
                failures.pop()
                raise Unavailable("not now", path=path)
            create(path, data)

        store._create = failing  # type: ignore[method-assign]
        patience = Patience(DEFAULT_RUNTIME, 30.0)

        def make() -> bytes:
            patience._deadline = float("-inf")  # as if it had taken longer than that
            return b"bytes"

        await put_made_once(store, lambda: PATH, make, patience, DEFAULT_RUNTIME)
        assert (await store.get(PATH)).data == b"bytes"

    run(main())


def test_a_store_that_fails_before_it_is_made_is_asked_again(tmp_path: Path) -> None:
    class Connecting(MemoryStore):
        failures = 1

        async def create_made(self, path: str, make: Callable[[], bytes], runtime: Runtime) -> None:
            if self.failures:
                self.failures -= 1
                raise Unavailable("cannot connect")
            await self.put_if_absent(path, make())

    async def main() -> None:
        store, patience = Connecting(), Patience(DEFAULT_RUNTIME, 5.0)
        path = await put_made_once(store, lambda: PATH, lambda: b"bytes", patience, DEFAULT_RUNTIME)
        assert (await store.get(path)).data == b"bytes"

    run(main())
