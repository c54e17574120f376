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
from collections.abc import Generator, Sequence

import msgspec

from stratalog.errors import StratalogError
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.context import DiskContext
from stratalog.segments.format import Clock, Edit, Entries, Layout, Replaced, Scratch, SegmentFile
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

log = logging.getLogger(__name__)


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

    async def merge(self, partition: DurableLog, rule: MergeRule) -> None:
        """Merge small neighbours, if the rule finds that it is worth the bytes."""
        options, meters = self._context.options, self._context.meters
        async with self._turn:
            files = partition.layout.files[:-1]
            groups = merges(files, rule, options, partition.merge_limits)
            if not groups:
                return
            keep = needed(partition.live, partition.checkpoint_index)
            for group in groups:
                began = meters.loop.time()
                written = await self._rewrite(partition, group, keep)
                meters.merge.add(meters.loop.time() - began, written)

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
        nonce = self._context.new_nonce()
        name = SegmentName(partition.number, group[0].lowest, group[-1].highest, nonce)
        path = name.path
        try:
            time_of = self._context.clock_of(partition.name)
            by = await in_thread(lambda: self._write(group, keep, name, time_of))
        except (OSError, StratalogError) as error:
            self._context.remove_files([path])
            if isinstance(error, FileNotFoundError):
                return 0  # a source was dropped meanwhile
            if isinstance(error, OSError):
                raise typed(error, "writing a compacted segment", path) from error
            raise
        sources = tuple(file.path for file in group)
        creates = [path] if by else []

        def record(layout: Layout) -> Edit | None:
            current = layout.partitions.get(partition.number)
            files = current.files if current else ()
            present = tuple(file.path for file in files if file.path in sources)
            return Replaced(partition.number, present, by) if present else None

        await self._journal.commit(record, creates=creates)
        self._journal.remove_unnamed(creates, partition.number)
        return by.size if by else 0

    def _write(
        self,
        group: Sequence[SegmentFile],
        keep: IndexSet,
        name: SegmentName,
        time_of: Clock | None,
    ) -> SegmentFile | None:
        """In a thread: a file with the needed entries of several; ``None`` if there are none."""
        alive = [(file, _alive(file, keep)) for file in group]
        if not any(wanted for _, wanted in alive):
            return None
        time_max = _max_time(group)
        is_whole = all(len(wanted) == file.index_count for file, wanted in alive)
        clock = None if is_whole and time_max is not None else time_of
        with contextlib.closing(self._needed(name.partition, alive)) as chunks:
            previous = group[0].previous
            written = write_segment(self._context, name, previous, chunks, clock, time_max)
        self._context.files.sync_folder("seg")
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
