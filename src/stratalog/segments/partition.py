"""One partition of a node's disk: its log as it is, and what can be done with it.

The log of a partition is, from old to new, its segment files, the memtables of WAL files that are
not yet in segments, and what is on its way to the disk. The first two are durable and can be read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stratalog.errors import Closed, Conflict, Corrupt, NotFound, NotHappened, Trimmed
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.admission import (
    Admitted,
    Tail,
    admit,
    check_write,
    without_checkpointed,
)
from stratalog.segments.checkpoint_file import Checkpoint
from stratalog.segments.entries import NO_ENTRIES, Entries, Entry
from stratalog.segments.layout import Layout, PartitionLayout, check_sequence, lineage_of
from stratalog.segments.lineage import Lineage, steps_of
from stratalog.segments.memtable import Memtable
from stratalog.segments.reading import Watch
from stratalog.segments.wal import Write
from stratalog.segments.wal_file import Section

if TYPE_CHECKING:
    from stratalog.segments.checkpointing import HeldState, IncomingCheckpoint
    from stratalog.segments.engine import Engine

WRITE_OVERHEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Where a partition stands."""

    name: str
    first: int
    """The first index above the checkpoint, or where the log begins."""
    last: int
    """The last index that is durable."""
    epoch: int
    checkpoint: int
    """The index of the checkpoint; 0 if there is none."""
    live: IndexSet
    """What lives at or below the checkpoint."""
    pending: IndexSet
    """What is durable in the WAL and not yet in segments."""
    lineage: Lineage
    segments: int
    segment_bytes: int


class Partition:
    """A log of entries with indexes that its writer gives. Get one from ``Disk.partition``."""

    def __init__(
        self, engine: Engine, number: int, name: str, checkpoint: Checkpoint | None
    ) -> None:
        self.number = number
        self.name = name
        self._engine = engine
        self._checkpoint = checkpoint
        self._tables: deque[Memtable] = deque()
        layout = self.layout
        self._sequence_last = max((file.indexes.last or 0 for file in layout.files), default=0)
        """The last index of an entry that is here, whatever the checkpoint says."""
        check_sequence(layout)
        self.lineage = checkpoint.lineage if checkpoint else Lineage()
        """Up to the checkpoint, until ``recovered`` or the first write adds the rest."""
        self._tail = Tail()
        self._in_flight: deque[Admitted] = deque()
        self._kept: list[int] = []
        """The indexes of checkpoints that are being taken."""
        self._is_removed = False
        self._gap: tuple[int, int, str] | None = None
        """While the WAL is replayed: what is missing between two indexes, and where it shows."""
        self.minors_since_major = 0
        self.is_compacting = False
        self._changing = asyncio.Lock()
        self.watches: set[Watch] = set()
        """Of those who read it now."""
        self._settled = asyncio.Event()
        """Nothing is on its way to the disk."""
        self.forget_in_flight()

    def __repr__(self) -> str:
        return f"Partition({self.name!r}, last={self.last})"

    # Where it stands

    @property
    def layout(self) -> PartitionLayout:
        """Its files. There are none any more if it was removed."""
        found = self._engine.journal.layout.partitions.get(self.number)
        return found or PartitionLayout(self.number, self.name)

    @property
    def checkpoint_index(self) -> int:
        """0 if there is no checkpoint."""
        return self._checkpoint.index if self._checkpoint else 0

    @property
    def live(self) -> IndexSet:
        """What lives at or below the checkpoint."""
        return self._checkpoint.live if self._checkpoint else EMPTY

    @property
    def checkpoint_info(self) -> Checkpoint | None:
        """The current checkpoint, without its state."""
        return self._checkpoint

    @property
    def last(self) -> int:
        """The last durable index: of an entry, or of the checkpoint if nothing lies above it."""
        return max(self._sequence_last, self.checkpoint_index)

    @property
    def epoch(self) -> int:
        """The epoch of the last durable index."""
        return self.lineage.last_epoch

    @property
    def indexes(self) -> IndexSet:
        """Of all durable entries that are here."""
        tables = (table.indexes for table in self._tables)
        return IndexSet.union([self.layout.indexes, *tables])

    @property
    def is_whole(self) -> bool:
        """Whether every entry above the checkpoint is here.

        False while a copy from another replica is not complete, also one that was given up.
        """
        first = self.checkpoint_index + 1
        return self.indexes.floor(first) == IndexSet(range(first, self.last + 1))

    def status(self) -> PartitionStatus:
        self.must_be_there()
        files = self.layout.files
        above = self.indexes.floor(self.checkpoint_index + 1)
        return PartitionStatus(
            name=self.name,
            first=above.first if above.first is not None else self.checkpoint_index + 1,
            last=self.last,
            epoch=self.epoch,
            checkpoint=self.checkpoint_index,
            live=self.live,
            pending=IndexSet.union(table.indexes for table in self._tables),
            lineage=self.lineage,
            segments=len(files),
            segment_bytes=sum(file.size for file in files),
        )

    # Writing

    async def append(self, payloads: list[bytes], *, epoch: int | None = None) -> IndexSet:
        """Write payloads after everything that was written before. For a partition's only writer.

        The epoch is that of the last write if it is not given, and 1 in a new log.
        """

        def following() -> tuple[int, Entries]:
            under = max(self._tail.epoch, 1) if epoch is None else epoch
            return self._tail.index, Entries.following(self._tail.index, under, payloads)

        return await self._write(following, self._must_not_change)

    async def write(self, previous: int, entries: Entries) -> IndexSet:
        """Write entries that follow an index. Returns when they are durable, with their indexes.

        A write under a newer epoch takes away everything above ``previous``. ``Conflict`` if it
        does not fit, with the index that was expected; after a gap was reported, ``NotHappened``
        for whatever follows it, until a write fits. Entries at or below the checkpoint are
        acknowledged and not written. The write goes on if the caller gives up waiting.
        """
        return await self._write(lambda: (previous, entries), self._must_not_change)

    async def _write(
        self, make: Callable[[], tuple[int, Entries]], may_be: Callable[[], None]
    ) -> IndexSet:
        """What is made is made again if others wrote while it waited for room."""
        self.must_be_there()
        tail = (self._tail.index, self._tail.epoch)
        previous, entries = make()
        check_write(previous, entries, self._engine.options.write_bytes_max)
        size = entries.stored_bytes + WRITE_OVERHEAD_BYTES
        await self._engine.wal.room(size)
        try:
            self.must_be_there()
            may_be()
            if tail != (self._tail.index, self._tail.epoch):
                previous, entries = make()
            answer = self._submit(previous, entries, size)
        except BaseException:
            self._engine.wal.give_back(size)
            raise
        return await answer  # if the caller gives up, only its waiting ends

    def _submit(self, previous: int, entries: Entries, size: int) -> asyncio.Future[IndexSet]:
        answer: asyncio.Future[IndexSet] = asyncio.get_running_loop().create_future()
        acknowledges = entries.indexes
        previous, needed = without_checkpointed(
            previous, entries, self.checkpoint_index, self.lineage
        )
        previous, needed = self._without_repeated(previous, needed)
        self._engine.meters.skipped += len(entries) - len(needed)
        if not len(needed):
            self._engine.wal.give_back(size)
            answer.set_result(acknowledges)
            return answer
        is_known = previous == self._tail.index or self._knows(previous)
        admitted = admit(self._tail, previous, needed, self._kept_up_to, is_known=is_known)
        self._began(admitted)
        section = Section(self.number, admitted.previous, admitted.entries)
        self._engine.wal.put(Write(section, size, answer, acknowledges))
        return answer

    def _without_repeated(self, previous: int, entries: Entries) -> tuple[int, Entries]:
        """Without a beginning that is durable already: a writer sends again what it was not told.

        An index and an epoch name one entry, so what is in segments need not be read for this.
        """
        if not len(entries) or entries.first > self._sequence_last:
            return previous, entries
        repeated = entries.up_to(self._sequence_last)
        if not len(repeated) or any(admitted.overwrites for admitted in self._in_flight):
            return previous, entries
        span = range(previous + 1, repeated.last + 1)
        is_here = (
            self.indexes.within(span) == repeated.indexes
            and self.lineage.numbered(repeated.heads)
            and self._knows(previous)
        )
        for table in self._tables if is_here else ():
            known = table.between(span.start, span.stop - 1)
            if not repeated.select(known.indexes).equals_head_by_head(known):
                return previous, entries
        return (repeated.last, entries.above(repeated.last)) if is_here else (previous, entries)

    def _knows(self, previous: int) -> bool:
        """Whether an index is in the log, on the disk or on the way to it."""
        for admitted in reversed(self._in_flight):
            if previous == admitted.previous or previous in admitted.entries.indexes:
                return True
            if admitted.overwrites and previous > admitted.previous:
                return False
        if previous in (0, self.checkpoint_index, self._sequence_last):
            return previous >= self.checkpoint_index
        if any(previous in table.indexes for table in self._tables):
            return True
        near = self.layout.files_with(previous, previous)
        return any(previous in file.indexes for file in near)

    async def truncate(self, after: int) -> None:
        """Take away everything above an index, durably. ``Conflict`` below the checkpoint.

        Write on under a newer epoch: an index and an epoch name one entry, for all replicas.
        """
        async with self.exclusively() as alone:
            await alone.truncate(after)

    @contextlib.asynccontextmanager
    async def exclusively(self) -> AsyncIterator[Exclusive]:
        """Wait until what was written is durable, then change the log with nobody else doing so.

        Others are refused meanwhile: ``NotHappened``.
        """
        self.must_be_there()
        async with self._changing:
            await self._settled.wait()
            self.must_be_there()
            yield Exclusive(self)

    async def _truncate(self, after: int) -> None:
        self.must_be_there()
        self._must_not_be_kept(after)
        if after >= self.last:
            return
        await self._engine.wal.room(WRITE_OVERHEAD_BYTES)
        try:
            self.must_be_there()
            self._must_not_be_kept(after)  # a checkpoint may have begun meanwhile
        except BaseException:
            self._engine.wal.give_back(WRITE_OVERHEAD_BYTES)
            raise
        end = max(self.indexes.limit(after).last or 0, self.checkpoint_index)
        answer: asyncio.Future[IndexSet] = asyncio.get_running_loop().create_future()
        self._began(Admitted(end, NO_ENTRIES, overwrites=True))
        self._engine.wal.put(
            Write(Section(self.number, end, NO_ENTRIES), WRITE_OVERHEAD_BYTES, answer, EMPTY)
        )
        # At once: it goes on if the caller gives up waiting, and then others write again.
        self._tail.index, self._tail.epoch = end, self.lineage.up_to(end).last_epoch
        self._tail.has_refused = False
        await asyncio.shield(answer)

    @contextlib.contextmanager
    def keeping(self, index: int) -> Iterator[None]:
        """While a checkpoint is taken: nothing that it contains is cut off.

        ``Conflict`` if that is already on its way.
        """
        if any(each.overwrites and each.previous < index for each in self._in_flight):
            raise Conflict(
                f"entries of {self.name!r} up to {index} are just being overwritten",
                hint="Take a checkpoint of what is committed.",
            )
        self._kept.append(index)
        try:
            yield
        finally:
            self._kept.remove(index)

    def _must_not_be_kept(self, after: int) -> None:
        if after < self._kept_up_to:
            raise Conflict(
                f"{self.name!r} has a checkpoint at {self._kept_up_to}: nothing below it "
                f"can be cut off, and {after} is",
                hint="Remove the partition and copy it from another replica.",
                expected=self._kept_up_to,
                actual=after,
            )

    @property
    def _kept_up_to(self) -> int:
        return max(self.checkpoint_index, *self._kept, 0)

    def _must_not_change(self) -> None:
        if self._changing.locked():
            raise NotHappened(
                f"{self.name!r} is being cut off or copied from another replica",
                hint="Do it again when that has ended.",
            )

    # Reading

    async def read(self, wanted: IndexSet | range) -> AsyncGenerator[Entries]:
        """The durable entries whose index is wanted, ascending, some at a time.

        Indexes that are not here are left out: a checkpoint has made them needless, or they were
        never written. It goes on over compaction. ``Conflict`` if entries that were given out are
        overwritten before it has ended, so that epochs never mix.
        """
        self.must_be_there()
        chosen = wanted if isinstance(wanted, IndexSet) else IndexSet(wanted)
        async with aclosing(self._engine.reader.read(self, chosen)) as chunks:
            async for entries in chunks:
                yield entries

    async def get(self, index: int) -> Entry:
        """One entry. ``Trimmed`` if it is dead, ``NotFound`` if it was never written."""
        async for entries in self.read(range(index, index + 1)):
            for entry in entries:
                return entry
        if index <= self.checkpoint_index:
            first = self.checkpoint_index + 1
            raise Trimmed(
                f"entry {index} of {self.name!r} does not live any more", first_offset=first
            )
        raise NotFound(f"{self.name!r} has no entry {index}", expected=index, actual=self.last)

    def plan(self) -> tuple[PartitionLayout, list[Memtable]]:
        """The files and tables of this moment, for a reader."""
        return self.layout, list(self._tables)

    # Checkpoints and compaction

    async def checkpoint(self, index: int, state: bytes, live: IndexSet = EMPTY) -> None:
        """Keep a state that contains everything up to an index, and name what still lives below it.

        When it returns, entries at or below ``index`` that are not in ``live`` are dead, and whole
        segments of them are gone. ``Invalid`` if the index is not durable, or if something is
        said to live that does not: what has died stays dead.
        """
        self.must_be_there()
        self._must_not_change()
        await self._engine.checkpoints.take(self, index, state, live)

    async def state(self) -> bytes | None:
        """The state of the current checkpoint, verified; ``None`` if there is none."""
        self.must_be_there()
        return await self._engine.checkpoints.state_of(self)

    async def hold_state(self) -> HeldState | None:
        """The current checkpoint with its state, readable also when a newer one has come."""
        self.must_be_there()
        return await self._engine.checkpoints.hold(self)

    async def compact(self) -> bool:
        """Rewrite segments of which little lives. False if that was already going on."""
        self.must_be_there()
        return await self._engine.compactor.major(self)

    # What the engine tells

    def apply(self, wal: int, section: Section) -> None:
        """A section became durable."""
        entries = section.entries
        cuts = self._take_up(wal, section)
        if cuts or not len(entries) or entries.last_epoch != self.lineage.last_epoch:
            self.lineage = self._lineage_after(section.previous, entries)

    def _take_up(self, wal: int, section: Section) -> bool:
        """Put it into the memtable of its WAL file. Gives whether it overwrites something."""
        entries, previous = section.entries, section.previous
        if self._tables and self._tables[-1].wal == wal:
            table = self._tables[-1]
        else:
            table = Memtable(wal)
            self._tables.append(table)
        cuts = previous < self._sequence_last
        if cuts:
            for watch in self.watches:
                watch.note(previous)
            self._cut_files(previous)
            for older in self._tables:
                older.cut(previous)
            table.overwrite(previous)
        table.add(previous, entries)
        if len(entries):
            self._sequence_last = entries.last
        elif cuts:
            self._sequence_last = previous
        return cuts

    def replay(self, wal: int, section: Section, path: str) -> None:
        """A section that was found in a WAL file.

        What it follows may be missing, if a later one overwrites both: then what was between them
        was dead before its own WAL file was flushed.
        """
        if section.previous > self.last and self._gap is None:
            self._gap = (self.last, section.previous, path)
        elif self._gap is not None and section.previous <= self._gap[0]:
            self._gap = None
        self._take_up(wal, section)

    def recovered(self) -> None:
        """All WAL files are replayed. ``Corrupt`` if something is missing that lives.

        Only now is it known which entries of the files count, and so what the lineage is: a
        checkpoint may have been made from entries that overwrite them, and are in the WAL alone.
        """
        self.lineage = lineage_of(self.layout, self.lineage)
        for table in self._tables:
            for run in table.runs():
                self.lineage = self._lineage_after(run.first - 1, run)
        self.forget_in_flight()
        if self._gap is not None:
            reached, previous, path = self._gap
            raise Corrupt(
                f"partition {self.name!r} lacks what lies between {reached} and {previous}, "
                f"which a batch in {path} follows",
                hint="Keep the data directory. Restore the partition from another replica.",
                path=path,
                expected=reached,
                actual=previous,
            )
        missing = self.live - self.indexes
        if missing:
            raise Corrupt(
                f"partition {self.name!r} lacks {missing!r}, which its checkpoint needs",
                hint="Keep the data directory. Restore the partition from another replica.",
                actual=missing,
            )

    def _lineage_after(self, previous: int, entries: Entries) -> Lineage:
        floor = max(previous, self.checkpoint_index)
        return self.lineage.after(floor, steps_of(entries.above(floor).heads))

    def _cut_files(self, after: int) -> None:
        """Also in files that a record is just about to name, which are not in the layout yet."""
        number = self.number

        def cut(layout: Layout) -> Layout:
            partition = layout.partitions.get(number)
            return layout if partition is None else layout.having(partition.cut_after(after))

        self._engine.journal.amend(cut)

    def _began(self, admitted: Admitted) -> None:
        self._in_flight.append(admitted)
        self._settled.clear()

    def landed(self) -> None:
        """The oldest write on its way is durable."""
        self._in_flight.popleft()
        if not self._in_flight:
            self._settled.set()

    def forget_in_flight(self) -> None:
        """What was on its way failed: the log ends where it is durable."""
        self._in_flight.clear()
        self._settled.set()
        self._tail.index, self._tail.epoch = self.last, self.lineage.last_epoch
        self._tail.has_refused = False

    def table_of(self, wal: int) -> Memtable | None:
        """The memtable of a WAL file, if it has something of this partition."""
        return next((table for table in self._tables if table.wal == wal), None)

    def drop_table(self, wal: int) -> None:
        """Its WAL file is in segments."""
        self._tables = deque(table for table in self._tables if table.wal != wal)

    def has_checkpoint(self, checkpoint: Checkpoint) -> None:
        """It became the current one."""
        lineage = checkpoint.lineage
        if self.last > checkpoint.index:
            above = [step for step in self.lineage.steps if step[0] > checkpoint.index]
            lineage = lineage.after(checkpoint.index, above)
        self._checkpoint, self.lineage = checkpoint, lineage
        # Not the log's end: it may be about to become lower, by what is on its way.
        if self._tail.index < checkpoint.index:
            self._tail.index, self._tail.epoch = checkpoint.index, checkpoint.epoch

    def removed(self) -> None:
        self._is_removed = True
        self._in_flight.clear()
        self._settled.set()

    def must_be_there(self) -> None:
        """``NotFound`` if it was removed, ``Closed`` if the disk was."""
        if self._is_removed:
            raise NotFound(f"partition {self.name!r} was removed")
        if self._engine.is_closed:
            raise Closed("the disk was closed")
        self._engine.must_work()


class Exclusive:
    """The right to change a partition's log while everybody else is refused."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    async def truncate(self, after: int) -> None:
        """As ``Partition.truncate``."""
        await self._partition._truncate(after)

    async def write(self, previous: int, entries: Entries) -> IndexSet:
        """As ``Partition.write``."""
        return await self._partition._write(lambda: (previous, entries), lambda: None)

    def incoming(self, checkpoint: Checkpoint) -> IncomingCheckpoint:
        """A checkpoint of another replica, whose state comes in parts."""
        self._partition.must_be_there()
        return self._partition._engine.checkpoints.incoming(self._partition, checkpoint)
