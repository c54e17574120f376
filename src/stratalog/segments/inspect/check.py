"""Verifying a data directory: every file, every entry, every checksum. All damage is reported.

Read-only and without a lock, so it may run beside the node. Then it checks the files that counted
when it began; files that the node removes meanwhile are not reported as missing.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial

import numpy as np

from stratalog.errors import Corrupt, Unavailable
from stratalog.indexset import IndexSet
from stratalog.ordered import gather_bounded
from stratalog.segments.format import (
    DISK,
    HEAD_BYTES,
    Checkpoint,
    PartitionLayout,
    SegmentFile,
    SegmentIndex,
    crc32,
    damaged,
    live_path,
)
from stratalog.segments.inspect.check_wal import WalCheck
from stratalog.segments.inspect.damage import CheckReport, DiskDamage, DiskDamageKind
from stratalog.segments.inspect.disk_snapshot import (
    ATTEMPTS_MAX,
    DiskSnapshot,
    Where,
    name_of,
    take_snapshot,
)
from stratalog.segments.inspect.replayed_log import ReplayedLog
from stratalog.segments.io import File, ReadableFiles, in_thread, opened, read_file, typed_errors
from stratalog.segments.recover import size_of

Kind = DiskDamageKind

CHUNK_BYTES = 1 << 20
FILES_AT_ONCE = 4

Progress = Callable[[int, int], None]
"""Called with the bytes that are verified and the bytes in total."""


async def check_disk(
    path: str | os.PathLike[str] | ReadableFiles, *, on_progress: Progress | None = None
) -> CheckReport:
    """Verify a data directory and report all damage. ``NotFound`` if it is not one."""
    with typed_errors("checking the data directory", name_of(path)):
        begun = await in_thread(lambda: begin_check(path))
        if isinstance(begun, CheckReport):
            return begun
        with contextlib.closing(begun.seen.files):
            return await begun.run(path, on_progress or (lambda _done, _total: None))


def begin_check(path: Where) -> DiskCheck | CheckReport:
    """A check of what is there now, or its result if nothing else can be read."""
    try:
        return DiskCheck(take_snapshot(path))
    except Corrupt as error:
        kind = Kind.DISK_UNREADABLE if error.path == DISK else Kind.JOURNAL_UNREADABLE
        only = DiskDamage(kind, error.path or "journal", detail=str(error))
        return CheckReport(name_of(path), (only,), (), (), 0, 0, 0, 0, 0, 0)


class DiskCheck:
    """The check of one snapshot."""

    def __init__(self, seen: DiskSnapshot) -> None:
        self.seen = self._seen = seen
        self._sizes = seen.layout.sizes
        self._wrong_files: set[str] = set()
        self._damages: list[DiskDamage] = []
        self._entries_read = self._bytes_read = self._gone = 0
        self._lock = threading.Lock()

    async def run(self, path: Where, on_progress: Progress) -> CheckReport:
        first, *some, last = self.parts()

        async def run(work: Callable[[], None]) -> None:
            await in_thread(work)
            on_progress(self._bytes_read, sum(self._sizes.values()))

        await in_thread(first)
        await gather_bounded(some, run, FILES_AT_ONCE)
        await in_thread(last)
        return self.report(path)

    def parts(self) -> list[Callable[[], None]]:
        """The first one comes before all others, and the last one after them."""
        partitions = self._seen.layout.partitions.values()
        segments = [
            partial(self._segment, each, file) for each in partitions for file in each.files
        ]
        checkpoints = [partial(self._checkpoint, each) for each in partitions if each.checkpoint]
        return [self._check_files, *segments, *checkpoints, self._logs]

    def report(self, path: Where) -> CheckReport:
        layout = self._seen.layout
        order = list(Kind).index
        self._damages.sort(key=lambda each: (order(each.kind), each.path, each.index or 0))
        return CheckReport(
            path=name_of(path),
            damages=tuple(each for each in self._damages if not each.kind.is_remark),
            remarks=tuple(each for each in self._damages if each.kind.is_remark),
            leftovers=self._seen.leftovers,
            partitions=len(layout.partitions),
            segments=sum(len(each.files) for each in layout.partitions.values()),
            wals=len(layout.wals),
            entries=self._entries_read,
            bytes=self._bytes_read,
            gone=self._gone,
        )

    def _read(self, entries: int, size: int) -> None:
        """Count what was verified. Thread-safe."""
        with self._lock:
            self._entries_read += entries
            self._bytes_read += size

    # Files

    def _check_files(self) -> None:
        """Every named file exists and has its size, or at least the size that it began with."""
        wals = {wal.path: wal.size for wal in self._seen.layout.wals}
        for path in sorted(self._seen.layout.paths):
            if path in self._seen.missing:
                self._damage(DiskDamage(Kind.FILE_MISSING, path))
                continue
            expected = self._sizes.get(path)
            least = wals[path] if expected is None else expected
            try:
                actual = size_of(self._seen.files, path)
            except FileNotFoundError:
                self._is_gone(path)
                continue
            if actual < least or expected not in (None, actual):
                detail = f"it has {actual} bytes instead of {least}"
                self._damage(DiskDamage(Kind.FILE_SIZE, path, detail=detail))

    def _damage(self, damage: DiskDamage) -> None:
        self._wrong_files.add(damage.path)
        self._damages.append(damage)

    def _is_gone(self, path: str) -> None:
        """A file has vanished since the snapshot: a running node removed it, or it is missing."""
        self._wrong_files.add(path)
        if self._seen.is_still_named(path):
            self._damage(DiskDamage(Kind.FILE_MISSING, path))
        else:
            self._gone += 1

    # Segments

    def _segment(self, partition: PartitionLayout, file: SegmentFile) -> None:
        """In a thread: verify its index, then every entry, valid or not."""
        if file.path in self._wrong_files:
            return
        try:
            with opened(self._seen.files, file.path) as segment:
                index = SegmentIndex.read(segment, self._seen.disk, partition.number, file.path)
                self._entries(partition.name, file, index, segment)
        except FileNotFoundError:
            self._is_gone(file.path)
        except Corrupt as error:
            kind, name = Kind.SEGMENT_UNREADABLE, partition.name
            self._damage(DiskDamage(kind, file.path, name, detail=str(error)))

    def _entries(self, name: str, file: SegmentFile, index: SegmentIndex, segment: File) -> None:
        indexes = index.indexes
        if (indexes[1:] <= index.lasts[:-1]).any():
            raise Corrupt(f"the entries of {file.path} are not in order", path=file.path)
        there = index.covered
        lacking = file.indexes - there
        if lacking:
            kind, count = Kind.SEGMENT_ENTRIES, len(lacking)
            self._damage(DiskDamage(kind, file.path, name, index=lacking.first, count=count))
        wrong: list[int] = []
        for places in index.chunks(there, CHUNK_BYTES):
            heads, payloads = index.stored(segment, places)
            wrong.extend(heads["index"][damaged(heads, payloads)].tolist())
        self._read(len(indexes), file.size)
        if wrong:
            first, count, byte = wrong[0], len(wrong), _byte_of(index, wrong[0])
            self._damage(DiskDamage(Kind.ENTRY_DAMAGED, file.path, name, first, count, byte))

    # Checkpoints

    def _checkpoint(self, partition: PartitionLayout) -> None:
        """In a thread: verify its description, its state, and the live set beside it."""
        assert partition.checkpoint is not None
        path = partition.checkpoint.path
        if path in self._wrong_files:
            return
        checkpoint = self._seen.checkpoints.get(partition.number)
        if isinstance(checkpoint, Corrupt):
            kind, detail = Kind.CHECKPOINT_UNREADABLE, str(checkpoint)
            self._damage(DiskDamage(kind, path, partition.name, detail=detail))
        elif checkpoint is not None:
            try:
                self._state(partition.name, checkpoint, path)
            except FileNotFoundError:
                self._is_gone(path)
                return
            self._live_file(partition.name, checkpoint, path)

    def _state(self, name: str, checkpoint: Checkpoint, path: str) -> None:
        with opened(self._seen.files, path) as file:
            crc, at, end = 0, checkpoint.state_at, checkpoint.state_at + checkpoint.state_bytes
            while data := file.read_at(at, min(CHUNK_BYTES, end - at)):
                crc = crc32(data, crc)
                at += len(data)
        self._read(0, at)
        if at != end or crc != checkpoint.state_crc:
            byte = checkpoint.state_at
            self._damage(DiskDamage(Kind.STATE_DAMAGED, path, name, byte=byte))

    def _live_file(self, name: str, checkpoint: Checkpoint, path: str) -> None:
        try:
            live = IndexSet.from_bytes(read_file(self._seen.files, live_path(path)))
        except (FileNotFoundError, Corrupt) as error:
            if self._seen.files.exists(path):
                detail = str(error) if isinstance(error, Corrupt) else "it is missing"
                kind = Kind.LIVE_FILE_UNREADABLE
                self._damage(DiskDamage(kind, live_path(path), name, detail=detail))
            return
        if live != checkpoint.live:
            self._damage(DiskDamage(Kind.LIVE_FILE_DIFFERS, live_path(path), name))

    # The WAL, replayed onto the partitions

    def _logs(self) -> None:
        """In a thread: check the logs as a node would find them.

        A node may write over a WAL file that was flushed since the snapshot. Then the logs are
        checked as they are now.
        """
        with contextlib.ExitStack() as later:
            seen = self._seen
            for _ in range(ATTEMPTS_MAX):
                damages: list[DiskDamage] = []
                read: list[tuple[int, int]] = []
                self._check_logs(seen, damages.append, lambda *each, to=read: to.append(each))
                if not seen.is_written_over:
                    break
                seen = seen.again()
                later.callback(seen.files.close)
            else:
                raise Unavailable(
                    "the WAL files change faster than they can be read",
                    hint="A node is busy there. Retry.",
                    path=self._seen.journal.path,
                )
        for damage in damages:
            self._damage(damage)
        for entries, size in read:
            self._read(entries, size)

    def _check_logs(
        self,
        seen: DiskSnapshot,
        on_damage: Callable[[DiskDamage], None],
        on_read: Callable[[int, int], None],
    ) -> None:
        logs = {}
        for number, layout in seen.layout.partitions.items():
            try:
                logs[number] = ReplayedLog(seen, number)
            except Corrupt as error:
                path, detail = error.path or layout.name, str(error)
                on_damage(DiskDamage(Kind.SEQUENCE_GAP, path, layout.name, detail=detail))
        wrong_files = self._wrong_files | seen.missing
        WalCheck(seen, wrong_files, on_damage, on_read).run(logs)
        for log in logs.values():
            if (gap := log.gap) is not None:
                first, count = gap.after + 1, gap.before - gap.after
                on_damage(DiskDamage(Kind.SEQUENCE_GAP, gap.path, log.name, first, count))
            if missing := log.live - log.indexes:
                assert log.layout.checkpoint is not None
                kind, path = Kind.LIVE_MISSING, log.layout.checkpoint.path
                count, detail = len(missing), repr(missing)
                on_damage(DiskDamage(kind, path, log.name, missing.first, count, detail=detail))


def _byte_of(index: SegmentIndex, wanted: int) -> int:
    """The start of an entry's payload in the file."""
    place = int(np.searchsorted(index.indexes, wanted))
    return HEAD_BYTES + int(index.ends[place]) - int(index.heads["size"][place])
