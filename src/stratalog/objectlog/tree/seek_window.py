"""A part of a log, by offset and by append time: which entries overlap it, and which rows.

Seeking by time is a walk (``Tree.walk``) into the entries that overlap, then a cut of their rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.objectlog.stored import Entry, Fragment


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open part of the log, by offset and by append time."""

    from_offset: int = 0
    to_offset: int | None = None
    from_timestamp_us: int | None = None
    to_timestamp_us: int | None = None

    def overlaps(self, entry: Entry) -> bool:
        """Whether the entry may hold a record of this part. Entries without a time always may."""
        start, limit = entry.start, entry.limit
        if limit.offset <= self.from_offset:
            return False
        if self.to_offset is not None and start.offset >= self.to_offset:
            return False
        if self.from_timestamp_us is not None and 0 < limit.timestamp_us < self.from_timestamp_us:
            return False
        if self.to_timestamp_us is None or start.timestamp_us == 0:
            return True
        return start.timestamp_us < self.to_timestamp_us


def cut(batch: pa.RecordBatch, fragment: Fragment, window: Window) -> pa.RecordBatch:
    """The rows that belong to the window.

    An entry with a time was already chosen by it, unless its rows are of several times.
    """
    start, limit = fragment.start.offset, fragment.limit.offset
    first = max(start, window.from_offset)
    end = limit if window.to_offset is None else min(limit, window.to_offset)
    part = batch
    if fragment.is_sparse:
        ends = np.array([first, end], dtype=np.uint64)
        low, high = np.searchsorted(batch.column(0).to_numpy(), ends).tolist()
        part = batch.slice(low, max(0, high - low))
    elif first > start or end < limit:
        part = batch.slice(first - start, max(0, end - first))
    if fragment.limit.timestamp_us and not fragment.is_sparse:
        return part
    if window.from_timestamp_us is not None:
        part = part.filter(pc.greater_equal(part.column(1), window.from_timestamp_us))
    if window.to_timestamp_us is not None:
        part = part.filter(pc.less(part.column(1), window.to_timestamp_us))
    return part
