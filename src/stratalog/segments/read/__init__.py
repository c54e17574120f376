"""The readable log of a partition: segments, then memtables."""

from stratalog.segments.read.durable_log import DurableLog
from stratalog.segments.read.memtable import Memtable
from stratalog.segments.read.open_segments import OpenSegments
from stratalog.segments.read.reader import Reader
