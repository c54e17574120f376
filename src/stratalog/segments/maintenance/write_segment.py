"""Writing a segment file, and describing it for the journal."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    SEGMENT_KIND,
    SEGMENT_MAJOR,
    Clock,
    Entries,
    Head,
    SegmentContent,
    SegmentFile,
    covered,
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
    context: DiskContext,
    name: SegmentName,
    previous: int,
    chunks: Iterable[Entries],
    time_of: Clock | None = None,
    time_max: int | None = None,
) -> SegmentFile:
    """In a thread: a new synced file with entries that follow ``previous``. Sync the folder next.

    Each chunk is written before the next one is requested. Without ``time_of``, the highest time of
    its entries is ``time_max``.
    """
    times: list[int | None] = [] if time_of else [time_max]
    if time_of is not None:
        chunks = _timed(chunks, time_of, times)
    nonce = bytes.fromhex(name.nonce)
    head = Head(SEGMENT_KIND, context.disk, nonce, name.partition, major=SEGMENT_MAJOR)
    content = SegmentContent(head, chunks)
    size = write_pieces(context.files, name.path, content.pieces())
    indexes, entries = covered(content.heads), len(content.heads)
    return SegmentFile(
        path=name.path,
        size=size,
        indexes=indexes,
        previous=previous,
        steps=steps_of(content.heads),
        lowest=name.lowest,
        highest=name.highest,
        entries=entries,
        covers=len(indexes) if len(indexes) != entries else 0,
        time_max=max((time for time in times if time is not None), default=None),
    )


def _timed(chunks: Iterable[Entries], time_of: Clock, times: list[int | None]) -> Iterator[Entries]:
    """The same chunks. ``times`` gets the highest time of each."""
    for entries in chunks:
        times.append(entries.time_max(time_of))
        yield entries
