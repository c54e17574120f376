"""The head of all files in a data directory, and the numbered frames of files that grow.

**Head**, 64 bytes, little-endian. Persisted: keep stable.

    magic ``STRATADK`` | major u16 | minor u16 | kind 4 bytes | disk id 16 | nonce 8
    | number u64 | first u64 | zeros 4 | CRC-32 of all this u32

The kind defines ``number`` and ``first``. A newer major is refused, a newer minor is read. Journals
and WAL files have a major of their own: with 2 came the size in their first record, and the second
copy of each record of a journal; with 3, entries with spans and WAL files that are written over.
Segments with spans have 2.

**Frames** follow the head of a file that grows: WAL files and journals.

    magic ``SLFR`` | descriptor size u32 | nonce 8 | number u64 | body size u64
    | CRC-32 of the fields before and of the descriptor u32 | descriptor | body

The body has checksums of its own. A frame is written after the one before it was synced. So there
are two cases of a frame that does not fit:

1. No complete frame with this nonce and the same or a higher number follows. It is the end.
2. One follows. Synced data is damaged, and nothing may be guessed.

Frames with another nonce are of a former life of the file, and count for nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stratalog.errors import Corrupt, Invalid
from stratalog.segments.format.checksum import crc32
from stratalog.segments.io import File

MAJOR, MINOR = 1, 0
GROWING_MAJOR = 3
"""Of files that grow: journals and WAL files."""
SIZED_MAJOR = 2
"""From this on, journals and WAL files have a size from the start, and records come twice."""
SPANS_MAJOR = 3
"""From this on, an entry in a WAL file may cover several indexes."""
TRAILER_MAJOR = 3
"""From this on, a WAL file may be written over, and its batches have a trailer with its nonce."""
SEGMENT_MAJOR = 2
"""From this on, an entry in a segment may cover several indexes."""
HEAD_BYTES = 64

_MAGIC = b"STRATADK"
_HEAD = struct.Struct("<8sHH4s16s8sQQ4xI")
_FRAME_MAGIC = b"SLFR"
_FRAME = struct.Struct("<4sI8sQQI")
FRAME_BYTES = _FRAME.size
_MAJORS = {b"JRN1": GROWING_MAJOR, b"WAL1": GROWING_MAJOR, b"SEG1": SEGMENT_MAJOR}
_ZEROS = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class Head:
    """The first 64 bytes of a file."""

    kind: bytes
    disk: bytes
    nonce: bytes
    number: int = 0
    first: int = 0
    major: int = MAJOR

    def to_bytes(self) -> bytes:
        data = _HEAD.pack(
            _MAGIC,
            self.major,
            MINOR,
            self.kind,
            self.disk,
            self.nonce,
            self.number,
            self.first,
            0,
        )
        return data[:-4] + crc32(data[:-4]).to_bytes(4, "little")

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, path: str) -> Head:
        """``Corrupt`` if it is damaged, ``Invalid`` if a newer version of this library wrote it."""
        if len(data) < HEAD_BYTES or bytes(data[:8]) != _MAGIC:
            raise Corrupt(f"{path} does not begin as a file of a node's disk", path=path)
        _, major, _, kind, disk, nonce, number, first, crc = _HEAD.unpack_from(data)
        if crc != crc32(data[: HEAD_BYTES - 4]):
            raise Corrupt(f"the head of {path} is damaged: its checksum does not match", path=path)
        known = _MAJORS.get(kind, MAJOR)
        if major > known:
            raise Invalid(
                f"{path} has format {major}, and this version knows formats up to {known}",
                hint="Use a newer version of stratalog.",
                path=path,
                expected=known,
                actual=major,
            )
        return cls(kind, disk, nonce, number, first, major)

    def must_be(self, kind: bytes, disk: bytes, path: str) -> Head:
        """``Corrupt`` if it has another kind or belongs to another data directory."""
        if self.kind != kind or self.disk != disk:
            raise Corrupt(
                f"{path} is of another {'kind' if self.kind != kind else 'data directory'}",
                hint="Put files back where they came from; do not mix data directories.",
                path=path,
            )
        return self


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a file, and where it ends."""

    number: int
    descriptor: memoryview
    body: memoryview
    start: int
    end: int


def frame_head(nonce: bytes, number: int, descriptor: bytes, body_bytes: int) -> bytes:
    """The bytes of a frame before the descriptor."""
    head = _FRAME.pack(_FRAME_MAGIC, len(descriptor), nonce, number, body_bytes, 0)
    return head[:-4] + crc32(descriptor, crc32(head[:-4])).to_bytes(4, "little")


def frames(
    data: bytes, nonce: bytes, first: int, path: str, is_whole: Callable[[Frame], bool]
) -> Iterator[Frame]:
    """The frames of a file, from a number on, up to its end or torn end.

    ``is_whole`` verifies the body. ``Corrupt``, with the place, if a damaged frame is not the end.
    """
    view = memoryview(data)
    position, number = HEAD_BYTES, first
    while True:
        frame = frame_at(view, position, nonce)
        if frame is None or frame.number != number or not is_whole(frame):
            break
        yield frame
        position, number = frame.end, number + 1
    later = find_frame(data, position + 1, nonce, number)
    if later is not None:
        raise damaged_before(later, path, position, number)


def damaged_before(later: Frame, path: str, position: int, number: int) -> Corrupt:
    """The frame at a position is damaged: it is not the end, since another one follows."""
    return Corrupt(
        f"{path} is damaged at byte {position}: frame {number} is damaged, "
        f"yet frame {later.number} follows at byte {later.start}",
        hint="Keep the file. Restore this node's data from other replicas.",
        path=path,
        expected=number,
        actual=position,
    )


def find_frame(data: bytes, position: int, nonce: bytes | None, number: int) -> Frame | None:
    """The first frame from a position on with this number or a higher one.

    Without a nonce: of any file.
    """
    if nonce is not None and data.find(nonce, position) < 0:
        return None  # quickly, in a file that is full of frames of a former life
    view = memoryview(data)
    while (position := data.find(_FRAME_MAGIC, position)) >= 0:
        frame = frame_at(view, position, nonce)
        if frame is not None and frame.number >= number:
            return frame
        position += 1
    return None


def frame_at(data: memoryview, position: int, nonce: bytes | None) -> Frame | None:
    """The frame that begins at a position, if one does. Its body is not verified."""
    if position + FRAME_BYTES > len(data):
        return None
    magic, size, found, number, body_bytes, crc = _FRAME.unpack_from(data, position)
    start = position + FRAME_BYTES
    if magic != _FRAME_MAGIC or (nonce is not None and found != nonce):
        return None
    if start + size + body_bytes > len(data):
        return None
    descriptor = data[start : start + size]
    if crc != crc32(descriptor, crc32(data[position : start - 4])):
        return None
    body = data[start + size : start + size + body_bytes]
    return Frame(number, descriptor, body, position, start + size + body_bytes)


def first_number(file: File, nonce: bytes) -> int | None:
    """The number of the first frame of a file, if it begins with one of this nonce.

    Only the head and the descriptor of the frame are read.
    """
    start = HEAD_BYTES + FRAME_BYTES
    front = file.read_at(HEAD_BYTES, FRAME_BYTES)
    if len(front) < FRAME_BYTES:
        return None
    magic, size, found, number, _, crc = _FRAME.unpack(front)
    if magic != _FRAME_MAGIC or found != nonce or start + size > file.size():
        return None
    return number if crc == crc32(file.read_at(start, size), crc32(front[:-4])) else None


def declared_end(data: bytes, position: int) -> int:
    """Where the frame at a position ends if its head is right; at most the end of the file."""
    if position + FRAME_BYTES > len(data):
        return len(data)
    _, size, _, _, body_bytes, _ = _FRAME.unpack_from(data, position)
    return min(len(data), position + FRAME_BYTES + int(size) + int(body_bytes))


def not_zero(data: bytes, start: int) -> range:
    """From the first byte that is not zero to the last one, from a place on. Empty if all are."""
    first = last = 0
    for at in range(start, len(data), len(_ZEROS)):
        chunk = data[at : at + len(_ZEROS)]
        if chunk != _ZEROS[: len(chunk)]:
            first = first or at + len(chunk) - len(chunk.lstrip(b"\0"))
            last = at + len(chunk.rstrip(b"\0"))
    return range(first, last)
