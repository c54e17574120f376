"""What a writer and a reader count while they run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stratalog.meter import Meter, Timing
from stratalog.store import Usage


@dataclass(slots=True)
class WriterCounters:
    """Of a writer. ``appends`` are timed by unit: from the oldest call in it to the answer."""

    records: int = 0
    record_bytes: int = 0
    conditional_refusals: int = 0
    manifest_conflicts: int = 0
    rebases: int = 0
    reopenings: int = 0
    uploads_again: int = 0
    pauses_for_others: int = 0
    appends: Meter = field(default_factory=Meter)
    fragments: Meter = field(default_factory=Meter)
    manifests: Meter = field(default_factory=Meter)
    snapshots: Meter = field(default_factory=Meter)
    snapshot_reads: Meter = field(default_factory=Meter)


@dataclass(slots=True)
class ReaderCounters:
    records: int = 0
    record_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    fragments: Meter = field(default_factory=Meter)
    manifests: Meter = field(default_factory=Meter)
    snapshots: Meter = field(default_factory=Meter)


def summarise(
    counters: WriterCounters | ReaderCounters, usage: Usage, elapsed_s: float
) -> Mapping[str, int | Timing]:
    """All counters by name, as they are now, with what a provider would charge for."""
    values: dict[str, int | Timing] = {"elapsed_us": int(elapsed_s * 1e6)}
    for group in (counters, usage):
        for name in group.__slots__:
            value = getattr(group, name)
            values[name] = value.timing() if isinstance(value, Meter) else value
    return values
