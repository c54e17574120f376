"""A WAL file: batches of entries of all partitions, one frame each.

Persisted: keep stable. The head's kind is ``WAL1``, its ``number`` the file's, its ``first`` the
number of the first batch in it. Batches are numbered over all files of a node, without a gap.
A file has its full size before its first batch; the record that names it says which.

    descriptor    one section for each write, then the heads of all entries
                  section: partition u32 | entries u32 | previous index u64
    body          the payloads of all entries, then a trailer
                  trailer: number of the batch u64 | nonce of the file 8 | magic ``SLFE``

Before format 3 the trailer was the byte ``a5``.

**A file that was prepared ahead** has 0 as ``first``: its first frame tells. It may be an old file
that is written over, so bytes of a former life may be anywhere behind its last batch. What belongs
to it has its nonce. Each batch has that at both of its ends, so one that is torn or damaged can
still be noticed. Without a trailer, a batch whose end was never written could seem complete.

**A file that was not** has zeros behind its last batch.

A section without entries cuts off everything above its previous index.

A batch whose sync failed is written again to a new file, or its number is reused there. Either way
the ``first`` in the head of a file says from which batch on the file before it does not count. So
after a failure the next file is not one that was prepared ahead.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stratalog.errors import Corrupt
from stratalog.segments.format.entries import (
    HEAD,
    NO_ENTRIES,
    Entries,
    Payload,
    cut,
    must_have_no_spans,
)
from stratalog.segments.format.frame import (
    GROWING_MAJOR,
    HEAD_BYTES,
    SPANS_MAJOR,
    TRAILER_MAJOR,
    Frame,
    Head,
    declared_end,
    find_frame,
    first_number,
    frame_head,
    frames,
    not_zero,
)
from stratalog.segments.io import File

WAL_KIND = b"WAL1"

_SECTION = struct.Struct("<IIQ")
_TRAILER = struct.Struct("<Q8s4s")
_TRAILER_MAGIC = b"SLFE"
_OLD_TRAILER = b"\xa5"


@dataclass(frozen=True, slots=True)
class Section:
    """One write: entries of a partition that follow ``previous`` and replace all above it."""

    partition: int
    previous: int
    entries: Entries


@dataclass(frozen=True, slots=True)
class Batch:
    """The writes of one sync."""

    number: int
    sections: Sequence[Section]
    end: int
    """Its end in the file."""


def wal_path(number: int, nonce: str) -> str:
    return f"wal/{number:012}.{nonce}.wal"


def nonce_in(path: str) -> bytes:
    """What the name of a WAL file says of its nonce; nothing if it is not one of our names."""
    _, nonce, *_ = [*path.split("."), ""]
    try:
        return bytes.fromhex(nonce)
    except ValueError:
        return b""


def trailer(nonce: bytes, number: int, major: int = GROWING_MAJOR) -> bytes:
    """The last bytes of a batch."""
    if major < TRAILER_MAJOR:
        return _OLD_TRAILER
    return _TRAILER.pack(number, nonce, _TRAILER_MAGIC)


def major_of(batch: Frame, nonce: bytes) -> int:
    """The format of a file with this batch, as its trailer tells."""
    end = trailer(nonce, batch.number)
    return GROWING_MAJOR if batch.body[-len(end) :] == end else TRAILER_MAJOR - 1


def first_batch(file: File, head: Head) -> int | None:
    """The number of the first batch of a file.

    Nothing if the file was prepared ahead and does not begin with the frame of a batch.
    """
    return head.first or first_number(file, head.nonce)


def bytes_behind(data: bytes, head: Head, end: int) -> range:
    """What is behind the last batch of a file, other than zeros or bytes of a former life.

    That is the rest of a batch: from the first byte that is not zero to the last one, or from the
    end to the last trailer, or to the end that its head tells.
    """
    if head.first:
        return not_zero(data, end)
    last = data.rfind(head.nonce, end)
    if last < 0:
        return range(0)
    magic = last + len(head.nonce)
    is_trailer = data[magic : magic + len(_TRAILER_MAGIC)] == _TRAILER_MAGIC
    stop = magic + len(_TRAILER_MAGIC) if is_trailer else declared_end(data, end)
    return range(end, max(stop, min(magic + len(_TRAILER_MAGIC), len(data))))


def batch_parts(
    nonce: bytes, number: int, sections: Sequence[Section], major: int = GROWING_MAJOR
) -> list[Payload]:
    """The bytes of a batch, in parts, so that payloads are not copied."""
    end = trailer(nonce, number, major)
    table = b"".join(
        [_SECTION.pack(each.partition, len(each.entries), each.previous) for each in sections]
    )
    heads = [each.entries.head_bytes for each in sections]
    descriptor = b"".join([table, *heads])
    descriptor = len(sections).to_bytes(4, "little") + descriptor
    body_bytes = sum(each.entries.payload_bytes for each in sections) + len(end)
    parts: list[Payload] = [frame_head(nonce, number, descriptor, body_bytes), descriptor]
    for each in sections:
        parts.extend(each.entries.parts())
    parts.append(end)
    return parts


def batches(data: bytes, head: Head, first: int, path: str) -> Iterator[Batch]:
    """The complete batches of a file that begins with a number.

    ``Corrupt`` if one in the middle is damaged.
    """
    decoded: list[Batch] = []

    def is_whole(frame: Frame) -> bool:
        try:
            decoded.append(_batch(frame, trailer(head.nonce, frame.number, head.major), path))
        except Corrupt:
            return False
        return True

    for _ in frames(data, head.nonce, first, path, is_whole):
        batch = decoded.pop()
        if head.major < SPANS_MAJOR:
            for section in batch.sections:
                must_have_no_spans(section.entries.heads, path)
        yield batch


def batches_anywhere(data: bytes, nonce: bytes, path: str) -> Iterator[Batch]:
    """Whole batches with a nonce, wherever they are, of whatever format."""
    position = HEAD_BYTES
    while (frame := find_frame(data, position, nonce, 0)) is not None:
        position = frame.start + 1
        for end in (trailer(nonce, frame.number), _OLD_TRAILER):
            with contextlib.suppress(Corrupt):
                yield _batch(frame, end, path)
                position = frame.end
                break


def described_batches(data: bytes, nonce: bytes, position: int, number: int) -> Iterator[Batch]:
    """What the descriptors say of batches from a place on, whether they are whole or not.

    Their sections have no entries, but ``previous`` says from which index on they were.
    """
    while (frame := find_frame(data, position, nonce, number)) is not None:
        position, number = frame.end, frame.number + 1
        with contextlib.suppress(Corrupt):
            table, _ = _table(frame, "")
            sections = [
                Section(partition, previous, NO_ENTRIES) for partition, _, previous in table
            ]
            yield Batch(frame.number, sections, frame.end)


def _table(frame: Frame, path: str) -> tuple[list[tuple[int, int, int]], int]:
    """Partition, number of entries and ``previous`` of each section, and where the table ends."""
    descriptor = frame.descriptor
    table_end = 4 + int.from_bytes(descriptor[:4], "little") * _SECTION.size
    if len(descriptor) < table_end:
        raise Corrupt(f"a batch in {path} is cut off", path=path)
    return list(_SECTION.iter_unpack(descriptor[4:table_end])), table_end


def _batch(frame: Frame, end: bytes, path: str) -> Batch:
    """``Corrupt`` if a payload is damaged, or it does not end so."""
    descriptor = frame.descriptor
    table, table_end = _table(frame, path)
    entry_count = sum(size for _, size, _ in table)
    if len(descriptor) != table_end + entry_count * HEAD.itemsize:
        raise Corrupt(f"a batch in {path} has another size than its sections", path=path)
    heads = np.frombuffer(descriptor[table_end:], dtype=HEAD).copy()  # not a view of the file
    sizes = heads["size"].astype(np.int64)
    if int(sizes.sum()) + len(end) != len(frame.body) or frame.body[-len(end) :] != end:
        raise Corrupt(f"a batch in {path} has another size than its entries", path=path)
    entries = Entries.checked(heads, cut(frame.body[: -len(end)], sizes), path)
    sections, start = [], 0
    for partition, size, previous in table:
        part = entries.part(start, start + size) if size else NO_ENTRIES
        sections.append(Section(partition, previous, part))
        start += size
    return Batch(frame.number, sections, frame.end)
