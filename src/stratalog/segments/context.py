"""What all parts of one running disk share: its files, its options, its counters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stratalog.runtime import Runtime
from stratalog.segments.io import File, FileSystem, in_sync_thread, typed
from stratalog.segments.options import DiskOptions
from stratalog.segments.stats import Meters


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
