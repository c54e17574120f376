"""Durability: the WAL for entries, the journal for everything else."""

from stratalog.segments.write_ahead.flush_queue import FlushQueue
from stratalog.segments.write_ahead.journal import (
    Journal,
    Replayed,
    must_exist,
    replay_journal,
    replay_more,
)
from stratalog.segments.write_ahead.wal import Wal, Write
from stratalog.segments.write_ahead.wal_back_pressure import BackPressure
