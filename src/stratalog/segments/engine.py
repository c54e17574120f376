"""The parts of a running disk, and how they are joined.

    write ──► Wal (one batch, one sync, all partitions) ──► memtables of the partitions
                │ a file is closed                               │
                └──────────────► SegmentWriter ◄─────────────────┘
                                      │
                                   Journal  ◄── Checkpoints, Compactor

Everything here runs in one event loop; threads only write, read and sync files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from stratalog.errors import NotFound, Unavailable
from stratalog.runtime import Runtime
from stratalog.segments.format import WalFile
from stratalog.segments.io import FileSystem, Tasks, in_thread
from stratalog.segments.options import DiskOptions
from stratalog.segments.partition import Partition
from stratalog.segments.read import Reader, SegmentReaders
from stratalog.segments.stats import Meters
from stratalog.segments.upkeep import Checkpoints, Compactor, SegmentWriter
from stratalog.segments.write_ahead import Journal, Replayed, Wal, Write

log = logging.getLogger(__name__)


class Engine:
    """A disk that is open."""

    def __init__(
        self,
        files: FileSystem,
        runtime: Runtime,
        disk: bytes,
        options: DiskOptions,
        found: Replayed | None,
    ) -> None:
        self.files = files
        self.runtime = runtime
        self.disk = disk
        self.options = options
        self.is_closed = False
        self.meters = Meters(asyncio.get_running_loop())
        self.partitions: dict[int, Partition] = {}
        self.journal = Journal(files, runtime, disk, found)
        self.readers = SegmentReaders(files, disk, options)
        self.reader = Reader(self.readers, options)
        self.wal = Wal(files, runtime, disk, self.journal, options, self.meters)
        self.segment_writer = SegmentWriter(
            files, runtime, disk, self.journal, options, self.partitions, self.meters
        )
        self.checkpoints = Checkpoints(files, runtime, disk, self.journal, self.meters)
        self.compactor = Compactor(
            files, runtime, disk, self.journal, self.readers, options, self.meters
        )
        self._removing = Tasks()
        self._not_removed: set[str] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._join()

    def _join(self) -> None:
        self.wal.on_durable = self._durable
        self.wal.on_failed = self._failed
        self.wal.on_closed = self.segment_writer.put
        self.wal.is_blocked = lambda: self.segment_writer.waiting >= self.options.wal_files_max
        self.wal.why_blocked = lambda: self.segment_writer.failure
        self.segment_writer.on_flushed = self._flushed
        self.checkpoints.on_minor = self.compactor.after_minor
        self.checkpoints.before_record = self.wal.settle
        parts = (self.journal, self.wal, self.segment_writer, self.checkpoints, self.compactor)
        for each in parts:
            each.on_removable = self.remove_files

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(self.wal.run(), name="stratalog-wal"),
            loop.create_task(self.segment_writer.run(), name="stratalog-segment-writer"),
        ]

    def must_work(self) -> None:
        """Raise if one of the loops has ended, which is a defect."""
        for task in self._loops:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise Unavailable(
                    f"the disk has stopped: {error}", hint="Close it and open it again."
                ) from error

    async def close(self) -> None:
        """Finish what was begun, then end. What is in the WAL stays there."""
        if self.is_closed:
            return
        self.is_closed = True
        await self.wal.drain()
        await self.checkpoints.close()
        await self.compactor.close()
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self.segment_writer.close()
        await self.journal.close()
        await self._removing.end()
        self.wal.close()
        await self.reader.close()
        self.readers.close()

    def remove_files(self, paths: Sequence[str]) -> None:
        """Remove files that no record of the journal names.

        What fails is tried again with the next ones, and done at the next opening at the latest.
        """
        if paths:
            again, self._not_removed = self._not_removed, set()
            self._removing.start(self._remove([*paths, *sorted(again)]))

    async def _remove(self, paths: list[str]) -> None:
        def remove() -> list[str]:
            failed = []
            for path in paths:
                try:
                    self.files.remove(path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    log.warning("%s could not be removed: %s", path, error)
                    failed.append(path)
                self.readers.forget(path)
            return failed

        failed = await in_thread(remove)
        self._not_removed.update(failed)

    def _durable(self, wal: int, writes: list[Write]) -> None:
        for write in writes:
            partition = self.partitions.get(write.section.partition)
            if partition is not None:
                partition.apply(wal, write.section)
                partition.landed()
            elif not write.answer.done():
                write.answer.set_exception(NotFound("the partition was removed meanwhile"))
                write.answer.exception()  # the caller may have given up

    def _failed(self, writes: list[Write]) -> None:
        for number in dict.fromkeys(write.section.partition for write in writes):
            partition = self.partitions.get(number)
            if partition is not None:
                partition.forget_in_flight()

    def _flushed(self, _: WalFile) -> None:
        self.wal.unblocked()
