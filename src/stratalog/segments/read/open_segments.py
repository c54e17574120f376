"""A cache of open segment files and their indexes.

An open file stays readable after compaction has removed its name, so a reader that holds one can
always finish.
"""

import contextlib
import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from stratalog.segments.format import SegmentIndex
from stratalog.segments.io import File, FileSystem
from stratalog.segments.options import DiskOptions

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Open:
    file: File
    index: SegmentIndex
    users: int = 0
    is_forgotten: bool = False
    """Its last user closes it."""


class OpenSegments:
    """The open segment files of a disk, by least recent use. Thread-safe."""

    def __init__(self, files: FileSystem, disk: bytes, options: DiskOptions) -> None:
        self._files = files
        self._disk = disk
        self._options = options
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._opening: Counter[str] = Counter()
        self._gone: set[str] = set()
        """Files that are being opened and were forgotten meanwhile."""
        self._to_close: deque[File] = deque()
        self._bytes = 0
        self._is_closed = False

    @contextlib.contextmanager
    def using(self, partition: int, path: str) -> Iterator[tuple[File, SegmentIndex]]:
        """``FileNotFoundError`` if the name is gone, ``Corrupt`` if it is not this segment."""
        opened = self._take(path) or self._add(partition, path)
        try:
            yield opened.file, opened.index
        finally:
            with self._closing(), self._lock:
                opened.users -= 1
                if opened.is_forgotten and not opened.users:
                    self._to_close.append(opened.file)
                self._shrink()

    def forget(self, path: str) -> None:
        """Close a file when its last reader has finished: only then is its space freed."""
        with self._closing(), self._lock:
            if path in self._open:
                self._close(path)
            if path in self._opening:
                self._gone.add(path)

    def close(self) -> None:
        with self._closing(), self._lock:
            self._is_closed = True
            for path in list(self._open):
                self._close(path)

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        """At the end, close files without the lock: to free a nameless file takes a while."""
        yield
        while self._to_close:
            try:
                self._to_close.popleft().close()
            except IndexError:
                return  # another thread was faster
            except OSError as error:
                log.warning("a segment file could not be closed: %s", error)

    def _take(self, path: str) -> _Open | None:
        with self._lock:
            opened = self._open.get(path)
            if opened is not None:
                opened.users += 1
                self._open.move_to_end(path)
            return opened

    def _add(self, partition: int, path: str) -> _Open:
        with self._lock:
            self._opening[path] += 1
        try:
            made = self._read(partition, path)
        except BaseException:
            with self._lock:
                self._is_opened(path)
            raise
        with self._closing(), self._lock:
            return self._keep(path, made, is_gone=self._is_opened(path))

    def _is_opened(self, path: str) -> bool:
        """One opening of it has ended. Returns whether the file was forgotten meanwhile."""
        is_gone = path in self._gone
        self._opening[path] -= 1
        if not self._opening[path]:
            del self._opening[path]
            self._gone.discard(path)
        return is_gone

    def _read(self, partition: int, path: str) -> _Open:
        file = self._files.open(path)
        try:
            return _Open(file, SegmentIndex.read(file, self._disk, partition, path))
        except BaseException:
            file.close()
            raise

    def _keep(self, path: str, made: _Open, *, is_gone: bool) -> _Open:
        opened = made
        if is_gone:
            made.is_forgotten = True
        elif path in self._open:
            opened = self._open[path]
            self._to_close.append(made.file)
        else:
            self._open[path] = made
            self._bytes += made.index.bytes_in_memory
        opened.users += 1
        return opened

    def _shrink(self) -> None:
        files_max = 0 if self._is_closed else self._options.open_files_max
        while len(self._open) > files_max or self._bytes > self._options.index_cache_bytes:
            unused = next((path for path, opened in self._open.items() if not opened.users), None)
            if unused is None:
                return
            self._close(unused)

    def _close(self, path: str) -> None:
        opened = self._open.pop(path)
        self._bytes -= opened.index.bytes_in_memory
        opened.is_forgotten = True
        if not opened.users:
            self._to_close.append(opened.file)
