"""Replaying the WAL files that the journal names.

What follows the last whole batch of a file, if that is not zeros:

1. *In a file that is not the last.* The head of the next file repeats how many batches came before
   it. If they are there, the rest is of a write that failed, and counts for nothing. If not, they
   were acknowledged and are damaged: ``Corrupt``.
2. *In the last file.* A batch that was torn, or one that was acknowledged and is damaged. Nothing
   can tell these apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stratalog.errors import Corrupt
from stratalog.segments.format import (
    HEAD_BYTES,
    WAL_KIND,
    Batch,
    Head,
    Layout,
    WalFile,
    batches,
    not_zero,
)
from stratalog.segments.io import ReadableFiles, opened, read_file
from stratalog.segments.write_ahead import ClosedWal

_RESTORE = "Keep the data directory. Restore this node's data from other replicas."


@dataclass(frozen=True, slots=True)
class ReplayedWal:
    """A WAL file with the batches that count."""

    wal: WalFile
    batches: Sequence[Batch]
    next_batch: int
    size: int
    rest: range
    """The bytes behind the last batch that are not zero."""

    @property
    def last_batch(self) -> range:
        """Where the last batch lies in the file; empty if there is none."""
        ends = [HEAD_BYTES, *(batch.end for batch in self.batches)]
        return range(*ends[-2:]) if self.batches else range(HEAD_BYTES, HEAD_BYTES)

    @property
    def may_be_cut(self) -> bool:
        """Whether nothing says that there was no more: format 1 has no size."""
        return not self.wal.size and self.last_batch.stop == self.size

    @property
    def closed(self) -> ClosedWal:
        end = self.last_batch.stop
        size = max(self.wal.size, end) if self.rest else self.size
        return ClosedWal(self.wal, self.next_batch, size, end, not self.rest)


def replay_wal(files: ReadableFiles, disk: bytes, layout: Layout) -> Iterator[ReplayedWal]:
    """The WAL files in order. ``Corrupt`` if a batch in the middle is damaged or missing."""
    wals = sorted(layout.wals, key=lambda wal: wal.number)
    heads = [wal_head(files, disk, wal) for wal in wals]
    expected, before = layout.next_batch, ""
    for place, (wal, head) in enumerate(zip(wals, heads, strict=True)):
        if head.first != expected:
            raise Corrupt(
                f"{before}{wal.path} begins with batch {head.first} instead of {expected}",
                hint=_RESTORE,
                path=wals[place - 1].path if before else wal.path,
                expected=expected,
                actual=head.first,
            )
        following = heads[place + 1].first if place + 1 < len(heads) else None
        replayed = replay_one(read_file(files, wal.path), wal, head, following)
        check_partitions(replayed, layout)
        expected = replayed.next_batch
        before = (
            f"{wal.path} is damaged at byte {replayed.last_batch.stop}, or lacks what followed: "
        )
        yield replayed


def replay_one(data: bytes, wal: WalFile, head: Head, following: int | None) -> ReplayedWal:
    """One WAL file. ``following`` is the number with which the next one begins."""
    found = list(batches(data, head, wal.path))
    if following is not None and found and following == found[-1].number:
        found.pop()  # its sync failed: the next file replaces it
    end = found[-1].end if found else HEAD_BYTES
    return ReplayedWal(wal, found, head.first + len(found), len(data), not_zero(data, end))


def check_partitions(replayed: ReplayedWal, layout: Layout) -> None:
    """``Corrupt`` if a batch is of a partition that no record has created."""
    for batch in replayed.batches:
        for section in batch.sections:
            if section.partition >= layout.next_partition:
                raise Corrupt(
                    f"{replayed.wal.path} has entries of partition {section.partition}, which no "
                    "record of the journal has created: records are missing",
                    hint=_RESTORE,
                    path=replayed.wal.path,
                    expected=layout.next_partition,
                    actual=section.partition,
                )


def wal_head(files: ReadableFiles, disk: bytes, wal: WalFile) -> Head:
    with opened(files, wal.path) as file:
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), wal.path)
    return head.must_be(WAL_KIND, disk, wal.path)
