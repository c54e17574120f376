"""Which files of a data directory count, and whether they are there. Read-only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from stratalog.errors import Corrupt, Invalid
from stratalog.indexset import IndexSet
from stratalog.segments.format import (
    FOLDERS,
    Checkpoint,
    CleanClose,
    Head,
    Layout,
    batches_anywhere,
    live_path,
    nonce_in,
    read_checkpoint,
    read_clean_close,
)
from stratalog.segments.io import ReadableFiles, opened, read_file
from stratalog.segments.write_ahead import Replayed, must_exist, replay_journal

_RESTORE = "Keep the data directory. Restore this node's data from other replicas."


@dataclass(frozen=True, slots=True)
class Found:
    """The journal and the checkpoints of a data directory, before its WAL is replayed."""

    replayed: Replayed
    checkpoints: dict[int, Checkpoint]
    closed: CleanClose | None

    @property
    def layout(self) -> Layout:
        return self.replayed.layout


def find(files: ReadableFiles, disk: bytes) -> Found:
    """Replay the journal and check the files that it names. Read-only."""
    closed = read_clean_close(files, disk)
    replayed = must_exist(replay_journal(files, disk))
    check_files(files, replayed.layout)
    for path in unnamed_wals(files, replayed.layout):
        raise record_missing(path)
    checkpoints = {}
    for number, named in replayed.layout.checkpoints.items():
        with opened(files, named.path) as file:
            live = read_live(files, named.path)
            checkpoints[number] = read_checkpoint(file, disk, number, named.path, live)
    return Found(replayed, checkpoints, closed)


def check_files(files: ReadableFiles, layout: Layout) -> None:
    """``Corrupt`` if a named file is missing or has another size."""
    there = {f"{folder}/{name}" for folder in FOLDERS[1:] for name in files.list(folder)}
    for path in sorted(layout.paths):
        if path not in there:
            raise Corrupt(
                f"{path} is missing",
                hint="Put it back, or restore this node's data from other replicas.",
                path=path,
            )
    for path, expected in sorted(layout.sizes.items()):
        if (actual := size_of(files, path)) != expected:
            raise _wrong_size(path, expected, actual)
    for wal in layout.wals:
        if (actual := size_of(files, wal.path)) < wal.size:
            raise _wrong_size(wal.path, wal.size, actual)


def _wrong_size(path: str, expected: int, actual: int) -> Corrupt:
    return Corrupt(
        f"{path} has {actual} bytes instead of {expected}",
        hint="Keep it. Restore this node's data from other replicas.",
        path=path,
        expected=expected,
        actual=actual,
    )


def unnamed_wals(files: ReadableFiles, layout: Layout) -> Iterator[str]:
    """WAL files with batches that a record must have named, because a file is named before use.

    A file with a number that was given out was flushed, or its record was given up.
    """
    named = layout.paths
    for name in files.list("wal"):
        path = f"wal/{name}"
        if path in named or not name.endswith(".wal"):
            continue
        number = name.partition(".")[0]
        if number.isascii() and number.isdecimal() and int(number) < layout.next_wal:
            continue
        if has_batches(files, path):
            yield path


def has_batches(files: ReadableFiles, path: str) -> bool:
    """Whether a WAL file has a whole batch of its own, not of a former life.

    Its nonce is in its name and in its head.
    """
    data = read_file(files, path)
    nonces = {nonce_in(path)}
    with contextlib.suppress(Corrupt, Invalid):
        nonces.add(Head.from_bytes(data, path).nonce)
    return any(any(batches_anywhere(data, nonce, path)) for nonce in nonces if nonce)


def record_missing(path: str) -> Corrupt:
    return Corrupt(
        f"{path} has batches, and no record of the journal names it: records are missing",
        hint=_RESTORE,
        path=path,
    )


def size_of(files: ReadableFiles, path: str) -> int:
    with opened(files, path) as file:
        return file.size()


def read_live(files: ReadableFiles, path: str) -> IndexSet | None:
    """The live set from the cache beside a checkpoint; ``None`` if that is unreadable."""
    try:
        return IndexSet.from_bytes(read_file(files, live_path(path)))
    except (OSError, Corrupt):
        return None
