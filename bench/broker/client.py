"""The load, through confluent-kafka: the same client with the same settings for every broker."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.broker.contenders import Contender

RECORD_BYTES = 1024
RECORDS = 1024
TIMEOUT_S = 600.0
ERRORS_ONLY = 3
MESSAGES_AT_ONCE = 5_000
FETCH_BYTES = 1024 * 1024

Setting = str | int | bool


@dataclass(frozen=True)
class Cost:
    """What a run took: time on the clock, and CPU time of the broker."""

    bytes: int
    took_s: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.bytes / self.took_s / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.bytes / 1e9)


@contextmanager
def fresh_topics(broker: Contender, count: int = 1) -> Iterator[list[str]]:
    """New topics of one partition, and nothing unwritten from an earlier run."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    label = uuid.uuid4().hex[:12]
    names = [f"bench-{label}-{number}" for number in range(count)]
    topics = [NewTopic(name, 1, 1, config=broker.settings) for name in names]
    for done in admin.create_topics(topics, request_timeout=TIMEOUT_S).values():
        done.result(TIMEOUT_S)
    os.sync()
    try:
        yield names
    finally:
        for done in admin.delete_topics(names, operation_timeout=TIMEOUT_S).values():
            done.result(TIMEOUT_S)


def producer(broker: Contender, **settings: Setting) -> Producer:
    """Settings are the client's, with underscores in place of dots."""
    named: dict[str, Setting] = {
        "bootstrap.servers": broker.address,
        "acks": "all",
        "delivery.report.only.error": True,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 64 * 1024,
        "message.timeout.ms": int(TIMEOUT_S * 1000),
        "log_level": ERRORS_ONLY,
    }
    return Producer(named | {key.replace("_", "."): value for key, value in settings.items()})


def records() -> list[bytes]:
    return [os.urandom(RECORD_BYTES) for _ in range(RECORDS)]


def write(broker: Contender, topic: str, total: int, batch_bytes: int) -> Cost:
    """Write that many bytes in batches of about that size, until all are acknowledged."""
    payloads = records()
    client = producer(broker, batch_size=batch_bytes, linger_ms=100)
    client.list_topics(topic, TIMEOUT_S)
    count = total // RECORD_BYTES
    began_s, cpu_s = time.perf_counter(), broker.process.cpu_s()
    for number in range(count):
        _put(client, topic, payloads[number % RECORDS])
    finish(client)
    took_s = time.perf_counter() - began_s
    return Cost(count * RECORD_BYTES, took_s, broker.process.cpu_s() - cpu_s)


def read(broker: Contender, topic: str, total: int) -> Cost:
    """Read that many bytes from the start of the topic."""
    client = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 10,  # a full queue would stop it for a second
            "fetch.max.bytes": 64 * FETCH_BYTES,
            "max.partition.fetch.bytes": FETCH_BYTES,
        }
    )
    try:
        client.list_topics(topic, TIMEOUT_S)
        client.assign([TopicPartition(topic, 0, 0)])
        began_s, cpu_s, count, left = time.perf_counter(), broker.process.cpu_s(), 0, total
        while left > 0:
            found = client.consume(min(MESSAGES_AT_ONCE, -(-left // RECORD_BYTES)), 1.0)
            if not found and time.perf_counter() - began_s > TIMEOUT_S:
                raise RuntimeError(f"{broker.name} gave {count} records of {topic} and no more")
            for message in found:
                _refuse(message.error())
            count += len(found)
            left -= len(found) * RECORD_BYTES
        took_s = time.perf_counter() - began_s
        return Cost(count * RECORD_BYTES, took_s, broker.process.cpu_s() - cpu_s)
    finally:
        client.close()


def write_one_by_one(broker: Contender, topic: str, count: int) -> list[float]:
    """The latency of each of so many records, one at a time, in milliseconds."""
    payload = os.urandom(RECORD_BYTES)
    client = producer(broker, linger_ms=0, delivery_report_only_error=False)
    latencies_ms: list[float] = []
    for number in range(-count // 10, count):
        began_s = time.perf_counter()
        client.produce(topic, payload, on_delivery=_delivered)
        finish(client)
        if number >= 0:
            latencies_ms.append((time.perf_counter() - began_s) * 1e3)
    return latencies_ms


def write_single_record_requests(broker: Contender, topic: str, count: int) -> Cost:
    """So many requests of one record each, many of them in flight."""
    payload = os.urandom(RECORD_BYTES)
    client = producer(broker, linger_ms=0, batch_num_messages=1)
    client.list_topics(topic, TIMEOUT_S)
    began_s, cpu_s = time.perf_counter(), broker.process.cpu_s()
    for _ in range(count):
        _put(client, topic, payload)
    finish(client)
    took_s = time.perf_counter() - began_s
    return Cost(count * RECORD_BYTES, took_s, broker.process.cpu_s() - cpu_s)


def write_in_turn(broker: Contender, topics: list[str], turns: int) -> Cost:
    """One record to each topic, and again."""
    payload = os.urandom(RECORD_BYTES)
    client = producer(broker, linger_ms=5)
    began_s, cpu_s = time.perf_counter(), broker.process.cpu_s()
    for _ in range(turns):
        for topic in topics:
            _put(client, topic, payload)
        finish(client)
    took_s = time.perf_counter() - began_s
    size = turns * len(topics) * RECORD_BYTES
    return Cost(size, took_s, broker.process.cpu_s() - cpu_s)


def write_at_pace(
    broker: Contender, topic: str, total: int, batch_bytes: int, rate: float
) -> list[tuple[float, float]]:
    """Write batches at a steady pace; for each the clock at its sending, and its latency in ms."""
    payloads = records()
    client = producer(
        broker, batch_size=2 * batch_bytes, linger_ms=1, delivery_report_only_error=False
    )
    client.list_topics(topic, TIMEOUT_S)
    samples: list[tuple[float, float]] = []
    each = batch_bytes // RECORD_BYTES
    began_s = time.perf_counter()
    for number in range(total // batch_bytes):
        due_s = began_s + number * batch_bytes / rate
        while (left_s := due_s - time.perf_counter()) > 0:
            client.poll(left_s)
        for place in range(each - 1):
            _put(client, topic, payloads[place])

        def acknowledged(
            error: KafkaError | None, _: Message, sent_s: float = time.perf_counter()
        ) -> None:
            _refuse(error)
            samples.append((sent_s, (time.perf_counter() - sent_s) * 1e3))

        client.produce(topic, payloads[-1], on_delivery=acknowledged)
    finish(client)
    return samples


def finish(client: Producer) -> None:
    left = client.flush(TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged within {TIMEOUT_S:.0f} s")


def _put(client: Producer, topic: str, payload: bytes) -> None:
    while True:
        try:
            client.produce(topic, payload, on_delivery=_delivered)
        except BufferError:
            client.poll(0.05)
        else:
            return


def _delivered(error: KafkaError | None, _: Message) -> None:
    _refuse(error)


def _refuse(error: KafkaError | None) -> None:
    if error is not None:
        raise RuntimeError(f"the broker answered: {error}")
