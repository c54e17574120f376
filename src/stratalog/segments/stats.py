"""What a node's disk has done, as counters and latencies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from stratalog.meter import Meter, Timing


@dataclass(slots=True)
class Meters:
    """Counted while the node runs."""

    loop: asyncio.AbstractEventLoop
    sync: Meter = field(default_factory=Meter)
    flush: Meter = field(default_factory=Meter)
    minor: int = 0
    major: Meter = field(default_factory=Meter)
    entries: int = 0
    skipped: int = 0
    flushed_entries: int = 0

    def stats(self) -> DiskStats:
        return DiskStats(
            syncs=self.sync.timing(),
            entries=self.entries,
            skipped=self.skipped,
            flushes=self.flush.timing(),
            flushed_entries=self.flushed_entries,
            minor_compactions=self.minor,
            major_compactions=self.major.timing(),
        )


@dataclass(frozen=True, slots=True)
class DiskStats:
    """A snapshot of what a node's disk has done since it was opened."""

    syncs: Timing
    """Batches of the WAL: how many, their bytes, how long write and sync took."""
    entries: int
    """Entries that were made durable."""
    skipped: int
    """Entries that a checkpoint had made needless before they were written."""
    flushes: Timing
    """WAL files that became segments, and the bytes of these."""
    flushed_entries: int
    minor_compactions: int
    """Checkpoints after which segments could go."""
    major_compactions: Timing
    """Rewrites, and the bytes that they wrote."""
