"""The log of one partition as it can be read: segments, then memtables."""

from stratalog.segments.read.durable_log import DurableLog, Gap
from stratalog.segments.read.memtable import Memtable
from stratalog.segments.read.open_segments import OpenSegments
from stratalog.segments.read.reader import Reader

__all__ = [
    "DurableLog",
    "Gap",
    "Memtable",
    "OpenSegments",
    "Reader",
]
