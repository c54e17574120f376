"""Partitions of topics on a disk: each is opened once, with the limits of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stratalog.broker import BrokerOptions
from stratalog.broker.topics import Topics
from stratalog.broker.topics.disk_home import DiskNotes
from stratalog.errors import Unknown
from stratalog.partitions import Batch, NewRecord, encode_batch, time_of
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.segments import Disk


def batch(producer: int) -> Batch:
    data = encode_batch(
        [NewRecord(None, b"x")], producer_id=producer, producer_epoch=0, base_sequence=0
    )
    return Batch.over(data)


def test_a_partition_remembers_as_many_producers_as_the_broker_says(tmp_path: Path) -> None:
    async def check() -> None:
        options = BrokerOptions(data=tmp_path, producers_max=2)
        for known in ([1, 2], [2, 3]):
            async with await Disk.open(tmp_path, time_of=time_of) as disk:
                topics = await Topics.open(disk, options, DEFAULT_RUNTIME)
                log = (await topics.ensure("orders", 1)).partitions[0]
                for producer in known:
                    await log.append(batch(producer))
                assert [each.producer_id for each in log.producers()] == known
                await topics.close()

    asyncio.run(check())


def test_a_growth_that_is_tried_again_uses_the_partitions_that_are_open(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """A second log of one partition would take checkpoints that know nothing of the first."""

    async def unknown(self: DiskNotes, changes: Mapping[str, bytes | None]) -> None:
        raise Unknown("the note may be there")

    async def check() -> None:
        async with await Disk.open(tmp_path, time_of=time_of) as disk:
            topics = await Topics.open(disk, BrokerOptions(data=tmp_path), DEFAULT_RUNTIME)
            topic = await topics.create("orders", 1)
            with monkeypatch.context() as patched:
                patched.setattr(DiskNotes, "change", unknown)
                with pytest.raises(Unknown):
                    await topics.grow("orders", 2)
            await topics.grow("orders", 2)
            partition = await disk.partition(f"{topic.id}-1")
            assert len(partition._listeners) == 1
            await topics.close()

    asyncio.run(check())
