"""Two processes whose store operations happen in any order that changes hands three times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from objectlog.wrapped_stores import PassingStore
from stratalog.errors import StratalogError
from stratalog.store.protocol import Blob, Head, Listed, Store

Actor = Callable[[Store], Awaitable[object]]
AT_ONCE_MAX = 100
"""More operations than a process has under way at a time."""


class SteppedStore(PassingStore):
    """A store whose every operation waits for leave."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._leave = asyncio.Semaphore(0)
        self._is_free = False
        self.operations = 0

    async def step(self, task: asyncio.Task[object]) -> bool:
        """Let one operation happen. False if the process has ended without another."""
        before = self.operations
        self._leave.release()
        while self.operations == before and not task.done():
            await asyncio.sleep(0)
        for _ in range(20):  # to where it waits for leave again
            await asyncio.sleep(0)
        return not task.done()

    def free(self) -> None:
        self._is_free = True
        for _ in range(AT_ONCE_MAX):
            self._leave.release()

    async def _turn(self) -> None:
        if not self._is_free:
            await self._leave.acquire()
        self.operations += 1

    async def get(self, path: str) -> Blob:
        await self._turn()
        return await super().get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        await self._turn()
        return await super().get_range(path, start, length)

    async def head(self, path: str) -> Head:
        await self._turn()
        return await super().head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        await self._turn()
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await self._turn()
        return await super().put_if_match(path, data, etag)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        await self._turn()
        async for row in super().list(prefix, after):
            yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        await self._turn()
        await super().delete_many(paths)


async def interleave(
    store: Store, first: Actor, second: Actor, steps: int, other_steps: int
) -> tuple[object, object, bool]:
    """So many operations of the first, so many of the second, then the rest of both.

    Gives what they returned or raised, and whether both were still at work when they were let go.
    """
    stores = SteppedStore(store), SteppedStore(store)
    tasks = [
        asyncio.ensure_future(_outcome(actor, place))
        for actor, place in zip((first, second), stores, strict=True)
    ]
    is_whole = True
    for place, task, count in zip(stores, tasks, (steps, other_steps), strict=True):
        for _ in range(count):
            is_whole = is_whole and await place.step(task)
    for place, task in zip(stores, tasks, strict=True):
        place.free()
        await task
    return tasks[0].result(), tasks[1].result(), is_whole


async def _outcome(actor: Actor, store: Store) -> object:
    try:
        return await actor(store)
    except StratalogError as error:
        return error
