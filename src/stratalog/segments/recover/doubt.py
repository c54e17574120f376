"""Doubtful bytes: a torn write that nobody was told of, or a damaged one that was acknowledged.

Nothing can tell these apart, so they are kept aside for a person, in ``doubt``, under the name of
their file and their position in it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stratalog.segments.format import DOUBT
from stratalog.segments.io import Buffer, FileSystem, ReadableFiles, opened, write_pieces
from stratalog.segments.recover.read_wal import ReplayedWal
from stratalog.segments.write_ahead import Replayed

PART = ".part"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Doubt:
    """Some bytes of a file."""

    path: str
    span: range

    @property
    def kept_as(self) -> str:
        return f"{DOUBT}/{self.path.rpartition('/')[2]}.{self.span.start}"


def doubts_of(journal: Replayed, last: ReplayedWal | None, *, is_closed: bool) -> list[Doubt]:
    """What is doubtful, given the last WAL file. Nothing is, after a clean close."""
    if is_closed:
        return []
    doubts = []
    if journal.is_doubtful:
        doubts.append(Doubt(journal.path, journal.rest))
    if last is not None and last.rest:
        doubts.append(Doubt(last.wal.path, last.rest))
    return doubts


def warn_of_cut(last: ReplayedWal | None) -> None:
    """There are no bytes to keep, but a person should know."""
    if last is not None and last.may_be_cut:
        log.warning(
            "%s is of format 1 and ends with its last batch: if it was cut off, entries are lost",
            last.wal.path,
        )


def keep_doubtful(files: FileSystem, doubts: Sequence[Doubt]) -> None:
    """Copy them aside, durably. What is there already may never have been synced."""
    if not doubts:
        return
    files.make_folder(DOUBT)
    files.sync_folder("")
    for doubt in doubts:
        with opened(files, doubt.path) as file:
            data = file.read_at(doubt.span.start, len(doubt.span))
        is_new = not files.exists(doubt.kept_as)
        replace_kept(files, doubt.kept_as, [[data]])
        if is_new:
            log.warning(
                "%s has %d doubtful bytes at %d: a write that a crash tore, or a damaged one that "
                "was acknowledged. They are kept in %s",
                doubt.path,
                len(data),
                doubt.span.start,
                doubt.kept_as,
            )
    files.sync_folder(DOUBT)


def replace_kept(files: FileSystem, path: str, pieces: Iterable[Sequence[Buffer]]) -> None:
    """A file in ``doubt``, whole or not at all. Its name is not durable yet."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(path + PART)
    write_pieces(files, path + PART, pieces)
    files.rename(path + PART, path)


def kept_doubtful(files: ReadableFiles) -> list[str]:
    """The paths of all that was kept aside."""
    return [f"{DOUBT}/{name}" for name in files.list(DOUBT) if not name.endswith(PART)]
