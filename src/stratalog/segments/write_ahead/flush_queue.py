"""The queue of closed WAL files, from the WAL to the flusher."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from stratalog.errors import StratalogError
from stratalog.segments.format import FileEnd, WalFile


@dataclass(frozen=True, slots=True)
class ClosedWal:
    """A WAL file to which nothing more is written."""

    file: WalFile
    next_batch: int
    """The number of the first batch after it."""
    size: int
    end: int
    """Where its last batch ends."""
    is_clean: bool = True
    """Whether only zeros are behind it, durably. If not, it may be longer than ``size``."""

    @property
    def file_end(self) -> FileEnd:
        """As it is noted by a clean close."""
        return FileEnd(self.file.path, self.size, self.end, self.next_batch - 1, self.is_clean)


class FlushQueue:
    """Closed WAL files, oldest first. Back-pressure begins when it is full."""

    def __init__(self, files_max: int) -> None:
        self._files_max = files_max
        self._closed: deque[ClosedWal] = deque()
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
    def oldest(self) -> ClosedWal:
        return self._closed[0]

    def __iter__(self) -> Iterator[ClosedWal]:
        return iter(self._closed)

    def put(self, wal: ClosedWal) -> None:
        """Add a closed WAL file."""
        self._closed.append(wal)
        self.wake.set()

    def pop(self) -> None:
        """Drop the oldest file: it is in segments."""
        self._closed.popleft()
