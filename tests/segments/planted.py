"""Bugs on purpose in a node's disk, each in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from simulation.planting import plant
from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments import disk
from stratalog.segments.format import frame, wal_file
from stratalog.segments.format.entries import Entries, Heads
from stratalog.segments.format.frame import Frame
from stratalog.segments.format.layout import Layout, PartitionLayout, SegmentFile
from stratalog.segments.format.wal_file import batch_parts, wal_path
from stratalog.segments.inspect import check_wal
from stratalog.segments.inspect.check import DiskCheck
from stratalog.segments.inspect.check_wal import WalCheck
from stratalog.segments.io.files import File, FileSystem
from stratalog.segments.maintenance import flush_wal as flushing
from stratalog.segments.maintenance import major_compaction as compacting
from stratalog.segments.maintenance import write_segment as writing
from stratalog.segments.maintenance.choose_segments import needed
from stratalog.segments.maintenance.flush_wal import WalFlusher
from stratalog.segments.notes import Notes
from stratalog.segments.partition import Partition
from stratalog.segments.read.memtable import Memtable
from stratalog.segments.recover import find_files, read_wal
from stratalog.segments.write_ahead import journal, read_journal
from stratalog.segments.write_ahead.next_wal import NextWal, OpenWal
from stratalog.segments.write_ahead.read_journal import Replayed, replay_journal
from stratalog.segments.write_ahead.wal import Wal, Write
from stratalog.testing.disk_faults import SimulatedFile, SimulatedFiles


@contextmanager
def acknowledge_before_the_sync() -> Iterator[None]:
    """A write counts when the kernel has it."""

    def hasty(self: Wal, current: OpenWal, writes: list[Write]) -> None:
        parts = batch_parts(
            current.nonce,
            self.next_batch,
            [section for write in writes for section in write.sections],
        )
        current.position += current.file.write_at(current.position, *parts)
        self.next_batch += 1

    with plant(Wal, "_write_one", hasty):
        yield


def above(_: IndexSet, checkpoint: int) -> IndexSet:
    """What would be needed if nothing lived."""
    return IndexSet(range(checkpoint + 1, INDEX_MAX + 1))


@contextmanager
def flush_forgets_what_lives() -> Iterator[None]:
    """Only what lies above the checkpoint is flushed."""
    with plant(flushing, "needed", above):
        yield


@contextmanager
def compaction_drops_a_live_entry() -> Iterator[None]:
    """The first one."""

    def careless(live: IndexSet, checkpoint: int) -> IndexSet:
        return needed(live.floor((live.first or 0) + 1), checkpoint)

    with plant(compacting, "needed", careless):
        yield


WRITE = WalFlusher._write


def delete_the_wal_file_first(
    self: WalFlusher, sources: Sequence[Any], paths: list[str]
) -> list[Any]:
    """Write the segments, then give up the WAL file, before any record says so."""
    written = WRITE(self, sources, paths)
    for wal in self._journal.layout.wals:
        if sources and wal.number == sources[0].wal:
            self._context.files.remove(wal.path)
    return written


@contextmanager
def wal_file_deleted_early() -> Iterator[None]:
    """It goes when the segments are written, not when the journal says so."""
    with plant(WalFlusher, "_write", delete_the_wal_file_first):
        yield


@contextmanager
def absence_as_commit_point() -> Iterator[None]:
    """A WAL file or a segment that is missing counts as done with."""

    def forgiving(files: FileSystem, identity: bytes) -> Replayed | None:
        found = replay_journal(files, identity)
        if found is None:
            return None
        return dataclasses.replace(found, layout=present(files, found.layout))

    with (
        plant(WalFlusher, "_write", delete_the_wal_file_first),
        plant(find_files, "replay_journal", forgiving),
    ):
        yield


def present(files: FileSystem, layout: Layout) -> Layout:
    """Without what is missing."""

    def there(partition: PartitionLayout) -> PartitionLayout:
        kept = tuple(file for file in partition.files if files.exists(file.path))
        return msgspec.structs.replace(partition, files=kept)

    return msgspec.structs.replace(
        layout,
        partitions={number: there(each) for number, each in layout.partitions.items()},
        wals=tuple(wal for wal in layout.wals if files.exists(wal.path)),
    )


@contextmanager
def span_forgotten_in_a_segment() -> Iterator[None]:
    """A segment has the first index of each entry, and not the others that it covers."""
    with plant(writing, "covered", lambda heads: IndexSet.of(heads["index"].astype("int64"))):
        yield


@contextmanager
def sections_in_batches_of_their_own() -> Iterator[None]:
    """A write of several partitions is divided."""

    def divided(self: Wal, current: OpenWal, writes: list[Write]) -> None:
        for write in writes:
            for section in write.sections:
                parts = batch_parts(current.nonce, self.next_batch, [section])
                current.position += current.file.write_durably(current.position, *parts)
                self.next_batch += 1

    with plant(Wal, "_write_one", divided):
        yield


ENTRIES_OF_NOTES = Notes.entries


@contextmanager
def note_applied_before_it_is_durable() -> Iterator[None]:
    """It counts when it is submitted."""

    def hasty(self: Notes, changes: Mapping[str, bytes | None]) -> tuple[int, Entries]:
        previous, entries = ENTRIES_OF_NOTES(self, changes)
        self._take_up(entries)
        return previous, entries

    with plant(Notes, "entries", hasty):
        yield


@contextmanager
def checkpoint_of_notes_forgets_one() -> Iterator[None]:
    """The state of a checkpoint lacks what it should have."""

    def forgetful(self: Notes) -> bytes:
        return msgspec.msgpack.encode(dict(list(self._values.items())[1:]))

    with plant(Notes, "_state", forgetful):
        yield


@contextmanager
def repeated_write_is_not_compared() -> Iterator[None]:
    """An index and an epoch that are here are enough to acknowledge a write."""
    with plant(Partition, "_must_be_here", lambda _self, _repeated: None):
        yield


@contextmanager
def any_index_ends_an_entry() -> Iterator[None]:
    """Cuts and checkpoints are not held to the ends of entries."""
    with plant(Partition, "_must_be_an_end", lambda _self, _index: None):
        yield


@contextmanager
def strangers_are_merged() -> Iterator[None]:
    """Segments that are no neighbours become one."""

    def careless(files: Sequence[SegmentFile], *_: object) -> list[list[SegmentFile]]:
        return [list(files[::2])] if len(files) > 2 else []

    with plant(compacting, "merges", careless):
        yield


@contextmanager
def checksum_skipped() -> Iterator[None]:
    """Stored bytes are believed."""

    def trusting(heads: Heads, payloads: Sequence[bytes], _: str) -> Entries:
        return Entries(heads, payloads)

    with plant(Entries, "checked", trusting):
        yield


@contextmanager
def epoch_ignored_on_overwrite() -> Iterator[None]:
    """What a newer epoch overwrites stays in the tables and files before it."""
    with (
        plant(Memtable, "cut", lambda _self, _after: None),
        plant(Partition, "_cut_files", lambda _self, _after: None),
    ):
        yield


@contextmanager
def found_is_taken_for_durable() -> Iterator[None]:
    """Opening builds on what a killed process may have left unsynced."""
    with plant(disk, "make_durable", lambda *_: None):
        yield


@contextmanager
def closed_stays() -> Iterator[None]:
    """Opening leaves ``CLOSED`` where it is, and changes what it speaks of."""
    with plant(disk, "set_aside_clean_close", lambda _files: None):
        yield


@contextmanager
def second_copy_first() -> Iterator[None]:
    """The second copy of a record is written before the first one."""

    def reversed_(file: File, position: int, data: bytes) -> None:
        for at in (position + len(data), position):
            file.write_at(at, data)
            file.sync()

    with plant(journal, "_write_copies", reversed_):
        yield


@contextmanager
def named_before_its_size() -> Iterator[None]:
    """Files that grow do not have the size that is named."""
    with plant(SimulatedFile, "allocate", lambda _self, _size: None):
        yield


@contextmanager
def damaged_is_taken_for_torn() -> Iterator[None]:
    """A record of the journal that does not fit ends it, whatever follows."""
    with plant(read_journal, "_nothing_may_follow", lambda *_args, **_kw: None):
        yield


@contextmanager
def closed_is_not_compared() -> Iterator[None]:
    """What the directory was when it was closed is not looked at."""
    with (
        plant(disk, "must_match", lambda *_: None),
        plant(check_wal, "differences", lambda *_: ()),
    ):
        yield


@contextmanager
def sizes_are_not_compared() -> Iterator[None]:
    """A WAL file that is shorter than its record says is taken for one that ends there."""

    with (
        plant(find_files, "check_files", lambda *_: None),
        plant(DiskCheck, "_check_files", lambda _: None),
    ):
        yield


@contextmanager
def doubtful_bytes_are_dropped() -> Iterator[None]:
    """What does not fit at the end of the WAL is taken for torn, and nobody is told."""
    with (
        plant(disk, "keep_doubtful", lambda *_: None),
        plant(WalCheck, "_report", lambda *_args, **_kw: None),
    ):
        yield


@contextmanager
def any_checksum_fits() -> Iterator[None]:
    """Of frames."""

    def trusting(data: memoryview, position: int, nonce: bytes | None) -> Frame | None:
        if position + frame.FRAME_BYTES > len(data):
            return None
        magic, size, found, number, body, _ = frame._FRAME.unpack_from(data, position)
        start = position + frame.FRAME_BYTES
        end = start + size + body
        if magic != b"SLFR" or (nonce is not None and found != nonce) or end > len(data):
            return None
        return Frame(number, data[start : start + size], data[start + size : end], position, end)

    with plant(frame, "frame_at", trusting), plant(read_journal, "frame_at", trusting):
        yield


# WAL files that are prepared ahead and written over


@contextmanager
def prepared_is_taken_for_begun() -> Iterator[None]:
    """What a former life has left in a prepared file is taken for its first batch, torn."""

    def careless(data: bytes, _: frame.Head, end: int) -> range:
        return frame.not_zero(data, end)

    with plant(read_wal, "bytes_behind", careless):
        yield


@contextmanager
def any_life_counts() -> Iterator[None]:
    """A frame counts, whatever life of its file it is of."""
    whole, first = frame.frame_at, frame.first_number

    def of_any_life(data: memoryview, position: int, _: bytes | None) -> Frame | None:
        return whole(data, position, None)

    def first_of_any_life(file: File, _: bytes) -> int | None:
        return first(file, file.read_at(frame.HEAD_BYTES + 8, 8))

    with (
        plant(frame, "frame_at", of_any_life),
        plant(wal_file, "first_number", first_of_any_life),
    ):
        yield


@contextmanager
def nonce_stays() -> Iterator[None]:
    """A file that is written over keeps its nonce."""
    made = NextWal._new_head

    def with_old_nonce(self: NextWal, first: int) -> tuple[frame.Head, str]:
        head, _ = made(self, first)
        nonce = bytes(range(1, 9))
        return dataclasses.replace(head, nonce=nonce), wal_path(head.number, nonce.hex())

    with plant(NextWal, "_new_head", with_old_nonce):
        yield


@contextmanager
def written_over_before_the_record() -> Iterator[None]:
    """A file is written over when its segments are written, not when the journal says so."""

    def hasty(self: WalFlusher, sources: Sequence[Any], paths: list[str]) -> list[Any]:
        written = WRITE(self, sources, paths)
        for wal in self._journal.layout.wals:
            if sources and wal.number == sources[0].wal:
                file = self._context.files.open_again(wal.path)
                file.write_at(frame.HEAD_BYTES, bytes(100))
                file.sync()
                file.close()
        return written

    with plant(WalFlusher, "_write", hasty):
        yield


@contextmanager
def named_before_its_head() -> Iterator[None]:
    """A file that is written over gets its new name first, and then its new head."""
    rename, open_again = SimulatedFiles.rename, SimulatedFiles.open_again
    names: dict[str, str] = {}

    def renamed_already(self: SimulatedFiles, path: str, to: str) -> None:
        if not path.startswith("wal/"):
            rename(self, path, to)

    def rename_first(self: SimulatedFiles, path: str) -> SimulatedFile:
        if path.startswith("wal/") and path in names:
            rename(self, path, names[path])
            self.sync_folder("wal")
            return open_again(self, names[path])
        return open_again(self, path)

    made = NextWal._new_head

    def foretold(self: NextWal, first: int) -> tuple[frame.Head, str]:
        head, path = made(self, first)
        flushed = self._context.files.list("wal")
        names.clear()
        names.update({f"wal/{name}": path for name in flushed})
        return head, path

    with (
        plant(NextWal, "_new_head", foretold),
        plant(SimulatedFiles, "rename", renamed_already),
        plant(SimulatedFiles, "open_again", rename_first),
    ):
        yield


@contextmanager
def prepared_after_a_failure() -> Iterator[None]:
    """After a batch that failed, the file that was prepared is taken like any other."""
    with plant(NextWal, "take_new", NextWal.take):
        yield


@contextmanager
def trailer_is_believed() -> Iterator[None]:
    """The end of a batch is not looked at."""
    decode = wal_file._batch

    def trusting(found: Frame, end: bytes, path: str) -> wal_file.Batch:
        return decode(found, bytes(found.body[-len(end) :]), path)

    with plant(wal_file, "_batch", trusting):
        yield
