"""The latency of a lone record, and requests of one record each by CPU time of the broker."""

from __future__ import annotations

import statistics
from functools import partial

from bench.broker.client import (
    RECORD_BYTES,
    fresh_topics,
    write_one_by_one,
    write_single_record_requests,
)
from bench.broker.comparison import Comparison, Values, both_kafkas
from bench.broker.contenders import Contender

RECORDS = 3_000
QUICK_RECORDS = 200
REQUESTS = 50_000
QUICK_REQUESTS = 2_000
TARGETS = both_kafkas(None, 0.6)


def lone(comparison: Comparison) -> None:
    count = comparison.amount(RECORDS, QUICK_RECORDS)
    samples = comparison.rounds(
        {each.name: partial(_latency, each, count) for each in comparison.contenders}
    )
    for measure, targets in (("p50", TARGETS), ("p99", both_kafkas(None, None))):
        comparison.compare(
            samples,
            measure,
            question="lone",
            name=f"lone produce, {measure}",
            unit="ms",
            bound="at most",
            targets=targets,
        )


def requests(comparison: Comparison) -> None:
    count = comparison.amount(REQUESTS, QUICK_REQUESTS)
    samples = comparison.rounds(
        {each.name: partial(_requests, each, count) for each in comparison.contenders}
    )
    for measure, unit in (
        ("one-record requests", "requests/s"),
        ("one-record requests by broker CPU", "requests/CPU s"),
    ):
        comparison.compare(
            samples,
            measure,
            question="requests",
            name=measure,
            unit=unit,
            bound="at least",
            targets=both_kafkas(None, None),
        )


def _latency(broker: Contender, count: int) -> Values:
    with fresh_topics(broker) as [topic]:
        latencies_ms = write_one_by_one(broker, topic, count)
    return {
        "p50": statistics.median(latencies_ms),
        "p99": statistics.quantiles(latencies_ms, n=100)[-1],
    }


def _requests(broker: Contender, count: int) -> Values:
    with fresh_topics(broker) as [topic]:
        cost = write_single_record_requests(broker, topic, count)
    done = cost.bytes / RECORD_BYTES
    return {
        "one-record requests": done / cost.took_s,
        "one-record requests by broker CPU": done / cost.cpu_s,
    }
