"""What happens behind the writes: flushing to segments, checkpoints, compaction."""

from stratalog.segments.upkeep.checkpoints import Checkpoints, HeldState, IncomingCheckpoint
from stratalog.segments.upkeep.choose_segments import needed
from stratalog.segments.upkeep.compactor import Compactor
from stratalog.segments.upkeep.segment_writer import SegmentWriter, divided

__all__ = [
    "Checkpoints",
    "Compactor",
    "HeldState",
    "IncomingCheckpoint",
    "SegmentWriter",
    "divided",
    "needed",
]
