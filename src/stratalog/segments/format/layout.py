"""Which files there are: the state that the journal records, and how each of its edits changes it.

All of this is pure. Replaying the edits of a journal in their order gives the layout, and the node
applies the same functions when an edit has become durable.

The files of a partition follow one another: what is valid of one lies below what is valid of the
next, because writing at an index takes away all that was above it. What of a file is valid is a set
beside its name, never a range that was clipped: files are compared by name.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Self

import msgspec

from stratalog.errors import Corrupt, Invalid
from stratalog.indexset import IndexSet
from stratalog.segments.format.checkpoint_file import live_path
from stratalog.segments.format.lineage import Lineage
from stratalog.segments.format.set_hooks import decode_set, encode_set


class SegmentFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A segment file, and what of it is valid."""

    path: str
    size: int
    indexes: IndexSet
    previous: int
    """The index that came before its first entry when it was written."""
    steps: tuple[tuple[int, int], ...]
    """The first index of each epoch in it."""
    lowest: int
    highest: int
    """From which WAL files its entries came."""
    entries: int
    """How many are in the file, valid or not."""

    def cut_after(self, index: int) -> Self:
        if self.indexes.last is None or self.indexes.last <= index:
            return self
        return self.with_valid(self.indexes.limit(index))

    def with_valid(self, indexes: IndexSet) -> Self:
        return msgspec.structs.replace(self, indexes=indexes)

    def steps_above(self, floor: int) -> list[tuple[int, int]]:
        """The first index of each epoch among the valid entries above an index.

        An epoch that began below it does not go on above it if its next entries are not here.
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
        """Those that may have something between two indexes."""
        start = bisect_left(self.files, first, key=lambda file: file.indexes.last or 0)
        stop = bisect_right(self.files, last, key=lambda file: file.indexes.first or 0)
        return self.files[start:stop]

    def cut_after(self, index: int) -> Self:
        """Without anything above an index. A file of which nothing is left goes, by name."""
        clipped = (file.cut_after(index) for file in self.files)
        return self._having(file for file in clipped if file.indexes)

    def flushed(self, cut_after: int | None, files: Iterable[SegmentFile]) -> Self:
        """With new files after those that are left when what they overwrite is cut off."""
        before = self if cut_after is None else self.cut_after(cut_after)
        return before._having((*before.files, *files))

    def replaced(self, sources: Iterable[str], by: SegmentFile | None) -> Self:
        """With one file in place of neighbours.

        Some of them may have gone meanwhile, or have lost entries: of the new file that is valid
        which still is in one of its sources.
        """
        names = set(sources)
        present = [file for file in self.files if file.path in names]
        if by is None or not present:
            return self._having(file for file in self.files if file.path not in names)
        valid = by.indexes & IndexSet.union(file.indexes for file in present)
        merged = [by.with_valid(valid)] if valid else []
        place = self.files.index(present[0])
        after = [file for file in self.files[place:] if file.path not in names]
        return self._having((*self.files[:place], *merged, *after))

    def checkpointed(self, checkpoint: CheckpointFile, dropped: Iterable[str]) -> Self:
        names = set(dropped)
        made = self._having(file for file in self.files if file.path not in names)
        return msgspec.structs.replace(made, checkpoint=checkpoint)

    def _having(self, files: Iterable[SegmentFile]) -> Self:
        return msgspec.structs.replace(self, files=tuple(files))


class WalFile(msgspec.Struct, frozen=True):
    """A WAL file that is still needed."""

    number: int
    path: str


class Layout(msgspec.Struct, frozen=True):
    """All files of a data directory."""

    partitions: dict[int, PartitionLayout] = {}
    wals: tuple[WalFile, ...] = ()
    next_partition: int = 1
    next_wal: int = 1
    next_batch: int = 1
    """The first batch that is not in segments."""

    @property
    def paths(self) -> set[str]:
        """The names of all files that are there."""
        paths = {wal.path for wal in self.wals}
        return paths.union(*(each.paths for each in self.partitions.values()))

    @property
    def sizes(self) -> dict[str, int]:
        """Of the segments and checkpoints, by path. A WAL file grows, and has no size here."""
        sizes = {file.path: file.size for each in self.partitions.values() for file in each.files}
        return sizes | {each.path: each.size for each in self.checkpoints.values()}

    @property
    def checkpoints(self) -> dict[int, CheckpointFile]:
        """The current checkpoint of each partition that has one."""
        partitions = self.partitions.items()
        return {number: each.checkpoint for number, each in partitions if each.checkpoint}

    def having(self, partition: PartitionLayout) -> Layout:
        return msgspec.structs.replace(
            self, partitions={**self.partitions, partition.number: partition}
        )


# The edits. Each is one record of the journal, and happens wholly or not at all.


class Whole(msgspec.Struct, frozen=True, tag="whole"):
    """Everything: the first record of a journal."""

    layout: Layout

    def applied(self, layout: Layout) -> Layout:  # noqa: ARG002 - it does not matter what was
        return self.layout


class Created(msgspec.Struct, frozen=True, tag="created"):
    """A partition."""

    number: int
    name: str

    def applied(self, layout: Layout) -> Layout:
        made = layout.having(PartitionLayout(self.number, self.name))
        return msgspec.structs.replace(made, next_partition=self.number + 1)


class Removed(msgspec.Struct, frozen=True, tag="removed"):
    """A partition, with all that it had. Its number is not used again."""

    number: int

    def applied(self, layout: Layout) -> Layout:
        left = {number: each for number, each in layout.partitions.items() if number != self.number}
        return msgspec.structs.replace(layout, partitions=left)


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """A WAL file, before anything is written to it."""

    wal: WalFile

    def applied(self, layout: Layout) -> Layout:
        return msgspec.structs.replace(
            layout, wals=(*layout.wals, self.wal), next_wal=self.wal.number + 1
        )


class FlushedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a WAL file had of one partition."""

    files: tuple[SegmentFile, ...]
    cut_after: int | None = None
    """Everything above it that older files have was overwritten."""


class Flushed(msgspec.Struct, frozen=True, tag="flushed"):
    """All of a WAL file is in segments, or dead: it is not needed any more."""

    wal: int
    next_batch: int
    parts: dict[int, FlushedPart]

    def applied(self, layout: Layout) -> Layout:
        partitions = dict(layout.partitions)
        for number, part in self.parts.items():
            if number in partitions:
                partitions[number] = partitions[number].flushed(part.cut_after, part.files)
        return msgspec.structs.replace(
            layout,
            partitions=partitions,
            wals=tuple(wal for wal in layout.wals if wal.number != self.wal),
            next_batch=self.next_batch,
        )


class Checkpointed(msgspec.Struct, frozen=True, tag="checkpointed"):
    """A checkpoint is the current one, and these segments hold nothing that lives."""

    number: int
    checkpoint: CheckpointFile
    dropped: tuple[str, ...] = ()

    def applied(self, layout: Layout) -> Layout:
        partition = layout.partitions[self.number]
        return layout.having(partition.checkpointed(self.checkpoint, self.dropped))


class Replaced(msgspec.Struct, frozen=True, tag="replaced", omit_defaults=True):
    """One segment stands in place of neighbours; or none, if nothing of them lives."""

    number: int
    sources: tuple[str, ...]
    by: SegmentFile | None = None

    def applied(self, layout: Layout) -> Layout:
        return layout.having(layout.partitions[self.number].replaced(self.sources, self.by))


Edit = Whole | Created | Removed | Opened | Flushed | Checkpointed | Replaced


_EDITS: msgspec.msgpack.Decoder[Edit] = msgspec.msgpack.Decoder(Edit, dec_hook=decode_set)


def encode_edit(edit: Edit) -> bytes:
    return msgspec.msgpack.encode(edit, enc_hook=encode_set)


def decode_edit(data: bytes | memoryview, path: str) -> Edit:
    """``Corrupt`` if it is none."""
    try:
        return _EDITS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Corrupt, Invalid) as error:
        raise Corrupt(f"a record of {path} is not an edit: {error}", path=path) from None


def apply(layout: Layout, edit: Edit, path: str) -> Layout:
    """``Corrupt`` if it does not fit."""
    try:
        return edit.applied(layout)
    except KeyError as error:
        raise Corrupt(
            f"a record of {path} is about partition {error}, which is not there", path=path
        ) from None


def no_longer_named(before: Layout, after: Layout) -> list[str]:
    """The files that one names and the other does not. Only partitions that changed are looked at.

    A file that was wholly overwritten leaves the layout when the WAL says so, and the journal when
    its record says so: it can be removed only after the latter.
    """
    gone = [wal.path for wal in before.wals if wal not in after.wals]
    for number, was in before.partitions.items():
        now = after.partitions.get(number)
        if now is not was:
            kept = set(now.paths) if now else set()
            gone += [path for path in was.paths if path not in kept]
    return [*gone, *(live_path(path) for path in gone if path.endswith(".ckpt"))]


def check_sequence(partition: PartitionLayout) -> int:
    """The last index in its files, or that of its checkpoint if nothing lies above it.

    ``Corrupt`` if entries are missing between the checkpoint and what comes after it, or between
    two files. Below the checkpoint entries may be missing anywhere.
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
    """Of the checkpoint up to it, and of the files above it."""
    lineage = checkpointed
    floor = partition.checkpoint.index if partition.checkpoint else 0
    for file in partition.files:
        last = file.indexes.last or 0
        if last > floor:
            lineage = lineage.after(max(file.previous, floor), file.steps_above(floor))
    return lineage
