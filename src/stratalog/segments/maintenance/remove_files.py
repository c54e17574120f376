"""Deleting files: flushed WAL files, dead segments, old checkpoints, old journals, failed attempts.

A file is deleted only after a durable record of the journal has dropped it, or if no record has
named it. All parts of the disk do that through ``DiskContext.remove_files``: the journal, after a
record that drops files (a flush drops its WAL file, a checkpoint and a compaction drop segments),
and whatever failed to make a new file.
"""

import logging
from collections.abc import Callable, Sequence

from stratalog.segments.io import FileSystem, Tasks, in_thread

log = logging.getLogger(__name__)


class FileRemover:
    """Deletes files in the background."""

    def __init__(self, files: FileSystem, on_removed: Callable[[str], None]) -> None:
        """``on_removed`` is called in a thread, also for a file that could not be deleted."""
        self._files = files
        self._on_removed = on_removed
        self.tasks = Tasks()
        self.failed: set[str] = set()
        """Files that could not be deleted yet."""

    def remove(self, paths: Sequence[str]) -> None:
        """Returns at once. A file that fails is retried with later ones, or by the next opening."""
        if paths:
            again, self.failed = self.failed, set()
            self.tasks.start(self._remove([*paths, *sorted(again)]))

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

        failed = await in_thread(remove)
        self.failed.update(failed)  # which another call may have replaced meanwhile
