"""A broker that is killed again and again loses nothing acknowledged, and repeats nothing."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from clients.confluent import Confluent
from clients.every_client import CLIENTS
from clients.published_client import Sent
from clients.running_broker import PATIENCE_S, RunningBroker

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("STRATALOG_TEST_KILLS", "5"))
RECORDS = int(os.environ.get("STRATALOG_TEST_RECORDS", "100000"))
"""``STRATALOG_TEST_KILLS=20 STRATALOG_TEST_RECORDS=1000000`` makes the long run of it."""

ON_THEIR_WAY_MAX = 1000
"""Of one producer. So a kill within a part meets records that are neither here nor there."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Of its own for each test, since it is killed."""
    running = RunningBroker(tmp_path)
    try:
        yield running
    finally:
        running.ends()


class Numbers:
    """Writes the numbers from 0 on as far as it may, and notes which were acknowledged."""

    def __init__(self, address: str, topic: str, *, idempotent: bool) -> None:
        self.topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 2,
                "batch.num.messages": 200,
                "queue.buffering.max.messages": ON_THEIR_WAY_MAX,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._parts: SimpleQueue[range | None] = SimpleQueue()
        self._allowed = 0
        self.acknowledged: list[int] = []
        self.failed: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._write, name=topic)

    def write_to(self, end: int) -> None:
        """Let it go on to this number."""
        self._parts.put(range(self._allowed, end))
        self._allowed = end

    def has_written(self, count: int) -> bool:
        """Whether more than so many are acknowledged."""
        assert self._thread.is_alive(), f"{self.topic}: its writer has died"
        return len(self.acknowledged) > count

    @property
    def is_under_way(self) -> bool:
        """Whether some are neither acknowledged nor failed yet."""
        return self._allowed > len(self.acknowledged) + len(self.failed)

    def _write(self) -> None:
        while (part := self._parts.get()) is not None:
            for number in part:
                self._send(number)
            while self.is_under_way and self._parts.empty():
                self._producer.poll(0.01)
        self._producer.flush(PATIENCE_S * 5)

    def _send(self, number: int) -> None:
        def answered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append((number, str(error)))

        value = b"%d" % number
        while True:
            try:
                self._producer.produce(self.topic, value, partition=0, on_delivery=answered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def __enter__(self) -> Numbers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.put(None)
        self._thread.join()


def _write_and_kill(broker: RunningBroker, *writers: Numbers) -> None:
    """Let them write all records in as many parts as there are kills, each within its part."""
    chance, under_load = random.Random(24), 0
    for kill in range(KILLS):
        begin, end = RECORDS * kill // KILLS, RECORDS * (kill + 1) // KILLS
        due = begin + int((end - begin) * 0.5 * chance.random())
        for each in writers:
            each.write_to(end)
        _until(lambda due=due: any(each.has_written(due) for each in writers))  # type: ignore[misc]
        broker.kill()
        under_load += any(each.is_under_way for each in writers)
        broker.start()
    assert under_load >= KILLS // 2, f"{under_load} of {KILLS} kills met records on their way"


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.005)


def _stored(address: str, topic: str) -> list[int]:
    first, end = Confluent(address).ends(topic)
    assert first == 0
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < end:
        batch = consumer.consume(min(10_000, end - len(found)), PATIENCE_S)
        assert batch, f"{len(found)} of {end} records"
        for message in batch:
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            value = message.value()
            assert value is not None
            found.append(int(value))
    consumer.close()
    return found


def test_killed_again_and_again_it_loses_nothing_acknowledged_and_doubles_nothing_idempotent(
    broker: RunningBroker,
) -> None:
    address = broker.address
    for topic in ("idempotent", "plain"):
        Confluent(address).create_topic(topic)
    with (
        Numbers(address, "idempotent", idempotent=True) as idempotent,
        Numbers(address, "plain", idempotent=False) as plain,
    ):
        _write_and_kill(broker, idempotent, plain)
    assert not idempotent.failed, idempotent.failed[:3]
    assert len(idempotent.acknowledged) == RECORDS
    assert _stored(address, "idempotent") == list(range(RECORDS))
    lost = set(plain.acknowledged) - set(_stored(address, "plain"))
    assert not lost, sorted(lost)[:10]
    assert len(plain.acknowledged) == RECORDS, plain.failed[:3]


def test_records_offsets_and_settings_survive_a_kill(broker: RunningBroker) -> None:
    clients = [make(broker.address) for make in CLIENTS.values()]
    for client in clients:
        client.create_topic(client.name, 2, {"retention.ms": "7200000"})
        client.produce(client.name, [Sent(b"%d" % number) for number in range(50)])
        client.delete_records(client.name, 10)
        client.commit(f"readers of {client.name}", client.name, {0: 33})
        client.create_topic(f"{client.name}-gone")
        client.delete_topic(f"{client.name}-gone")
    broker.kill()
    broker.start()
    for client in clients:
        name = client.name
        assert client.topics() == {each.name: 2 for each in clients}
        assert client.config(name)["retention.ms"] == "7200000"
        assert client.ends(name) == (10, 50)
        assert client.committed(f"readers of {name}", name) == 33
        rest = [b"%d" % number for number in range(10, 50)]
        assert [each.value for each in client.read(name, 10, 40)] == rest
        assert client.produce(name, [Sent(b"more")]) == [50]


def test_a_stop_in_good_order_and_a_second_start_keep_everything(broker: RunningBroker) -> None:
    client = Confluent(broker.address)
    client.create_topic("kept")
    client.produce("kept", [Sent(b"x")] * 1000)
    broker.stop()
    broker.start()
    assert client.ends("kept") == (0, 1000)
