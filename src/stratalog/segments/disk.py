"""A node's disk: one write-ahead log for many partitions, segments, checkpoints.

async with await Disk.open("data") as disk:
    orders = await disk.partition("orders")
    await orders.append([b"one", b"two"])
    async for entries in orders.read(range(1, 100)):
        for entry in entries:
            print(entry.index, entry.payload)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Self

from stratalog.errors import Conflict, Corrupt, Invalid, NotFound, StratalogError
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.segments.context import TimeOf
from stratalog.segments.engine import Engine
from stratalog.segments.format import (
    NOTES,
    NOTES_NAME,
    Created,
    Edit,
    Entries,
    Layout,
    Removed,
    prepare_folders,
    read_identity,
    set_aside_clean_close,
    write_clean_close,
    write_identity,
)
from stratalog.segments.io import FileSystem, LocalFiles, in_thread, typed_errors
from stratalog.segments.notes import Notes
from stratalog.segments.options import DiskOptions
from stratalog.segments.partition import Partition
from stratalog.segments.recover import (
    Found,
    ReplayedWal,
    doubts_of,
    find,
    keep_doubtful,
    make_durable,
    must_match,
    put_back_closed,
    remove_leftovers,
    replay_wal,
    warn_of_cut,
)
from stratalog.segments.repair import with_advice
from stratalog.segments.stats import DiskStats
from stratalog.segments.submit_together import submit_together

NAME_BYTES_MAX = 255

log = logging.getLogger(__name__)


class Disk:
    """A data directory that is open for reading and writing, by one process at a time."""

    def __init__(self, engine: Engine, disk_id: str, lock: contextlib.ExitStack) -> None:
        self._engine = engine
        self._lock = lock
        self._closing: asyncio.Future[None] | None = None
        self.id = disk_id
        """Created with the data directory, and never changed."""

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str] | FileSystem,
        options: DiskOptions | None = None,
        *,
        runtime: Runtime = DEFAULT_RUNTIME,
        time_of: TimeOf | None = None,
    ) -> Disk:
        """Open a data directory, or create one. ``Conflict`` if another process has it open.

        ``time_of`` tells the time of an entry, for ``Partition.first_at``.

        ``Corrupt`` if durable data is missing or damaged. Then nothing has been changed, and the
        hint says what ``stratalog disk repair`` would give up.
        """
        files = LocalFiles(path) if isinstance(path, str | os.PathLike) else path
        opening = asyncio.ensure_future(
            cls._open(files, options or DiskOptions(), runtime, time_of)
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Its threads go on. The directory is unlocked when they have ended, not before.
            opening.add_done_callback(cls._close_opened)
            raise

    @classmethod
    async def _open(
        cls, files: FileSystem, options: DiskOptions, runtime: Runtime, time_of: TimeOf | None
    ) -> Disk:
        with contextlib.ExitStack() as lock, typed_errors("opening the data directory"):
            files.make_folder("")
            try:
                lock.enter_context(files.lock("LOCK"))
            except BlockingIOError:
                raise Conflict(
                    "another process has this data directory open",
                    hint="Stop it first. `stratalog disk info` works beside it.",
                ) from None
            try:
                engine, disk_id = await _open_engine(files, options, runtime, time_of)
            except Corrupt as error:
                raise await in_thread(partial(with_advice, error, files)) from error
            return cls(engine, disk_id, lock.pop_all())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Disk({self.id})"

    # Partitions

    def partitions(self) -> list[str]:
        """The names of all partitions, sorted."""
        self._engine.must_be_open()
        partitions = self._engine.partitions.values()
        return sorted(each.name for each in partitions if each.number != NOTES)

    async def partition(self, name: str, *, create: bool = True) -> Partition:
        """A partition, created if it does not exist. ``NotFound`` if ``create`` is false."""
        self._engine.must_be_open()
        found = self._find(name)
        if found is not None:
            return found
        if not create:
            names = ", ".join(self.partitions()[:10])
            hint = f"There are: {names}." if names else "There are none."
            raise NotFound(f"there is no partition {name!r}", hint=hint)
        _check_name(name)
        engine = self._engine

        def record(layout: Layout) -> Edit | None:
            if any(each.name == name for each in layout.partitions.values()):
                return None
            return Created(layout.next_partition, name)

        def applied(edit: Edit) -> None:
            assert isinstance(edit, Created)
            engine.partitions[edit.number] = Partition(engine, edit.number, name, None)

        await engine.journal.commit(record, then=applied)
        made = self._find(name)
        if made is None:
            raise NotFound(f"partition {name!r} was removed at the same time")
        return made

    async def remove(self, name: str) -> None:
        """Remove a partition with all its data. Writes in flight fail."""
        partition = await self.partition(name, create=False)
        engine, number = self._engine, partition.number

        def record(layout: Layout) -> Edit | None:
            return Removed(number) if number in layout.partitions else None

        def applied(_: Edit) -> None:
            engine.partitions.pop(number).removed()

        if await engine.journal.commit(record, then=applied) is None:
            raise NotFound(f"partition {name!r} was removed at the same time")

    def _find(self, name: str) -> Partition | None:
        partitions = self._engine.partitions.values()
        found = (each for each in partitions if each.name == name and each.number != NOTES)
        return next(found, None)

    # Writing

    def submit(
        self,
        sections: Sequence[tuple[Partition, int, Entries]],
        notes: Mapping[str, bytes | None] | None = None,
    ) -> asyncio.Future[None]:
        """Write to several partitions, and change notes: all of it becomes durable, or nothing.

        Each section is a partition, the index that its entries follow, and the entries, as in
        ``Partition.write``. A note that becomes ``None`` is removed. Admitted or refused at once;
        ``Full`` if there is no room: await ``room``.
        """
        return submit_together(self._engine, sections, notes)

    async def room(self) -> None:
        """Wait until ``submit`` finds room. ``Full`` if there is none within ``timeout_s``."""
        self._engine.must_be_open()
        await self._engine.wal.back_pressure.room()

    @property
    def notes(self) -> Notes:
        """A few durable values of the whole node."""
        return self._engine.notes

    # The whole disk

    @property
    def stats(self) -> DiskStats:
        """Counters since it was opened."""
        return self._engine.context.meters.stats()

    @property
    def failure(self) -> StratalogError | None:
        """Why the last write failed, or the last flush of the WAL: None as soon as one succeeds."""
        return self._engine.wal.failure or self._engine.flush_queue.failure

    async def flush(self) -> None:
        """Close the WAL file and wait until all entries are in segments."""
        self._engine.must_be_open()
        await self._engine.wal.drain()
        await self._engine.wal.end_file()
        await self._engine.flusher.drain()

    async def close(self) -> None:
        """Finish what was begun and unlock the directory. A cancelled caller does not stop it."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    @classmethod
    def _close_opened(cls, opening: asyncio.Future[Disk]) -> None:
        """The caller that wanted this disk was cancelled."""
        if not opening.cancelled() and opening.exception() is None:
            disk = opening.result()
            disk._closing = asyncio.ensure_future(disk._close())

    async def _close(self) -> None:
        try:
            closed = await self._engine.close()
            if closed is not None:
                context = self._engine.context
                write = partial(write_clean_close, context.files, context.disk, closed)
                await in_thread(write)
        except OSError as error:
            log.warning("the next opening cannot know that this one was closed cleanly: %s", error)
        finally:
            self._lock.close()


async def _open_engine(
    files: FileSystem, options: DiskOptions, runtime: Runtime, time_of: TimeOf | None
) -> tuple[Engine, str]:
    identity = await in_thread(lambda: read_identity(files))
    found: Found | None = None
    if identity is None:
        disk_id = runtime.new_id(32)
        await in_thread(lambda: prepare_folders(files))
    else:
        disk_id = identity.disk
        found = await in_thread(lambda: find(files, bytes.fromhex(disk_id)))
    disk = bytes.fromhex(disk_id)
    engine = Engine(files, runtime, disk, options, found.replayed if found else None, time_of)
    engine.add_notes()
    try:
        if found is not None:
            await _recover(engine, found)
        await engine.journal.begin()
        if found is not None:
            journal = engine.journal.path
            await in_thread(lambda: remove_leftovers(files, found, journal))
        if identity is None:
            await in_thread(lambda: write_identity(files, disk_id))
    except BaseException as error:
        await engine.close()
        if found is not None and isinstance(error, Exception):  # else its threads may go on
            await in_thread(lambda: put_back_closed(files, found))
        raise
    engine.start()
    return engine, disk_id


async def _recover(engine: Engine, found: Found) -> None:
    """Replay the WAL onto the partitions, and make the result durable."""
    for number, layout in found.layout.partitions.items():
        checkpoint = found.checkpoints.get(number)
        engine.partitions[number] = Partition(engine, number, layout.name, checkpoint)
    engine.wal.next_batch = found.layout.next_batch
    files, ends, last = engine.context.files, [], None
    replay = replay_wal(files, engine.context.disk, found.layout)
    while (each := await in_thread(lambda: next(replay, None))) is not None:
        for batch in each.batches:
            for section in batch.sections:
                partition = engine.partitions.get(section.partition)
                if partition is not None:
                    partition.replay(each.wal.number, section, each.wal.path)
                    memory = section.entries.memory_bytes
                    engine.wal.back_pressure.hold(each.wal.number, memory)
        engine.wal.next_batch = each.next_batch
        engine.flush_queue.put(each.closed)
        ends.append(each.closed.file_end)
        if not each.is_unused:
            last = each
    for partition in engine.partitions.values():
        partition.recovered()
    await engine.notes.recover()
    if found.closed is not None:
        must_match(found.closed, found.replayed, ends)
    await in_thread(lambda: _settle(files, found, last))


def _settle(files: FileSystem, found: Found, last: ReplayedWal | None) -> None:
    """In a thread: the first changes, once all is read and nothing is damaged."""
    set_aside_clean_close(files)
    is_closed = found.closed is not None
    if not is_closed:
        warn_of_cut(last)
    keep_doubtful(files, doubts_of(found.replayed, last, is_closed=is_closed))
    make_durable(files, found.layout, last)


def _check_name(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # half of a pair of surrogates
        size = 0
    if name == NOTES_NAME:
        raise Invalid(f"{name!r} is the partition of the node's notes", hint="Use Disk.notes.")
    if not 0 < size <= NAME_BYTES_MAX or not name.isprintable():
        raise Invalid(
            f"not a valid name of a partition: {name!r}",
            hint=f"A name has 1 to {NAME_BYTES_MAX} bytes, and no control characters.",
        )
