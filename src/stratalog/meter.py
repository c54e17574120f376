"""Requests, bytes and latencies of one kind of event, cheap enough to be always on.

Measuring costs a few additions. Latencies go into a histogram with four steps to each doubling, so
percentiles are right within a fifth, however many events there were.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """A snapshot of a meter. ``failed`` counts the events that raised, refusals included."""

    count: int = 0
    failed: int = 0
    bytes: int = 0
    total_s: float = 0.0
    min_s: float = 0.0
    max_s: float = 0.0
    p50_s: float = 0.0
    p99_s: float = 0.0

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count if self.count else 0.0


class Meter:
    """Counts events while a program runs."""

    __slots__ = ("_buckets", "bytes", "count", "failed", "max_s", "min_s", "total_s")

    def __init__(self) -> None:
        self.count = self.failed = self.bytes = 0
        self.total_s = self.max_s = 0.0
        self.min_s = float("inf")
        self._buckets: dict[int, int] = {}

    def add(self, elapsed_s: float, size: int = 0, *, failed: bool = False) -> None:
        self.count += 1
        self.failed += failed
        self.bytes += size
        self.total_s += elapsed_s
        self.min_s = min(self.min_s, elapsed_s)
        self.max_s = max(self.max_s, elapsed_s)
        bucket = bucket_of(elapsed_s)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def percentile_s(self, fraction: float) -> float:
        remaining = fraction * self.count
        for bucket in sorted(self._buckets):
            remaining -= self._buckets[bucket]
            if remaining <= 0:
                return min(max(middle_s(bucket), self.min_s), self.max_s)
        return self.max_s

    def timing(self) -> Timing:
        if not self.count:
            return Timing()
        return Timing(
            self.count,
            self.failed,
            self.bytes,
            self.total_s,
            self.min_s,
            self.max_s,
            self.percentile_s(0.5),
            self.percentile_s(0.99),
        )


def bucket_of(elapsed_s: float) -> int:
    """Microseconds on a logarithmic scale: their magnitude, then the two bits that follow it."""
    quarters = max(0, int(elapsed_s * 1e6)) * 4 + 4
    magnitude = quarters.bit_length() - 3
    return magnitude * 4 + (quarters >> magnitude) - 4


def middle_s(bucket: int) -> float:
    """The duration in the middle of a bucket."""
    magnitude, step = divmod(bucket, 4)
    return ((step + 4.5) * (1 << magnitude) - 4) / 4e6
