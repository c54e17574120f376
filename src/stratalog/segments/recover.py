"""Opening a data directory: what a crash left is put in order before anything else happens.

1. ``DISK`` says whose directory it is. It is the last thing that making one writes, so a directory
   without it has never been used.
2. The journal says which files there are. One that it names and that is missing, or has another
   size, is corruption: nothing is guessed.
3. The WAL files that it names are replayed, in order: their batches have consecutive numbers.
4. What was found is made durable: a process that was killed may have left it unsynced. A new
   journal begins.
5. What it does not name was left by a crash, and is removed. Not before: the old journal may name
   it again when the power is lost.
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
    PartitionLayout,
    WalFile,
    batches,
    live_path,
    read_checkpoint,
)
from stratalog.segments.io import FileSystem, ReadableFiles, opened, read_file, write_file
from stratalog.segments.write_ahead import Replayed, replay_journal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """What a data directory holds, before its WAL is replayed."""

    replayed: Replayed
    checkpoints: dict[int, Checkpoint]

    @property
    def layout(self) -> Layout:
        return self.replayed.layout


def find(files: FileSystem, disk: bytes) -> Found:
    """What the journal says, with everything that it names looked at. Nothing is changed."""
    replayed = replay_journal(files, disk)
    if replayed is None:
        raise Corrupt(
            "the data directory has no journal",
            hint="Put it back. Without it nobody knows which files count.",
            path="journal",
        )
    check_files(files, replayed.layout)
    checkpoints = {}
    for partition in replayed.layout.partitions.values():
        found = read_current_checkpoint(files, disk, partition)
        if found is not None:
            checkpoints[partition.number] = found
    return Found(replayed, checkpoints)


def check_files(files: FileSystem, layout: Layout) -> None:
    """``Corrupt`` if a file is missing, or has another size than when it was named."""
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


def read_current_checkpoint(
    files: ReadableFiles, disk: bytes, partition: PartitionLayout
) -> Checkpoint | None:
    """The checkpoint of a partition. Its live set is taken from the file that has it alone."""
    if partition.checkpoint is None:
        return None
    path = partition.checkpoint.path
    with opened(files, path) as file:
        return read_checkpoint(file, disk, partition.number, path, read_live(files, path))


def read_live(files: ReadableFiles, path: str) -> IndexSet | None:
    """The live set of a checkpoint, from the file that has it alone, if that is whole."""
    try:
        return IndexSet.from_bytes(read_file(files, live_path(path)))
    except (OSError, Corrupt):
        return None


def make_durable(files: FileSystem, layout: Layout, last_batch: range) -> None:
    """Sync what was read. The journal needs none: its successor repeats it.

    If the last sync of a process that was killed had failed, the kernel takes the pages of its
    batch for clean, so that a sync would do nothing for them. Therefore the last batch of the last
    file is written again, over itself: whatever is torn of that is as it was.
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


def tidy(files: FileSystem, found: Found, journal: str) -> list[str]:
    """Remove what nobody names, and make live-index files again that are missing or damaged.

    ``journal`` is the one that has begun. The one before it is removed by it.
    """
    layout = found.layout
    named = {*layout.paths, found.replayed.path, journal}
    named.update(live_path(checkpoint.path) for checkpoint in layout.checkpoints)
    removed = []
    for folder in FOLDERS:
        for name in files.list(folder):
            path = f"{folder}/{name}"
            if path in named:
                continue
            if path.endswith(SUFFIXES):
                files.remove(path)
                removed.append(path)
            else:
                log.warning("%s is not a file of ours and is left alone", path)
    for partition in layout.partitions.values():
        if partition.checkpoint is not None:
            _mend_live(files, partition.checkpoint.path, found.checkpoints[partition.number].live)
    return removed


def _mend_live(files: FileSystem, path: str, live: IndexSet) -> None:
    if read_live(files, path) is not None:
        return
    log.warning("the live set beside %s is made again from the checkpoint", path)
    new = live_path(path) + ".new"
    write_file(files, new, [live.to_bytes()])
    files.rename(new, live_path(path))
    files.sync_folder("ckpt")


def replay_wal(
    files: ReadableFiles, disk: bytes, layout: Layout
) -> Iterator[tuple[WalFile, list[Batch], int]]:
    """Each WAL file with the batches of it that count, and the number of the batch after them.

    ``Corrupt`` if a batch in the middle is damaged, or if there is none where one should be.
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
            found.pop()  # its sync failed, and the next file has it again or has another
        expected = head.first + len(found)
        end = found[-1].end if found else HEAD_BYTES
        before = f"{wal.path} is damaged at byte {end}, or lacks what followed: "
        yield wal, found, expected


def wal_head(files: ReadableFiles, disk: bytes, wal: WalFile) -> Head:
    with opened(files, wal.path) as file:
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), wal.path)
    return head.must_be(WAL_KIND, disk, wal.path)
