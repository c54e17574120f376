"""Tasks that run side by side within bounds, and whose results come in the order of their start.

    async with OrderedTasks(count_max=8, bytes_max=64 * MIB) as tasks:
        for item in items:
            while not tasks.has_room(item.size):
                use(await tasks.take())
            tasks.start(work(item), item.size)
        while tasks:
            use(await tasks.take())

``in_order`` is this loop as an iterator; ``gather_bounded`` gives all results at once. The first
error stops the rest. Leaving the block, in whatever way, cancels the tasks that are under way and
waits for their end, so that none of them goes on unseen.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Generic, Self, TypeVar

A = TypeVar("A")
T = TypeVar("T")


class OrderedTasks(Generic[T]):
    """At most ``count_max`` tasks with ``bytes_max`` bytes; one may always run alone."""

    def __init__(self, count_max: int, bytes_max: float = math.inf) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._started: deque[tuple[int, asyncio.Future[T]]] = deque()
        self._bytes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __len__(self) -> int:
        """How many results are still to be taken."""
        return len(self._started)

    @property
    def is_ready(self) -> bool:
        """Whether the oldest result is there."""
        return bool(self._started) and self._started[0][1].done()

    def has_room(self, size: int = 0) -> bool:
        """Whether one more of this size may start. Results count until they are taken."""
        within = len(self._started) < self._count_max and self._bytes + size <= self._bytes_max
        return within or not self._started

    def start(self, work: Awaitable[T], size: int = 0) -> None:
        self._started.append((size, asyncio.ensure_future(work)))
        self._bytes += size

    async def take(self) -> T:
        """The oldest result, or its error. A caller that is cancelled cancels its task too."""
        size, task = self._started.popleft()
        self._bytes -= size
        return await task

    async def wait(self) -> None:
        """Wait until the oldest result is there. A caller that is cancelled cancels nothing."""
        if self._started:
            await asyncio.wait([self._started[0][1]])

    async def wait_for_room(self, size: int = 0) -> None:
        """Wait until one more may start, if results that are there do not count."""
        while True:
            busy = [(size, task) for size, task in self._started if not task.done()]
            under_way = size + sum(size for size, _ in busy)
            if not busy or (len(busy) < self._count_max and under_way <= self._bytes_max):
                return
            await asyncio.wait([task for _, task in busy], return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Cancel what is under way, and wait until it has ended."""
        tasks = [task for _, task in self._started]
        self._started.clear()
        self._bytes = 0
        await _end(tasks)


async def in_order(
    items: AsyncIterator[A],
    work: Callable[[A], Awaitable[T]],
    size_of: Callable[[A], int],
    *,
    count_max: int,
    bytes_max: int,
) -> AsyncGenerator[T, None]:
    """The results of ``work``, which runs ahead of the consumer.

    An error of ``items`` comes in its order, after the results of the items before it.
    """
    failure: Exception | None = None
    async with OrderedTasks[T](count_max, bytes_max) as tasks:
        while True:
            try:
                item = await anext(items)
            except StopAsyncIteration:
                break
            except Exception as error:  # noqa: BLE001 - raised below
                failure = error
                break
            size = size_of(item)
            while not tasks.has_room(size):
                yield await tasks.take()
            tasks.start(work(item), size)
        while tasks:
            yield await tasks.take()
    if failure is not None:
        raise failure


async def gather_bounded(
    items: Iterable[A], work: Callable[[A], Awaitable[T]], count_max: int
) -> list[T]:
    """The results of ``work`` in the order of the items, with at most so many under way.

    There are as many tasks, however many items there are. Items are taken as they are needed.
    """
    left = enumerate(items)
    results: dict[int, T] = {}

    async def next_ones() -> None:
        for place, item in left:
            results[place] = await work(item)

    workers = [asyncio.ensure_future(next_ones()) for _ in range(count_max)]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        await _end(workers)
        raise
    return [results[place] for place in range(len(results))]


async def _end(tasks: Sequence[asyncio.Future[T]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
