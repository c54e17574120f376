"""Working with a disk while a model keeps book, and comparing the two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from segments.model import (
    BrokenPromise,
    Checkpointed,
    DiskModel,
    Group,
    Log,
    PartitionModel,
    Shown,
    Written,
    end_of,
    needs,
)
from stratalog.errors import NotFound, StratalogError, Unknown
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments import Disk, Entries, Entry, Partition
from stratalog.segments.format.checkpoint_file import live_path
from stratalog.segments.format.data_directory import DOUBT
from stratalog.segments.write_ahead.read_journal import replay_journal
from stratalog.testing import SimulatedFiles

FAR = 1 << 40


class Witness:
    """Does what a node does, and notes what it was promised.

    An error leaves each method as it came. ``Corrupt`` is never expected.
    """

    def __init__(self, disk: Disk, files: SimulatedFiles, model: DiskModel) -> None:
        self.disk = disk
        self.files = files
        self.model = model

    # Changing

    async def create(self, name: str) -> None:
        known = self.model.partitions.get(name)
        if known is None:
            known = self.model.partitions[name] = PartitionModel(is_here=False, is_open=True)
        known.creations += 1
        try:
            await self.disk.partition(name)
        except Unknown:
            known.is_unknown = True
            raise
        except StratalogError:
            known.creations -= 1
            if not known.is_unknown and not known.is_here and not known.creations:
                self.model.partitions.pop(name, None)
            raise
        if not known.is_here:
            known.is_here, known.is_open, known.is_unknown = True, False, False

    async def remove(self, name: str) -> None:
        known = self.model.partitions[name]
        known.is_open = True
        self.model.touched(name, 0)
        try:
            await self.disk.remove(name)
        except Unknown:
            known.is_unknown = True
            raise
        except StratalogError:
            known.is_open = known.is_unknown
            raise
        if self.model.partitions.get(name) is known:
            del self.model.partitions[name]

    async def append(self, name: str, payloads: Sequence[bytes], epoch: int = 1) -> IndexSet:
        """After everything that was written before."""
        previous = (await self._partition(name))._tail.index
        entries = [Entry(previous + 1 + at, epoch, each) for at, each in enumerate(payloads)]
        return await self.write(name, previous, entries)

    async def write(self, name: str, previous: int, entries: Sequence[Entry]) -> IndexSet:
        known = self.model.partitions[name]
        written = as_written(previous, entries)
        partition = await self._partition(name)
        known.writes.append(written)
        self.model.touched(name, previous)
        with self._noting(known, written, changes=entries[-1].last > partition.last):
            acknowledged = await partition.write(previous, Entries.of(entries))
        expected = Entries.of(entries).indexes
        if acknowledged != expected:
            raise BrokenPromise(f"{acknowledged} was acknowledged instead of {expected}")
        return acknowledged

    async def submit(self, payloads: dict[str, bytes], note: str, span: int = 1) -> None:
        """An entry for each of several partitions, and a note, in one write."""
        parts, written = [], {}
        for name, payload in payloads.items():
            partition = await self._partition(name)
            last, epoch = partition.tail
            entry = Entry(last + 1, max(epoch, 1), payload, span)
            parts.append((partition, last, Entries.of([entry])))
            written[name] = as_written(last, [entry])
        answer = self.disk.submit(parts, {note: b"written"})
        firsts = {name: (each.entries[0][0], each.entries[0][1:]) for name, each in written.items()}
        group = Group(note, firsts)
        self.model.groups.append(group)
        known = {name: self.model.partitions[name] for name in written}
        for name, each in written.items():
            known[name].writes.append(each)
        try:
            await answer
        except Unknown:
            for each in written.values():
                each.is_unknown = True
            raise
        except NotFound:  # a partition was removed meanwhile, and the others have it
            self._acknowledge_group(group, written, known)
            raise
        except StratalogError:
            self.model.groups.remove(group)
            for name, each in written.items():
                known[name].forget(each)
            raise
        self._acknowledge_group(group, written, known)

    def _acknowledge_group(
        self, group: Group, written: dict[str, Written], known: dict[str, PartitionModel]
    ) -> None:
        self.model.groups.remove(group)
        self.model.notes[group.note] = b"written"
        for name, each in written.items():
            partition = known[name]
            if each in partition.writes:
                partition.acknowledge(each)
                if partition.is_unknown:  # it is there, since something could be written to it
                    partition.is_here, partition.is_open, partition.is_unknown = True, False, False

    async def truncate(self, name: str, after: int) -> None:
        known = self.model.partitions[name]
        written = Written(after)
        partition = await self._partition(name)
        known.writes.append(written)
        self.model.touched(name, after)
        with self._noting(known, written, changes=after < partition.last):
            await partition.truncate(after)

    @contextmanager
    def _noting(self, known: PartitionModel, written: Written, *, changes: bool) -> Iterator[None]:
        was_unknown = known.is_unknown
        try:
            yield
        except Unknown:
            written.is_unknown = True
            raise
        except StratalogError:
            known.forget(written)
            raise
        known.acknowledge(written)
        if was_unknown and changes:  # it is there, since something could be written to it
            known.is_here, known.is_open, known.is_unknown = True, False, False

    async def checkpoint(self, name: str, index: int, state: bytes, live: IndexSet = EMPTY) -> None:
        known = self.model.partitions[name]
        made = Checkpointed(index, live, state)
        known.checkpoints.append(made)
        self.model.touched(name, 0)
        try:
            await (await self._partition(name)).checkpoint(index, state, live)
        except Unknown:
            raise
        except StratalogError:
            known.checkpoints.remove(made)
            raise
        known.checkpoints.remove(made)
        known.checkpoint = made

    async def compact(self, name: str) -> bool:
        return await (await self._partition(name)).compact()

    async def _partition(self, name: str) -> Partition:
        return await self.disk.partition(name, create=False)

    # Looking

    async def check(self, *, settles: bool = False) -> None:
        """Everything is as promised. To be called when nothing is on its way.

        ``settles``: the disk was just opened, so what it shows is what it will show.
        """
        names = self.disk.partitions()
        self.model.check_names(names, settles=settles)
        logs = {}
        for name in names:
            shown = await self.shown(name)
            self.model.partitions[name].check(shown, settles=settles)
            logs[name] = shown.log
        self.model.check_notes(self.disk.notes.items(), settles=settles)
        if settles:
            self.model.check_groups(logs)

    async def shown(self, name: str) -> Shown:
        partition = await self._partition(name)
        log = await read_all(partition)
        status = partition.status()
        checkpoint = Checkpointed(status.checkpoint, status.live, await partition.state())
        await self._check_sparse_reads(partition, log, checkpoint)
        return Shown(log, checkpoint, status.last, status.epoch)

    async def _check_sparse_reads(
        self, partition: Partition, log: Log, checkpoint: Checkpointed
    ) -> None:
        """Asking for any index of some gives exactly these."""
        alive = [at for at in sorted(log) if needs(checkpoint, at, log[at])][::3]
        some = IndexSet.of([end_of({at: log[at]}) for at in alive])
        found = [entry.index async for entries in partition.read(some) for entry in entries]
        if found != alive:
            raise BrokenPromise(f"asked for {some}, {partition} gave {found}")

    async def settle(self) -> None:
        """Wait until compaction and the removal of files have ended."""
        engine = self.disk._engine
        await engine.compactor.tasks.end()
        await next_wal_prepared(self.disk)
        await engine.file_remover.tasks.end()

    async def check_leftovers(self) -> None:
        """The files are those that the journal names, and those that could not be removed."""
        await self.disk._engine.journal.settle()
        await self.settle()
        there, named = set(self.files.names()), self._named()
        there = {path for path in there if not path.startswith(f"{DOUBT}/")}
        there -= self.disk._engine.file_remover.failed - named
        there -= {self.disk._engine.spare.path} - named
        if there != named:
            raise BrokenPromise(f"left over: {there - named}, missing: {named - there}")

    def _named(self) -> set[str]:
        found = replay_journal(self.files.after_kill(), bytes.fromhex(self.disk.id))
        if found is None:
            raise BrokenPromise("there is no journal")
        named = {"DISK", "LOCK", found.path, *found.layout.paths}
        for partition in found.layout.partitions.values():
            if partition.checkpoint is not None:
                named.add(live_path(partition.checkpoint.path))
        return named


async def next_wal_prepared(disk: Disk) -> None:
    """Wait until the next WAL file is not being prepared."""
    preparing = disk._engine.wal._next._preparing
    if preparing is not None:
        await asyncio.wait([preparing])


def as_written(previous: int, entries: Sequence[Entry]) -> Written:
    return Written(
        previous, tuple((each.index, each.epoch, each.payload, each.span) for each in entries)
    )


async def read_all(partition: Partition) -> Log:
    """Everything that is there. ``BrokenPromise`` if it does not ascend."""
    log: Log = {}
    last = 0
    async for entries in partition.read(range(1, FAR)):
        for entry in entries:
            if entry.index <= last:
                raise BrokenPromise(f"{entry.index} comes after {last}")
            last = entry.last
            log[entry.index] = (entry.epoch, entry.payload, entry.span)
    return log
