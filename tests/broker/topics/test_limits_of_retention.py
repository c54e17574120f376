"""When retention looks at a partition."""

from __future__ import annotations

import asyncio

from stratalog.broker.topics.retention import TOLD_SHARE, Limits, may_exceed
from stratalog.partitions import MERGED_SHARE
from stratalog.testing import MemoryPartitionLog
from stratalog.testing.partition_conformance import SetClock, produced


def test_a_log_is_told_long_before_it_has_too_much() -> None:
    """So that it does not merge its segments to one that would go as a whole."""

    async def main() -> None:
        log = MemoryPartitionLog(runtime=SetClock())
        assert not may_exceed(log, Limits(0, None))
        assert not may_exceed(log, Limits(None, 1))
        await log.append(produced([bytes(1000)]))
        assert not may_exceed(log, Limits(log.size * TOLD_SHARE, None))
        assert may_exceed(log, Limits((log.size - 1) * TOLD_SHARE, None))
        assert may_exceed(log, Limits(None, 1))
        assert not may_exceed(log, Limits(None, None))

    asyncio.run(main())


def test_that_is_before_it_may_merge_so_much() -> None:
    assert TOLD_SHARE > MERGED_SHARE
