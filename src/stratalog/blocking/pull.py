"""An iterator over an async one that lives in the loop's thread.

Items are pulled when they are asked for, a few at a time where they are small: a hop to the other
thread costs as much as a hundred records. What the async iterator reads ahead goes on meanwhile.
"""

import asyncio
import functools
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from typing import TypeVar

from stratalog.blocking.background_loop import LoopThread
from stratalog.errors import StratalogError

T = TypeVar("T")


class Pull(Iterator[T]):
    """``close`` ends the iteration and what it reads ahead; so does dropping it.

    ``close`` may be called while another thread waits in ``next``, which then ends.
    """

    def __init__(self, thread: LoopThread, source: AsyncGenerator[T, None], at_once: int) -> None:
        self._thread = thread
        self._source = source
        self._at_once = at_once
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[object] | None = None
        self._pulled: deque[T] = deque()
        self._failure: StratalogError | None = None
        self._exhausted = False
        self._closed = False

    def __next__(self) -> T:
        if self._closed:
            raise StopIteration
        if not self._pulled and not self._exhausted:
            try:
                self._thread.run(self._pull)
            except BaseException:
                self._closed = True
                raise
        try:
            return self._pulled.popleft()
        except IndexError:
            self._closed = True
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        raise StopIteration

    def close(self) -> None:
        """End the iteration. Further calls of ``next`` find nothing."""
        self._closed = True
        self._pulled.clear()
        self._thread.run(self._close)

    def __del__(self) -> None:
        # The collector may run in any thread and at any moment, so this must not wait.
        if not self._exhausted:
            self._thread.begin(functools.partial(_close, self._turn, self._source))

    async def _pull(self) -> None:
        async with self._turn:
            self._task = asyncio.current_task()
            try:
                for _ in range(self._at_once):
                    self._pulled.append(await anext(self._source))
            except StopAsyncIteration:
                self._exhausted = True
            except asyncio.CancelledError:
                self._exhausted = True
                if not self._closed:
                    raise
            except StratalogError as error:
                # Raised by `next`, after the items that came before it.
                self._failure, self._exhausted = error, True
            finally:
                self._task = None

    async def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await _close(self._turn, self._source)


async def _close(turn: asyncio.Lock, source: AsyncGenerator[T, None]) -> None:
    async with turn:
        await source.aclose()
