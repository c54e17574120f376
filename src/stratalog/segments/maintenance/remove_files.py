"""Removing files: flushed WAL files, dead segments, old checkpoints and journals, failed tries.

A file goes only after a durable record of the journal has stopped naming it, or when none ever
named it. The journal and whoever gave up a new file ask for that (``DiskContext.remove_files``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from stratalog.segments.io import FileSystem, Tasks, in_thread

log = logging.getLogger(__name__)


class FileRemover:
    """Removes files in the background."""

    def __init__(self, files: FileSystem, on_removed: Callable[[str], None]) -> None:
        """``on_removed`` is called in a thread."""
        self._files = files
        self._on_removed = on_removed
        self._tasks = Tasks()
        self.failed: set[str] = set()
        """Files that could not be removed yet."""

    def remove(self, paths: Sequence[str]) -> None:
        """Files that fail are tried again with the next ones, at the latest at the next opening."""
        if paths:
            again, self.failed = self.failed, set()
            self._tasks.start(self._remove([*paths, *sorted(again)]))

    async def finish(self) -> None:
        """Wait for the removals that were begun."""
        await self._tasks.end()

    async def _remove(self, paths: list[str]) -> None:
        def remove() -> list[str]:
            failed = []
            for path in paths:
                try:
                    self._files.remove(path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    log.warning("%s could not be removed: %s", path, error)
                    failed.append(path)
                self._on_removed(path)
            return failed

        self.failed.update(await in_thread(remove))
