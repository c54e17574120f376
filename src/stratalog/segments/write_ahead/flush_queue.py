"""The queue of closed WAL files, from the WAL to the flusher."""

from __future__ import annotations

import asyncio
from collections import deque

from stratalog.errors import StratalogError
from stratalog.segments.format import WalFile


class FlushQueue:
    """Closed WAL files, oldest first. Back-pressure begins when it is full."""

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._closed: deque[tuple[WalFile, int]] = deque()
        self.wake = asyncio.Event()
        """Set when a file arrives, and when a failed flush should be tried again at once."""
        self.failure: StratalogError | None = None
        """Why the last flush failed, if it did."""

    def __len__(self) -> int:
        return len(self._closed)

    @property
    def is_full(self) -> bool:
        return len(self._closed) >= self._files_max

    @property
    def oldest(self) -> tuple[WalFile, int]:
        return self._closed[0]

    def put(self, wal: WalFile, next_batch: int) -> None:
        """Add a closed WAL file, with the number of the first batch after it."""
        self._closed.append((wal, next_batch))
        self.wake.set()

    def pop(self) -> None:
        """Drop the oldest file: it is in segments."""
        self._closed.popleft()
