"""What a data directory consists of: its folders, and the file ``DISK`` that says whose it is.

``DISK`` is JSON: the id of the disk, born with the directory, and the format. Persisted: keep
stable. It is the last thing that making a directory writes. It has no checksum, but only one form:
what is not what its content encodes to was changed.
"""

import contextlib

import msgspec

from stratalog.errors import Corrupt, Invalid
from stratalog.segments.format.clean_close import CLOSED
from stratalog.segments.format.frame import HEAD_BYTES, MAJOR, Head
from stratalog.segments.io import FileSystem, ReadableFiles, opened, read_file, write_file

FOLDERS = ("journal", "wal", "seg", "ckpt")
SUFFIXES = (".journal", ".wal", ".seg", ".ckpt", ".live", ".live.new")
DISK = "DISK"
DOUBT = "doubt"
"""The folder of what was kept aside. It is made when there is something."""


class Identity(msgspec.Struct, frozen=True):
    """The file ``DISK``: the id is born with the data directory."""

    disk: str
    format: int = MAJOR


def read_identity(files: ReadableFiles) -> Identity | None:
    """``None`` if the directory was never used. ``Corrupt`` if it was, and does not say by whom."""
    if not files.exists(DISK):
        used = [name for folder in (*FOLDERS[1:], DOUBT) for name in files.list(folder)]
        if used or files.exists(CLOSED):
            raise Corrupt(
                f"there is no {DISK}, yet there are files like {[*used, CLOSED][0]}",
                hint="Put the file back. Do not begin anew over data.",
                path=DISK,
            )
        return None
    data = read_file(files, DISK)
    try:
        found = msgspec.json.decode(data, type=Identity)
        if len(bytes.fromhex(found.disk)) != 16:
            raise ValueError("its id has another length")
        if found.format < 1:
            raise ValueError(f"there is no format {found.format}")
        if msgspec.json.encode(Identity(bytes.fromhex(found.disk).hex(), found.format)) != data:
            raise ValueError("it is not what was written")
        if found.format > MAJOR and _is_used_by_this_version(files):
            raise ValueError(f"it says format {found.format}, unlike the journal")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corrupt(f"{DISK} is damaged: {error}", path=DISK) from None
    if found.format > MAJOR:
        raise Invalid(
            f"the data directory has format {found.format}, and this version knows {MAJOR}",
            hint="Use a newer version of stratalog.",
            expected=MAJOR,
            actual=found.format,
        )
    return found


def _is_used_by_this_version(files: ReadableFiles) -> bool:
    """Whether there is a journal that this version can read."""
    for name in files.list(FOLDERS[0]):
        with contextlib.suppress(Corrupt, Invalid), opened(files, f"{FOLDERS[0]}/{name}") as file:
            Head.from_bytes(file.read_at(0, HEAD_BYTES), name)
            return True
    return False


def prepare_folders(files: FileSystem) -> None:
    """Make the folders of a new data directory, without what a crash left of an earlier try."""
    known = {DISK, f"{DISK}.new", "LOCK", "lost+found", *FOLDERS}
    foreign = [name for name in files.list("") if name not in known]
    if foreign:
        raise Invalid(
            f"the directory is not empty: it has {foreign[0]!r}",
            hint="Choose an empty directory, or one that a node has used before.",
        )
    for folder in FOLDERS:
        files.make_folder(folder)
    for name in files.list("journal"):
        files.remove(f"journal/{name}")
    for folder in (*FOLDERS, ""):
        files.sync_folder(folder)


def write_identity(files: FileSystem, disk: str) -> None:
    """The last step of making a data directory."""
    new = f"{DISK}.new"
    with contextlib.suppress(FileNotFoundError):
        files.remove(new)
    write_file(files, new, [msgspec.json.encode(Identity(disk))])
    files.rename(new, DISK)
    files.sync_folder("")
