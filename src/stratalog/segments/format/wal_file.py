"""A WAL file: batches of entries of all partitions, one frame each.

Persisted: keep stable. The head's kind is ``WAL1``, its ``number`` the file's, its ``first`` the
number of the first batch in it. Batches are numbered over all files of a node, without a gap.
A file has its full size before its first batch; the record that names it says which.

    descriptor    one section for each write, then the heads of all entries
                  section: partition u32 | entries u32 | previous index u64
    body          the payloads of all entries, then a byte that is not zero

The file is preallocated with zeros. Without that last byte, a batch that ends with zeros would seem
complete although its end was never written.

A section without entries cuts off everything above its previous index.

A batch whose sync failed is written again to a new file, or its number is reused there. Either way
the ``first`` of a file says from which batch on the file before it does not count.
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
    HEAD_BYTES,
    SPANS_MAJOR,
    Frame,
    Head,
    find_frame,
    frame_head,
    frames,
)

WAL_KIND = b"WAL1"

_SECTION = struct.Struct("<IIQ")
_END = b"\xa5"


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


def batch_parts(nonce: bytes, number: int, sections: Sequence[Section]) -> list[Payload]:
    """The bytes of a batch, in parts, so that payloads are not copied."""
    table = b"".join(
        [_SECTION.pack(each.partition, len(each.entries), each.previous) for each in sections]
    )
    heads = [each.entries.head_bytes for each in sections]
    descriptor = b"".join([table, *heads])
    descriptor = len(sections).to_bytes(4, "little") + descriptor
    body_bytes = sum(each.entries.payload_bytes for each in sections) + len(_END)
    parts: list[Payload] = [frame_head(nonce, number, descriptor, body_bytes), descriptor]
    for each in sections:
        parts.extend(each.entries.parts())
    parts.append(_END)
    return parts


def batches(data: bytes, head: Head, path: str) -> Iterator[Batch]:
    """The complete batches of a file. ``Corrupt`` if one in the middle is damaged."""
    decoded: list[Batch] = []

    def is_whole(frame: Frame) -> bool:
        try:
            decoded.append(_batch(frame, path))
        except Corrupt:
            return False
        return True

    for _ in frames(data, head, path, is_whole):
        batch = decoded.pop()
        if head.major < SPANS_MAJOR:
            for section in batch.sections:
                must_have_no_spans(section.entries.heads, path)
        yield batch


def batches_anywhere(data: bytes, path: str) -> Iterator[Batch]:
    """Whole batches wherever they are, of whatever file they were."""
    position = HEAD_BYTES
    while (frame := find_frame(data, position, None, 0)) is not None:
        position = frame.start + 1
        with contextlib.suppress(Corrupt):
            yield _batch(frame, path)
            position = frame.end


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


def _batch(frame: Frame, path: str) -> Batch:
    """``Corrupt`` if a payload is damaged."""
    descriptor = frame.descriptor
    table, table_end = _table(frame, path)
    entry_count = sum(size for _, size, _ in table)
    if len(descriptor) != table_end + entry_count * HEAD.itemsize:
        raise Corrupt(f"a batch in {path} has another size than its sections", path=path)
    heads = np.frombuffer(descriptor[table_end:], dtype=HEAD).copy()  # not a view of the file
    sizes = heads["size"].astype(np.int64)
    if int(sizes.sum()) + len(_END) != len(frame.body) or frame.body[-1:] != _END:
        raise Corrupt(f"a batch in {path} has another size than its entries", path=path)
    entries = Entries.checked(heads, cut(frame.body[:-1], sizes), path)
    sections, start = [], 0
    for partition, size, previous in table:
        part = entries.part(start, start + size) if size else NO_ENTRIES
        sections.append(Section(partition, previous, part))
        start += size
    return Batch(frame.number, sections, frame.end)
