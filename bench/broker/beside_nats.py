"""The same records to a running NATS server."""

from __future__ import annotations

import statistics

from bench.broker.client import (
    RECORD_BYTES,
    fresh_topics,
    write_one_by_one,
    write_single_record_requests,
)
from bench.broker.comparison import Comparison, Values
from bench.broker.lone import QUICK_RECORDS, QUICK_REQUESTS, RECORDS, REQUESTS
from bench.broker.nats import nats_p50_ms, nats_rate

NATS = "NATS JetStream"


def beside_nats(comparison: Comparison) -> None:
    """Skipped unless a server was named."""
    address, ours = comparison.nats, comparison.ours
    if address is None:
        return
    records = comparison.amount(RECORDS, QUICK_RECORDS)
    requests = comparison.amount(REQUESTS, QUICK_REQUESTS)

    def theirs() -> Values:
        return {"p50": nats_p50_ms(address, records), "rate": nats_rate(address, requests)}

    def mine() -> Values:
        with fresh_topics(ours) as [topic]:
            latencies_ms = write_one_by_one(ours, topic, records)
            cost = write_single_record_requests(ours, topic, requests)
        rate = cost.bytes / RECORD_BYTES / cost.took_s
        return {"p50": statistics.median(latencies_ms), "rate": rate}

    samples = comparison.rounds({NATS: theirs, ours.name: mine})
    comparison.compare(
        samples,
        "p50",
        question="nats",
        name="lone produce, p50",
        unit="ms",
        bound="at most",
        targets={NATS: None},
    )
    comparison.compare(
        samples,
        "rate",
        question="nats",
        name="one-record requests",
        unit="requests/s",
        bound="at least",
        targets={NATS: None},
    )
