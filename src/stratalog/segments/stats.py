"""Counters and latencies of a node's disk."""

import asyncio
from dataclasses import dataclass, field

from stratalog.meter import Meter, Timing


@dataclass(frozen=True, slots=True)
class DiskStats:
    """The counters of a disk since it was opened, at one moment."""

    syncs: Timing
    """Batches of the WAL: their number, their bytes, the time of write and sync."""
    entries: int
    """Entries that were made durable."""
    skipped: int
    """Entries that were acknowledged without being written: a checkpoint already covers them, or
    they were sent again."""
    flushes: Timing
    """Flushed WAL files, and the bytes of their segments."""
    flushed_entries: int
    minor_compactions: int
    """One for each checkpoint, and one if a checkpoint came during a major compaction."""
    major_compactions: Timing
    """Major compactions, and the bytes that they wrote."""
    merges: Timing
    """Small neighbours that were merged after a flush, and the bytes that this wrote."""


@dataclass(slots=True)
class Meters:
    """The running counters."""

    loop: asyncio.AbstractEventLoop
    sync: Meter = field(default_factory=Meter)
    flush: Meter = field(default_factory=Meter)
    minor: int = 0
    major: Meter = field(default_factory=Meter)
    merge: Meter = field(default_factory=Meter)
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
            merges=self.merge.timing(),
        )
