"""Retention goes on, whatever happens to a topic while it looks at it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from broker.topics.lives import append
from stratalog.broker import BrokerOptions
from stratalog.broker.topics import Topics
from stratalog.errors import StratalogError
from stratalog.partitions import DiskLog, PartitionLog, time_of
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.segments import Disk

BOUNDED = {"retention.bytes": "0", "retention.ms": "-1"}


def test_a_topic_is_deleted_while_others_are_shortened(tmp_path: Path, monkeypatch: Any) -> None:
    async def check() -> None:
        async with await Disk.open(tmp_path, time_of=time_of) as disk:
            topics = await Topics.open(disk, BrokerOptions(data=tmp_path), DEFAULT_RUNTIME)
            for name in ("a", "b", "c"):
                await append((await topics.create(name, 1, BOUNDED)).partitions[0], b"x")
            await disk.flush()
            topic = topics.get("c")
            assert topic is not None
            retain = DiskLog.retain

            async def deleting(self: DiskLog, **limits: Any) -> int:
                if topics.get("b") is not None:
                    await topics.delete("b")
                return await retain(self, **limits)

            monkeypatch.setattr(DiskLog, "retain", deleting)
            await topics._retention.look()
            assert topic.partitions[0].log_start == 1
            await topics.close()

    asyncio.run(check())


def test_a_partition_that_cannot_be_shortened_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: Any
) -> None:
    async def check() -> None:
        async with await Disk.open(tmp_path, time_of=time_of) as disk:
            topics = await Topics.open(disk, BrokerOptions(data=tmp_path), DEFAULT_RUNTIME)
            logs: list[PartitionLog] = []
            for name in ("a", "b"):
                logs += (await topics.create(name, 1, BOUNDED)).partitions
                await append(logs[-1], b"x")
            await disk.flush()
            retain = DiskLog.retain

            async def failing(self: DiskLog, **limits: Any) -> int:
                if self is logs[0]:
                    raise StratalogError("the disk is full")
                return await retain(self, **limits)

            monkeypatch.setattr(DiskLog, "retain", failing)
            await topics._retention.look()
            assert [each.log_start for each in logs] == [0, 1]
            await topics.close()

    asyncio.run(check())
