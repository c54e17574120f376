"""Writing a segment file, and describing it for the journal."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stratalog.indexset import IndexSet
from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    SEGMENT_KIND,
    Entries,
    Head,
    SegmentContent,
    SegmentFile,
    steps_of,
)
from stratalog.segments.io import write_pieces


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The partition, the range of WAL files that the entries came from, and a unique nonce."""

    partition: int
    lowest: int
    highest: int
    nonce: str

    @property
    def path(self) -> str:
        return f"seg/{self.partition:08}.{self.lowest:012}-{self.highest:012}.{self.nonce}.seg"


def write_segment(
    context: DiskContext, name: SegmentName, previous: int, chunks: Iterable[Entries]
) -> SegmentFile:
    """In a thread: a new synced file with entries that follow ``previous``. Sync the folder next.

    Each chunk is written before the next one is requested.
    """
    head = Head(SEGMENT_KIND, context.disk, bytes.fromhex(name.nonce), name.partition)
    content = SegmentContent(head, chunks)
    size = write_pieces(context.files, name.path, content.pieces())
    return SegmentFile(
        path=name.path,
        size=size,
        indexes=IndexSet.of(content.heads["index"].astype(np.int64)),
        previous=previous,
        steps=steps_of(content.heads),
        lowest=name.lowest,
        highest=name.highest,
        entries=len(content.heads),
    )
