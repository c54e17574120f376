"""Back-pressure: a write waits until the bytes queued for the WAL leave room for it.

There is room while fewer than ``queue_bytes_max`` bytes are queued, the flush queue is not full,
and the entries that are not in segments yet take less than ``memory_bytes_max``. Writes are let in
in the order in which they came; the last one may exceed a limit. An object log has its own
back-pressure, in ``objectlog.append.accumulator``.
"""

from __future__ import annotations

import asyncio
from collections import deque

from stratalog.errors import Full
from stratalog.segments.options import DiskOptions
from stratalog.segments.write_ahead.flush_queue import FlushQueue


class BackPressure:
    """Counts the bytes that are queued, and holds back the writes for which there is no room."""

    def __init__(self, options: DiskOptions, flush_queue: FlushQueue) -> None:
        self._options = options
        self._flush_queue = flush_queue
        self._queued_bytes = 0
        self._held: dict[int, int] = {}
        """The memory of the entries of each WAL file that is not in segments."""
        self._held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._granted = 0
        self._is_closed = False

    def take(self, size: int) -> None:
        """Reserve so many bytes now. ``Full`` if there is no room, or others wait for it."""
        if not self._waiting and not self._granted and self._has_room():
            self._queued_bytes += size
            return
        self._must_be_flushed()
        raise Full(
            f"{self._queued_bytes} bytes are queued for the WAL, and {self._held_bytes} wait for "
            "their flush: there is no room for more",
            hint="Await Disk.room(), then submit again.",
        )

    async def room(self) -> None:
        """Wait until ``take`` would find room. ``Full`` if it does not within ``timeout_s``."""
        await self.wait_for_room(0)
        # Those that were let in together have their turns first: until then ``take`` refuses, and
        # a caller that tries again and again would never let them.
        await asyncio.sleep(0)

    async def wait_for_room(self, size: int) -> None:
        """Reserve so many bytes. ``Full`` if there is no room within ``timeout_s``."""
        if not self._waiting and not self._granted and self._has_room():
            self._queued_bytes += size
            return
        self._must_be_flushed()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        self.grant()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                await asyncio.shield(turn)
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(size)
            turn.cancel()
            if isinstance(error, TimeoutError):
                raise Full(
                    f"there was no room for a write within {self._options.timeout_s} s",
                    hint="The disk is slower than its writers, or full. Slow down, free some space,"
                    " or set queue_bytes_max, wal_files_max, memory_bytes_max or timeout_s.",
                ) from None
            raise
        finally:
            self._granted -= turn.done() and not turn.cancelled()

    def _must_be_flushed(self) -> None:
        waits = self._flush_queue.is_full or self._held_bytes >= self._options.memory_bytes_max
        if waits and (why := self._flush_queue.failure) is not None:
            raise Full(f"the WAL cannot be flushed: {why}", hint=why.hint, path=why.path)

    def give_back(self, size: int) -> None:
        """Release reserved bytes: they were written, or are not needed."""
        self._queued_bytes -= size
        self.grant()

    def hold(self, wal: int, size: int) -> bool:
        """Entries of a WAL file take so many bytes of memory, until ``release``. Returns whether
        that is too much, so that the file should be flushed."""
        self._held[wal] = self._held.get(wal, 0) + size
        self._held_bytes += size
        return self._held_bytes >= self._options.memory_bytes_max

    def release(self, wal: int) -> None:
        """All entries of a WAL file are in segments."""
        self._held_bytes -= self._held.pop(wal, 0)
        self.grant()

    def grant(self) -> None:
        """Let waiting writes in while there is room."""
        while self._waiting and self._has_room():
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._queued_bytes += size
                self._granted += 1
                turn.set_result(None)

    def close(self) -> None:
        """Let all waiting writes in: they find the disk closed."""
        self._is_closed = True
        self.grant()

    def _has_room(self) -> bool:
        options = self._options
        is_below = (
            self._queued_bytes < options.queue_bytes_max
            and self._queued_bytes + self._held_bytes < options.memory_bytes_max
        )
        return (is_below and not self._flush_queue.is_full) or self._is_closed
