"""When a server ends: the first signal asks it to, the second one does not ask."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stratalog.cli import exits

_logger = logging.getLogger("stratalog.serve")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """SIGTERM and Ctrl-C. Nothing acknowledged depends on how the process ends."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._asked = asyncio.Event()
        self._opening: asyncio.Task[object] | None = None

    @asynccontextmanager
    async def heeded(self) -> AsyncIterator[None]:
        """Heed the signals within this block. One that comes before ``wanted`` ends the block."""
        loop = asyncio.get_running_loop()
        self._opening = asyncio.current_task()
        for each in SIGNALS:
            loop.add_signal_handler(each, self._on_signal)
        try:
            yield
        except asyncio.CancelledError:
            if not self._asked.is_set():
                raise
            _logger.info("stopped before the broker was ready")
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)

    async def wanted(self) -> None:
        """Wait until somebody wants the process to end."""
        self._opening = None
        await self._asked.wait()

    def _on_signal(self) -> None:
        if self._asked.is_set():
            os._exit(exits.INTERRUPTED)
        self._asked.set()
        asyncio.get_running_loop().call_later(self._limit_s, self._give_up)
        if self._opening is not None:
            self._opening.cancel()

    def _give_up(self) -> None:
        _logger.error("the broker did not stop within %g s; ending the process", self._limit_s)
        os._exit(exits.DEFECT)
