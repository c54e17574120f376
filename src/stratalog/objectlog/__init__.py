"""The object log: fragments under a compare-and-swapped manifest, verified by a setsum."""

from stratalog.objectlog.collector import Collected, Collector, Outlook, collect
from stratalog.objectlog.compacting import Compacted, compact
from stratalog.objectlog.copying import Copied, CopyProgress, copy_log
from stratalog.objectlog.creation import create_log
from stratalog.objectlog.cursor import Cursor, CursorStore
from stratalog.objectlog.forking import Forked, fork
from stratalog.objectlog.fragment import Fragment
from stratalog.objectlog.garbage import Garbage, PlanState
from stratalog.objectlog.manifest import Manifest
from stratalog.objectlog.options import (
    CollectorOptions,
    CompactOptions,
    CopyOptions,
    Limits,
    ReaderOptions,
    WriterOptions,
)
from stratalog.objectlog.pin import Pin, PinStore
from stratalog.objectlog.policy import Live, Policy, Retention, Thresholds
from stratalog.objectlog.policy_store import PolicyStore, Retained
from stratalog.objectlog.position import LogPosition, Span
from stratalog.objectlog.reader import LogReader, Presence, Record
from stratalog.objectlog.removal import Removed
from stratalog.objectlog.seal import Seal
from stratalog.objectlog.sealing import Sealer
from stratalog.objectlog.snapshot import Snapshot, SnapshotPointer
from stratalog.objectlog.unforking import abort_fork
from stratalog.objectlog.writer import LogWriter

__all__ = [
    "Collected",
    "Collector",
    "CollectorOptions",
    "CompactOptions",
    "Compacted",
    "Copied",
    "CopyOptions",
    "CopyProgress",
    "Cursor",
    "CursorStore",
    "Forked",
    "Fragment",
    "Garbage",
    "Limits",
    "Live",
    "LogPosition",
    "LogReader",
    "LogWriter",
    "Manifest",
    "Outlook",
    "Pin",
    "PinStore",
    "PlanState",
    "Policy",
    "PolicyStore",
    "Presence",
    "ReaderOptions",
    "Record",
    "Removed",
    "Retained",
    "Retention",
    "Seal",
    "Sealer",
    "Snapshot",
    "SnapshotPointer",
    "Span",
    "Thresholds",
    "WriterOptions",
    "abort_fork",
    "collect",
    "compact",
    "copy_log",
    "create_log",
    "fork",
]
