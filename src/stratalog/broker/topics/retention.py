"""Retention: old records go, as the topic's ``retention.ms`` and ``retention.bytes`` say.

Only closed segments are removed, oldest first, each as a whole. Retention looks at all partitions
once in an interval. A partition without records, or whose limits cannot be exceeded, costs a
comparison.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stratalog.broker.topics.settings import TopicSettings
from stratalog.broker.topics.topic import Topic
from stratalog.errors import Closed, NotFound, StratalogError
from stratalog.partitions import PartitionLog
from stratalog.runtime import Runtime

LOOKED_AT_WITHOUT_PAUSE_MAX = 64
"""After so many partitions the event loop gets its turn."""
TOLD_SHARE = 16
"""A log that has such a part of its ``retention.bytes`` is told what it may keep."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a partition may keep."""

    bytes_max: int | None
    time_min_ms: int | None


def limits(settings: TopicSettings, now_ms: int) -> Limits | None:
    """What the partitions of a topic may keep now; ``None`` if anything."""
    if settings.retention_bytes is None and settings.retention_ms is None:
        return None
    time_min = None if settings.retention_ms is None else max(now_ms - settings.retention_ms, 0)
    return Limits(settings.retention_bytes, time_min)


def may_exceed(partition: PartitionLog, limits: Limits) -> bool:
    """Whether there can be anything to remove, now or soon.

    A log must know what it may keep long before it exceeds that: it makes its segments so fine.
    """
    if partition.log_start == partition.high_watermark:
        return False
    if limits.time_min_ms is not None:
        return True
    return limits.bytes_max is not None and partition.size > limits.bytes_max // TOLD_SHARE


class Retention:
    """Looks at all topics, again and again, until it is closed."""

    def __init__(
        self, topics: Callable[[], Iterable[Topic]], interval_ms: int, runtime: Runtime
    ) -> None:
        self._topics = topics
        self._interval_s = interval_ms / 1000
        self._runtime = runtime
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stop after the partition that it is at."""
        self._stopped.set()
        if self._task is not None:
            await self._task

    async def look(self) -> None:
        """Apply the limits of all topics once."""
        now_ms = self._runtime.now_us() // 1000
        looked_at = 0
        for topic in self._topics():
            allowed = limits(topic.settings, now_ms)
            if allowed is None:
                continue
            for number, partition in enumerate(topic.partitions):
                if self._stopped.is_set():
                    return
                if may_exceed(partition, allowed):
                    await self._apply(topic, number, partition, allowed)
                looked_at += 1
                if looked_at % LOOKED_AT_WITHOUT_PAUSE_MAX == 0:
                    await asyncio.sleep(0)

    async def _apply(
        self, topic: Topic, number: int, partition: PartitionLog, allowed: Limits
    ) -> None:
        before = partition.log_start
        try:
            start = await partition.retain(
                bytes_max=allowed.bytes_max, time_min_ms=allowed.time_min_ms
            )
        except (NotFound, Closed):
            return  # the topic was deleted meanwhile
        except StratalogError as error:
            log.warning("retention of %s-%d failed: %s", topic.name, number, error)
            return
        if start != before:
            log.info(
                "%s-%d begins at offset %d now, before at %d", topic.name, number, start, before
            )

    async def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                await asyncio.wait_for(self._stopped.wait(), self._interval_s)
            except TimeoutError:
                await self.look()
