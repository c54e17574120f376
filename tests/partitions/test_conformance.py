"""Every partition log keeps the contract."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from stratalog.partitions import DiskLog, PartitionLog, time_of
from stratalog.runtime import Runtime
from stratalog.segments import Disk, DiskOptions
from stratalog.segments.io import FileSystem, LocalFiles
from stratalog.testing import MemoryPartitionLog, PartitionLogConformance, SimulatedFiles

SMALL = DiskOptions(
    wal_file_bytes=1 << 16, segment_bytes_max=1 << 14, segment_entries_max=2, read_bytes=1 << 12
)
"""Segments of two batches, so that short logs have several."""


class TestMemoryPartitionLog(PartitionLogConformance):
    async def make_log(self, runtime: Runtime) -> PartitionLog:
        return MemoryPartitionLog(runtime=runtime)

    async def after_crash(self, log: PartitionLog, runtime: Runtime) -> PartitionLog:
        assert isinstance(log, MemoryPartitionLog)
        return log.after_crash()


class OnADisk(PartitionLogConformance):
    """Opens disks, and closes them when a test is over."""

    segment_batches = 2
    options = SMALL

    @pytest.fixture(autouse=True)
    def _no_disks(self, tmp_path: Path) -> None:
        self.disks: list[Disk] = []
        self.root = tmp_path / "disk"

    async def opened(self, files: FileSystem, runtime: Runtime) -> DiskLog:
        disk = await Disk.open(files, self.options, runtime=runtime, time_of=time_of)
        self.disks.append(disk)
        return await DiskLog.open(disk, "orders-0", runtime=runtime)

    async def settle(self, log: PartitionLog) -> None:
        await self.disks[-1].flush()

    async def release(self) -> None:
        for disk in self.disks:
            await disk.close()


class TestDiskLogInADirectory(OnADisk):
    """The process of the log dies; its disk is closed, because one process has both."""

    async def make_log(self, runtime: Runtime) -> PartitionLog:
        return await self.opened(LocalFiles(self.root), runtime)

    async def after_crash(self, log: PartitionLog, runtime: Runtime) -> PartitionLog:
        await self.disks[-1].close()
        return await self.make_log(runtime)


class TestDiskLogInASimulatedDirectory(OnADisk):
    """The machine loses its power."""

    async def make_log(self, runtime: Runtime) -> PartitionLog:
        self.files = SimulatedFiles(random=Random(1))
        return await self.opened(self.files, runtime)

    async def after_crash(self, log: PartitionLog, runtime: Runtime) -> PartitionLog:
        self.files = self.files.after_power_loss(Random(2))
        return await self.opened(self.files, runtime)


class TestDiskLogWhoseBatchesAreAllInSegments(TestDiskLogInADirectory):
    """Each batch has a WAL file of its own, so that a fetch goes to segments."""

    options = DiskOptions(
        wal_file_bytes=128,
        wal_files_max=1000,
        segment_bytes_max=1 << 14,
        segment_entries_max=2,
        read_bytes=1 << 12,
    )
