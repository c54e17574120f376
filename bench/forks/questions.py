"""The questions about forks and pins, one module each."""

from __future__ import annotations

from bench.forks.forking import forking
from bench.forks.pinned import PINS, pinned
from bench.forks.reading import reading
from bench.object_log.workload import FRAGMENT_BYTES
from bench.session import Bench

FORKS = Bench(
    name="forks",
    questions={
        "forking": forking,
        "reading": reading,
        "pinned": pinned,
    },
    config={
        "fragment_bytes": FRAGMENT_BYTES,
        "pins": PINS,
        "compression": "zstd",
        "bodies": "random bytes",
    },
)
