"""Tests that are scenarios: each runs in an event loop of its own, on a store of its own.

What those of a log share is here too. Appends and reads that go through ``append`` and ``read`` are
noted in a history, which is checked against the final log.
"""

import asyncio
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import stratalog as sl
from stratalog.errors import Conflict
from stratalog.runtime import Runtime
from stratalog.store import Store
from stratalog.testing.history import Append, History, Read, Row, Seen

P = ParamSpec("P")
S = TypeVar("S", bound="Scenarios")

SMALL_TREE = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4, compression="none")
"""Roll-ups begin with the third fragment, so that short logs have deep trees. Bodies are stored
as they are, so that a test can find one and damage it."""


class Scenarios(ABC):
    """Runs scenarios, for a bounded time if a subclass says so."""

    _timeout_s: float | None = None

    @abstractmethod
    async def make_store(self) -> Store:
        """A fresh, empty store."""

    def run(self, scenario: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(self._timeout_s):
                await scenario(await self.make_store())

        asyncio.run(main())


def scenario(
    coroutine: Callable[Concatenate[S, Store, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[S, P], None]:
    """The coroutine as a test, to which no store need be given."""

    @functools.wraps(coroutine)
    def test(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.run(lambda store: coroutine(self, store, *args, **kwargs))

    signature = inspect.signature(coroutine)
    parameters = [each for each in signature.parameters.values() if each.name != "store"]
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return test


class SteppingRuntime(Runtime):
    """A wall clock that goes a millisecond forward each time it is asked."""

    def __init__(self, start_us: int = 1_000_000) -> None:
        self._now_us = start_us

    def now_us(self) -> int:
        self._now_us += 1000
        return self._now_us


async def append(
    history: History,
    log: sl.LogWriter,
    client: str,
    number: int,
    count: int = 1,
    expected: int | None = None,
) -> None:
    """Append a batch with bodies of its own, and note what became of it."""
    bodies = tuple(f"{client}/{number}/{index}".encode() for index in range(count))

    async def attempt() -> sl.LogPosition:
        if count == 1:
            return await log.append(bodies[0], expected_offset=expected)
        return (await log.append_many(bodies, expected_offset=expected)).first

    try:
        await history.observe(client, Append(bodies, expected), attempt())
    except Conflict:
        assert expected is not None


async def read(history: History, store: Store) -> None:
    """Read the whole log, and note what was seen."""
    number = history.call("reader", Read(1))
    async with sl.LogReader.open(store) as reader:
        history.ok(number, Seen(tuple(await rows_of(reader.records())), reader.tail))


async def read_all(store: Store) -> list[Row]:
    async with sl.LogReader.open(store) as reader:
        return await rows_of(reader.records())


async def rows_of(records: AsyncIterator[sl.Record]) -> list[Row]:
    return [(each.offset, each.timestamp_us, each.body) async for each in records]


async def write_fragments(store: Store, count: int, *, records: int) -> None:
    """A log with a tree and so many fragments, one millisecond and more apart."""
    async with sl.LogWriter.open(
        store, create=True, options=SMALL_TREE, runtime=SteppingRuntime()
    ) as log:
        for number in range(count):
            await log.append_many([b"%d/%d" % (number, index) for index in range(records)])


async def overwrite(store: Store, path: str, data: bytes) -> None:
    await store.put_if_match(path, data, (await store.head(path)).etag)
