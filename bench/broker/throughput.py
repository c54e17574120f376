"""Producing and consuming gigabytes, in batches of 64 kB and of 1 MB.

Every run writes a new topic of one partition and then reads all of it. Two gigabytes are several
WAL files of ours, so rolls and flushes are in the figure.
"""

from __future__ import annotations

from functools import partial

from bench.broker.client import fresh_topics, read, write
from bench.broker.comparison import Comparison, Values, both_kafkas
from bench.broker.contenders import KAFKA, Contender

TOTAL_BYTES = 2_000 * 1024 * 1024
QUICK_BYTES = 32 * 1024 * 1024
SMALL_BATCH_BYTES = 64 * 1024
LARGE_BATCH_BYTES = 1_000_000
SMALL_TARGETS = both_kafkas(0.5, 5.0)
LARGE_TARGETS = both_kafkas(None, 1.0)
LOOP_TARGET = 0.8
CONSUME_TARGET = 0.9


def small_batches(comparison: Comparison) -> None:
    _throughput(comparison, "64 kB", SMALL_BATCH_BYTES, SMALL_TARGETS, None)


def large_batches(comparison: Comparison) -> None:
    _throughput(comparison, "1 MB", LARGE_BATCH_BYTES, LARGE_TARGETS, LOOP_TARGET)


def _throughput(
    comparison: Comparison,
    label: str,
    batch_bytes: int,
    targets: dict[str, float | None],
    loop_target: float | None,
) -> None:
    total = comparison.amount(TOTAL_BYTES, QUICK_BYTES)
    plain = comparison.plain

    def in_a_loop() -> Values:
        return {"produce": plain.rate(batch_bytes, total)}

    runs = {
        each.name: partial(_written_and_read, each, total, batch_bytes)
        for each in comparison.contenders
    }
    samples = comparison.rounds(runs | {plain.name: in_a_loop})
    question = f"batches of {label}"
    comparison.compare(
        samples,
        "produce",
        question=question,
        name=f"produce, {label} batches",
        unit="MB/s",
        bound="at least",
        targets=targets | {plain.name: loop_target},
    )
    comparison.compare(
        samples,
        "consume",
        question=question,
        name=f"consume, {label} batches",
        unit="MB/s",
        bound="at least",
        targets={KAFKA: CONSUME_TARGET},
    )
    for measure in ("produce", "consume"):
        comparison.compare(
            samples,
            f"{measure} CPU",
            question=question,
            name=f"broker CPU to {measure}, {label} batches",
            unit="s/GB",
            bound="at most",
            targets=both_kafkas(None, None),
        )


def _written_and_read(broker: Contender, total: int, batch_bytes: int) -> Values:
    with fresh_topics(broker) as [topic]:
        written = write(broker, topic, total, batch_bytes)
        consumed = read(broker, topic, written.bytes)
    return {
        "produce": written.rate,
        "produce CPU": written.cpu_s_per_gb,
        "consume": consumed.rate,
        "consume CPU": consumed.cpu_s_per_gb,
    }
