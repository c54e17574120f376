"""The object log: fragments under a compare-and-swapped manifest, verified by a setsum."""

from stratalog.objectlog.collector import Collected, Collector, Outlook, collect
from stratalog.objectlog.creation import create_log
from stratalog.objectlog.cursor import Cursor, CursorStore
from stratalog.objectlog.fragment import Fragment
from stratalog.objectlog.garbage import Garbage, PlanState
from stratalog.objectlog.manifest import Manifest
from stratalog.objectlog.options import CollectorOptions, Limits, ReaderOptions, WriterOptions
from stratalog.objectlog.position import LogPosition, Span
from stratalog.objectlog.reader import LogReader, Record
from stratalog.objectlog.removal import Removed
from stratalog.objectlog.snapshot import Snapshot, SnapshotPointer
from stratalog.objectlog.writer import LogWriter

__all__ = [
    "Collected",
    "Collector",
    "CollectorOptions",
    "Cursor",
    "CursorStore",
    "Fragment",
    "Garbage",
    "Limits",
    "LogPosition",
    "LogReader",
    "LogWriter",
    "Manifest",
    "Outlook",
    "PlanState",
    "ReaderOptions",
    "Record",
    "Removed",
    "Snapshot",
    "SnapshotPointer",
    "Span",
    "WriterOptions",
    "collect",
    "create_log",
]
