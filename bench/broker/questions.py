"""The questions about the broker, and their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from bench.broker.beside_nats import beside_nats
from bench.broker.client import RECORD_BYTES, fresh_topics, read, write, write_one_by_one
from bench.broker.comparison import ROUNDS, Comparison
from bench.broker.contenders import Contender, kafka_peers, our_broker
from bench.broker.lone import lone, requests
from bench.broker.many import CONNECTIONS, TOPICS, connections, topics
from bench.broker.plain import plain_loop
from bench.broker.rolls import RATE, rolls
from bench.broker.throughput import (
    LARGE_BATCH_BYTES,
    SMALL_BATCH_BYTES,
    TOTAL_BYTES,
    large_batches,
    small_batches,
)
from bench.results import Measurement

WARM_S, WARM_QUICK_S = 60.0, 2.0
WARM_BYTES = 16 * 1024 * 1024
WARM_RECORDS = 200

QUESTIONS: Mapping[str, Callable[[Comparison], None]] = {
    "lone": lone,
    "requests": requests,
    "large": large_batches,
    "small": small_batches,
    "rolls": rolls,
    "topics": topics,
    "connections": connections,
    "nats": beside_nats,
}
CONFIG: dict[str, str | int | float] = {
    "client": "confluent-kafka, acks=all",
    "record_bytes": RECORD_BYTES,
    "total_bytes": TOTAL_BYTES,
    "small_batch_bytes": SMALL_BATCH_BYTES,
    "large_batch_bytes": LARGE_BATCH_BYTES,
    "rounds": ROUNDS,
    "warm_s": WARM_S,
    "connections": CONNECTIONS,
    "topics": TOPICS,
    "paced_bytes_per_s": RATE,
    "payloads": "random bytes",
}


def answer(
    names: Sequence[str],
    *,
    kafka: str | None,
    nats: str | None,
    quick: bool,
    record: Callable[[Measurement], None],
) -> None:
    """Start our broker, warm all of them, and answer these questions."""
    with ExitStack() as stack:
        peers = kafka_peers(kafka) if kafka else []
        plain = stack.enter_context(plain_loop())
        ours = stack.enter_context(our_broker())
        comparison = Comparison(ours, peers, nats, plain, quick, record)
        for broker in comparison.contenders:
            _warm(broker, (WARM_QUICK_S if quick else WARM_S))
        for name in names:
            QUESTIONS[name](comparison)


def _warm(broker: Contender, seconds: float) -> None:
    """A JVM compiles what it does often: cold figures would flatter us."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        with fresh_topics(broker) as [topic]:
            for batch_bytes in (SMALL_BATCH_BYTES, LARGE_BATCH_BYTES):
                write(broker, topic, WARM_BYTES, batch_bytes)
            read(broker, topic, WARM_BYTES)
            write_one_by_one(broker, topic, WARM_RECORDS)
