"""A data directory with something of everything, and each way in which it can be damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import msgspec

from stratalog import IndexSet
from stratalog.segments import Disk, DiskDamageKind, DiskOptions, Entries
from stratalog.segments.format.checkpoint_file import checkpoint_front, live_path, read_checkpoint
from stratalog.segments.format.clean_close import CleanClose
from stratalog.segments.format.frame import HEAD_BYTES, Head, frame_head
from stratalog.segments.format.layout import Whole, encode_edit
from stratalog.segments.format.segment_file import SegmentContent, SegmentIndex
from stratalog.segments.format.wal_file import Section, batch_parts
from stratalog.segments.io.files import LocalFiles
from stratalog.segments.write_ahead.read_journal import JOURNAL_KIND, replay_journal

KIB = 1024
OPTIONS = DiskOptions(wal_file_bytes=16 * KIB, segment_entries_max=20, major_after_minors=None)
LIVE = IndexSet.of([3, 21, 22, 23, 24, 25])
STATE = b"the state at 40"
Kind = DiskDamageKind


class Victim:
    """Where its files lie. It is as after a crash; ``close`` makes it as after a clean close."""

    def __init__(self, root: Path) -> None:
        self.root = root
        asyncio.run(self._fill())
        self.closed = self.read("CLOSED")
        self.remove("CLOSED")
        self.journal = self._only("journal", "*.journal")
        self.segments = sorted(self._all("seg", "00000001.*.seg"), key=self._first_index)
        self.wal = self._only("wal", "*.wal")
        self.checkpoint = self._only("ckpt", "*.ckpt")
        self.live = live_path(self.checkpoint)
        self.disk = Head.from_bytes(self.read(self.wal), self.wal).disk

    async def _fill(self) -> None:
        async with await Disk.open(self.root, OPTIONS) as disk:
            orders = await disk.partition("orders")
            users = await disk.partition("users")
            await orders.append([b"order %d" % number for number in range(1, 61)], epoch=1)
            await users.append([b"user %d" % number for number in range(1, 11)], epoch=1)
            await disk.flush()
            await orders.checkpoint(40, STATE, LIVE)
            for number in range(61, 66):
                await orders.append([b"order %d" % number], epoch=2)

    def _all(self, folder: str, pattern: str) -> list[str]:
        return [f"{folder}/{path.name}" for path in (self.root / folder).glob(pattern)]

    def _only(self, folder: str, pattern: str) -> str:
        (path,) = self._all(folder, pattern)
        return path

    def _first_index(self, path: str) -> int:
        file = LocalFiles(self.root).open(path)
        try:
            disk = Head.from_bytes(self.read(path), path).disk
            return int(SegmentIndex.read(file, disk, 1, path).indexes[0])
        finally:
            file.close()

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        (self.root / path).write_bytes(data)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def close(self) -> None:
        self.write("CLOSED", self.closed)

    def flip(self, path: str, at: int) -> None:
        """One bit; a negative place counts from the end."""
        data = bytearray(self.read(path))
        data[at] ^= 1
        self.write(path, bytes(data))

    def flip_after(self, path: str, what: bytes) -> None:
        """The bit after some bytes."""
        self.flip(path, self.read(path).index(what) + len(what))

    def frames(self, path: str) -> list[int]:
        """Where the frames of a file begin."""
        data, at, found = self.read(path), 0, []
        while (at := data.find(b"SLFR", at)) >= 0:
            found.append(at)
            at += 1
        return found


def no_disk(victim: Victim) -> str:
    victim.remove("DISK")
    return "DISK"


def another_disk(victim: Victim) -> str:
    victim.write("DISK", b"{}")
    return "DISK"


def no_journal(victim: Victim) -> str:
    victim.remove(victim.journal)
    return "journal"


def journal_damaged_in_the_middle(victim: Victim) -> str:
    victim.flip(victim.journal, victim.frames(victim.journal)[1] + 45)
    return victim.journal


def no_segment(victim: Victim) -> str:
    victim.remove(victim.segments[1])
    return victim.segments[1]


def no_wal(victim: Victim) -> str:
    victim.remove(victim.wal)
    return victim.wal


def no_checkpoint(victim: Victim) -> str:
    victim.remove(victim.checkpoint)
    return victim.checkpoint


def segment_cut_off(victim: Victim) -> str:
    victim.write(victim.segments[0], victim.read(victim.segments[0])[:-1])
    return victim.segments[0]


def segment_head(victim: Victim) -> str:
    victim.flip(victim.segments[1], 30)
    return victim.segments[1]


def segment_index(victim: Victim) -> str:
    victim.flip(victim.segments[1], -40)
    return victim.segments[1]


def segment_of_another_disk(victim: Victim) -> str:
    path = victim.segments[1]
    data = victim.read(path)
    head = Head.from_bytes(data, path)
    other = Head(head.kind, bytes(16), head.nonce, head.number, head.first)
    victim.write(path, other.to_bytes() + data[HEAD_BYTES:])
    return path


def segment_of_other_entries(victim: Victim) -> str:
    path = victim.segments[1]
    head = Head.from_bytes(victim.read(path), path)
    entries = Entries.following(920, 1, [b"order %d" % number for number in range(21, 41)])
    victim.write(path, b"".join(chain.from_iterable(SegmentContent(head, [entries]).pieces())))
    return path


def an_entry(victim: Victim) -> str:
    victim.flip_after(victim.segments[1], b"order 2")
    return victim.segments[1]


def wal_head(victim: Victim) -> str:
    victim.flip(victim.wal, 50)
    return victim.wal


def wal_in_the_middle(victim: Victim) -> str:
    victim.flip_after(victim.wal, b"order 6")
    return victim.wal


def wal_that_begins_too_late(victim: Victim) -> str:
    data = victim.read(victim.wal)
    head = Head.from_bytes(data, victim.wal)
    late = Head(head.kind, head.disk, head.nonce, head.number, head.first + 1000)
    victim.write(victim.wal, late.to_bytes() + data[HEAD_BYTES:])
    return victim.wal


def wal_that_skips_entries(victim: Victim) -> str:
    data = victim.read(victim.wal)
    head = Head.from_bytes(data, victim.wal)
    skipping = Section(1, 99, Entries.following(99, 2, [b"order 100"]))
    start = victim.frames(victim.wal)[0]
    batch = b"".join(batch_parts(head.nonce, head.first, [skipping]))
    victim.write(victim.wal, data[:start] + batch + bytes(len(data) - start - len(batch)))
    return victim.wal


def checkpoint_description(victim: Victim) -> str:
    victim.flip_after(victim.checkpoint, b'"lineage"')
    return victim.checkpoint


def checkpoint_live_set(victim: Victim) -> str:
    victim.flip_after(victim.checkpoint, LIVE.to_bytes()[:9])
    return victim.checkpoint


def checkpoint_state(victim: Victim) -> str:
    victim.flip(victim.checkpoint, -1)
    return victim.checkpoint


def checkpoint_that_needs_more(victim: Victim) -> str:
    """Entries that were never written."""
    file = LocalFiles(victim.root).open(victim.checkpoint)
    try:
        found = read_checkpoint(file, victim.disk, 1, victim.checkpoint)
    finally:
        file.close()
    needs = IndexSet.of([3, 80, 81, 82, 83, 84])
    data = victim.read(victim.checkpoint)
    more = type(found)(
        found.index, needs, found.lineage, found.state_bytes, found.state_crc, found.state_at
    )
    nonce = Head.from_bytes(data, victim.checkpoint).nonce
    front = checkpoint_front(victim.disk, nonce, 1, more)
    victim.write(victim.checkpoint, front + STATE)
    victim.write(victim.live, needs.to_bytes())
    return victim.checkpoint


def journal_cut_off(victim: Victim) -> str:
    victim.write(victim.journal, victim.read(victim.journal)[:-1])
    return victim.journal


def first_copy_of_the_last_record(victim: Victim) -> str:
    victim.flip(victim.journal, victim.frames(victim.journal)[-2] + 45)
    return victim.journal


def second_copy_of_the_last_record(victim: Victim) -> str:
    victim.flip(victim.journal, victim.frames(victim.journal)[-1] + 45)
    return victim.journal


def journal_that_was_being_begun(victim: Victim) -> str:
    head = victim.read(victim.journal)[:64]
    path = "journal/000000000009.0000000000000009.journal"
    victim.write(path, head + bytes(500))
    return path


def journal_of_format_1_with_a_torn_end(victim: Victim) -> str:
    files = LocalFiles(victim.root)
    found = replay_journal(files, victim.disk)
    assert found is not None
    head = Head(JOURNAL_KIND, victim.disk, bytes(8), found.file_number, 1).to_bytes()
    descriptor = encode_edit(Whole(found.layout))
    whole = head + frame_head(bytes(8), 1, descriptor, 0) + descriptor
    victim.write(victim.journal, whole + b"torn")
    return victim.journal


def wal_cut_to_its_head(victim: Victim) -> str:
    victim.write(victim.wal, victim.read(victim.wal)[:64])
    return victim.wal


def last_batch(victim: Victim) -> str:
    victim.flip(victim.wal, victim.frames(victim.wal)[-1] + 1)
    return victim.wal


def last_batch_after_a_clean_close(victim: Victim) -> str:
    """Then there is no doubt: it was acknowledged, and is damaged."""
    victim.close()
    victim.flip(victim.wal, victim.frames(victim.wal)[-1] + 1)
    victim.flip(victim.wal, -1)
    return victim.wal


def damaged_closed(victim: Victim) -> str:
    victim.close()
    victim.flip("CLOSED", 70)
    return "CLOSED"


def rest_of_a_failed_write(victim: Victim) -> str:
    """In a file that was closed cleanly, with a note that its end is not."""
    disk = victim.disk
    closed = msgspec.json.decode(victim.closed[72:], type=CleanClose)
    (wal,) = closed.wals
    noted = msgspec.structs.replace(wal, is_clean=False)
    victim.closed = msgspec.structs.replace(closed, wals=(noted,)).to_bytes(disk)
    victim.close()
    victim.flip(victim.wal, -1)
    return victim.wal


def wal_that_no_record_names(victim: Victim) -> str:
    path = "wal/000000000077.00000000000000aa.wal"
    victim.write(path, victim.read(victim.wal))
    return path


def something_kept_aside(victim: Victim) -> str:
    (victim.root / "doubt").mkdir()
    victim.write("doubt/000000000001.00.wal.100", b"doubtful")
    return "doubt/000000000001.00.wal.100"


def no_live_file(victim: Victim) -> str:
    victim.remove(victim.live)
    return victim.live


def live_file(victim: Victim) -> str:
    victim.flip(victim.live, -1)
    return victim.live


def live_file_of_another(victim: Victim) -> str:
    victim.write(victim.live, IndexSet.of([3, 21]).to_bytes())
    return victim.live


Planter = Callable[[Victim], str]

PLANTERS: dict[Planter, DiskDamageKind] = {
    no_disk: Kind.DISK_UNREADABLE,
    another_disk: Kind.DISK_UNREADABLE,
    no_journal: Kind.JOURNAL_UNREADABLE,
    journal_damaged_in_the_middle: Kind.JOURNAL_UNREADABLE,
    journal_cut_off: Kind.JOURNAL_UNREADABLE,
    first_copy_of_the_last_record: Kind.JOURNAL_UNREADABLE,
    second_copy_of_the_last_record: Kind.JOURNAL_REST,
    journal_that_was_being_begun: Kind.JOURNAL_UNFINISHED,
    journal_of_format_1_with_a_torn_end: Kind.JOURNAL_DOUBTFUL,
    no_segment: Kind.FILE_MISSING,
    no_wal: Kind.FILE_MISSING,
    no_checkpoint: Kind.FILE_MISSING,
    segment_cut_off: Kind.FILE_SIZE,
    wal_cut_to_its_head: Kind.FILE_SIZE,
    segment_head: Kind.SEGMENT_UNREADABLE,
    segment_index: Kind.SEGMENT_UNREADABLE,
    segment_of_another_disk: Kind.SEGMENT_UNREADABLE,
    segment_of_other_entries: Kind.SEGMENT_ENTRIES,
    an_entry: Kind.ENTRY_DAMAGED,
    wal_head: Kind.WAL_UNREADABLE,
    wal_in_the_middle: Kind.WAL_DAMAGED,
    wal_that_begins_too_late: Kind.WAL_GAP,
    wal_that_skips_entries: Kind.SEQUENCE_GAP,
    checkpoint_description: Kind.CHECKPOINT_UNREADABLE,
    checkpoint_live_set: Kind.CHECKPOINT_UNREADABLE,
    checkpoint_state: Kind.STATE_DAMAGED,
    checkpoint_that_needs_more: Kind.LIVE_MISSING,
    live_file_of_another: Kind.LIVE_FILE_DIFFERS,
    wal_that_no_record_names: Kind.RECORD_MISSING,
    last_batch_after_a_clean_close: Kind.CLOSED_DIFFERS,
    damaged_closed: Kind.CLOSED_DIFFERS,
    last_batch: Kind.WAL_DOUBTFUL,
    rest_of_a_failed_write: Kind.WAL_REST,
    something_kept_aside: Kind.DOUBT_KEPT,
    no_live_file: Kind.LIVE_FILE_UNREADABLE,
    live_file: Kind.LIVE_FILE_UNREADABLE,
}
