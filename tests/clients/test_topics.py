"""Topics as clients meet them: made by the first record, grown, deleted in use, kept for a time."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from clients.confluent import Confluent
from clients.published_client import PublishedClient, Sent
from clients.running_broker import PATIENCE_S, RunningBroker

TOPICS = 1000
LIMIT_S = 100.0
FILES_SPARE = 40
"""How many more files a broker may have open than before."""

HOUR_MS = 3_600_000
LONG_AGO_MS = 1_700_000_000_000
BODY = b"x" * 1000


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that makes no topic by itself, and that looks all the time for what may go."""
    options = ("--no-auto-create", "--retention-check-ms", "100")
    running = RunningBroker(tmp_path_factory.mktemp("strict"), *options)
    try:
        yield running
    finally:
        running.ends()


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.02)


def test_the_first_record_makes_a_topic(client: PublishedClient) -> None:
    name = f"unheard-of-{uuid.uuid4().hex[:8]}"
    assert client.produce(name, [Sent(b"first"), Sent(b"second")]) == [0, 1]
    assert client.topics()[name] == 1
    client.delete_topic(name)


def test_a_broker_may_be_told_to_make_no_topic(strict: RunningBroker) -> None:
    answers: list[KafkaError | None] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        answers.append(error)

    producer = Producer(
        {
            "bootstrap.servers": strict.address,
            "topic.metadata.propagation.max.ms": 100,
            "message.timeout.ms": 5000,
        }
    )
    producer.produce("unheard-of", b"x", on_delivery=answered)
    assert producer.flush(PATIENCE_S) == 0
    (error,) = answers
    assert error is not None
    assert error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert "unheard-of" not in Confluent(strict.address).topics()


@pytest.mark.slow
def test_a_thousand_topics_written_in_turn_take_little_time_and_no_files(
    broker: RunningBroker,
) -> None:
    client, prefix = Confluent(broker.address), f"many-{uuid.uuid4().hex[:8]}"
    names = [f"{prefix}-{number}" for number in range(TOPICS)]
    open_before = _open_files(broker)
    began = time.monotonic()
    client.create_topics(names)
    acknowledged: list[str | None] = []

    def answered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message.topic())

    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    for _ in range(2):
        for name in names:
            producer.produce(name, b"x", on_delivery=answered)
            producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    assert time.monotonic() - began < LIMIT_S
    assert sorted(filter(None, acknowledged)) == sorted(names * 2)
    assert _open_files(broker) - open_before < FILES_SPARE
    assert client.ends(names[0]) == client.ends(names[-1]) == (0, 2)


def _open_files(broker: RunningBroker) -> int:
    folder = Path(f"/proc/{broker.pid}/fd")
    return len(os.listdir(folder)) if folder.is_dir() else 0  # there is none on macOS


def test_a_producer_finds_the_partitions_that_were_added(address: str) -> None:
    client, name = Confluent(address), f"growing-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, 1)
    places: set[int | None] = set()

    def answered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        places.add(message.partition())

    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 1,
            "topic.metadata.refresh.interval.ms": 100,
            "sticky.partitioning.linger.ms": 0,
        }
    )
    produced = itertools.count()

    def writes() -> None:
        producer.produce(name, b"%d" % next(produced), on_delivery=answered)
        producer.poll(0.001)

    def is_spread_over(partitions: set[int]) -> bool:
        writes()
        return places >= partitions

    _until(lambda: is_spread_over({0}), "the first partition is written")
    client.add_partitions(name, 3)
    _until(lambda: is_spread_over({0, 1, 2}), "all three are written")
    assert producer.flush(PATIENCE_S) == 0
    stored = [client.ends(name, number)[1] for number in range(3)]
    assert sum(stored) == next(produced)


def test_a_topic_that_is_deleted_under_a_consumer_is_gone_for_it_and_nobody_else(
    address: str,
) -> None:
    client = Confluent(address)
    gone, stays = (f"{word}-{uuid.uuid4().hex[:8]}" for word in ("gone", "stays"))
    for name in (gone, stays):
        client.create_topic(name)
        client.produce(name, [Sent(b"x")] * 10)
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": gone,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 100,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.subscribe([gone, stays])
    seen: list[str | None] = []

    def reads() -> int:
        found = consumer.consume(100, 0.1)
        seen.extend(message.topic() for message in found if message.error() is None)
        return len(seen)

    _until(lambda: reads() == 20, "everything is read")
    client.delete_topic(gone)
    _until(
        lambda: reads() == 20 and [each.topic for each in consumer.assignment()] == [stays],
        "the consumer has let go of the topic",
    )
    client.produce(stays, [Sent(b"more")])
    _until(lambda: reads() == 21, "the other topic goes on")
    assert seen.count(gone) == 10
    consumer.close()
    with pytest.raises(KafkaException):
        client.ends(gone)


@pytest.mark.slow
def test_retention_removes_what_is_too_old_or_too_much_and_nothing_else(
    strict: RunningBroker,
) -> None:
    """What is closed is in segments, which a start after a kill begins anew."""
    client = Confluent(strict.address)
    client.create_topic("by-time", 1, {"retention.ms": str(24 * HOUR_MS)})
    client.create_topic("by-size", 1, {"retention.bytes": "100000"})
    client.create_topic("for-ever", 1, {"retention.ms": "-1"})
    now_ms = time.time_ns() // 1_000_000
    for times_ms in (LONG_AGO_MS, now_ms):
        for name in ("by-time", "by-size", "for-ever"):
            client.produce(name, [Sent(BODY, time_ms=times_ms)] * 100)
        strict.kill()
        strict.start()
    client.set_config("by-size", "retention.ms", "-1")
    for name in ("by-time", "by-size"):
        _until(lambda name=name: client.ends(name) == (100, 200), f"{name} has shrunk")  # type: ignore[misc]
        assert len(client.read(name, 100, 100)) == 100
        with pytest.raises(AssertionError, match="out of range"):
            client.read(name, 99, 1)
    assert client.ends("for-ever") == (0, 200)
