"""Chunks that a thread reads while their consumer is busy with earlier ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator

from stratalog.segments.format import Entries
from stratalog.segments.io import Tasks, in_thread

CHUNKS_AHEAD = 2
CHUNKS_AT_A_TIME = 16
"""After so many a thread is given back, so that others have their turn."""


class ReadAhead:
    """Goes through chunks in a thread, as long as few of them wait.

    The thread goes from one to the next without asking the event loop, and ends when enough wait
    or after a while: a slow consumer holds none, and nobody holds one for long.
    """

    def __init__(self, chunks: Generator[Entries], tasks: Tasks) -> None:
        self._chunks = chunks
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Entries | None] = deque()
        """``None`` comes after the last one."""
        self._news = asyncio.Event()
        self._is_given_up = False
        self._thread = self._start()

    async def next(self) -> Entries | None:
        """The next one; ``None`` at the end. Raises what the chunks raise."""
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
        """The thread ends after the chunk that it reads, and only then are the chunks closed."""
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
