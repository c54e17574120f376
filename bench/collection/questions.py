"""The questions about collection and scrubbing, one module each."""

from __future__ import annotations

from bench.collection.beside import beside
from bench.collection.cost import cost
from bench.collection.scrubbing import scrubbing
from bench.object_log.workload import FRAGMENT_BYTES
from bench.session import Bench

COLLECTION = Bench(
    name="collection",
    questions={
        "cost": cost,
        "beside": beside,
        "scrub": scrubbing,
    },
    config={
        "fragment_bytes": FRAGMENT_BYTES,
        "interval_s": 0.0,
        "compression": "zstd",
        "bodies": "random bytes",
    },
)
