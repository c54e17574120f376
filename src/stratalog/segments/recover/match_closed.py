"""Comparing a data directory with what it was when it was closed cleanly."""

from collections.abc import Iterator, Sequence

from stratalog.errors import Corrupt
from stratalog.segments.format import CLOSED, CleanClose, FileEnd
from stratalog.segments.write_ahead import Replayed

_KEEP = "Keep the data directory. Restore this node's data from other replicas."


def must_match(closed: CleanClose, replayed: Replayed, wals: Sequence[FileEnd]) -> None:
    """``Corrupt`` at the first difference."""
    for path, why in differences(closed, replayed, wals):
        raise Corrupt(f"{path} was changed after it was closed: {why}", hint=_KEEP, path=path)


def differences(
    closed: CleanClose, replayed: Replayed, wals: Sequence[FileEnd]
) -> Iterator[tuple[str, str]]:
    """Each with the path of the file, and why."""
    size = replayed.size
    path, end, last = replayed.path, replayed.end, replayed.last_record
    journal = FileEnd(path, size, end, last, replayed.is_clean)
    if (path, replayed.file_number) != (closed.journal.path, closed.number):
        yield CLOSED, f"it names {closed.journal.path} instead of {path}"
    elif why := difference(closed.journal, journal):
        yield path, why
    found = {wal.path: wal for wal in wals}
    expected = {wal.path: wal for wal in closed.wals}
    for path in sorted(found.keys() ^ expected.keys()):
        yield CLOSED, f"only {'it' if path in expected else 'the journal'} names {path}"
    for path in sorted(found.keys() & expected.keys()):
        if why := difference(expected[path], found[path]):
            yield path, why


def difference(closed: FileEnd, found: FileEnd) -> str:
    """Why a file is not as it was. Empty if it is."""
    if found.size < closed.size or (closed.is_clean and found.size != closed.size):
        return f"it has {found.size} bytes instead of {closed.size}"
    if (found.end, found.last) != (closed.end, closed.last):
        return (
            f"it ends at byte {found.end} with number {found.last}, "
            f"instead of byte {closed.end} with number {closed.last}"
        )
    if closed.is_clean and not found.is_clean:
        return f"there is something behind its end at byte {closed.end}"
    return ""
