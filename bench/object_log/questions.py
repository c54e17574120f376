"""The questions about the object log, one module each."""

from __future__ import annotations

from bench.object_log.bulk import bulk
from bench.object_log.contention import contention
from bench.object_log.delayed import delayed
from bench.object_log.digests import digests
from bench.object_log.idle import idle
from bench.object_log.iteration import iteration
from bench.object_log.lone import lone
from bench.object_log.scale import scale
from bench.object_log.singles import singles
from bench.object_log.workload import FRAGMENT_BYTES, IN_FLIGHT
from bench.session import Bench

OBJECT_LOG = Bench(
    name="object-log",
    questions={
        "bulk": bulk,
        "singles": singles,
        "lone": lone,
        "delayed": delayed,
        "iteration": iteration,
        "digests": digests,
        "scale": scale,
        "idle": idle,
        "contention": contention,
    },
    config={
        "fragment_bytes": FRAGMENT_BYTES,
        "uploads_in_flight": IN_FLIGHT,
        "compression": "zstd",
        "bodies": "random bytes",
    },
)
