"""Threads for blocking file calls, and tasks that finish although their caller was cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from stratalog.runtime import run_blocking
from stratalog.segments.io.files import File, typed_errors

T = TypeVar("T")

DISK_THREADS_MAX = 16
SYNC_THREADS_MAX = 16


def in_thread(work: Callable[[], T]) -> Coroutine[Any, Any, T]:
    """Run a blocking call on one of the process's threads for disks."""
    return run_blocking(work, "disk", DISK_THREADS_MAX)


def in_sync_thread(work: Callable[[], T]) -> Coroutine[Any, Any, T]:
    """As ``in_thread``, for the WAL and the journal: they must not queue behind readers."""
    return run_blocking(work, "disk-sync", SYNC_THREADS_MAX)


class Tasks:
    """Tasks that run to their end, also after the caller that waits for one is cancelled."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self.start(work))

    async def end(self) -> None:
        """Wait for all of them."""
        while self._running:
            await asyncio.wait(self._running)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller, if it still waits, has seen it


class HeldFile:
    """A file that is opened in a thread on first use and then kept open.

    One call at a time. The thread of a cancelled call goes on, so ``close`` waits for it: the
    descriptor of a closed file may be reused for another one.
    """

    def __init__(self, open_: Callable[[], File], doing: str, path: str) -> None:
        """``doing`` describes the operation in errors."""
        self._open = open_
        self._doing = doing
        self._path = path
        self._file: File | None = None
        self._tasks = Tasks()
        self._working: asyncio.Task[Any] | None = None

    async def run(self, work: Callable[[File], T]) -> T:
        def do() -> T:
            if self._file is None:
                self._file = self._open()
            return work(self._file)

        task = self._tasks.start(in_thread(do))
        self._working = task
        with typed_errors(self._doing, self._path):
            return await asyncio.shield(task)

    def close(self, then: Callable[[], None] = lambda: None) -> None:
        """Close the file when its current call has ended, then call ``then``."""

        def close(_: object = None) -> None:
            file, self._file = self._file, None
            if file is not None:
                file.close()
            then()

        if self._working is not None and not self._working.done():
            self._working.add_done_callback(close)
        else:
            close()
