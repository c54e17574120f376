"""Replaying the WAL files that the journal names.

What is behind the last whole batch of a file (``bytes_behind``):

1. *In a file that another one follows.* The next file says how many batches came before it: in its
   head, or, if it was prepared ahead, by its first batch. If they are there, the rest is of a write
   that failed, and counts for nothing. If not, they were acknowledged and are damaged: ``Corrupt``.
2. *In the last file.* A batch that was torn, or one that was acknowledged and is damaged. Nothing
   can tell these apart.

A file that was prepared ahead and has nothing of its own was not begun. Then the file before it may
be the last. It is begun only when that one has nothing behind its last batch.
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
    bytes_behind,
    first_batch,
    nonce_in,
)
from stratalog.segments.io import ReadableFiles, opened, read_file
from stratalog.segments.write_ahead import ClosedWal

_RESTORE = "Keep the data directory. Restore this node's data from other replicas."


@dataclass(frozen=True, slots=True)
class FoundWal:
    """A WAL file and its head."""

    wal: WalFile
    head: Head
    first: int | None
    """The number of its first batch, if its head or that batch says it."""


def voided_by(later: Sequence[FoundWal]) -> int | None:
    """The batch from which on a file does not count, as the head of the next one says.

    A file that was prepared ahead says nothing of the kind: it is begun after no failure.
    """
    following = next((each for each in later if each.first is not None), None)
    return following.head.first or None if following else None


@dataclass(frozen=True, slots=True)
class ReplayedWal:
    """A WAL file with the batches that count."""

    found: FoundWal
    batches: Sequence[Batch]
    next_batch: int
    size: int
    rest: range
    """The bytes behind the last batch that are not zero, nor of a former life of the file."""

    @property
    def wal(self) -> WalFile:
        return self.found.wal

    @property
    def is_unused(self) -> bool:
        """Whether it was prepared ahead and not begun."""
        return not self.found.head.first and not self.batches and not self.rest

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
    found = [find_wal(files, disk, wal) for wal in wals]
    expected, before = layout.next_batch, None
    for place, each in enumerate(found):
        if each.first not in (expected, None):
            damaged = f"{_place(before)} is damaged, or lacks what followed: " if before else ""
            raise Corrupt(
                f"{damaged}{each.wal.path} begins with batch {each.first} instead of {expected}",
                hint=_RESTORE,
                path=before.wal.path if before else each.wal.path,
                expected=expected,
                actual=each.first,
            )
        data = read_file(files, each.wal.path)
        replayed = replay_one(data, each, expected, voided_by(found[place + 1 :]))
        if before is not None:
            must_be_whole_before(before, replayed)
        check_partitions(replayed, layout)
        expected = replayed.next_batch
        if not replayed.is_unused:
            before = replayed
        yield replayed


def replay_one(data: bytes, found: FoundWal, first: int, voided: int | None) -> ReplayedWal:
    """One WAL file, which begins with a batch, and does not count from another one on."""
    there = list(batches(data, found.head, first, found.wal.path))
    if there and voided == there[-1].number:
        there.pop()  # its sync failed: the next file replaces it
    end = there[-1].end if there else HEAD_BYTES
    rest = bytes_behind(data, found.head, end)
    return ReplayedWal(found, there, first + len(there), len(data), rest)


def must_be_whole_before(before: ReplayedWal, following: ReplayedWal) -> None:
    """``Corrupt`` if a prepared file was begun although the one before it ends with a rest."""
    if before.rest and following.found.first is None and not following.is_unused:
        raise Corrupt(
            f"{_place(before)} is damaged: {following.wal.path} was begun after it",
            hint=_RESTORE,
            path=before.wal.path,
            actual=before.last_batch.stop,
        )


def _place(replayed: ReplayedWal) -> str:
    return f"{replayed.wal.path} at byte {replayed.last_batch.stop}"


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


def find_wal(files: ReadableFiles, disk: bytes, wal: WalFile) -> FoundWal:
    """``Corrupt`` if its head is damaged, or is not of this file."""
    with opened(files, wal.path) as file:
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), wal.path)
        head.must_be(WAL_KIND, disk, wal.path)
        if head.nonce != (nonce_in(wal.path) or head.nonce):
            raise Corrupt(f"{wal.path} has the head of another file", hint=_RESTORE, path=wal.path)
        return FoundWal(wal, head, first_batch(file, head))
