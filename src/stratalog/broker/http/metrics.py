"""What a broker tells about itself at `/metrics`.

Counters begin at zero when the process does. Names and labels are kept; new ones may come.
"""

from __future__ import annotations

from collections.abc import Iterator

from stratalog._version import __version__
from stratalog.broker.context import BrokerContext, Meters
from stratalog.broker.http.exposition import Family, Kind, Sample, single
from stratalog.broker.http.process import Usage
from stratalog.meter import Timing
from stratalog.segments import DiskStats

PREFIX = "stratalog_broker"


def families_of(context: BrokerContext, usage: Usage) -> Iterator[Family]:
    """Everything, for one moment."""
    labels = {
        "version": __version__,
        "cluster_id": context.cluster_id,
        "node_id": str(context.node_id),
    }
    yield Family(f"{PREFIX}_info", "gauge", "What runs here. Always 1.", (Sample(1, labels),))
    yield from traffic(context.meters)
    yield from holdings(context)
    yield from disk(context.disk.stats)
    yield from process(usage)


def traffic(meters: Meters) -> Iterator[Family]:
    """Connections, requests, and what was produced and fetched."""
    yield _gauge("connections", "Clients that are connected now.", meters.connections)
    yield _counter("connections_opened", "Connections opened.", meters.connections_opened)
    yield _counter(
        "connections_refused",
        "Connections refused because there were too many.",
        meters.connections_refused,
    )
    yield _counter(
        "connections_broken",
        "Connections closed by the broker because of what came in, or did not.",
        meters.connections_broken,
    )
    timings = {name: meter.timing() for name, meter in sorted(meters.requests.items())}
    yield Family(
        f"{PREFIX}_request_seconds",
        "summary",
        "Time from a whole request to its answer, by API. Long polls wait on purpose.",
        tuple(sample for name, timing in timings.items() for sample in _summary(name, timing)),
    )
    yield Family(
        f"{PREFIX}_request_errors_total",
        "counter",
        "Requests that were answered with an error, by API.",
        tuple(Sample(timing.failed, {"api": name}) for name, timing in timings.items()),
    )
    yield Family(
        f"{PREFIX}_request_bytes_total",
        "counter",
        "Bytes of requests, by API.",
        tuple(Sample(timing.bytes, {"api": name}) for name, timing in timings.items()),
    )
    yield _gauge("request_memory_bytes", "Memory that requests take now.", meters.request_bytes)
    yield _counter("produced_bytes", "Bytes of record batches taken in.", meters.produced_bytes)
    yield _counter("produced_records", "Records taken in.", meters.produced_records)
    yield _counter("fetched_bytes", "Bytes of record batches given out.", meters.fetched_bytes)


def holdings(context: BrokerContext) -> Iterator[Family]:
    """What the broker holds, and what its groups did."""
    topics, groups = context.topics, context.groups
    yield _gauge("topics", "Topics.", len(topics))
    yield _gauge("partitions", "Partitions of all topics.", topics.partitions_count)
    yield _gauge("groups", "Consumer groups, those without members included.", len(groups))
    counted = groups.counters
    yield _counter("group_rebalances", "Times that a group divided its work.", counted.rebalances)
    yield _counter("group_commits", "Commits of offsets by groups.", counted.commits)
    yield _counter(
        "group_offsets_expired",
        "Offsets of groups dropped because nobody came back for them.",
        counted.offsets_expired,
    )


def disk(stats: DiskStats) -> Iterator[Family]:
    """What the node's disk did: the counters of all partitions together."""
    yield from _work("disk_sync", "synced batches of the write-ahead log", stats.syncs)
    yield _counter("disk_entries", "Entries that were made durable.", stats.entries)
    yield from _work("disk_flush", "flushed WAL files", stats.flushes)
    yield from _work("disk_compaction", "major compactions", stats.major_compactions)
    yield from _work("disk_merge", "merges of small segments", stats.merges)


def process(usage: Usage) -> Iterator[Family]:
    """Memory, processor time and descriptors."""
    if usage.resident_bytes is not None:
        yield _gauge("memory_bytes", "Resident memory of the process.", usage.resident_bytes)
    yield _gauge("memory_peak_bytes", "The most that it was.", usage.peak_bytes)
    yield _counter("cpu_seconds", "Processor time, of user and system.", usage.cpu_s)
    if usage.open_files is not None:
        yield _gauge("open_files", "Open descriptors, connections included.", usage.open_files)


def _summary(api: str, timing: Timing) -> Iterator[Sample]:
    yield Sample(timing.p50_s, {"api": api, "quantile": "0.5"})
    yield Sample(timing.p99_s, {"api": api, "quantile": "0.99"})
    yield Sample(timing.total_s, {"api": api}, "_sum")
    yield Sample(timing.count, {"api": api}, "_count")


def _work(name: str, what: str, timing: Timing) -> Iterator[Family]:
    """Number, bytes and time of something that the disk did again and again."""
    samples = (
        Sample(timing.p50_s, {"quantile": "0.5"}),
        Sample(timing.p99_s, {"quantile": "0.99"}),
        Sample(timing.total_s, {}, "_sum"),
        Sample(timing.count, {}, "_count"),
    )
    yield Family(f"{PREFIX}_{name}_seconds", "summary", f"Time of {what}.", samples)
    yield _counter(f"{name}_bytes", f"Bytes of {what}.", timing.bytes)


def _gauge(name: str, meaning: str, value: float) -> Family:
    return _single(name, "gauge", meaning, value)


def _counter(name: str, meaning: str, value: float) -> Family:
    return _single(f"{name}_total", "counter", meaning, value)


def _single(name: str, kind: Kind, meaning: str, value: float) -> Family:
    return single(f"{PREFIX}_{name}", kind, meaning, value)
