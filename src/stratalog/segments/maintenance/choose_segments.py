"""Which segments compaction drops and which it rewrites. Pure.

**Minor**: a segment is dropped if none of its entries is needed: none lives, and none lies above
the checkpoint. The newest segment of a partition stays.

**Major**: neighbours of which little lives are merged, as long as their live entries fit into one
file. Dense segments are left alone, and so is one whose live entries alone exceed a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments.format import SegmentFile
from stratalog.segments.options import DiskOptions


def needed(live: IndexSet, checkpoint: int) -> IndexSet:
    """The entries that must be kept: the live ones, and all above the checkpoint."""
    return live.limit(checkpoint) | IndexSet(range(checkpoint + 1, INDEX_MAX + 1))


def dead_segments(
    files: Sequence[SegmentFile], live: IndexSet, checkpoint: int
) -> list[SegmentFile]:
    """The segments of which nothing is needed, never the newest.

    Vectorised by the range of each: most lie above the checkpoint or contain a live entry. Only
    segments with gaps in an overlapping range are compared one by one.
    """
    candidates = files[:-1]
    if not candidates:
        return []
    sets = [file.indexes for file in candidates]
    firsts = np.array([each.first for each in sets], dtype=np.int64)
    lasts = np.array([each.last for each in sets], dtype=np.int64)
    indexes = np.array([file.index_count for file in candidates], dtype=np.int64)
    below = lasts <= checkpoint
    alive = live.meets(firsts, lasts)
    may_have_gaps = indexes != lasts - firsts + 1
    for place in np.flatnonzero(below & alive & may_have_gaps).tolist():
        alive[place] = live.overlaps(candidates[place].indexes)
    return [candidates[place] for place in np.flatnonzero(below & ~alive).tolist()]


@dataclass(frozen=True, slots=True)
class Share:
    """The live part of a segment."""

    file: SegmentFile
    live_entries: int
    live_bytes: int
    bytes: int

    def is_dense(self, share_min: float) -> bool:
        return (
            self.live_entries >= share_min * self.file.entries
            and self.live_bytes >= share_min * self.bytes
            and bool(self.file.indexes)
        )


def rewrites(shares: Sequence[Share], options: DiskOptions) -> list[list[SegmentFile]]:
    """Groups of neighbours, each to become one file. The newest segment must not be among them.

    A segment of which little lives is rewritten alone if no neighbour fits. One whose live entries
    alone exceed a limit is left.
    """
    entries_max, bytes_max = options.segment_entries_max, options.segment_bytes_max
    groups: list[list[SegmentFile]] = [[]]
    entries = size = 0
    for share in shares:
        too_large = share.live_entries > entries_max or share.live_bytes > bytes_max
        if too_large or share.is_dense(options.live_share_min):
            groups.append([])
            entries = size = 0
            continue
        if entries + share.live_entries > entries_max or size + share.live_bytes > bytes_max:
            groups.append([])
            entries = size = 0
        groups[-1].append(share.file)
        entries += share.live_entries
        size += share.live_bytes
    return [group for group in groups if group]
