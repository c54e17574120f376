"""Read-ahead: a thread reads the next chunks while the consumer handles the current one."""

import asyncio
from collections import deque
from collections.abc import Generator

from stratalog.segments.format import Entries
from stratalog.segments.io import Tasks, in_thread

CHUNKS_AHEAD = 2
CHUNKS_AT_A_TIME = 16
"""After this many chunks a thread is released to others."""


class ReadAhead:
    """Iterates over chunks in a thread, a bounded number ahead.

    The thread reads chunk after chunk without the event loop. It ends when enough chunks are ready,
    so a slow consumer holds no thread.
    """

    def __init__(self, chunks: Generator[Entries], tasks: Tasks) -> None:
        self._chunks = chunks
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Entries | None] = deque()
        """``None`` follows the last chunk."""
        self._news = asyncio.Event()
        self._is_given_up = False
        self._thread = self._start()

    async def next(self) -> Entries | None:
        """The next chunk; ``None`` at the end. Raises what reading raises."""
        while not self._ready:
            self._news.clear()
            if self._thread.done():
                self._thread.result()
                self._thread = self._start()
            await self._news.wait()
        entries = self._ready.popleft()
        if entries is not None and self._thread.done() and self._thread.exception() is None:
            self._thread = self._start()
        return entries

    def give_up(self) -> None:
        """Stop after the current chunk. The generator is closed when the thread has ended."""
        self._is_given_up = True
        self._thread.add_done_callback(lambda _: self._chunks.close())

    def _start(self) -> asyncio.Task[None]:
        thread = self._tasks.start(in_thread(self._read))
        thread.add_done_callback(lambda _: self._news.set())
        return thread

    def _read(self) -> None:
        for _ in range(CHUNKS_AT_A_TIME):
            entries = next(self._chunks, None)
            self._ready.append(entries)
            self._loop.call_soon_threadsafe(self._news.set)
            if entries is None or len(self._ready) >= CHUNKS_AHEAD or self._is_given_up:
                return
