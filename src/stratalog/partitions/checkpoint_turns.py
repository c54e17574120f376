"""When the logs of a disk take checkpoints, so that opening reads little.

What was appended since a log's last checkpoint is read again when it opens. Both are bounded: the
bytes of one log, and the bytes of all logs together. A few checkpoints are taken at a time, and
none by an append: the log that has most to read comes first.
"""

import asyncio
import logging
from typing import Final, Protocol

from stratalog.errors import StratalogError

MIB: Final = 1024 * 1024

log = logging.getLogger(__name__)


class TakesCheckpoints(Protocol):
    """A log, to ``CheckpointTurns``."""

    @property
    def name(self) -> str:
        """For messages."""

    async def take_checkpoint(self) -> None:
        """So that what is durable now need not be read at the next opening."""


class CheckpointTurns:
    """Shared by the logs of one disk."""

    def __init__(
        self,
        *,
        log_bytes_max: int = 64 * MIB,
        all_bytes_max: int = 512 * MIB,
        at_a_time: int = 2,
    ) -> None:
        self._log_bytes_max = log_bytes_max
        self._all_bytes_max = all_bytes_max
        self._at_a_time = at_a_time
        self._since: dict[TakesCheckpoints, int] = {}
        self._total = 0
        self._running: dict[TakesCheckpoints, asyncio.Task[None]] = {}

    def appended(self, which: TakesCheckpoints, size: int) -> None:
        """So many bytes of it became durable."""
        since = self._since.get(which, 0) + size
        self._since[which] = since
        self._total += size
        if since > self._log_bytes_max or self._total > self._all_bytes_max:
            self._begin()

    def taken(self, which: TakesCheckpoints) -> None:
        """A checkpoint of it begins, for whatever reason, and contains all of it."""
        self._total -= self._since.pop(which, 0)

    async def leave(self, which: TakesCheckpoints) -> None:
        """It closes. Waits for its checkpoint."""
        running = self._running.get(which)
        if running is not None:
            await asyncio.wait([running])
        self.taken(which)

    def _begin(self) -> None:
        if len(self._running) >= self._at_a_time:
            return
        waiting = [each for each in self._since if each not in self._running]
        if not waiting:
            return
        which = max(waiting, key=self._since.__getitem__)
        if self._since[which] > self._log_bytes_max or self._total > self._all_bytes_max:
            self._running[which] = asyncio.ensure_future(self._take(which))

    async def _take(self, which: TakesCheckpoints) -> None:
        try:
            await which.take_checkpoint()
        except StratalogError as error:
            # Tried again when as much was appended again: its bytes do not count any more.
            self.taken(which)
            log.warning(
                "%s: no checkpoint, so the next opening takes longer: %s", which.name, error
            )
        finally:
            del self._running[which]
        self._begin()
