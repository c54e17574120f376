"""Staged files: bytes that wait for their name in a directory store, and show if it is in doubt.

Bytes are written to ``.stage`` and synced before anybody can see them. They become an object when
the file gets the object's name as its second one. The first name is removed only when the second is
known to be durable. So a file with two names marks a doubt: a writer was killed half-way, or its
disk failed. Every process sees the mark, and setting it takes no permission beyond that of a put.

Files of dead processes are removed by age, except such marks: they stay as long as their object.
"""

import contextlib
import os
import stat
from collections.abc import Iterator

from stratalog.errors import Unknown
from stratalog.runtime import Runtime
from stratalog.store.directory.durable import (
    UNSETTLED,
    found_root,
    make_missing,
    opened_durable,
    write_durably,
)
from stratalog.store.directory.no_links import is_link, link_in_the_way

STAGED_DIRECTORY = ".stage"
AGE_US_MAX = 3_600_000_000
_SPARE = "-spare"


class StagedFiles:
    """Files of the store at ``root`` that wait for their names, in a directory of their own."""

    def __init__(self, root: str, runtime: Runtime) -> None:
        self._root = root
        self._directory = os.path.join(root, STAGED_DIRECTORY)
        self._runtime = runtime
        self._swept = False

    def make(self) -> None:
        found_root(self._root)
        make_missing(self._directory, self._root)
        with opened_durable(self._directory, self._root):
            pass

    def make_missing(self, directory: str) -> None:
        """Make a directory of the store, and the store itself."""
        try:
            make_missing(directory, self._root)
        except FileNotFoundError:
            self.make()
            make_missing(directory, self._root)

    @contextlib.contextmanager
    def staged(self, data: bytes) -> Iterator[str]:
        """Bytes on the disk under a name that nobody else uses. ``Unknown`` leaves the file there
        as a mark."""
        self._refuse_link()
        staged = os.path.join(self._directory, self._runtime.new_id(24))
        try:
            write_durably(staged, data)
        except FileNotFoundError:
            self.make()
            write_durably(staged, data)
        try:
            yield staged
        except Unknown:
            raise
        except BaseException:
            discard(staged)
            raise

    def sweep_once(self) -> None:
        """Remove what dead processes left. A process that merely slept writes its file again."""
        if self._swept:
            return
        self._refuse_link()
        self._swept = True
        with contextlib.suppress(FileNotFoundError):
            if os.stat(self._directory).st_mode & UNSETTLED:
                self.make()
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if self._is_left_over(entry):
                            os.unlink(entry.path)

    def _refuse_link(self) -> None:
        """What lies elsewhere is not ours to remove, nor can it be linked to a name here."""
        if is_link(self._directory):
            raise link_in_the_way(self._directory, STAGED_DIRECTORY)

    def _is_left_over(self, entry: os.DirEntry[str]) -> bool:
        found = entry.stat(follow_symlinks=False)
        if is_doubtful(found) and not entry.name.endswith(_SPARE):
            return False
        return found.st_mtime_ns < (self._runtime.now_us() - AGE_US_MAX) * 1000


def link_over(staged: str, name: str, directory_fd: int) -> None:
    """What ``link`` does not do: give a file a second name that is taken, in one step."""
    spare = staged + _SPARE
    os.link(staged, spare)
    try:
        os.rename(spare, name, dst_dir_fd=directory_fd)
    except BaseException:
        discard(spare)
        raise


def is_doubtful(found: os.stat_result) -> bool:
    """Whether a file has a name that may not be durable."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink > 1


def discard(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
