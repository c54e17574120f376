"""Reading damaged WAL files: all batches before the first that is missing or damaged count."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stratalog.errors import Corrupt
from stratalog.segments.format import (
    WAL_KIND,
    Batch,
    Head,
    Layout,
    WalFile,
    batches,
    batches_anywhere,
)
from stratalog.segments.io import ReadableFiles, read_file
from stratalog.segments.recover import unnamed_wals


@dataclass(slots=True)
class SalvagedWal:
    """The batches of all WAL files."""

    kept: list[Batch] = field(default_factory=list)
    lost: list[Batch] = field(default_factory=list)
    """Batches that are whole and come after one that is not."""
    next_batch: int = 1
    problem: str = ""
    """Why later batches do not count, if there are any."""
    adopted: list[str] = field(default_factory=list)
    """Files that no record names."""


@dataclass(frozen=True, slots=True)
class _File:
    wal: WalFile
    first: int | None
    """The number of its first batch, if its head is readable."""
    found: Sequence[Batch]
    later: Sequence[Batch]
    """Whole batches after damage."""
    problem: str


def salvage_wal(files: ReadableFiles, disk: bytes, layout: Layout) -> SalvagedWal:
    """What the named files have, and those that a record should have named."""
    unnamed = sorted(unnamed_wals(files, layout))
    named = [_read(files, disk, wal) for wal in sorted(layout.wals, key=lambda wal: wal.number)]
    adopted = [_read(files, disk, WalFile(0, path)) for path in unnamed]
    result = SalvagedWal(next_batch=layout.next_batch, adopted=unnamed)
    listed = [*named, *sorted(adopted, key=lambda each: each.first or 0)]
    for place, each in enumerate(listed):
        if each.wal.path in unnamed and not _has_more(each, result):
            continue
        if not result.problem:
            following = listed[place + 1].first if place + 1 < len(listed) else None
            _take(result, each, following)
        else:
            result.lost += [*each.found, *each.later]
    return result


def _has_more(each: _File, result: SalvagedWal) -> bool:
    """A repair that was cut short leaves a file with nothing but batches that are kept anyway."""
    return any(batch.number >= result.next_batch for batch in (*each.found, *each.later))


def _take(result: SalvagedWal, each: _File, following: int | None) -> None:
    if each.first is not None and each.first != result.next_batch:
        result.problem = (
            f"{each.wal.path} begins with batch {each.first} instead of {result.next_batch}"
        )
    elif each.first is None:
        result.problem = each.problem
    if result.problem:
        result.lost += [*each.found, *each.later]
        return
    found = list(each.found)
    if following is not None and found and found[-1].number == following:
        found.pop()  # its sync failed: the next file replaces it
    result.kept += found
    result.next_batch += len(found)
    result.lost += each.later
    result.problem = each.problem


def _read(files: ReadableFiles, disk: bytes, wal: WalFile) -> _File:
    try:
        data = read_file(files, wal.path)
    except FileNotFoundError:
        return _File(wal, None, [], [], f"{wal.path} is missing")
    try:
        head = Head.from_bytes(data, wal.path).must_be(WAL_KIND, disk, wal.path)
    except Corrupt as error:
        return _File(wal, None, [], list(batches_anywhere(data, wal.path)), str(error))
    found: list[Batch] = []
    problem = ""
    try:
        found.extend(batches(data, head, wal.path))
    except Corrupt as error:
        problem = str(error)
    if len(data) < wal.size:
        problem = f"{wal.path} has {len(data)} bytes instead of {wal.size}"
    last = found[-1].number if found else 0
    later = [each for each in batches_anywhere(data, wal.path) if each.number > last]
    return _File(wal, head.first, found, later, problem)


def without(batch: Batch, cut: dict[int, int]) -> Batch:
    """Without the sections of partitions that end before this batch."""
    kept = [
        each for each in batch.sections if batch.number < cut.get(each.partition, batch.number + 1)
    ]
    return Batch(batch.number, kept, batch.end)


def first_lost(lost: Sequence[Batch]) -> Iterator[tuple[int, int]]:
    """Of each partition with lost sections, the first index that they begin with."""
    seen: dict[int, int] = {}
    for batch in lost:
        for section in batch.sections:
            index = section.entries.first or section.previous + 1
            with contextlib.suppress(KeyError):
                index = min(index, seen[section.partition])
            seen[section.partition] = index
    yield from sorted(seen.items())
