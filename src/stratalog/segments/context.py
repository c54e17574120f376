"""What all parts of one running disk share: its files, its options, its counters."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stratalog.runtime import Runtime
from stratalog.segments.format import Clock, Payload
from stratalog.segments.io import File, FileSystem, in_sync_thread, typed
from stratalog.segments.options import DiskOptions
from stratalog.segments.stats import Meters

log = logging.getLogger(__name__)

TimeOf = Callable[[str, Payload], int | None]
"""The time of an entry in any unit, from the name of its partition and its payload; ``None`` if it
has none. Called in threads, when a segment is written and when a time is looked up."""


@dataclass(frozen=True, slots=True)
class DiskContext:
    """Made once by the engine and handed to each part."""

    files: FileSystem
    runtime: Runtime
    disk: bytes
    """The id of the data directory, which is in the head of every file."""
    options: DiskOptions
    meters: Meters
    remove_files: Callable[[Sequence[str]], None]
    """Removes files that no record of the journal names. Returns at once."""
    time_of: TimeOf | None = None
    """Tells the time of an entry, from the name of its partition and its payload."""

    def clock_of(self, partition: str) -> Clock | None:
        """The times of the entries of one partition, if anybody tells them."""
        hook = self.time_of
        if hook is None:
            return None

        def time_of(payload: Payload) -> int | None:
            try:
                return hook(partition, payload)
            except Exception:
                log.exception("the time of an entry of %r could not be told", partition)
                return None

        return time_of

    def new_nonce(self) -> str:
        """16 hex digits that distinguish a new file, in its name and in its head."""
        return self.runtime.new_id(16)

    async def begin_file(self, path: str, write: Callable[[File], None], doing: str) -> File:
        """A new file that stays open. ``write`` writes its beginning; then its name is synced.

        If that fails, the file is removed. ``doing`` describes the operation in the error.
        """

        def create() -> File:
            file = self.files.create(path)
            try:
                write(file)
                self.files.sync_folder(path.partition("/")[0])
            except OSError:
                file.close()
                raise
            return file

        try:
            return await in_sync_thread(create)
        except OSError as error:
            self.remove_files([path])
            raise typed(error, doing, path) from error
