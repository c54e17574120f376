"""Fresh folders on the local disk, and files that note their writes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog.segments.io.files import Buffer, File, LocalFiles


@contextmanager
def fresh_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="stratalog-bench-disk-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _TellingFile:
    def __init__(self, file: File, sizes: list[int]) -> None:
        self._file = file
        self._sizes = sizes
        self.read_at, self.read_into, self.size = file.read_at, file.read_into, file.size
        self.write_at = file.write_at
        self.allocate, self.sync, self.close = file.allocate, file.sync, file.close

    def write_durably(self, position: int, *parts: Buffer) -> int:
        size = self._file.write_durably(position, *parts)
        self._sizes.append(size)
        return size


class NotingFiles(LocalFiles):
    """Notes how large each write to a WAL file is."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.wal_writes: list[int] = []

    def create(self, path: str) -> File:
        file = super().create(path)
        return _TellingFile(file, self.wal_writes) if path.startswith("wal/") else file
