"""Bugs on purpose in a broker, each in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import msgspec

from simulation.planting import plant
from stratalog.broker import producer_ids
from stratalog.broker.groups.group_log import GroupLog
from stratalog.broker.groups.offsets import Offsets
from stratalog.broker.groups.stored import StoredGroup
from stratalog.broker.topics.catalogue import Topics
from stratalog.broker.topics.topic import Topic
from stratalog.partitions import Appended, Batch, DiskLog, Producers
from stratalog.partitions.disk_state import DiskState
from stratalog.partitions.producers import Remembered
from stratalog.runtime import Runtime


def _done(appended: Appended) -> asyncio.Future[Appended]:
    answer = asyncio.get_running_loop().create_future()
    answer.set_result(appended)
    return answer


@contextmanager
def acknowledge_before_durable() -> Iterator[None]:
    """A batch is acknowledged when it is on its way to the disk: ``what was told stays``."""
    append = DiskLog.append

    def hasty(self: DiskLog, batch: Batch) -> asyncio.Future[Appended]:
        answer = append(self, batch)
        return answer if answer.done() else _done(self._in_flight.pending[-1].appended)

    with plant(DiskLog, "append", hasty):
        yield


@contextmanager
def high_watermark_too_early() -> Iterator[None]:
    """It counts what is not durable yet: ``the end``."""
    append = DiskLog.append

    def hasty(self: DiskLog, batch: Batch) -> asyncio.Future[Appended]:
        answer = append(self, batch)
        self._high_watermark = self._end
        self._tell()
        return answer

    with plant(DiskLog, "append", hasty):
        yield


@contextmanager
def duplicate_answered_before_its_original() -> Iterator[None]:
    """A batch that is sent again counts as written while it is on its way: ``what was told``."""

    def hasty(self: DiskLog, original: Remembered) -> asyncio.Future[Appended]:
        assert self.name
        return _done(Appended(original.base_offset, original.time_us // 1000, is_duplicate=True))

    with plant(DiskLog, "_repeated", hasty):
        yield


@contextmanager
def group_offsets_not_replayed() -> Iterator[None]:
    """Groups come back without their offsets: ``a committed offset stays``."""
    load = GroupLog.load

    def forgetful(self: GroupLog) -> dict[str, StoredGroup]:
        groups = load(self)
        self.offsets = Offsets()
        return groups

    with plant(GroupLog, "load", forgetful):
        yield


class _NamedAfter:
    """A runtime for one call, which gives the id of a name."""

    def __init__(self, topics: Topics, name: str) -> None:
        self._topics, self._runtime, self._name = topics, topics._runtime, name
        topics._runtime = cast(Runtime, self)

    def new_id(self, digits: int) -> str:
        self.end()
        return hashlib.sha256(self._name.encode()).hexdigest()[:digits]

    def end(self) -> None:
        self._topics._runtime = self._runtime


@contextmanager
def topic_name_reused_with_its_data() -> Iterator[None]:
    """The id of a topic is made of its name, and its data goes at the next start: ``no old``."""
    create = Topics._create

    async def named(self: Topics, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        runtime = _NamedAfter(self, name)
        try:
            self.check_new(name, partitions)
        except BaseException:
            runtime.end()
            raise
        return await create(self, name, partitions, settings)

    async def later(_self: Topics, _names: list[str]) -> None:
        pass

    with plant(Topics, "_create", named), plant(Topics, "_remove_partitions", later):
        yield


@contextmanager
def producers_lost_at_a_checkpoint() -> Iterator[None]:
    """What was sent before a checkpoint may be sent again: ``nothing is doubled``."""
    empty = Producers().snapshot()

    def forgetful(_self: Producers) -> bytes:
        return empty

    with plant(Producers, "snapshot", forgetful):
        yield


@contextmanager
def first_batch_not_awaited() -> Iterator[None]:
    """When the first batch of a producer fails, the second is taken for it: ``order``."""

    def careless(_self: Producers, _batch: Batch, _now_us: int) -> None:
        pass

    with plant(Producers, "_must_be_awaited", careless):
        yield


@contextmanager
def log_start_not_durable() -> Iterator[None]:
    """Records that were deleted come back with the power: ``log start``."""

    async def in_memory(self: DiskLog, offset: int) -> int:
        self._log_start = max(self._log_start, offset)
        return self._log_start

    with plant(DiskLog, "delete_before", in_memory):
        yield


@contextmanager
def log_start_lost_at_a_restart() -> Iterator[None]:
    """A checkpoint does not say where the log begins: ``log start``."""
    from_bytes = DiskState.from_bytes

    def forgetful(data: bytes, name: str) -> DiskState:
        return msgspec.structs.replace(from_bytes(data, name), log_start=0)

    with plant(DiskState, "from_bytes", forgetful):
        yield


@contextmanager
def duplicate_answered_with_the_wrong_offset() -> Iterator[None]:
    """With that of the producer's newest batch: ``an offset is of one record``."""
    judge = Producers.judge

    def newest(self: Producers, batch: Batch, now_us: int) -> Remembered | None:
        original = judge(self, batch, now_us)
        return None if original is None else self._states[batch.producer_id].batches[-1]

    with plant(Producers, "judge", newest):
        yield


@contextmanager
def failed_batch_counts_as_written() -> Iterator[None]:
    """Batches whose write failed stay with their producer: ``a healthy disk takes records``."""

    def stubborn(_self: Producers) -> None:
        pass

    with plant(Producers, "forget_in_flight", stubborn):
        yield


@contextmanager
def producer_ids_given_again() -> Iterator[None]:
    """The ids that were given are forgotten with the process: ``an offset is of one record``."""

    def forgetful(_value: bytes | None) -> int:
        return 0

    with plant(producer_ids, "_stored", forgetful):
        yield


PLANTED = (
    acknowledge_before_durable,
    high_watermark_too_early,
    duplicate_answered_before_its_original,
    group_offsets_not_replayed,
    topic_name_reused_with_its_data,
    producers_lost_at_a_checkpoint,
    first_batch_not_awaited,
    log_start_not_durable,
    log_start_lost_at_a_restart,
    duplicate_answered_with_the_wrong_offset,
    failed_batch_counts_as_written,
    producer_ids_given_again,
)
