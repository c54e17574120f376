"""Replaying a journal: which record counts, and what is damage.

Each record is there twice. The first copy is synced before the second one is written. So from the
last whole record on:

1. *Both copies are whole.* The usual case.
2. *Only the first one is.* It counts: a crash came between the two, or the second one is damaged.
3. *Only the second one is.* The first one was durable, so it is damaged. ``Corrupt``.
4. *Neither is, and nothing follows.* The record is torn, and nobody was told of it; or one bad
   sector has taken both copies. Nothing can tell these apart: it is doubtful.
5. *Neither is, and a whole frame follows.* ``Corrupt``.

A journal has its full size before its first record, which states it. A shorter one was cut.

A new journal is used only when the one before it is gone. So if there are two, a newer one without
a whole record was only being begun.

Journals of format 1 have single records and no size. There a record that does not fit is a torn end
unless a whole frame follows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stratalog.errors import Corrupt
from stratalog.segments.format import (
    GROWING_MAJOR,
    HEAD_BYTES,
    SIZED_MAJOR,
    Edit,
    Frame,
    Head,
    Layout,
    Whole,
    apply,
    damaged_before,
    decode_edit,
    find_frame,
    frame_at,
    not_zero,
)
from stratalog.segments.io import ReadableFiles, opened, read_file

JOURNAL_KIND = b"JRN1"
JOURNAL_SUFFIX = ".journal"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The content of a journal."""

    layout: Layout
    path: str
    file_number: int
    last_record: int
    end: int = HEAD_BYTES
    """Where in the file the next record begins."""
    whole_end: int = HEAD_BYTES
    """Where the last whole copy of a record ends."""
    major: int = GROWING_MAJOR
    size: int = 0
    """What its first record says; 0 if it says nothing."""
    is_single: bool = False
    """Whether the last record has only its first copy."""
    rest: range = range(0)
    """The bytes behind the last whole record that are not zero."""
    unfinished: tuple[str, ...] = ()
    """Journals that were being begun."""

    @property
    def is_clean(self) -> bool:
        """Whether the last record is there twice, and then zeros."""
        return not self.is_single and not self.rest

    @property
    def is_doubtful(self) -> bool:
        """Whether there are bytes of a record of which no copy is whole.

        Those of a damaged second copy are not: the first one has all of it.
        """
        return bool(self.rest) and (not self.is_single or self.rest.stop > self.end)


def journal_path(number: int, nonce: str) -> str:
    return f"journal/{number:012}.{nonce}{JOURNAL_SUFFIX}"


def replay_journal(files: ReadableFiles, disk: bytes) -> Replayed | None:
    """The journal with the highest record; ``None`` if none has a whole first record.

    ``Corrupt`` if one is damaged other than by a crash.
    """
    newest: Replayed | None = None
    unfinished = []
    for name in files.list("journal"):
        path = f"journal/{name}"
        found = replay_bytes(read_file(files, path), disk, path)
        if found is None:
            unfinished.append(path)
        elif newest is None or found.last_record >= newest.last_record:
            newest = found
    return newest and replace(newest, unfinished=tuple(unfinished))


def must_exist(replayed: Replayed | None) -> Replayed:
    """``Corrupt`` if no journal was found."""
    if replayed is None:
        raise Corrupt(
            "the data directory has no journal",
            hint="Put it back. Without it nobody knows which files count.",
            path="journal",
        )
    return replayed


def replay_bytes(data: bytes, disk: bytes, path: str) -> Replayed | None:
    """One journal; ``None`` if it has no whole first record, so that it was never used."""
    try:
        head = Head.from_bytes(data, path).must_be(JOURNAL_KIND, disk, path)
    except Corrupt:
        if any(data[HEAD_BYTES:]):
            raise
        return None
    found = _continued(Replayed(Layout(), path, head.number, 0, major=head.major), head, data)
    if not found.last_record:
        return None
    if head.major >= SIZED_MAJOR and found.size != len(data):
        raise Corrupt(
            f"{path} has {len(data)} bytes instead of {found.size}",
            hint="Keep it. Restore this node's data from other replicas.",
            path=path,
            expected=found.size,
            actual=len(data),
        )
    return found


def replay_more(files: ReadableFiles, replayed: Replayed) -> Replayed:
    """The same journal with the records that were added since: for an inspection."""
    with opened(files, replayed.path) as file:
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), replayed.path)
        data = bytes(HEAD_BYTES) + file.read_at(replayed.end, file.size() - replayed.end)
    rest = replace(head, first=replayed.last_record + 1)
    return _continued(replayed, rest, data, replayed.end - HEAD_BYTES)


def _continued(before: Replayed, head: Head, data: bytes, left_out: int = 0) -> Replayed:
    """With the records in ``data``: a file from which so many bytes are left out after its head."""
    found, view = before, memoryview(data)
    position, number, is_single = HEAD_BYTES, head.first, False
    while not is_single and (frame := _record_at(view, position, head.nonce, number)) is not None:
        edit = decode_edit(frame.descriptor, before.path)
        end = position = frame.end
        if head.major >= SIZED_MAJOR:
            is_single = not _is_second(_record_at(view, end, head.nonce, number), frame)
            end += frame.end - frame.start
            position = frame.end if is_single else end
        found = _with_record(found, edit, number, left_out + end)
        number += 1
    _nothing_may_follow(data, head, before.path, position, number, is_single=is_single)
    rest = not_zero(data, position)
    return replace(
        found,
        whole_end=left_out + position,
        is_single=is_single or (before.is_single and found.last_record == before.last_record),
        rest=range(rest.start + left_out, rest.stop + left_out),
    )


def _record_at(data: memoryview, position: int, nonce: bytes, number: int) -> Frame | None:
    frame = frame_at(data, position, nonce)
    return frame if frame is not None and frame.number == number and not len(frame.body) else None


def _is_second(copy: Frame | None, first: Frame) -> bool:
    return copy is not None and copy.descriptor == first.descriptor


def _with_record(before: Replayed, edit: Edit, number: int, end: int) -> Replayed:
    layout = apply(before.layout, edit, before.path)
    size = edit.size if isinstance(edit, Whole) else before.size
    return replace(before, layout=layout, last_record=number, end=end, size=size)


def _nothing_may_follow(
    data: bytes, head: Head, path: str, position: int, number: int, *, is_single: bool
) -> None:
    """``Corrupt`` if a whole frame follows what does not fit: then that is no torn end."""
    later = find_frame(data, position, head.nonce, number)
    if later is None:
        return
    is_copy = is_single or (head.major >= SIZED_MAJOR and later.number == number)
    if not is_copy:
        raise damaged_before(later, path, position, number)
    damaged = number - 1 if is_single else number
    raise Corrupt(
        f"{path} is damaged at byte {position}: one of the two copies of record {damaged} is "
        "damaged; the other one has all of it",
        hint="Keep the file. A disk that has changed one synced record may have changed others.",
        path=path,
        expected=damaged,
        actual=position,
    )
