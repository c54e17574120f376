"""Reading entries of a partition: from its segment files, then from its memtables.

A reader follows a plan: the files and memtables of one moment. It makes a new plan for the rest

1. if compaction has replaced a file of the plan, or
2. if entries that it has not yielded yet were overwritten.

If entries that it has yielded were overwritten, it raises ``Conflict``: a caller never gets a mix
of two histories.
"""

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from stratalog.errors import Conflict, Corrupt
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.format import Entries, PartitionLayout, SegmentFile
from stratalog.segments.io import Tasks, typed
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
