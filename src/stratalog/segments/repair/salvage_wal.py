"""Reading damaged WAL files: all batches before the first that is missing or damaged count."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stratalog.errors import Corrupt
from stratalog.segments.format import (
    GROWING_MAJOR,
    HEAD_BYTES,
    WAL_KIND,
    Batch,
    Head,
    Layout,
    WalFile,
    batches,
    batches_anywhere,
    bytes_behind,
    described_batches,
    first_batch,
    frame_at,
    major_of,
    nonce_in,
)
from stratalog.segments.io import ReadableFiles, opened, read_file
from stratalog.segments.recover import unnamed_wals


@dataclass(slots=True)
class SalvagedWal:
    """The batches of all WAL files."""

    kept: list[Batch] = field(default_factory=list)
    lost: list[Batch] = field(default_factory=list)
    """Batches that come after one that is missing, and damaged ones as far as they say of what."""
    doubtful: Sequence[Batch] = ()
    """The end of the last file, if nothing proves that it was acknowledged."""
    next_batch: int = 1
    ends_with_rest: bool = False
    """Whether something is behind the last batch of the file that was read last."""
    problem: str = ""
    """Why later batches do not count, if there are any."""
    adopted: list[str] = field(default_factory=list)
    """Files that no record names."""
    rebuilt: list[str] = field(default_factory=list)
    """Files of which only the head is damaged."""
    unused: list[str] = field(default_factory=list)
    """Files that were prepared ahead and have nothing of their own."""


@dataclass(frozen=True, slots=True)
class _File:
    wal: WalFile
    head: Head | None
    first: int | None
    """The number of its first batch, if its head or that batch says it."""
    found: Sequence[Batch]
    later: Sequence[Batch]
    """Whole batches after damage."""
    damaged: Sequence[Batch]
    """Batches behind the last that counts, without their entries."""
    problem: str
    is_rebuilt: bool = False
    """Whether its head was damaged, and is known from elsewhere."""
    has_rest: bool = False
    """Whether something of its own is behind its last batch."""
    is_unused: bool = False
    """Whether it was prepared ahead and not begun."""

    @property
    def voids_from(self) -> int | None:
        """The batch from which on the file before it does not count."""
        return self.head.first or None if self.head else None


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
        if each.is_rebuilt:
            result.rebuilt.append(each.wal.path)
        if each.is_unused:
            result.unused.append(each.wal.path)
            continue
        if not result.problem:
            later = [other for other in listed[place + 1 :] if not other.is_unused]
            _take(result, each, later[0].voids_from if later else None)
        else:
            result.lost += [*each.found, *each.later, *each.damaged]
    return result


def _has_more(each: _File, result: SalvagedWal) -> bool:
    """A repair that was cut short leaves a file with nothing but batches that are kept anyway."""
    return any(batch.number >= result.next_batch for batch in (*each.found, *each.later))


def _take(result: SalvagedWal, each: _File, voided: int | None) -> None:
    if each.first is not None and each.first != result.next_batch:
        result.problem = (
            f"{each.wal.path} begins with batch {each.first} instead of {result.next_batch}"
        )
    elif each.first is None and each.problem:
        result.problem = each.problem
    elif each.first is None and result.ends_with_rest:
        result.problem = f"{each.wal.path} was begun, yet the last batch before it is damaged"
        result.lost += result.doubtful
    if result.problem:
        result.lost += [*each.found, *each.later, *each.damaged]
        return
    found = list(each.found)
    if found and found[-1].number == voided:
        found.pop()  # its sync failed: the next file replaces it
    result.kept += found
    result.next_batch += len(found)
    result.lost += each.later
    if each.problem:
        result.lost += each.damaged
    result.doubtful = () if each.problem else each.damaged
    result.problem = each.problem
    result.ends_with_rest = each.has_rest


def _read(files: ReadableFiles, disk: bytes, wal: WalFile) -> _File:
    try:
        data = read_file(files, wal.path)
    except FileNotFoundError:
        return _File(wal, None, None, [], [], [], f"{wal.path} is missing")
    try:
        head, is_rebuilt = _head(data, disk, wal.path)
    except Corrupt as error:
        later = list(batches_anywhere(data, nonce_in(wal.path), wal.path))
        return _File(wal, None, None, [], later, [], str(error))
    with opened(files, wal.path) as file:
        first = first_batch(file, head)
    found: list[Batch] = []
    problem = ""
    try:
        found.extend(batches(data, head, first or 0, wal.path))
    except Corrupt as error:
        problem = str(error)
    if len(data) < wal.size:
        problem = f"{wal.path} has {len(data)} bytes instead of {wal.size}"
    last = found[-1].number if found else 0
    later = [each for each in batches_anywhere(data, head.nonce, wal.path) if each.number > last]
    end, following = (found[-1].end, last + 1) if found else (HEAD_BYTES, first or 0)
    damaged = list(described_batches(data, head.nonce, end, following))
    has_rest = bool(bytes_behind(data, head, end))
    is_unused = not head.first and not found and not problem and not has_rest
    return _File(wal, head, first, found, later, damaged, problem, is_rebuilt, has_rest, is_unused)


def _head(data: bytes, disk: bytes, path: str) -> tuple[Head, bool]:
    """The head of a file, and whether it is damaged and was rebuilt.

    The name of the file repeats its number and its nonce, and its first batch where they begin.
    """
    try:
        head = Head.from_bytes(data, path)
    except Corrupt:
        rebuilt = _rebuilt_head(data, disk, path)
        if rebuilt is None:
            raise
        return rebuilt, True
    return head.must_be(WAL_KIND, disk, path), False


def _rebuilt_head(data: bytes, disk: bytes, path: str) -> Head | None:
    number, nonce, *_ = path.rpartition("/")[2].split(".")
    try:
        nonce_bytes = bytes.fromhex(nonce)
        first = frame_at(memoryview(data), HEAD_BYTES, nonce_bytes)
        if first is not None:
            major = major_of(first, nonce_bytes)
            return Head(WAL_KIND, disk, nonce_bytes, int(number), first.number, major)
        if nonce_bytes not in data[HEAD_BYTES:]:  # it was not begun, or has nothing
            return Head(WAL_KIND, disk, nonce_bytes, int(number), 0, GROWING_MAJOR)
    except ValueError:  # it has another name than ours
        pass
    return None


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
