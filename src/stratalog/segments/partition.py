"""One partition of a node's disk: write, read, checkpoint, compact.

Its log consists of the durable part (``DurableLog``), which can be read, and of writes in flight.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from stratalog.errors import Conflict, Invalid, NotFound, NotHappened, Trimmed
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments.admit_write import Admitted, Tail, admit, check_write, without_checkpointed
from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    NO_ENTRIES,
    Checkpoint,
    Entries,
    Entry,
    Heads,
    Lineage,
    Payload,
    Section,
    SegmentFile,
)
from stratalog.segments.maintenance import Checkpoints, Compactor, HeldState, IncomingCheckpoint
from stratalog.segments.options import MergeLimits
from stratalog.segments.read import DurableLog, Reader
from stratalog.segments.write_ahead import Journal, PartitionWrite, Wal

WRITE_OVERHEAD_BYTES = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The state of a partition at one moment."""

    name: str
    first: int
    """The first index above the checkpoint, or where the log begins."""
    last: int
    """The last durable index."""
    epoch: int
    checkpoint: int
    """The index of the checkpoint; 0 if there is none."""
    live: IndexSet
    """The live entries at or below the checkpoint."""
    pending: IndexSet
    """The entries that are durable in the WAL and not yet in segments."""
    lineage: Lineage
    segments: int
    segment_bytes: int


class DiskServices(Protocol):
    """What a partition needs of the disk that it lies on. The engine provides it."""

    context: DiskContext
    journal: Journal
    wal: Wal
    reader: Reader
    checkpoints: Checkpoints
    compactor: Compactor

    def must_be_open(self) -> None:
        """``Closed`` after the disk was closed, ``Unavailable`` after a defect stopped it."""


@dataclass(frozen=True, slots=True)
class Exclusive:
    """Changes a partition's log while all other writes are refused."""

    truncate: Callable[[int], Awaitable[None]]
    """As ``Partition.truncate``."""
    write: Callable[[int, Entries], Awaitable[IndexSet]]
    """As ``Partition.write``."""
    incoming: Callable[[Checkpoint], IncomingCheckpoint]
    """Receives a checkpoint of another replica, whose state comes in parts."""


class Partition(DurableLog):
    """A log of entries whose indexes its writer assigns. Get one from ``Disk.partition``."""

    def __init__(
        self, disk: DiskServices, number: int, name: str, checkpoint: Checkpoint | None
    ) -> None:
        super().__init__(disk.journal, number, name, checkpoint)
        self._disk = disk
        self._context = disk.context
        self.merge_limits = MergeLimits(time_max=disk.context.options.merge_time_max)
        self._wal = disk.wal
        self._back_pressure = disk.wal.back_pressure
        self._in_flight: deque[Admitted] = deque()
        self._kept: list[int] = []
        """The indexes of the checkpoints that are being taken."""
        self._is_removed = False
        self._listeners: tuple[Callable[[int], None], ...] = ()
        self._changing = asyncio.Lock()
        self._settled = asyncio.Event()
        """Set while no write is in flight."""
        self.forget_in_flight()  # the tail is where the log ends

    def status(self) -> PartitionStatus:
        self.must_be_there()
        files = self.layout.files
        return PartitionStatus(
            name=self.name,
            first=self._first,
            last=self.last,
            epoch=self.epoch,
            checkpoint=self.checkpoint_index,
            live=self.live,
            pending=self.pending,
            lineage=self.lineage,
            segments=len(files),
            segment_bytes=sum(file.size for file in files),
        )

    # Writing

    async def append(
        self,
        payloads: Sequence[Payload],
        *,
        epoch: int | None = None,
        spans: Sequence[int] | None = None,
    ) -> IndexSet:
        """Write payloads at the end of the log. For the only writer of a partition.

        The default epoch is that of the last write, and 1 in a new log. ``spans`` says how many
        indexes each payload covers; by default, one.
        """

        def following() -> tuple[int, Entries]:
            under = max(self._tail.epoch, 1) if epoch is None else epoch
            return self._tail.index, Entries.following(self._tail.index, under, payloads, spans)

        return await self._write(following)

    async def write(self, previous: int, entries: Entries) -> IndexSet:
        """Write entries that follow an index. Returns their indexes when they are durable.

        A write under a newer epoch removes everything above ``previous``. A write that does not fit
        is a ``Conflict`` with the expected index. After a gap was reported, further writes are
        ``NotHappened`` until one fits. Entries at or below the checkpoint are acknowledged and not
        written. A cancelled caller does not stop the write.
        """
        return await self._write(lambda: (previous, entries))

    def submit(self, previous: int, entries: Entries) -> asyncio.Future[IndexSet]:
        """As ``write``, without a task: admitted or refused at once, and the future has the result.

        ``Full`` at once if there is no room: await ``Disk.room``. Cancelling the future does not
        stop the write.
        """
        self.must_take_writes()
        check_write(previous, entries, self._context.options.write_bytes_max)
        size = entries.stored_bytes + WRITE_OVERHEAD_BYTES
        self._back_pressure.take(size)
        try:
            return self._submit(previous, entries, size)
        except BaseException:
            self._back_pressure.give_back(size)
            raise

    @property
    def tail(self) -> tuple[int, int]:
        """The last index and its epoch, including writes in flight: what the next write follows."""
        return self._tail.index, self._tail.epoch

    def on_durable(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call ``callback`` with the last durable index once for each batch of the WAL that has
        writes of this partition, and after a cut. Returns a function that ends it."""
        self._listeners = (*self._listeners, callback)

        def end() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not callback)

        return end

    async def _write(
        self, make: Callable[[], tuple[int, Entries]], *, is_alone: bool = False
    ) -> IndexSet:
        """``make`` is called again if the tail moved while the write waited for room."""
        self.must_be_there()
        tail = (self._tail.index, self._tail.epoch)
        previous, entries = make()
        check_write(previous, entries, self._context.options.write_bytes_max)
        if previous != self._tail.index:
            await self._warm(self.layout.files_with(max(previous, 1), entries.last))
        size = entries.stored_bytes + WRITE_OVERHEAD_BYTES
        await self._back_pressure.wait_for_room(size)
        try:
            self.must_be_there()
            if not is_alone:
                self._must_not_change()
            if tail != (self._tail.index, self._tail.epoch):
                previous, entries = make()
            answer = self._submit(previous, entries, size)
        except BaseException:
            self._back_pressure.give_back(size)
            raise
        return await answer  # a cancelled caller only stops waiting

    def _submit(self, previous: int, entries: Entries, size: int) -> asyncio.Future[IndexSet]:
        answer: asyncio.Future[IndexSet] = self._context.meters.loop.create_future()
        admitted = self.admitted(previous, entries)
        if admitted is None:
            self._back_pressure.give_back(size)
            answer.set_result(entries.indexes)
        else:
            section = self.in_flight(admitted)
            self._wal.put(PartitionWrite((section,), size, answer, entries))
        return answer

    def admitted(self, previous: int, entries: Entries) -> Admitted | None:
        """Move the tail by a write. ``None`` if all of it is here already."""
        if previous == self._tail.index:  # then nothing of it is here
            return admit(self._tail, previous, entries, self._kept_up_to, is_known=True)
        before, needed = self._without_checkpointed(previous, entries)
        before, needed = self._without_repeated(before, needed)
        self._context.meters.skipped += len(entries) - len(needed)
        if not len(needed):
            return None
        is_known = before == self._tail.index or self._knows(before)
        if is_known and before < self._tail.index and needed.first_epoch > self._tail.epoch:
            self._must_be_an_end(before)
        return admit(self._tail, before, needed, self._kept_up_to, is_known=is_known)

    def in_flight(self, admitted: Admitted) -> Section:
        """What goes to the WAL now."""
        self._in_flight.append(admitted)
        self._settled.clear()
        return Section(self.number, admitted.previous, admitted.entries)

    def _without_checkpointed(self, previous: int, entries: Entries) -> tuple[int, Entries]:
        """The write without entries that the checkpoint covers. Of these, some may be here."""
        before, left = without_checkpointed(previous, entries, self.checkpoint_index, self.lineage)
        if left is not entries:
            self._must_be_here(entries.up_to(self.checkpoint_index))
        return before, left

    def _without_repeated(self, previous: int, entries: Entries) -> tuple[int, Entries]:
        """The write without a durable prefix: a writer repeats what was not acknowledged."""
        if not len(entries) or entries.first > self._sequence_last:
            return previous, entries
        repeated = entries.up_to(self._sequence_last)
        if not len(repeated) or any(admitted.overwrites for admitted in self._in_flight):
            return previous, entries
        if self._knows(previous) and self.has_all_between(previous, repeated):
            self._must_be_here(repeated)
            return repeated.last, entries.above(repeated.last)
        return previous, entries

    def _must_be_here(self, repeated: Entries) -> None:
        """``Conflict`` if one of the same index and epoch is here with other bytes."""
        if len(repeated) and self.differs_from(repeated, self._heads_in):
            raise Conflict(
                f"entries from {repeated.first} to {repeated.last} are here under the same epochs, "
                "with other bytes",
                hint="An index and an epoch identify one entry. Find out which of two writers "
                "had this epoch.",
                expected=repeated.first,
                actual=repeated.last,
            )

    def _heads_in(self, file: SegmentFile) -> Heads:
        return self._disk.reader.heads_in(self.number, file)

    async def _must_end_at(self, index: int) -> None:
        """``Invalid`` if an index is in the middle of an entry. Segments are read in a thread."""
        files = self.layout.files_with(index, index)
        await self._warm([file for file in files if file.has_spans])
        self._must_be_an_end(index)

    async def _warm(self, files: Sequence[SegmentFile]) -> None:
        if files:
            await self._disk.reader.warm(self.number, files)

    def _must_be_an_end(self, index: int) -> None:
        """``Invalid`` if an entry covers an index and the next one too, durable or in flight."""
        for admitted in reversed(self._in_flight):
            if admitted.entries.first <= index <= admitted.entries.last:
                is_split = admitted.entries.splits(index)
                break
            if admitted.overwrites and index >= admitted.previous:
                is_split = False
                break
        else:
            is_split = self.splits(index, self._heads_in)
        if is_split:
            raise Invalid(
                f"index {index} of {self.name!r} is in the middle of an entry",
                hint="A cut and a checkpoint lie at the end of an entry.",
                actual=index,
            )

    def _knows(self, previous: int) -> bool:
        """Whether an index is in the log, durable or in flight."""
        for admitted in reversed(self._in_flight):
            if previous == admitted.previous or previous in admitted.entries.indexes:
                return True
            if admitted.overwrites and previous > admitted.previous:
                return False
        return self.has(previous)

    async def truncate(self, after: int) -> None:
        """Remove everything above an index, durably. ``Conflict`` below the checkpoint.

        Continue under a newer epoch: an index and an epoch identify one entry, on all replicas.
        """
        async with self.exclusively() as alone:
            await alone.truncate(after)

    @contextlib.asynccontextmanager
    async def exclusively(self) -> AsyncIterator[Exclusive]:
        """Wait until all writes are durable, then change the log alone.

        Other writes are refused meanwhile: ``NotHappened``.
        """
        self.must_be_there()
        async with self._changing:
            await self._settled.wait()
            self.must_be_there()
            yield Exclusive(
                truncate=self._truncate,
                write=lambda *write: self._write(lambda: write, is_alone=True),
                incoming=self._incoming,
            )

    async def _truncate(self, after: int) -> None:
        self.must_be_there()
        self._must_not_be_kept(after)
        if after >= self.last:
            return
        await self._must_end_at(after)
        await self._back_pressure.wait_for_room(WRITE_OVERHEAD_BYTES)
        try:
            self.must_be_there()
            self._must_not_be_kept(after)  # a checkpoint may have begun meanwhile
        except BaseException:
            self._back_pressure.give_back(WRITE_OVERHEAD_BYTES)
            raise
        end = max(self.indexes.limit(after).last or 0, self.checkpoint_index)
        cut = self.in_flight(Admitted(end, NO_ENTRIES, overwrites=True))
        answer: asyncio.Future[IndexSet] = asyncio.get_running_loop().create_future()
        self._wal.put(PartitionWrite((cut,), WRITE_OVERHEAD_BYTES, answer, NO_ENTRIES))
        # At once: a cancelled caller does not stop it, and then others write again.
        self._tail = Tail(end, self.lineage.up_to(end).last_epoch)
        await asyncio.shield(answer)

    @contextlib.contextmanager
    def keeping(self, index: int) -> Iterator[None]:
        """While a checkpoint is taken, nothing that it contains is cut off.

        ``Conflict`` if a write that does so is already in flight.
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

    def must_take_writes(self) -> None:
        """Raises why it takes no writes now."""
        self.must_be_there()
        self._must_not_change()

    def _must_not_change(self) -> None:
        if self._changing.locked():
            raise NotHappened(
                f"{self.name!r} is being cut off or copied from another replica",
                hint="Retry when that has ended.",
            )

    # Reading

    async def read(self, wanted: IndexSet | range) -> AsyncGenerator[Entries]:
        """The durable entries with the wanted indexes, ascending, in batches.

        Indexes that are not here are left out: they are dead or were never written. Compaction does
        not disturb it. ``Conflict`` if entries that it has yielded are overwritten before it ends,
        so epochs never mix.
        """
        self.must_be_there()
        chosen = wanted if isinstance(wanted, IndexSet) else IndexSet(wanted)
        async with aclosing(self._disk.reader.read(self, chosen)) as chunks:
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
                f"entry {index} of {self.name!r} is dead and was dropped", first_offset=first
            )
        raise NotFound(f"{self.name!r} has no entry {index}", expected=index, actual=self.last)

    def fetch(self, index: int, bytes_max: int) -> Entries | None:
        self.must_be_there()
        return super().fetch(index, bytes_max)

    async def fetch_stored(self, index: int, bytes_max: int, *, writable: bool = False) -> Entries:
        """As ``fetch``, from wherever the entries are. Every checksum is verified.

        Entries of one segment come in one buffer, in which they lie one after another unless some
        between them are dead: ``Entries.parts`` gives them as one view. It may give less than there
        would be room for. ``writable``: the buffer is new and belongs to the caller.
        """
        return await self._disk.reader.fetch(self, index, bytes_max, writable=writable)

    def first_at(self, time: int) -> int | None:
        """The first index of the first segment or write that may have an entry of this time or a
        later one: ``time_of`` of ``Disk.open`` tells the times. ``None`` if there is none."""
        self.must_be_there()
        return self.first_of_time(time, self._context.clock_of(self.name))

    # Checkpoints and compaction

    async def checkpoint(self, index: int, state: bytes, live: IndexSet = EMPTY) -> None:
        """Store a state that contains everything up to an index, and the entries that still live.

        When it returns, entries at or below ``index`` that are not in ``live`` are dead, and
        segments without live entries are gone. ``Invalid`` if the index is not durable, or if
        ``live`` names an entry that is dead: the dead stay dead.
        """
        self.must_be_there()
        self._must_not_change()
        await self._disk.checkpoints.take(
            self, index, state, live, self.keeping(index), lambda: self._must_end_at(index)
        )

    def _incoming(self, checkpoint: Checkpoint) -> IncomingCheckpoint:
        self.must_be_there()
        return IncomingCheckpoint(self._disk.checkpoints, self, checkpoint)

    async def state(self) -> bytes | None:
        """The state of the current checkpoint, verified; ``None`` if there is none."""
        held = await self.hold_state()
        if held is None:
            return None
        with contextlib.closing(held):
            return await held.whole()

    async def hold_state(self) -> HeldState | None:
        """The current checkpoint with its state, which stays readable when a newer one comes."""
        self.must_be_there()
        return await self._disk.checkpoints.hold(self)

    async def compact(self) -> bool:
        """Rewrite segments of which little lives. False if a run was already going on."""
        self.must_be_there()
        return await self._disk.compactor.major(self)

    # Calls by the engine

    def recovered(self) -> None:
        super().recovered()
        self.forget_in_flight()

    def has_checkpoint(self, checkpoint: Checkpoint) -> None:
        super().has_checkpoint(checkpoint)
        # Not compared with ``last``: a write in flight may be about to cut the log off.
        if self._tail.index < checkpoint.index:
            self._tail.index, self._tail.epoch = checkpoint.index, checkpoint.epoch

    def tell_listeners(self) -> None:
        """A batch with writes of this partition is durable."""
        for callback in self._listeners:
            try:
                callback(self.last)
            except Exception:
                log.exception("a listener of %r failed", self.name)

    def restore_tail(self, tail: Tail) -> None:
        """A write of several sections was refused: this one was admitted in vain."""
        self._tail = tail

    @property
    def tail_now(self) -> Tail:
        """A copy, for ``restore_tail``."""
        return replace(self._tail)

    def landed(self) -> None:
        """The oldest write in flight is durable."""
        self._in_flight.popleft()
        if not self._in_flight:
            self._settled.set()

    def forget_in_flight(self) -> None:
        """The writes in flight failed: the log ends where it is durable."""
        self._in_flight.clear()
        self._settled.set()
        self._tail = Tail(self.last, self.lineage.last_epoch)

    def removed(self) -> None:
        self._is_removed = True
        self._in_flight.clear()
        self._settled.set()

    def must_be_there(self) -> None:
        """``NotFound`` if it was removed, ``Closed`` if the disk was."""
        if self._is_removed:
            raise NotFound(f"partition {self.name!r} was removed")
        self._disk.must_be_open()
