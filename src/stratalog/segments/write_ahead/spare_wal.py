"""The spare: one WAL file that was flushed, and is kept to be written over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.segments.options import DiskOptions
from stratalog.segments.write_ahead.flush_queue import ClosedWal


@dataclass(eq=False)
class SpareWal:
    """Holds one path at most. No record names it, so the next opening removes what is left of it.

    ``offer`` is called when the record that the file is flushed is durable, and before the file is
    removed for that reason.
    """

    _options: DiskOptions
    path: str | None = None
    _is_closed: bool = False

    def offer(self, flushed: ClosedWal) -> None:
        """Keep a file, if there is none yet and it is as a new one would be: it was full, it has
        about the size of a new one, and no write to it has failed."""
        least = self._options.wal_file_bytes
        most = least + self._options.batch_bytes_max
        is_fit = flushed.is_clean and flushed.end >= least <= flushed.size <= most
        if is_fit and self.path is None and not self._is_closed:
            self.path = flushed.file.path

    def without_kept(self, paths: Sequence[str]) -> list[str]:
        """Of files that no record names any more, those that are not kept."""
        return [path for path in paths if path != self.path]

    def take(self) -> str | None:
        """The file, which its taker writes over or removes."""
        path, self.path = self.path, None
        return path

    def close(self) -> str | None:
        """Keep nothing any more. Gives what was kept."""
        self._is_closed = True
        return self.take()
