"""Threads that work off one queue, and tell the event loop of several results at once.

A pool of threads wakes the loop for each result. Where a piece of work takes less than that does,
as when a fragment is read from the system's memory and decoded, the loop and the threads spend most
of their time on taking the interpreter from each other. So a thread of a crew goes on with the next
piece as long as there is one, and hands over what it has

    when nothing is left to do      nobody waits for company
    when it has ``BUNCH`` results
    when a piece was not quick      a slow disk is not made slower
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from stratalog.runtime import thread_pool

T = TypeVar("T")

BUNCH = 4
QUICK_S = 0.001

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
_Result = tuple["asyncio.Future[Any]", Any, BaseException | None]

_crews: dict[tuple[str, int], Crew] = {}


def crew(purpose: str, threads_max: int) -> Crew:
    """The process's crew for one purpose. Threads do not survive a fork: a child gets its own."""
    key = (purpose, os.getpid())
    found = _crews.get(key)
    if found is None:
        found = _crews.setdefault(key, Crew(purpose, threads_max))
    return found


class Crew:
    """At most so many threads of the pool of its purpose."""

    def __init__(self, purpose: str, threads_max: int) -> None:
        self._pool = thread_pool(purpose, threads_max)
        self._threads_max = threads_max
        self._jobs: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._at_work = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Do this on one of the threads, unless the caller is cancelled before it begins."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.append((loop, future, work))
        with self._lock:
            needed = self._at_work < self._threads_max
            self._at_work += needed
        if needed:
            self._begin()
        return await future

    def _begin(self) -> None:
        try:
            self._pool.submit(self._work_off)
        except Exception as error:  # noqa: BLE001 - it is told to those who wait
            with self._lock:
                self._at_work -= 1
                left = [] if self._at_work else [self._jobs.popleft() for _ in self._jobs.copy()]
            for loop, future, _ in left:
                _tell(loop, [(future, None, error)])

    def _work_off(self) -> None:
        results: list[_Result] = []
        told: asyncio.AbstractEventLoop | None = None
        while True:
            try:
                loop, future, work = self._jobs.popleft()
            except IndexError:
                _tell(told, results)
                with self._lock:
                    if not self._jobs:
                        self._at_work -= 1
                        return
                continue
            if future.cancelled():
                continue
            if loop is not told:
                _tell(told, results)
                told = loop
            began_s = loop.time()
            results.append((future, *_outcome(work)))
            if len(results) >= BUNCH or loop.time() - began_s > QUICK_S:
                _tell(loop, results)


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Apart from the future, which would otherwise be held by the traceback that it holds."""
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        return None, error


def _tell(loop: asyncio.AbstractEventLoop | None, results: list[_Result]) -> None:
    """Hand them over, and forget them. A loop that is closed has nobody who waits."""
    if loop is not None and results:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, tuple(results))
        results.clear()


def _settle(results: tuple[_Result, ...]) -> None:
    for future, value, error in results:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):  # which a future cannot carry
            future.set_exception(RuntimeError(repr(error)))
        else:
            future.set_exception(error)
