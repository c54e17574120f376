"""The questions about compaction, one module each."""

from __future__ import annotations

from bench.compaction.dropping import FRAGMENTS, KEPT_OF, dropping
from bench.compaction.incremental import BASE_FRAGMENTS, NEW_SHARE, incremental
from bench.compaction.sets import MEMBERS, sets
from bench.object_log.workload import FRAGMENT_BYTES
from bench.session import Bench

COMPACTION = Bench(
    name="compaction",
    questions={
        "sets": sets,
        "dropping": dropping,
        "incremental": incremental,
    },
    config={
        "members": MEMBERS,
        "fragments": FRAGMENTS,
        "fragment_bytes": FRAGMENT_BYTES,
        "kept": f"1 in {KEPT_OF}",
        "incremental_fragments": BASE_FRAGMENTS,
        "incremental_new": f"1 in {NEW_SHARE}",
        "compression": "zstd",
        "bodies": "random bytes",
    },
)
