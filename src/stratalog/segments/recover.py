"""Crash recovery: the steps of opening a data directory that has been used before.

1. ``DISK`` says whose directory it is. A directory without it has never been used.
2. The journal is replayed. A file that it names and that is missing, or has another size, is
   corruption: nothing is guessed.
3. The WAL files that it names are replayed in order. Their batches have consecutive numbers.
4. What was found is made durable, since a killed process may have left it unsynced, and a new
   journal begins.
5. Files that it does not name were left by a crash and are removed. Not earlier: after a loss of
   power the old journal, which may name them, would count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from stratalog.errors import Corrupt
from stratalog.indexset import IndexSet
from stratalog.segments.format import (
    FOLDERS,
    HEAD_BYTES,
    SUFFIXES,
    WAL_KIND,
    Batch,
    Checkpoint,
    Head,
    Layout,
    WalFile,
    batches,
    live_path,
    read_checkpoint,
)
from stratalog.segments.io import FileSystem, ReadableFiles, opened, read_file, write_file
from stratalog.segments.write_ahead import Replayed, must_exist, replay_journal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """The journal and the checkpoints of a data directory, before its WAL is replayed."""

    replayed: Replayed
    checkpoints: dict[int, Checkpoint]

    @property
    def layout(self) -> Layout:
        return self.replayed.layout


def find(files: FileSystem, disk: bytes) -> Found:
    """Replay the journal and check the files that it names. Read-only."""
    replayed = must_exist(replay_journal(files, disk))
    check_files(files, replayed.layout)
    checkpoints = {}
    for number, named in replayed.layout.checkpoints.items():
        with opened(files, named.path) as file:
            live = read_live(files, named.path)
            checkpoints[number] = read_checkpoint(file, disk, number, named.path, live)
    return Found(replayed, checkpoints)


def check_files(files: FileSystem, layout: Layout) -> None:
    """``Corrupt`` if a named file is missing or has another size."""
    there = {f"{folder}/{name}" for folder in FOLDERS[1:] for name in files.list(folder)}
    sizes = layout.sizes
    for path in sorted(layout.paths):
        if path not in there:
            raise Corrupt(
                f"{path} is missing",
                hint="Put it back, or restore this node's data from other replicas.",
                path=path,
            )
        expected = sizes.get(path)
        if expected is not None and (actual := size_of(files, path)) != expected:
            raise Corrupt(
                f"{path} has {actual} bytes instead of {expected}",
                hint="Keep it. Restore this node's data from other replicas.",
                path=path,
                expected=expected,
                actual=actual,
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


def make_durable(files: FileSystem, layout: Layout, last_batch: range) -> None:
    """Sync what was replayed, except the journal, whose successor repeats it.

    If the last sync of a killed process failed, the kernel takes the pages of its batch for clean,
    and another sync would skip them. So the last batch of the last file is first written again over
    itself, with the same bytes.
    """
    files.sync_folder("")
    for wal in layout.wals:
        is_last = wal.number == max(each.number for each in layout.wals)
        file = files.open_again(wal.path) if is_last and last_batch else files.open(wal.path)
        try:
            if is_last and last_batch:
                again = file.read_at(last_batch.start, len(last_batch))
                file.write_at(last_batch.start, again)
            file.sync()
        finally:
            file.close()


def remove_leftovers(files: FileSystem, found: Found, journal: str) -> None:
    """Remove files that are not named, and rewrite live sets that are missing or damaged.

    ``journal`` is the new one, which has removed its predecessor.
    """
    layout = found.layout
    named = {*layout.paths, found.replayed.path, journal}
    named.update(live_path(checkpoint.path) for checkpoint in layout.checkpoints.values())
    for folder in FOLDERS:
        for name in files.list(folder):
            path = f"{folder}/{name}"
            if path in named:
                continue
            if path.endswith(SUFFIXES):
                files.remove(path)
            else:
                log.warning("%s is not a file of ours and is left alone", path)
    for number, checkpoint in layout.checkpoints.items():
        if read_live(files, checkpoint.path) is None:
            _rewrite_live(files, checkpoint.path, found.checkpoints[number].live)


def _rewrite_live(files: FileSystem, path: str, live: IndexSet) -> None:
    log.warning("the live set beside %s is rewritten from the checkpoint", path)
    new = live_path(path) + ".new"
    write_file(files, new, [live.to_bytes()])
    files.rename(new, live_path(path))
    files.sync_folder("ckpt")


def replay_wal(
    files: ReadableFiles, disk: bytes, layout: Layout
) -> Iterator[tuple[WalFile, list[Batch], int]]:
    """For each WAL file the batches that count, and the number of the batch after them.

    ``Corrupt`` if a batch in the middle is damaged or missing.
    """
    wals = sorted(layout.wals, key=lambda wal: wal.number)
    heads = [wal_head(files, disk, wal) for wal in wals]
    expected, before = layout.next_batch, ""
    for place, (wal, head) in enumerate(zip(wals, heads, strict=True)):
        if head.first != expected:
            raise Corrupt(
                f"{before}{wal.path} begins with batch {head.first} instead of {expected}",
                hint="Keep the data directory. Restore this node's data from other replicas.",
                path=wals[place - 1].path if before else wal.path,
                expected=expected,
                actual=head.first,
            )
        found = list(batches(read_file(files, wal.path), head, wal.path))
        following = heads[place + 1].first if place + 1 < len(heads) else None
        if following is not None and found and following == found[-1].number:
            found.pop()  # its sync failed: the next file replaces it
        expected = head.first + len(found)
        end = found[-1].end if found else HEAD_BYTES
        before = f"{wal.path} is damaged at byte {end}, or lacks what followed: "
        yield wal, found, expected


def wal_head(files: ReadableFiles, disk: bytes, wal: WalFile) -> Head:
    with opened(files, wal.path) as file:
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), wal.path)
    return head.must_be(WAL_KIND, disk, wal.path)
