"""Major compaction: neighbours of which little lives, or that are small, become one segment.

The new file is written beside the old ones. The checksum of every entry is verified and copied.
Then the file is synced, and one record of the journal puts it in their place. Until the record is
durable the old files count. If segments came, went or lost entries meanwhile, the record is made
from the layout as it is then (``PartitionLayout.replaced``).

A partition has at most one run; a request during it is dropped. If the checkpoint moves during a
run, a minor compaction follows. ``MergeTurns`` merges small segments in the same way after a flush.
"""

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from stratalog.errors import Corrupt, StratalogError
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    Clock,
    Edit,
    Entries,
    Layout,
    Merged,
    Replaced,
    Scratch,
    SegmentFile,
)
from stratalog.segments.io import Tasks, in_thread, typed
from stratalog.segments.maintenance.choose_merges import MergeRule, merges, merges_beside
from stratalog.segments.maintenance.choose_segments import Share, dead_segments, needed, rewrites
from stratalog.segments.maintenance.write_segment import SegmentName, write_segment
from stratalog.segments.read import DurableLog, OpenSegments
from stratalog.segments.write_ahead import Journal

REWRITES_MAX = 4
"""Files that are being written at a time, per partition."""
COPIES_MAX = 2
"""Of these, files whose entries are being copied; the others are being synced and recorded."""

MERGED_BYTES_MAX = 16 * 1024 * 1024
"""What merging writes before a record commits it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Merge:
    """Neighbours that are merged to the segment of this name."""

    group: Sequence[SegmentFile]
    keep: IndexSet
    name: SegmentName
    time_of: Clock | None

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.group)


class Compactor:
    """Runs major compactions, one at a time: on request, and after so many minor ones."""

    def __init__(self, context: DiskContext, journal: Journal, open_segments: OpenSegments) -> None:
        self._context = context
        self._journal = journal
        self._open_segments = open_segments
        self._turn = asyncio.Lock()
        self._copying = threading.Semaphore(COPIES_MAX)
        self.tasks = Tasks()
        self._running: set[int] = set()
        """The numbers of partitions that are being compacted, or wait for their turn."""
        self._minors: Counter[int] = Counter()
        """How many minor compactions each partition had since its last major one."""

    def after_minor(self, partition: DurableLog) -> None:
        """Count a minor compaction, and start a major one if it is due."""
        self._minors[partition.number] += 1
        after = self._context.options.major_after_minors
        if after is not None and self._minors[partition.number] >= after:
            self.tasks.start(self._in_background(partition))

    async def major(self, partition: DurableLog) -> bool:
        """Rewrite segments of which little lives. False if a run was already going on."""
        return await self.tasks.run(self._major(partition))

    async def _in_background(self, partition: DurableLog) -> None:
        try:
            await self._major(partition)
        except StratalogError as error:
            log.warning("compaction of %r failed: %s", partition.name, error)

    async def _major(self, partition: DurableLog) -> bool:
        if partition.number in self._running:
            return False
        self._running.add(partition.number)
        self._minors.pop(partition.number, None)
        try:
            async with self._turn:
                began = self._context.meters.loop.time()
                before = partition.checkpoint_index
                written = await self._rewrite_all(partition)
                self._context.meters.major.add(self._context.meters.loop.time() - began, written)
                if partition.checkpoint_index != before:
                    await self.minor(partition)
        finally:
            self._running.discard(partition.number)
        return True

    async def merge(
        self,
        partitions: Sequence[DurableLog],
        rule: MergeRule,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Merge small neighbours in some partitions, where the rule finds it worth the bytes.

        One record of the journal commits as many as have ``MERGED_BYTES_MAX`` together. After that
        it ends if it is to stop.
        """
        async with self._turn:
            together: list[_Merge] = []
            for each in self._merges_in(partitions, rule):
                if is_stopped():
                    return
                together.append(each)
                if sum(merge.bytes for merge in together) >= MERGED_BYTES_MAX:
                    await self._merge(together)
                    together = []
            if together:
                await self._merge(together)

    def _merges_in(self, partitions: Sequence[DurableLog], rule: MergeRule) -> Iterator[_Merge]:
        options = self._context.options
        for partition in partitions:
            files = partition.layout.files[:-1]
            groups = merges(files, rule, options, partition.merge_limits)
            keep = needed(partition.live, partition.checkpoint_index) if groups else EMPTY
            for group in groups:
                name = self._name(partition.number, group)
                yield _Merge(group, keep, name, self._context.clock_of(partition.name))

    async def _merge(self, together: Sequence[_Merge]) -> None:
        meters, paths = self._context.meters, [each.name.path for each in together]
        began = meters.loop.time()
        try:
            written = await in_thread(lambda: self._write_merged(together))
        except OSError as error:
            self._context.remove_files(paths)
            raise typed(error, "writing a merged segment") from error

        def record(layout: Layout) -> Edit | None:
            parts = (_replaced(layout, each.name, each.group, by) for each, by in written)
            changed = tuple(part for part in parts if part is not None)
            return Merged(changed) if changed else None

        await self._journal.commit(record, creates=paths)
        self._journal.remove_unnamed(paths)
        size = sum(by.size for _, by in written if by is not None)
        meters.merge.add(meters.loop.time() - began, size)

    def _write_merged(self, together: Sequence[_Merge]) -> list[tuple[_Merge, SegmentFile | None]]:
        """In a thread. One that cannot be read is left out."""
        written = []
        for each in together:
            try:
                made = self._write(each.group, each.keep, each.name, each.time_of)
            except FileNotFoundError:
                continue  # a source was dropped meanwhile
            except Corrupt as error:
                log.warning("segments were not merged: %s", error)
                continue
            written.append((each, made))
        self._context.files.sync_folder("seg")
        return written

    def _name(self, partition: int, group: Sequence[SegmentFile]) -> SegmentName:
        nonce = self._context.new_nonce()
        return SegmentName(partition, group[0].lowest, group[-1].highest, nonce)

    async def minor(self, partition: DurableLog) -> None:
        """Drop segments of which nothing is needed."""

        def record(layout: Layout) -> Edit | None:
            current = layout.partitions.get(partition.number)
            if current is None:
                return None
            dead = dead_segments(current.files, partition.live, partition.checkpoint_index)
            if not dead:
                return None
            return Replaced(partition.number, tuple(file.path for file in dead))

        committed = await self._journal.commit(record)
        if isinstance(committed, Replaced):
            self._context.meters.minor += 1

    async def _rewrite_all(self, partition: DurableLog) -> int:
        files = partition.layout.files[:-1]
        keep = needed(partition.live, partition.checkpoint_index)
        try:
            shares = await in_thread(lambda: self._shares(partition.number, files, keep))
        except FileNotFoundError:
            return 0  # a checkpoint dropped a segment meanwhile; a later run takes the rest
        except OSError as error:
            raise typed(error, "reading segments") from error
        options = self._context.options
        groups = rewrites(shares, options)
        groups += merges_beside(files, groups, options, partition.merge_limits)
        turn = asyncio.Semaphore(REWRITES_MAX)

        async def rewrite(group: Sequence[SegmentFile]) -> int:
            async with turn:
                return await self._rewrite(partition, group, keep)

        done = await asyncio.gather(*map(rewrite, groups), return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
        return sum(each for each in done if isinstance(each, int))

    def _shares(self, partition: int, files: Sequence[SegmentFile], keep: IndexSet) -> list[Share]:
        """In a thread: the live part of each. A segment that wholly lives is not opened."""
        shares = []
        for file in files:
            alive = _alive(file, keep)
            if len(alive) == file.index_count:
                shares.append(Share(file, file.entries, file.size, file.size))
                continue
            with self._open_segments.using(partition, file.path) as (_, index):
                live, size = index.count_of(alive), index.bytes_of(alive)
                shares.append(Share(file, live, size, index.stored_bytes))
        return shares

    async def _rewrite(
        self, partition: DurableLog, group: Sequence[SegmentFile], keep: IndexSet
    ) -> int:
        name = self._name(partition.number, group)
        path, time_of = name.path, self._context.clock_of(partition.name)

        def write() -> SegmentFile | None:
            made = self._write(group, keep, name, time_of)
            self._context.files.sync_folder("seg")
            return made

        try:
            by = await in_thread(write)
        except (OSError, StratalogError) as error:
            self._context.remove_files([path])
            if isinstance(error, FileNotFoundError):
                return 0  # a source was dropped meanwhile
            if isinstance(error, OSError):
                raise typed(error, "writing a compacted segment", path) from error
            raise
        creates = [path] if by else []
        await self._journal.commit(
            lambda layout: _replaced(layout, name, group, by), creates=creates
        )
        self._journal.remove_unnamed(creates)
        return by.size if by else 0

    def _write(
        self,
        group: Sequence[SegmentFile],
        keep: IndexSet,
        name: SegmentName,
        time_of: Clock | None,
    ) -> SegmentFile | None:
        """In a thread: a file with the needed entries of several; ``None`` if there are none.

        Sync its folder next.
        """
        alive = [(file, _alive(file, keep)) for file in group]
        if not any(wanted for _, wanted in alive):
            return None
        time_max = _max_time(group)
        is_whole = all(len(wanted) == file.index_count for file, wanted in alive)
        clock = None if is_whole and time_max is not None else time_of
        with contextlib.closing(self._needed(name.partition, alive)) as chunks:
            previous = group[0].previous
            written = write_segment(self._context, name, previous, chunks, clock, time_max)
        times = [time for file in group for time in file.newest_times]
        if written.time_max is None or not times or min(times) >= written.time_max:
            return written
        return msgspec.structs.replace(written, merged_from=min(times))

    def _needed(
        self, partition: int, alive: Sequence[tuple[SegmentFile, IndexSet]]
    ) -> Generator[Entries]:
        """In chunks, through one small buffer: they stay in the processor's cache until they are
        written."""
        with self._copying:
            scratch = Scratch(self._context.options.read_bytes)
            for file, wanted in alive:
                with self._open_segments.using(partition, file.path) as (opened, index):
                    index.must_have(wanted)
                    for places in index.chunks(wanted, self._context.options.read_bytes):
                        yield index.entries_at(opened, places, scratch)


def _replaced(
    layout: Layout, name: SegmentName, group: Sequence[SegmentFile], by: SegmentFile | None
) -> Replaced | None:
    """The edit that puts one segment in the place of those of a group that are still there."""
    current = layout.partitions.get(name.partition)
    sources = {file.path for file in group}
    files = current.files if current else ()
    present = tuple(file.path for file in files if file.path in sources)
    return Replaced(name.partition, present, by) if present else None


def _max_time(group: Sequence[SegmentFile]) -> int | None:
    """Of several segments; nothing if one of them does not say."""
    times = [file.time_max for file in group]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _alive(file: SegmentFile, keep: IndexSet) -> IndexSet:
    """The needed entries of a file. ``keep`` is first narrowed by bisection."""
    first, last = file.indexes.first, file.indexes.last
    if first is None or last is None:
        return EMPTY
    near = keep.within(range(first, last + 1))
    return near if file.indexes.range_count == 1 else file.indexes & near
