"""The questions about the node's disk, one module each."""

from __future__ import annotations

from bench.segments.choosing import LIVE, SEGMENTS, choosing
from bench.segments.compacting import LIVE_OF, compacting
from bench.segments.reading import reading
from bench.segments.restarting import GIGABYTES, restarting
from bench.segments.writing import (
    LARGE_WRITE_BYTES,
    LARGE_WRITERS,
    TOTAL_BYTES,
    WRITE_BYTES,
    WRITERS,
    partitions,
    wal,
)
from bench.session import Bench

SEGMENTS_BENCH = Bench(
    name="segments",
    questions={
        "wal": wal,
        "partitions": partitions,
        "reading": reading,
        "compacting": compacting,
        "restarting": restarting,
        "choosing": choosing,
    },
    config={
        "total_bytes": TOTAL_BYTES,
        "write_bytes": WRITE_BYTES,
        "writers": WRITERS,
        "large_write_bytes": LARGE_WRITE_BYTES,
        "large_writers": LARGE_WRITERS,
        "live": f"1 in {LIVE_OF}",
        "restart_gigabytes": GIGABYTES,
        "choosing_segments": SEGMENTS,
        "choosing_live": LIVE,
        "payloads": "random bytes",
    },
)
