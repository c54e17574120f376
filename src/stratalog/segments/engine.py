"""The parts of a running disk, and how they are joined.

    write ──► Wal (one batch, one sync, all partitions) ──► memtables of the partitions
                │ a file is closed                               │
                └──► FlushQueue ──► WalFlusher ◄─────────────────┘
                                      │
                                   Journal  ◄── Checkpoints, Compactor

A partition knows the engine only as its ``DiskServices``. Everything here runs in one event loop;
threads only write, read and sync files.
"""

import asyncio
from collections.abc import Mapping, Sequence

from stratalog.errors import Closed, NotFound, Unavailable
from stratalog.runtime import Runtime
from stratalog.segments.context import DiskContext, TimeOf
from stratalog.segments.format import NOTES, NOTES_NAME, CleanClose, FileEnd
from stratalog.segments.io import FileSystem
from stratalog.segments.maintenance import (
    Checkpoints,
    Compactor,
    FileRemover,
    MergeTurns,
    WalFlusher,
)
from stratalog.segments.notes import Notes
from stratalog.segments.options import DiskOptions
from stratalog.segments.partition import Partition
from stratalog.segments.read import OpenSegments, Reader
from stratalog.segments.stats import Meters
from stratalog.segments.submit_together import submit_together
from stratalog.segments.write_ahead import (
    ClosedWal,
    FlushQueue,
    Journal,
    Replayed,
    SpareWal,
    Wal,
    Write,
)


class Engine:
    """A disk that is open. It is the ``DiskServices`` of its partitions."""

    def __init__(
        self,
        files: FileSystem,
        runtime: Runtime,
        disk: bytes,
        options: DiskOptions,
        found: Replayed | None,
        time_of: TimeOf | None = None,
    ) -> None:
        self.partitions: dict[int, Partition] = {}
        self._open_segments = OpenSegments(files, disk, options)
        self.file_remover = FileRemover(files, on_removed=self._open_segments.forget)
        meters = Meters(asyncio.get_running_loop())
        self.spare = SpareWal(options)
        self.context = context = DiskContext(
            files, runtime, disk, options, meters, self._remove_files, time_of
        )
        self.reader = Reader(self._open_segments, options)
        self.journal = journal = Journal(context, found)
        self.flush_queue = FlushQueue(options.wal_files_max)
        self.wal = Wal(
            context,
            journal,
            self.flush_queue,
            self.spare,
            on_durable=self._durable,
            on_failed=self._failed,
        )
        self.compactor = Compactor(context, journal, self._open_segments)
        self._merge_turns = MergeTurns(context, self.compactor)
        self.flusher = WalFlusher(
            context,
            journal,
            self.flush_queue,
            self.spare,
            self.wal.back_pressure,
            self.partitions,
            self._merge_turns.flushed,
        )
        self.checkpoints = Checkpoints(context, journal, self.wal, self.compactor)
        self._is_closed = False
        self.notes = Notes(self)
        """Of the whole node, in a partition of their own."""
        self._loops: list[asyncio.Task[None]] = []
        self._ending: asyncio.Future[None] | None = None

    def add_notes(self) -> None:
        """The partition of the notes, unless the layout has it."""
        if NOTES not in self.partitions:
            self.partitions[NOTES] = Partition(self, NOTES, NOTES_NAME, None)

    def submit_notes(self, changes: Mapping[str, bytes | None]) -> asyncio.Future[None]:
        return submit_together(self, (), changes)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(self.wal.run(), name="stratalog-wal"),
            loop.create_task(self.flusher.run(), name="stratalog-wal-flusher"),
        ]
        self._merge_turns.flushed(self.partitions.values())

    def must_be_open(self) -> None:
        """``Closed`` after ``close``; ``Unavailable`` if a loop has ended, which is a defect."""
        if self._is_closed:
            raise Closed("the disk was closed")
        for task in self._loops:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise Unavailable(
                    f"the disk has stopped: {error}", hint="Close it and open it again."
                ) from error

    async def close(self) -> CleanClose | None:
        """Finish what was begun, then end. What is in the WAL stays there.

        Gives what the directory is now, if nothing is in doubt.
        """
        if self._is_closed:
            return None
        self._is_closed = True
        await self.wal.drain()
        if self._ending is not None:
            await self._ending
        await self.checkpoints.tasks.end()
        self._merge_turns.stop()
        await self.compactor.tasks.end()
        for task in self._loops:
            task.cancel()
        ended = await asyncio.gather(*self._loops, return_exceptions=True)
        await self.flusher.close()
        wals = await self.wal.close()
        journal = await self.journal.close()
        if (spare := self.spare.close()) is not None:
            self.file_remover.remove([spare])
        await self.file_remover.tasks.end()
        await self.reader.tasks.end()
        self._open_segments.close()
        if journal is None or wals is None or not all(map(_is_cancelled, ended)):
            return None
        return self._clean_close(journal, wals)

    def _clean_close(self, journal: FileEnd, wals: list[ClosedWal]) -> CleanClose | None:
        ends = {wal.file.path: wal.file_end for wal in wals}
        named = [wal.path for wal in self.journal.recorded.wals]
        if not ends.keys() >= set(named):
            return None
        return CleanClose(self.journal.number, journal, tuple(ends[path] for path in named))

    def _remove_files(self, paths: Sequence[str]) -> None:
        self.file_remover.remove(self.spare.without_kept(paths))

    def _durable(self, wal: int, writes: list[Write]) -> None:
        written: dict[int, Partition] = {}
        memory = 0
        for write in writes:
            for section in write.sections:
                number = section.partition
                partition = self.partitions.get(number)
                if partition is not None:
                    memory += section.entries.memory_bytes
                    partition.apply(wal, section)
                    partition.landed()
                    written[number] = partition
                    if number == NOTES:
                        self.notes.apply(section.entries)
                else:
                    write.refuse(NotFound("the partition was removed meanwhile"))
        if self.wal.back_pressure.hold(wal, memory):
            self._flush_early()
        for partition in written.values():
            partition.tell_listeners()

    def _flush_early(self) -> None:
        """Memory is short. Nothing is admitted any more, so the WAL soon gets to it."""
        if self._ending is None or self._ending.done():
            self._ending = asyncio.ensure_future(self.wal.end_file())

    def _failed(self, writes: list[Write]) -> None:
        sections = (section for write in writes for section in write.sections)
        for number in dict.fromkeys(section.partition for section in sections):
            partition = self.partitions.get(number)
            if partition is not None:
                partition.forget_in_flight()


def _is_cancelled(ended: object) -> bool:
    return isinstance(ended, asyncio.CancelledError)
