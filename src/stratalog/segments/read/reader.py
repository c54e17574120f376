"""Reading entries of a partition: from its segment files, then from its memtables.

A reader follows a plan: the files and memtables of one moment. It makes a new plan for the rest

1. if compaction has replaced a file of the plan, or
2. if entries that it has not yielded yet were overwritten.

If entries that it has yielded were overwritten, it raises ``Conflict``: a caller never gets a mix
of two histories.
"""

import contextlib
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from stratalog.errors import Conflict, Corrupt
from stratalog.indexset import EMPTY, INDEX_MAX, IndexSet
from stratalog.segments.format import Entries, Heads, PartitionLayout, SegmentFile
from stratalog.segments.io import Tasks, in_thread, typed
from stratalog.segments.options import DiskOptions
from stratalog.segments.read.memtable import Memtable
from stratalog.segments.read.open_segments import OpenSegments
from stratalog.segments.read.read_ahead import ReadAhead

Plan = tuple[PartitionLayout, Sequence[Memtable]]


@dataclass(eq=False, slots=True)
class Watch:
    """Notes above which index the log was cut off since the reader made its plan."""

    _cut_after: int | None = None

    def note(self, after: int) -> None:
        self._cut_after = after if self._cut_after is None else min(self._cut_after, after)

    def reset(self) -> None:
        self._cut_after = None

    def cut_after(self) -> int | None:
        """``None`` if nothing was cut off."""
        return self._cut_after


class Readable(Protocol):
    """What the reader needs of a partition."""

    number: int
    name: str
    watches: set[Watch]

    def plan(self) -> Plan: ...

    def fetch(self, index: int, bytes_max: int) -> Entries | None: ...

    def must_be_there(self) -> None: ...


class Gone(Exception):
    """The file at a path was removed after the plan was made, so a newer plan replaces it."""


class Reader:
    """Reads partitions of one disk."""

    def __init__(self, readers: OpenSegments, options: DiskOptions) -> None:
        self._readers = readers
        self._options = options
        self.tasks = Tasks()
        """The threads that are reading."""

    async def read(self, log: Readable, wanted: IndexSet) -> AsyncGenerator[Entries]:
        """The wanted entries that are here, ascending."""
        watch = Watch()
        log.watches.add(watch)
        try:
            given_out = 0
            while True:
                log.must_be_there()
                watch.reset()
                plan = log.plan()
                left = wanted.floor(given_out + 1)
                left = left & indexes_near(plan, left)
                try:
                    async with aclosing(self._follow(log.number, plan, left)) as chunks:
                        async for entries in chunks:
                            if watch.cut_after() is not None:
                                break
                            given_out = entries.last
                            yield entries
                        else:
                            return
                except Gone as gone:
                    _must_be_replaced(gone, log.plan())
                if (after := watch.cut_after()) is not None and after < given_out:
                    raise Conflict(
                        f"{log.name!r} was overwritten above {after} while it was read",
                        hint="Discard what was read from there on, and read it again.",
                        expected=given_out,
                        actual=after,
                    )
        finally:
            log.watches.discard(watch)

    def heads_in(self, partition: int, file: SegmentFile) -> Heads:
        """The heads of all entries of a segment that a layout names. Reads, unless they are in the
        cache: rarely, and a megabyte at most."""
        try:
            with self._readers.using(partition, file.path) as (_, index):
                return index.heads
        except OSError as error:
            raise typed(error, "reading a segment", file.path) from error

    async def warm(self, partition: int, files: Sequence[SegmentFile]) -> None:
        """Read the heads of segments in a thread, so that ``heads_in`` need not."""

        def read() -> None:
            for file in files:
                with self._readers.using(partition, file.path):
                    pass

        with contextlib.suppress(OSError, Corrupt):  # whoever needs them finds out
            await self.tasks.run(in_thread(read))

    async def fetch(self, log: Readable, index: int, bytes_max: int, *, writable: bool) -> Entries:
        """As ``DurableLog.fetch``, also from a segment; less than there is room for where one ends.

        ``writable``: the payloads lie in a new buffer that belongs to the caller.
        """
        watch = Watch()
        log.watches.add(watch)
        try:
            while True:
                log.must_be_there()
                watch.reset()
                found = log.fetch(index, bytes_max)
                if found is not None:
                    return found.copied() if writable else found
                file = log.plan()[0].files_with(index, INDEX_MAX)[0]
                some = partial(self._some, log.number, file, index, bytes_max, writable)
                try:
                    entries = await self.tasks.run(in_thread(some))
                except FileNotFoundError:
                    _must_be_replaced(Gone(file.path), log.plan())
                    continue
                except OSError as error:
                    raise typed(error, "reading a segment", file.path) from error
                after = watch.cut_after()
                if after is None or after >= entries.last:
                    return entries
        finally:
            log.watches.discard(watch)

    async def _follow(
        self, partition: int, plan: Plan, wanted: IndexSet
    ) -> AsyncGenerator[Entries]:
        """Read by a plan. ``Gone`` if a file was removed meanwhile."""
        layout, tables = plan
        if wanted.first is None or wanted.last is None:
            return
        span = range(wanted.first, wanted.last + 1)
        for file in layout.files_with(wanted.first, wanted.last):
            chosen = file.indexes.within(span) & wanted
            if chosen:
                async for entries in self._from_file(partition, file, chosen):
                    yield entries
        for table in tables:
            for entries in table.runs(wanted):
                yield entries

    async def _from_file(
        self, partition: int, file: SegmentFile, wanted: IndexSet
    ) -> AsyncGenerator[Entries]:
        """Chunk by chunk, with read-ahead."""
        ahead = ReadAhead(self._chunks(partition, file, wanted), self.tasks)
        try:
            while (entries := await ahead.next()) is not None:
                yield entries
        except FileNotFoundError as error:
            raise Gone(file.path) from error
        except OSError as error:
            raise typed(error, "reading a segment", file.path) from error
        finally:
            ahead.give_up()  # the thread may still be reading

    def _some(
        self, partition: int, file: SegmentFile, index: int, bytes_max: int, writable: bool
    ) -> Entries:
        """In a thread: the first valid entries of a segment from an index on."""
        wanted = file.indexes.floor(index)
        with self._readers.using(partition, file.path) as (opened, stored):
            places = stored.first_places(wanted, bytes_max)
            if len(places):
                entries = stored.entries_at(opened, places, writable=writable)
                if wanted.within(range(index, entries.last + 1)) <= entries.indexes:
                    return entries
            raise Corrupt(f"{file.path} lacks entries that it should have", path=file.path)

    def _chunks(self, partition: int, file: SegmentFile, wanted: IndexSet) -> Generator[Entries]:
        """In threads. The file stays open from the first chunk to the last."""
        with self._readers.using(partition, file.path) as (opened, index):
            index.must_have(wanted)
            for places in index.chunks(wanted, self._options.read_bytes):
                yield index.entries_at(opened, places)


def indexes_near(plan: Plan, wanted: IndexSet) -> IndexSet:
    """The indexes of a plan between the first and the last that are wanted.

    Large sets are narrowed by bisection first, so that reading one entry stays cheap.
    """
    if wanted.first is None or wanted.last is None:
        return EMPTY
    layout, tables = plan
    span = range(wanted.first, wanted.last + 1)
    files = (file.indexes.within(span) for file in layout.files_with(wanted.first, wanted.last))
    return IndexSet.union([*files, *(table.indexes.within(span) for table in tables)])


def _must_be_replaced(gone: Gone, plan: Plan) -> None:
    path = str(gone)
    if path in plan[0].paths:
        raise Corrupt(
            f"{path} is missing",
            hint="Put it back, or restore the partition from another replica.",
            path=path,
        ) from gone
