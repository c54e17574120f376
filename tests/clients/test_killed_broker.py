"""A broker that is killed again and again loses nothing acknowledged, and repeats nothing."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from clients.confluent import Confluent
from clients.every_client import CLIENTS
from clients.published_client import Sent
from clients.running_broker import PATIENCE_S, RunningBroker

pytestmark = pytest.mark.slow

TOPIC = "numbers"
KILLS = int(os.environ.get("STRATALOG_TEST_KILLS", "5"))
RECORDS = int(os.environ.get("STRATALOG_TEST_RECORDS", "100000"))
"""``STRATALOG_TEST_KILLS=20 STRATALOG_TEST_RECORDS=1000000`` for the long run."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Of its own for each test, since it is killed."""
    running = RunningBroker(tmp_path)
    try:
        yield running
    finally:
        running.ends()


class Numbers:
    """Writes the numbers from 0 on, and notes which were acknowledged."""

    def __init__(self, address: str, count: int, *, idempotent: bool) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 5,
                "batch.num.messages": 200,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._count = count
        self.sent = 0
        self.acknowledged: list[int] = []
        self.failed: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._write, name="numbers")

    def _write(self) -> None:
        for number in range(self._count):

            def answered(error: KafkaError | None, _: Message, number: int = number) -> None:
                if error is None:
                    self.acknowledged.append(number)
                else:
                    self.failed.append((number, str(error)))

            while True:
                try:
                    self._producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=answered)
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
            self._producer.poll(0)
            self.sent += 1
        self._producer.flush(PATIENCE_S * 5)

    def __enter__(self) -> Numbers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def is_writing(self) -> bool:
        return self._thread.is_alive()


def _kill_at_random(broker: RunningBroker, numbers: Numbers, count: int, kills: int) -> int:
    """Kill and restart, spread over the acknowledgements; gives how often it did."""
    chance = random.Random(24)
    for done in range(kills):
        due = count * (done + 1) // (kills + 1)
        _until(lambda due=due: len(numbers.acknowledged) >= due or not numbers.is_writing())  # type: ignore[misc]
        if not numbers.is_writing():
            return done
        time.sleep(chance.random() * 0.02)
        broker.kill()
        broker.start()
    return kills


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.005)


def _stored(address: str) -> list[int]:
    first, end = Confluent(address).ends(TOPIC)
    assert first == 0
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
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


def test_an_idempotent_producer_writes_each_record_once_in_order_while_the_broker_is_killed(
    broker: RunningBroker,
) -> None:
    Confluent(broker.address).create_topic(TOPIC)
    with Numbers(broker.address, RECORDS, idempotent=True) as numbers:
        kills = _kill_at_random(broker, numbers, RECORDS, KILLS)
    assert kills == KILLS
    assert not numbers.failed, numbers.failed[:3]
    assert len(numbers.acknowledged) == RECORDS
    assert _stored(broker.address) == list(range(RECORDS))


def test_without_idempotence_nothing_acknowledged_is_lost(broker: RunningBroker) -> None:
    Confluent(broker.address).create_topic(TOPIC)
    with Numbers(broker.address, RECORDS, idempotent=False) as numbers:
        kills = _kill_at_random(broker, numbers, RECORDS, KILLS)
    assert kills == KILLS
    lost = set(numbers.acknowledged) - set(_stored(broker.address))
    assert not lost, sorted(lost)[:10]


@pytest.mark.parametrize("name", CLIENTS)
def test_records_offsets_and_settings_survive_a_kill(broker: RunningBroker, name: str) -> None:
    client = CLIENTS[name](broker.address)
    client.create_topic(TOPIC, 2, {"retention.ms": "7200000"})
    client.produce(TOPIC, [Sent(b"%d" % number) for number in range(50)])
    client.delete_records(TOPIC, 10)
    client.commit("readers", TOPIC, {0: 33})
    client.create_topic("gone")
    client.delete_topic("gone")
    broker.kill()
    broker.start()
    assert client.topics()[TOPIC] == 2
    assert "gone" not in client.topics()
    assert client.config(TOPIC)["retention.ms"] == "7200000"
    assert client.ends(TOPIC) == (10, 50)
    assert client.committed("readers", TOPIC) == 33
    assert [each.value for each in client.read(TOPIC, 10, 40)] == [b"%d" % n for n in range(10, 50)]
    assert client.produce(TOPIC, [Sent(b"more")]) == [50]


def test_a_stop_in_good_order_and_a_second_start_keep_everything(broker: RunningBroker) -> None:
    client = Confluent(broker.address)
    client.create_topic(TOPIC)
    client.produce(TOPIC, [Sent(b"x")] * 1000)
    broker.stop()
    broker.start()
    assert client.ends(TOPIC) == (0, 1000)
