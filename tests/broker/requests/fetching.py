"""A topic with records, and what is fetched from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kio.index import load_response_schema

from broker.plugged import Client, PluggedBroker, decoded
from broker.record_requests import fetch_request
from stratalog.broker.wire import FETCH_KEY
from stratalog.partitions import (
    DEFAULT_LIMITS,
    Batch,
    NewRecord,
    batches_in,
    check_batch,
    encode_batch,
)
from stratalog.testing import MemoryPartitionLog

VERSION = 11
NOW_MS = 1_700_000_000_000


def batch(records: int = 1, value: bytes = b"value") -> Batch:
    """With so many records."""
    data = encode_batch([NewRecord(None, value) for _ in range(records)])
    return check_batch(data, DEFAULT_LIMITS, NOW_MS)


async def filled(broker: PluggedBroker, *counts: int, topic: str = "t", partition: int = 0) -> int:
    """Append batches of so many records. Gives the size of one with a single record."""
    for count in counts:
        await broker.log(topic, partition).append(batch(count))
    return len(batch().data)


@dataclass(frozen=True)
class Found:
    """What is said of a partition."""

    answer: Any
    batches: tuple[Batch, ...]

    @property
    def offsets(self) -> list[int]:
        """Where its batches begin."""
        return [each.base_offset for each in self.batches]

    @property
    def error(self) -> Any:
        return self.answer.error_code


async def fetch(
    client: Client,
    *wanted: tuple[str, int, int],
    version: int = VERSION,
    **given: Any,
) -> list[Found]:
    """What is there of topics, partitions and offsets."""
    number = client.request(fetch_request(version, list(wanted), **given))
    return await fetched(client, number, version)


async def fetched(client: Client, number: int = 1, version: int = VERSION) -> list[Found]:
    """The answer to a request that was sent."""
    return found_in(
        decoded(await client.answer(700), load_response_schema(FETCH_KEY, version), number)
    )


def found_in(answer: Any) -> list[Found]:
    """Of all partitions, in order. The answer as a whole is without error."""
    assert answer.throttle_time.total_seconds() == 0
    assert getattr(answer, "session_id", 0) == 0
    assert not getattr(answer, "error_code", 0)
    return [
        Found(each, tuple(batches_in([each.records or b""])))
        for topic in answer.responses
        for each in topic.partitions
    ]


class Counting(MemoryPartitionLog):
    """Counts how often it is looked at."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.looks = 0

    @property
    def high_watermark(self) -> int:
        self.looks += 1
        return super().high_watermark
