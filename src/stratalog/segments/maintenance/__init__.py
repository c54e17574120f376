"""The work behind the writes: flush to segments, checkpoints, compaction, removal of files."""

from stratalog.segments.maintenance.checkpoints import Checkpoints, HeldState, IncomingCheckpoint
from stratalog.segments.maintenance.choose_segments import needed
from stratalog.segments.maintenance.flush_wal import WalFlusher
from stratalog.segments.maintenance.major_compaction import Compactor
from stratalog.segments.maintenance.merge_turns import MergeTurns
from stratalog.segments.maintenance.remove_files import FileRemover
