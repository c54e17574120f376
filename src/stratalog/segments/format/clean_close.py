"""The file ``CLOSED``: what a data directory was when it was closed cleanly.

Persisted: keep stable. The head's kind is ``CLS1``, its ``number`` the journal's, its ``first`` the
number of the journal's last record.

    head 64 | description size u32 | CRC-32 of the description u32 | description (JSON)

It is written to another name, synced and renamed, so it is there whole or not at all. Opening
renames it back before it changes anything, and removes it when a new journal counts. While it is
there nothing can be torn, so whatever differs from it is damage.
"""

import contextlib

import msgspec

from stratalog.errors import Corrupt
from stratalog.segments.format.checksum import crc32
from stratalog.segments.format.frame import HEAD_BYTES, Head
from stratalog.segments.io import FileSystem, ReadableFiles, read_file, write_file

CLOSED = "CLOSED"
_NEW = "CLOSED.new"

_KIND = b"CLS1"


class FileEnd(msgspec.Struct, frozen=True):
    """A file that grows: its size, where what counts ends, and the last number in it."""

    path: str
    size: int
    end: int
    last: int
    is_clean: bool = True
    """Whether all bytes behind the end are zero. A write that failed leaves others, of which
    nobody knows whether they are durable."""


class CleanClose(msgspec.Struct, frozen=True):
    """The ends of the journal and of all WAL files."""

    number: int
    """Of the journal."""
    journal: FileEnd
    wals: tuple[FileEnd, ...]

    def to_bytes(self, disk: bytes) -> bytes:
        description = msgspec.json.encode(self)
        sizes = len(description).to_bytes(4, "little") + crc32(description).to_bytes(4, "little")
        head = Head(_KIND, disk, bytes(8), self.number, self.journal.last).to_bytes()
        return head + sizes + description


def read_clean_close(files: ReadableFiles, disk: bytes) -> CleanClose | None:
    """``None`` if the directory was not closed cleanly. ``Corrupt`` if the file is damaged."""
    if not files.exists(CLOSED):
        return None
    data = read_file(files, CLOSED)
    Head.from_bytes(data, CLOSED).must_be(_KIND, disk, CLOSED)
    try:
        found = msgspec.json.decode(data[HEAD_BYTES + 8 :], type=CleanClose)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{CLOSED} is damaged: {error}", path=CLOSED) from None
    if found.to_bytes(disk) != data:
        raise Corrupt(f"{CLOSED} is damaged: it is not what was written", path=CLOSED)
    return found


def write_clean_close(files: FileSystem, disk: bytes, found: CleanClose) -> None:
    """The last step of closing."""
    remove_set_aside(files)
    write_file(files, _NEW, [found.to_bytes(disk)])
    files.rename(_NEW, CLOSED)
    files.sync_folder("")


def set_aside_clean_close(files: FileSystem) -> None:
    """The first step of opening, durable before anything else is changed.

    Renaming it takes no room on the disk, so it can be put back on a full one.
    """
    remove_set_aside(files)
    with contextlib.suppress(FileNotFoundError):
        files.rename(CLOSED, _NEW)
    files.sync_folder("")


def put_back_clean_close(files: FileSystem) -> None:
    """After an opening that has changed nothing else."""
    files.rename(_NEW, CLOSED)
    files.sync_folder("")


def remove_set_aside(files: FileSystem) -> None:
    """It need not be durable: the name means nothing to the next opening."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(_NEW)


def remove_clean_close(files: FileSystem) -> None:
    """Before a repair changes anything, durably."""
    for path in (_NEW, CLOSED):
        with contextlib.suppress(FileNotFoundError):
            files.remove(path)
    files.sync_folder("")
