"""Counters and latencies of a writer and a reader, cheap enough to be always on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

BUCKETS_PER_DOUBLING = 4
BUCKET_S_MIN = 1e-6


class Latency:
    """How often something happened, how long it took and how many bytes it moved.

    Durations fall into buckets that grow by a fifth, so a percentile is right to about 20 %.
    """

    __slots__ = ("_buckets", "bytes", "count", "total_s")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.total_s = 0.0
        self._buckets: dict[int, int] = {}

    def observe(self, took_s: float, size: int = 0) -> None:
        self.count += 1
        self.bytes += size
        self.total_s += took_s
        bucket = int(BUCKETS_PER_DOUBLING * math.log2(max(took_s, BUCKET_S_MIN) / BUCKET_S_MIN))
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def percentile_s(self, percent: float) -> float:
        """The duration that this share of all events stayed within."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return float(BUCKET_S_MIN * 2 ** ((bucket + 1) / BUCKETS_PER_DOUBLING))
        return 0.0

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count if self.count else 0.0

    def summary(self) -> Timing:
        return Timing(
            count=self.count,
            bytes=self.bytes,
            mean_s=self.mean_s,
            p50_s=self.percentile_s(50),
            p99_s=self.percentile_s(99),
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """A summary of a ``Latency`` at one moment."""

    count: int
    bytes: int
    mean_s: float
    p50_s: float
    p99_s: float


@dataclass(slots=True)
class WriterCounters:
    """What a writer counts while it runs."""

    records: int = 0
    record_bytes: int = 0
    conditional_refusals: int = 0
    manifest_conflicts: int = 0
    rebases: int = 0
    reopenings: int = 0
    uploads_again: int = 0
    pauses_for_others: int = 0
    appends: Latency = field(default_factory=Latency)
    fragments: Latency = field(default_factory=Latency)
    manifests: Latency = field(default_factory=Latency)
    snapshots: Latency = field(default_factory=Latency)


@dataclass(slots=True)
class ReaderCounters:
    """What a reader counts while it runs."""

    records: int = 0
    record_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    fragments: Latency = field(default_factory=Latency)
    manifests: Latency = field(default_factory=Latency)
    snapshots: Latency = field(default_factory=Latency)


def summarise(counters: WriterCounters | ReaderCounters) -> Mapping[str, int | Timing]:
    """All counters by name, as they are now."""
    values: dict[str, int | Timing] = {}
    for name in counters.__slots__:
        value = getattr(counters, name)
        values[name] = value.summary() if isinstance(value, Latency) else value
    return values
