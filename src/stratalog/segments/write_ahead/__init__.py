"""Durability: the WAL for entries, the journal for everything else."""

from stratalog.segments.write_ahead.flush_queue import ClosedWal, FlushQueue
from stratalog.segments.write_ahead.journal import (
    Journal,
    begin_journal,
    first_record,
    remove_other_journals,
)
from stratalog.segments.write_ahead.read_journal import (
    JOURNAL_KIND,
    Replayed,
    journal_path,
    must_exist,
    replay_journal,
    replay_more,
)
from stratalog.segments.write_ahead.spare_wal import SpareWal
from stratalog.segments.write_ahead.wal import GroupWrite, PartitionWrite, Wal, Write
from stratalog.segments.write_ahead.wal_back_pressure import BackPressure
