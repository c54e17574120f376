"""The layout: which files there are, and how each edit of the journal changes that. Pure.

Replaying the edits of a journal gives the layout. A running node applies the same functions when an
edit has become durable.

The valid entries of one file of a partition lie below those of the next, because writing at an
index removes everything above it. The layout has the valid indexes of each file as a set.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Self

import msgspec

from stratalog.errors import Corrupt, Invalid
from stratalog.indexset import IndexSet
from stratalog.segments.format.checkpoint_file import live_path
from stratalog.segments.format.lineage import Lineage
from stratalog.segments.format.set_hooks import decode_set, encode_set

NOTES = 0
"""The number of the partition of the node's notes. No record creates it: it is always there."""
NOTES_NAME = "(notes)"


class SegmentFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A segment file and its valid entries."""

    path: str
    size: int
    indexes: IndexSet
    previous: int
    """The index that came before its first entry when it was written."""
    steps: tuple[tuple[int, int], ...]
    """The first index of each epoch in it."""
    lowest: int
    highest: int
    """The range of WAL files that its entries came from."""
    entries: int
    """The number of entries in the file, valid or not."""
    covers: int = 0
    """How many indexes they cover; 0: as many as there are entries."""
    time_max: int | None = None
    """The highest time of an entry, if that was asked for when it was written."""
    merged_from: int | None = None
    """The lowest ``time_max`` of the segments that were merged into it, if it is lower."""

    @property
    def index_count(self) -> int:
        """How many indexes its entries cover, valid or not."""
        return self.covers or self.entries

    @property
    def has_spans(self) -> bool:
        """Whether an entry may cover several indexes. If not, each index ends an entry."""
        return self.index_count != self.entries

    @property
    def newest_times(self) -> list[int]:
        """The lowest and the highest ``time_max`` of what was merged into it, as far as known."""
        return [time for time in (self.merged_from, self.time_max) if time is not None]

    def cut_after(self, index: int) -> Self:
        if self.indexes.last is None or self.indexes.last <= index:
            return self
        return self.with_valid(self.indexes.limit(index))

    def with_valid(self, indexes: IndexSet) -> Self:
        return msgspec.structs.replace(self, indexes=indexes)

    def steps_above(self, floor: int) -> list[tuple[int, int]]:
        """The first index of each epoch among the valid entries above an index.

        An epoch that began below it has a step only if it has entries above it.
        """
        steps, last = [], self.indexes.last or 0
        ends = [*(index - 1 for index, _ in self.steps[1:]), last]
        for (start, epoch), end in zip(self.steps, ends, strict=True):
            within = self.indexes.within(range(max(start, floor + 1), min(end, last) + 1))
            if within.first is not None:
                steps.append((within.first, epoch))
        return steps


class CheckpointFile(msgspec.Struct, frozen=True):
    """The current checkpoint of a partition."""

    path: str
    size: int
    index: int


class PartitionLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files of a partition, oldest first."""

    number: int
    name: str
    files: tuple[SegmentFile, ...] = ()
    checkpoint: CheckpointFile | None = None

    @property
    def indexes(self) -> IndexSet:
        return IndexSet.union(file.indexes for file in self.files)

    @property
    def paths(self) -> list[str]:
        paths = [file.path for file in self.files]
        return paths if self.checkpoint is None else [*paths, self.checkpoint.path]

    def files_with(self, first: int, last: int) -> tuple[SegmentFile, ...]:
        """The files that may have entries between two indexes."""
        start = bisect_left(self.files, first, key=lambda file: file.indexes.last or 0)
        stop = bisect_right(self.files, last, key=lambda file: file.indexes.first or 0)
        return self.files[start:stop]

    def cut_after(self, index: int) -> Self:
        """Without entries above an index. Files of which nothing is left are dropped."""
        clipped = (file.cut_after(index) for file in self.files)
        return self._having(file for file in clipped if file.indexes)

    def flushed(self, cut_after: int | None, files: Iterable[SegmentFile]) -> Self:
        """With new files at the end, after the cut that they begin with."""
        before = self if cut_after is None else self.cut_after(cut_after)
        return before._having((*before.files, *files))

    def replaced(self, sources: Iterable[str], by: SegmentFile | None) -> Self:
        """With one file in place of its sources, which were neighbours.

        Sources may have gone or lost entries meanwhile. An entry of the new file is valid if it is
        still valid in one of them.
        """
        names = set(sources)
        present = [file for file in self.files if file.path in names]
        left = [file for file in self.files if file.path not in names]
        if by is not None and present:
            valid = by.indexes & IndexSet.union(file.indexes for file in present)
            place = self.files.index(present[0])
            left[place:place] = [by.with_valid(valid)] if valid else []
        return self._having(left)

    def _having(self, files: Iterable[SegmentFile]) -> Self:
        return msgspec.structs.replace(self, files=tuple(files))


class WalFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A WAL file that is not yet in segments."""

    number: int
    path: str
    size: int = 0
    """It has at least so many bytes from the start. 0: format 1, which did not say."""


class Layout(msgspec.Struct, frozen=True):
    """All files of a data directory."""

    partitions: dict[int, PartitionLayout] = {}
    wals: tuple[WalFile, ...] = ()
    next_partition: int = 1
    next_wal: int = 1
    next_batch: int = 1
    """The first batch that is not in segments."""

    def find(self, number: int) -> PartitionLayout | None:
        """The files of a partition, if it is there."""
        found = self.partitions.get(number)
        if found is None and number == NOTES:
            return PartitionLayout(NOTES, NOTES_NAME)
        return found

    def partition(self, number: int) -> PartitionLayout:
        """``KeyError`` if it is not there."""
        found = self.find(number)
        if found is None:
            raise KeyError(number)
        return found

    @property
    def paths(self) -> set[str]:
        """All files that count."""
        paths = {wal.path for wal in self.wals}
        return paths.union(*(each.paths for each in self.partitions.values()))

    @property
    def sizes(self) -> dict[str, int]:
        """Of the segments and checkpoints, by path. They never change."""
        sizes = {file.path: file.size for each in self.partitions.values() for file in each.files}
        return sizes | {each.path: each.size for each in self.checkpoints.values()}

    @property
    def checkpoints(self) -> dict[int, CheckpointFile]:
        """The current checkpoint of each partition that has one."""
        partitions = self.partitions.items()
        return {number: each.checkpoint for number, each in partitions if each.checkpoint}

    def having(self, partition: PartitionLayout) -> Self:
        return msgspec.structs.replace(
            self, partitions={**self.partitions, partition.number: partition}
        )


# The edits. Each is one record of the journal, and happens wholly or not at all.


class Whole(msgspec.Struct, frozen=True, tag="whole", omit_defaults=True):
    """The whole layout: the first record of a journal."""

    layout: Layout
    size: int = 0
    """Of the journal, from the start to its end. 0: format 1, where it grew."""

    def applied(self, layout: Layout) -> Layout:  # noqa: ARG002 - replaces everything
        return self.layout


class Created(msgspec.Struct, frozen=True, tag="created"):
    """A new partition."""

    number: int
    name: str

    def applied(self, layout: Layout) -> Layout:
        made = layout.having(PartitionLayout(self.number, self.name))
        return msgspec.structs.replace(made, next_partition=self.number + 1)


class Removed(msgspec.Struct, frozen=True, tag="removed"):
    """A partition was removed with all its files. Its number is not used again."""

    number: int

    def applied(self, layout: Layout) -> Layout:
        left = {number: each for number, each in layout.partitions.items() if number != self.number}
        return msgspec.structs.replace(layout, partitions=left)


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """A new WAL file, before its first batch."""

    wal: WalFile

    def applied(self, layout: Layout) -> Layout:
        return msgspec.structs.replace(
            layout, wals=(*layout.wals, self.wal), next_wal=self.wal.number + 1
        )


class FlushedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """The segments of one partition from a WAL file."""

    files: tuple[SegmentFile, ...]
    cut_after: int | None = None
    """Everything above this index in older files was overwritten."""


class Flushed(msgspec.Struct, frozen=True, tag="flushed"):
    """A WAL file was flushed: its entries are in segments, or dead."""

    wal: int
    next_batch: int
    parts: dict[int, FlushedPart]

    def applied(self, layout: Layout) -> Layout:
        partitions = dict(layout.partitions)
        for number, part in self.parts.items():
            if (found := layout.find(number)) is not None:
                partitions[number] = found.flushed(part.cut_after, part.files)
        return msgspec.structs.replace(
            layout,
            partitions=partitions,
            wals=tuple(wal for wal in layout.wals if wal.number != self.wal),
            next_batch=self.next_batch,
        )


class Checkpointed(msgspec.Struct, frozen=True, tag="checkpointed"):
    """A new current checkpoint, and the segments in which nothing lives any more."""

    number: int
    checkpoint: CheckpointFile
    dropped: tuple[str, ...] = ()

    def applied(self, layout: Layout) -> Layout:
        left = layout.partition(self.number).replaced(self.dropped, None)
        return layout.having(msgspec.structs.replace(left, checkpoint=self.checkpoint))


class Replaced(msgspec.Struct, frozen=True, tag="replaced", omit_defaults=True):
    """One segment replaces neighbours; or none does, if nothing of them lives."""

    number: int
    sources: tuple[str, ...]
    by: SegmentFile | None = None

    def applied(self, layout: Layout) -> Layout:
        return layout.having(layout.partition(self.number).replaced(self.sources, self.by))


class Merged(msgspec.Struct, frozen=True, tag="merged"):
    """Small neighbours were merged, in several partitions."""

    parts: tuple[Replaced, ...]

    def applied(self, layout: Layout) -> Layout:
        for part in self.parts:
            layout = part.applied(layout)
        return layout


Edit = Whole | Created | Removed | Opened | Flushed | Checkpointed | Replaced | Merged


_EDITS: msgspec.msgpack.Decoder[Edit] = msgspec.msgpack.Decoder(Edit, dec_hook=decode_set)


def encode_edit(edit: Edit) -> bytes:
    return msgspec.msgpack.encode(edit, enc_hook=encode_set)


def decode_edit(data: bytes | memoryview, path: str) -> Edit:
    """``Corrupt`` if it is not an edit."""
    try:
        return _EDITS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Corrupt, Invalid) as error:
        raise Corrupt(f"a record of {path} is not an edit: {error}", path=path) from None


def apply(layout: Layout, edit: Edit, path: str) -> Layout:
    """``Corrupt`` if the edit names an unknown partition."""
    try:
        return edit.applied(layout)
    except KeyError as error:
        raise Corrupt(
            f"a record of {path} is about partition {error}, which is not there", path=path
        ) from None


def no_longer_named(before: Layout, after: Layout) -> list[str]:
    """The files that only ``before`` names. Partitions that did not change are skipped."""
    gone = [wal.path for wal in before.wals if wal not in after.wals]
    for number, was in before.partitions.items():
        now = after.partitions.get(number)
        if now is not was:
            kept = set(now.paths) if now else set()
            gone += [path for path in was.paths if path not in kept]
    return [*gone, *(live_path(path) for path in gone if path.endswith(".ckpt"))]


def check_sequence(partition: PartitionLayout) -> int:
    """The last index of the files or of the checkpoint.

    ``Corrupt`` if entries above the checkpoint are missing before or between the files.
    """
    reached = partition.checkpoint.index if partition.checkpoint else 0
    for file in partition.files:
        last = file.indexes.last
        if last is None or last <= reached:
            continue
        if file.previous > reached:
            raise Corrupt(
                f"partition {partition.name!r} lacks what lies between {reached} and "
                f"{file.previous}: {file.path} follows {file.previous}",
                hint="Keep the data directory. Restore the partition from another replica.",
                path=file.path,
                expected=reached,
                actual=file.previous,
            )
        reached = last
    return reached


def lineage_of(partition: PartitionLayout, checkpointed: Lineage) -> Lineage:
    """That of the checkpoint, continued by the files above it."""
    lineage = checkpointed
    floor = partition.checkpoint.index if partition.checkpoint else 0
    for file in partition.files:
        last = file.indexes.last or 0
        if last > floor:
            lineage = lineage.after(max(file.previous, floor), file.steps_above(floor))
    return lineage
