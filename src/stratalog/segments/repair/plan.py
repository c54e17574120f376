"""What a repair would do. Read-only."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from stratalog.errors import Corrupt, NotFound
from stratalog.segments.format import (
    CLOSED,
    DISK,
    FOLDERS,
    HEAD_BYTES,
    SUFFIXES,
    Batch,
    Checkpoint,
    CheckpointFile,
    CleanClose,
    Head,
    Layout,
    SegmentFile,
    live_path,
    read_checkpoint,
    read_clean_close,
    read_identity,
)
from stratalog.segments.io import ReadableFiles, opened
from stratalog.segments.recover import (
    find,
    kept_doubtful,
    must_match,
    read_live,
    replay_wal,
    size_of,
)
from stratalog.segments.repair.salvage_journal import Salvaged, salvage_journals
from stratalog.segments.repair.salvage_partition import SalvagedPartition, salvage_partition
from stratalog.segments.repair.salvage_wal import SalvagedWal, first_lost, salvage_wal, without
from stratalog.segments.write_ahead import replay_journal

EMPTY_LAYOUT = Layout()
_LOST_RECORDS = "what only lost records said: new partitions, new checkpoints, removals"
_NONE = "Restore this node's data from other replicas, or from a backup."


@dataclass(frozen=True, slots=True)
class DiskLoss:
    """Something that a repair gives up."""

    what: str
    partition: str | None = None
    first: int | None = None
    """The first index that is given up; nothing if all of it is."""

    def __str__(self) -> str:
        if self.partition is None:
            return self.what
        where = "all of it" if self.first is None else f"from {self.first} on"
        return f"{self.partition!r}, {where}: {self.what}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The directory as it will be, and what that takes."""

    refused: str
    """Why it cannot be opened as it is. Empty if it can: then there is nothing to do."""
    disk: bytes = b""
    is_disk_rewritten: bool = False
    layout: Layout = EMPTY_LAYOUT
    file_number: int = 0
    record: int = 0
    batches: tuple[Batch, ...] | None = None
    """The content of a new WAL file in place of all others, if one is needed."""
    moved: tuple[str, ...] = ()
    losses: tuple[DiskLoss, ...] = ()
    kept: tuple[str, ...] = ()
    """What was kept aside before."""


def make_plan(files: ReadableFiles) -> Plan:
    """``NotFound`` if it is not a data directory, ``Corrupt`` if nothing can be saved."""
    refused = refusal(files)
    kept = tuple(kept_doubtful(files))
    if not refused:
        if not files.exists(DISK):
            raise NotFound(f"there is no data directory: it has no file {DISK}")
        return Plan("", kept=kept)
    disk, is_disk_rewritten = _disk_id(files)
    journal = _journal(files, disk)
    layout = journal.layout
    wal = salvage_wal(files, disk, layout)
    unknown = _lost_since_close(files, disk, wal, refused)
    parts, losses = _partitions(files, disk, layout, wal, refused)
    cut = {
        number: each.cut_at_batch for number, each in parts.items() if each.cut_at_batch is not None
    }
    left = {number: each.layout for number, each in parts.items() if each.layout is not None}
    numbers = [wal.number for wal in layout.wals]
    is_rewritten = bool(wal.problem or wal.adopted or wal.rebuilt or cut)
    batches = tuple(without(batch, cut) for batch in wal.kept) if is_rewritten else None
    if wal.problem:
        losses.append(DiskLoss(f"batches from {wal.next_batch} on: {wal.problem}"))
    losses += unknown
    if not journal.is_complete and not _is_last_record(files, disk, journal):
        losses.append(DiskLoss(_LOST_RECORDS))
    if not losses and not _is_as_closed(files, disk, journal, wal):
        losses.append(DiskLoss(f"what only {CLOSED} could show: {refused}"))
    new = msgspec.structs.replace(
        layout,
        partitions=left,
        wals=() if is_rewritten else layout.wals,
        next_wal=max([layout.next_wal, *(n + 1 for n in numbers), *_wal_numbers(files)]),
    )
    return Plan(
        refused=refused,
        disk=disk,
        is_disk_rewritten=is_disk_rewritten,
        layout=new,
        file_number=journal.file_number,
        record=journal.highest_record,
        batches=batches,
        moved=_moved(files, new, journal, wal.unused, is_disk_rewritten=is_disk_rewritten),
        losses=tuple(losses),
        kept=kept,
    )


def refusal(files: ReadableFiles) -> str:
    """Why the directory cannot be opened; empty if it can."""
    try:
        identity = read_identity(files)
        if identity is None:
            return ""
        disk = bytes.fromhex(identity.disk)
        found = find(files, disk)
        wals = list(replay_wal(files, disk, found.layout))
        batches = [batch for each in wals for batch in each.batches]
        for number, layout in found.layout.partitions.items():
            part = salvage_partition(layout, found.checkpoints.get(number), set(), batches)
            if part.layout != layout or part.given_up_from is not None:
                return f"partition {layout.name!r} is not whole: {part.why}"
        if found.closed is not None:
            must_match(found.closed, found.replayed, [each.closed.file_end for each in wals])
    except Corrupt as error:
        return str(error)
    return ""


def _disk_id(files: ReadableFiles) -> tuple[bytes, bool]:
    """The id of the disk, and whether ``DISK`` has to be written anew: all heads repeat it."""
    heads = set()
    for folder in ("journal", "wal", "seg", "ckpt"):
        for name in files.list(folder):
            with contextlib.suppress(Corrupt), opened(files, f"{folder}/{name}") as file:
                heads.add(Head.from_bytes(file.read_at(0, HEAD_BYTES), name).disk)
    with contextlib.suppress(Corrupt):
        identity = read_identity(files)
        if identity is not None and heads <= {bytes.fromhex(identity.disk)}:
            return bytes.fromhex(identity.disk), False
    if len(heads) != 1:
        raise Corrupt(f"nothing says which disk this is: {DISK} is damaged", hint=_NONE, path=DISK)
    return heads.pop(), True


def _journal(files: ReadableFiles, disk: bytes) -> Salvaged:
    with contextlib.suppress(Corrupt):
        found = replay_journal(files, disk)
        if found is not None:
            last = found.last_record
            is_complete = not found.is_doubtful
            return Salvaged(found.layout, found.path, found.file_number, last, last, is_complete)
    salvaged = salvage_journals(files)
    if salvaged is None:
        raise Corrupt(
            "no journal has a whole first record, so nothing says which files count",
            hint=_NONE,
            path="journal",
        )
    return salvaged


def _partitions(
    files: ReadableFiles, disk: bytes, layout: Layout, wal: SalvagedWal, refused: str
) -> tuple[dict[int, SalvagedPartition], list[DiskLoss]]:
    parts, losses, lost = {}, [], dict(first_lost(wal.lost))
    for number, partition in layout.partitions.items():
        checkpoint = _checkpoint(files, disk, layout, number)
        unusable = {each.path for each in partition.files if not _has_size(files, each)}
        part = salvage_partition(partition, checkpoint, unusable, wal.kept)
        if part.given_up_from is not None and number in lost:
            part = replace(part, given_up_from=min(part.given_up_from, lost[number]))
        parts[number] = part
        if part.layout is None or part.given_up_from is not None:
            losses.append(DiskLoss(part.why, partition.name, part.given_up_from))
        elif number in lost:
            losses.append(DiskLoss(wal.problem or refused, partition.name, lost[number]))
    unknown = sorted(number for number in lost if number >= layout.next_partition)
    losses += [DiskLoss(f"partition {number}, whose name is lost") for number in unknown]
    return parts, losses


def _checkpoint(
    files: ReadableFiles, disk: bytes, layout: Layout, number: int
) -> Checkpoint | None:
    named = layout.partitions[number].checkpoint
    if named is None or not _has_size(files, named):
        return None
    with contextlib.suppress(Corrupt), opened(files, named.path) as file:
        return read_checkpoint(file, disk, number, named.path, read_live(files, named.path))
    return None


def _has_size(files: ReadableFiles, named: SegmentFile | CheckpointFile) -> bool:
    return files.exists(named.path) and size_of(files, named.path) == named.size


def _lost_since_close(
    files: ReadableFiles, disk: bytes, wal: SalvagedWal, refused: str
) -> list[DiskLoss]:
    """The end of the WAL was acknowledged if a clean close says so: then it is lost, not doubtful.

    Gives the batches of which nobody knows any more what they had.
    """
    closed = _closed(files, disk)
    last = max((each.last for each in closed.wals), default=0) if closed else 0
    if wal.problem or last < wal.next_batch:
        return []
    lost = [batch for batch in wal.doubtful if batch.number <= last]
    wal.lost += lost
    known = {batch.number for batch in lost}
    unknown = [number for number in range(wal.next_batch, last + 1) if number not in known]
    if not unknown:
        return []
    which = f"{unknown[0]} to {unknown[-1]}" if len(unknown) > 1 else str(unknown[0])
    return [DiskLoss(f"batches {which}, of unknown partitions: {refused}")]


def _closed(files: ReadableFiles, disk: bytes) -> CleanClose | None:
    with contextlib.suppress(Corrupt):
        return read_clean_close(files, disk)
    return None


def _is_last_record(files: ReadableFiles, disk: bytes, journal: Salvaged) -> bool:
    """Whether a clean close proves that no record came after the last one that is whole."""
    with contextlib.suppress(Corrupt):
        closed = read_clean_close(files, disk)
        return closed is not None and closed.journal.last == journal.last_record
    return False


def _is_as_closed(files: ReadableFiles, disk: bytes, journal: Salvaged, wal: SalvagedWal) -> bool:
    """Whether all is there that was there at a clean close, if there was one."""
    try:
        closed = read_clean_close(files, disk)
    except Corrupt:
        return False
    if closed is None:
        return True
    last = max((each.last for each in closed.wals), default=wal.next_batch - 1)
    return (journal.last_record, wal.next_batch - 1) == (closed.journal.last, last)


def _wal_numbers(files: ReadableFiles) -> list[int]:
    """Numbers above those of all files, named or not."""
    heads = [name.partition(".")[0] for name in files.list("wal")]
    return [int(each) + 1 for each in heads if each.isascii() and each.isdecimal()]


def _moved(
    files: ReadableFiles,
    new: Layout,
    journal: Salvaged,
    unused: Sequence[str],
    *,
    is_disk_rewritten: bool,
) -> tuple[str, ...]:
    """All files that do not count any more, and may have something that is given up.

    A WAL file that was prepared ahead has nothing. The next opening removes it.
    """
    named = new.paths | {*unused} | {live_path(each.path) for each in new.checkpoints.values()}
    listed = [f"{folder}/{name}" for folder in FOLDERS for name in files.list(folder)]
    moved = [path for path in listed if path.endswith(SUFFIXES) and path not in named]
    moved += [path for path in (CLOSED,) if files.exists(path)]
    moved += [DISK] if is_disk_rewritten and files.exists(DISK) else []
    assert journal.path in moved
    return tuple(moved)
