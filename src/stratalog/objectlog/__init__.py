"""The object log: fragments under a compare-and-swapped manifest, verified by a setsum."""

from stratalog.objectlog.creation import create_log
from stratalog.objectlog.cursor import Cursor, CursorStore
from stratalog.objectlog.fragment import Fragment
from stratalog.objectlog.manifest import Manifest
from stratalog.objectlog.options import Limits, ReaderOptions, WriterOptions
from stratalog.objectlog.position import LogPosition, Span
from stratalog.objectlog.reader import LogReader, Record
from stratalog.objectlog.snapshot import Snapshot, SnapshotPointer
from stratalog.objectlog.writer import LogWriter

__all__ = [
    "Cursor",
    "CursorStore",
    "Fragment",
    "Limits",
    "LogPosition",
    "LogReader",
    "LogWriter",
    "Manifest",
    "ReaderOptions",
    "Record",
    "Snapshot",
    "SnapshotPointer",
    "Span",
    "WriterOptions",
    "create_log",
]
