"""The object log: fragments under a compare-and-swapped manifest, verified by a setsum."""

from stratalog.objectlog.append import LogWriter, create_log
from stratalog.objectlog.branch import Copied, CopyProgress, Forked, Sealer, copy_log, fork
from stratalog.objectlog.collection import Collected, Collector, Outlook, Removed, collect
from stratalog.objectlog.compaction import Compacted, compact
from stratalog.objectlog.holds import (
    Cursor,
    CursorStore,
    Pin,
    PinStore,
    PolicyStore,
    Retained,
    abort_fork,
)
from stratalog.objectlog.options import (
    KIB,
    MIB,
    RECORD_OVERHEAD_BYTES,
    CollectorOptions,
    CompactOptions,
    CopyOptions,
    Limits,
    ReaderOptions,
    ScrubOptions,
    SweepOptions,
    WriterOptions,
)
from stratalog.objectlog.pickling import located, sendable, unsendable
from stratalog.objectlog.read import LogReader, Presence, Record
from stratalog.objectlog.stored import (
    Fragment,
    Garbage,
    Live,
    LogPosition,
    Manifest,
    PlanState,
    Policy,
    Retention,
    Seal,
    Snapshot,
    SnapshotPointer,
    Span,
    Thresholds,
)
from stratalog.opening import Closeable, Opening
