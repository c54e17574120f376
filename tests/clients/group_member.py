"""A member of a group, as a program: ``python -m clients.group_member KIND ADDRESS GROUP TOPIC``.

Each record becomes a line of standard output, ``PARTITION OFFSET VALUE``, before it is committed.
So a record whose line is missing was not committed, and each is in the lines of some member.
SIGTERM lets it leave the group in good order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError as AsyncCommitFailed
from aiokafka.errors import IllegalStateError as AsyncIllegalState
from confluent_kafka import Consumer
from kafka import KafkaConsumer
from kafka.errors import CommitFailedError

SESSION_MS = 3_000
HEARTBEAT_MS = 300
POLL_S = 0.2

Row = tuple[int, int, bytes]


class _Stopping:
    """Set by SIGTERM; the member looks at it between two batches."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


def confluent(address: str, group: str, topic: str, *, strategy: str = "range") -> None:
    stopping = _Stopping()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": strategy,
        }
    )
    consumer.subscribe([topic])
    while not stopping.asked:
        found = [each for each in consumer.consume(500, POLL_S) if each.error() is None]
        rows: list[Row] = []
        for each in found:
            partition, offset, value = each.partition(), each.offset(), each.value()
            assert partition is not None
            assert offset is not None
            assert isinstance(value, bytes)
            rows.append((partition, offset, value))
        _tell(rows)
        if found:
            consumer.commit(asynchronous=True)
    consumer.close()


def cooperative(address: str, group: str, topic: str) -> None:
    confluent(address, group, topic, strategy="cooperative-sticky")


def asynchronous(address: str, group: str, topic: str) -> None:
    async def consume() -> None:
        stopping = _Stopping()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await consumer.start()
        while not stopping.asked:
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
            _tell(
                (each.partition, each.offset, each.value)
                for rows in found.values()
                for each in rows
            )
            if found:
                # Refused between two assignments: the records come again.
                with suppress(AsyncCommitFailed, AsyncIllegalState):
                    await consumer.commit()
        await consumer.stop()

    asyncio.run(consume())


def pure_python(address: str, group: str, topic: str) -> None:
    stopping = _Stopping()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    while not stopping.asked:
        found = consumer.poll(int(POLL_S * 1000))
        _tell((each.partition, each.offset, each.value) for rows in found.values() for each in rows)
        if found:
            with suppress(CommitFailedError):
                consumer.commit()
    consumer.close()


def _tell(rows: Iterable[Row]) -> None:
    lines = b"".join(b"%d %d %s\n" % row for row in rows)
    if lines:
        os.write(1, lines)


KINDS: dict[str, Callable[[str, str, str], None]] = {
    "confluent-kafka": confluent,
    "confluent-kafka, cooperative": cooperative,
    "aiokafka": asynchronous,
    "kafka-python": pure_python,
}

if __name__ == "__main__":
    kind, *where = sys.argv[1:]
    KINDS[kind](*where)
