"""Verifying the ends of what grows: the WAL, the journal, and what ``CLOSED`` says of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from stratalog.errors import Corrupt
from stratalog.segments.format import (
    CLOSED,
    HEAD_BYTES,
    Batch,
    CleanClose,
    FileEnd,
    WalFile,
    batches,
    bytes_behind,
)
from stratalog.segments.inspect import disk_snapshot
from stratalog.segments.inspect.damage import DiskDamage, DiskDamageKind
from stratalog.segments.inspect.disk_snapshot import READS_OF_DAMAGE, DiskSnapshot
from stratalog.segments.inspect.replayed_log import ReplayedLog, replay_batches
from stratalog.segments.io import read_file
from stratalog.segments.recover import (
    FoundWal,
    ReplayedWal,
    check_partitions,
    differences,
    find_wal,
    must_be_whole_before,
    record_missing,
    unnamed_wals,
    voided_by,
)

Kind = DiskDamageKind


@dataclass(frozen=True, slots=True)
class _Look:
    """A WAL file as it was read once."""

    found: ReplayedWal
    error: Corrupt | None
    rest: bytes

    @property
    def is_clean(self) -> bool:
        return self.error is None and not self.rest


@dataclass(frozen=True)
class WalCheck:
    """The check of one snapshot."""

    seen: DiskSnapshot
    wrong_files: set[str]
    """Files that are missing or have another size."""
    on_damage: Callable[[DiskDamage], None]
    on_read: Callable[[int, int], None]
    """Called with a number of entries and of bytes that are verified."""

    def run(self, logs: Mapping[int, ReplayedLog]) -> None:
        """In a thread. The batches are added to the logs."""
        ends = self._wals(logs)
        self._unnamed()
        self._journal()
        if ends is not None:
            self._closed(ends)
        elif isinstance(self.seen.closed, Corrupt):
            self._closed([])
        for path in self.seen.kept:
            self._found(Kind.DOUBT_KEPT, path)

    def _found(
        self, kind: DiskDamageKind, path: str, detail: str = "", byte: int | None = None
    ) -> None:
        self.on_damage(DiskDamage(kind, path, byte=byte, detail=detail))

    # WAL files

    def _wals(self, logs: Mapping[int, ReplayedLog]) -> list[FileEnd] | None:
        """Where each ends; nothing if one is damaged."""
        wals = sorted(self.seen.layout.wals, key=lambda wal: wal.number)
        there = [self._find(wal) for wal in wals]
        expected: int | None = self.seen.layout.next_batch
        looks: list[_Look] = []
        is_after_gap = False
        for place, found in enumerate(there):
            if found is None:
                expected = None
                continue
            if expected is not None and found.first not in (expected, None):
                detail = f"it begins with batch {found.first} instead of {expected}"
                self._found(Kind.WAL_GAP, found.wal.path, detail)
                is_after_gap = True
            look = self._look(found, found.first or expected or 0, there[place + 1 :])
            if look.error is not None or not is_after_gap:
                looks.append(look)
            replay_batches(logs, found.wal, look.found.batches)
            self._partitions(look.found)
            expected = look.found.next_batch if look.error is None else None
        self._report_all(looks, is_last_there=not there or there[-1] is not None)
        is_whole = len(looks) == len(wals) and expected is not None and not is_after_gap
        return [each.found.closed.file_end for each in looks] if is_whole else None

    def _find(self, wal: WalFile) -> FoundWal | None:
        if wal.path in self.wrong_files:
            return None
        try:
            return find_wal(self.seen.files, self.seen.disk, wal)
        except Corrupt as error:
            self._found(Kind.WAL_UNREADABLE, wal.path, str(error), byte=0)
            return None

    def _look(self, found: FoundWal, first: int, later: Sequence[FoundWal | None]) -> _Look:
        """The batches before the first damage, and what is behind them.

        A node may be writing to the file, so what seems wrong is read again before it is reported.
        """
        is_last = all(each is not None and each.first is None for each in later)
        voided = None if None in later else voided_by([each for each in later if each])
        look = self._read(found, first, voided)
        for _ in range(READS_OF_DAMAGE - 1):
            if look.is_clean or (look.error is None and not is_last):
                break
            time.sleep(disk_snapshot.PAUSE_S)
            again = self._read(found, first, voided)
            is_changing = (again.found.next_batch, again.rest) != (look.found.next_batch, look.rest)
            look = again
            if is_changing and look.error is None:
                look = replace(look, found=replace(look.found, rest=range(0)), rest=b"")
        entries = sum(len(each.entries) for batch in look.found.batches for each in batch.sections)
        self.on_read(entries, look.found.size)
        return look

    def _read(self, found: FoundWal, first: int, voided: int | None) -> _Look:
        wal = found.wal
        data = read_file(self.seen.files, wal.path)
        there: list[Batch] = []
        error: Corrupt | None = None
        try:
            there.extend(batches(data, found.head, first, wal.path))
        except Corrupt as corrupt:
            error = corrupt
        if there and voided == there[-1].number:
            there.pop()  # its sync failed: the next file replaces it
        rest = bytes_behind(data, found.head, there[-1].end if there else HEAD_BYTES)
        replayed = ReplayedWal(found, there, first + len(there), len(data), rest)
        return _Look(replayed, error, data[rest.start : rest.stop])

    def _report_all(self, looks: Sequence[_Look], *, is_last_there: bool) -> None:
        """A prepared file that was not begun is as if it were not there."""
        begun = [each for each in looks if each.error is not None or not each.found.is_unused]
        for look, following in zip_longest(begun, begun[1:]):
            error = look.error
            if following is not None and error is None:
                error = _damaged_before(look.found, following.found)
            is_last = following is None and is_last_there
            self._report(replace(look, error=error), is_last=is_last)

    def _report(self, look: _Look, *, is_last: bool) -> None:
        wal, rest = look.found.wal, look.found.rest
        if look.error is not None:
            byte = look.error.actual if isinstance(look.error.actual, int) else None
            self._found(Kind.WAL_DAMAGED, wal.path, str(look.error), byte)
        elif self._was_closed_clean(wal):
            return
        elif rest:
            is_doubtful = is_last and not isinstance(self.seen.closed, CleanClose)
            kind = Kind.WAL_DOUBTFUL if is_doubtful else Kind.WAL_REST
            self._found(kind, wal.path, f"{len(rest)} bytes", rest.start)
        elif is_last and look.found.may_be_cut:
            detail = "it ends with its last batch: more may have been cut off"
            self._found(Kind.WAL_DOUBTFUL, wal.path, detail, look.found.size)

    def _was_closed_clean(self, wal: WalFile) -> bool:
        """Then the comparison with what it was reports the rest."""
        closed = self.seen.closed
        ends = closed.wals if isinstance(closed, CleanClose) else ()
        return any(each.path == wal.path and each.is_clean for each in ends)

    def _partitions(self, found: ReplayedWal) -> None:
        try:
            check_partitions(found, self.seen.layout)
        except Corrupt as error:
            self._found(Kind.RECORD_MISSING, found.wal.path, str(error))

    def _unnamed(self) -> None:
        """A node may have made them, and named them, since the snapshot."""
        try:
            for path in unnamed_wals(self.seen.files, self.seen.layout):
                if self.seen.files.exists(path) and not self._was_named_since(path):
                    self._found(Kind.RECORD_MISSING, path, str(record_missing(path)))
        except FileNotFoundError:
            self._unnamed()

    def _was_named_since(self, path: str) -> bool:
        try:
            take = self.seen.current_layout()
        except Corrupt:
            return False
        return path not in unnamed_wals(self.seen.files, take)

    # The journal, and what it was when it was closed

    def _journal(self) -> None:
        journal = self.seen.journal
        if self.seen.journal_stays(lambda now: now.is_clean):
            is_doubtful = journal.is_doubtful and not isinstance(self.seen.closed, CleanClose)
            kind = Kind.JOURNAL_DOUBTFUL if is_doubtful else Kind.JOURNAL_REST
            self._found(kind, journal.path, byte=journal.whole_end)
        if self.seen.journal_stays(lambda now: not now.unfinished):
            for path in journal.unfinished:
                self._found(Kind.JOURNAL_UNFINISHED, path)

    def _closed(self, ends: list[FileEnd]) -> None:
        closed = self.seen.closed
        if closed is None or not self.seen.is_still_closed:
            return
        if isinstance(closed, Corrupt):
            self._found(Kind.CLOSED_DIFFERS, CLOSED, str(closed))
            return
        found = list(differences(closed, self.seen.journal, ends))
        # An opening removes the file before it changes anything, and closing makes another one.
        if self.seen.is_still_closed:
            for path, why in found:
                self._found(Kind.CLOSED_DIFFERS, path, why)


def _damaged_before(before: ReplayedWal, following: ReplayedWal) -> Corrupt | None:
    try:
        must_be_whole_before(before, following)
    except Corrupt as error:
        return error
    return None
