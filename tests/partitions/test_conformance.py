"""Every partition log keeps the contract."""

from __future__ import annotations

from stratalog.partitions import PartitionLog
from stratalog.runtime import Runtime
from stratalog.testing import MemoryPartitionLog, PartitionLogConformance


class TestMemoryPartitionLog(PartitionLogConformance):
    async def make_log(self, runtime: Runtime) -> PartitionLog:
        return MemoryPartitionLog(runtime=runtime)

    async def after_crash(self, log: PartitionLog, runtime: Runtime) -> PartitionLog:
        assert isinstance(log, MemoryPartitionLog)
        return log.after_crash()
