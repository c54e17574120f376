"""A segment file: entries of one partition, by index, never changed after it was written.

Persisted: keep stable. The head's kind is ``SEG1``, its ``number`` the partition's.

    head 64 | payloads | heads of the entries (see ``entries``) | footer 24
    footer: CRC-32 of the heads and of the footer's rest u32 | entries u32 | payload bytes u64
            | magic ``SLSEGEND``

Only the heads are needed to find an entry: where its payload lies is the sum of the sizes before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np
import numpy.typing as npt

from stratalog.errors import Corrupt
from stratalog.indexset import IndexSet
from stratalog.segments.entries import HEAD, Entries, Heads, Payload
from stratalog.segments.files import Buffer, File
from stratalog.segments.frames import HEAD_BYTES, Head

KIND = b"SEG1"

_FOOTER = struct.Struct("<IIQ8s")
_FOOTER_MAGIC = b"SLSEGEND"
PIECE_BYTES = 1024 * 1024
GAP_BYTES_MAX = 16 * 1024
Places = npt.NDArray[np.intp]
Positions = npt.NDArray[np.int64]
SEGMENT_OVERHEAD_BYTES = HEAD_BYTES + _FOOTER.size


def segment_path(partition: int, lowest: int, highest: int, nonce: str) -> str:
    """``lowest`` and ``highest`` are numbers of WAL files: where its entries came from."""
    return f"seg/{partition:08}.{lowest:012}-{highest:012}.{nonce}.seg"


def segment_parts(disk: bytes, nonce: bytes, partition: int, entries: Entries) -> Iterator[Buffer]:
    """A segment file as it is written, piece by piece."""
    yield Head(KIND, disk, nonce, partition).to_bytes()
    for start, stop in _pieces(entries):
        yield b"".join(entries.payloads[start:stop])
    heads = entries.heads.tobytes()
    yield heads
    rest = struct.pack("<IQ8s", len(entries), entries.payload_bytes, _FOOTER_MAGIC)
    yield crc32(rest, crc32(heads)).to_bytes(4, "little") + rest


def _pieces(entries: Entries) -> Iterator[tuple[int, int]]:
    """Ranges of entries to be written at a time: large enough to be few, small to be copied."""
    ends = np.cumsum(entries.heads["size"], dtype=np.int64)
    steps = np.arange(0, int(ends[-1]) if len(ends) else 0, PIECE_BYTES)[1:]
    return pairwise([0, *np.searchsorted(ends, steps, side="left").tolist(), len(entries)])


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """What is where in a segment file."""

    path: str
    heads: Heads
    ends: npt.NDArray[np.int64]
    """Where the payload of each entry ends, counted from the first one's start."""

    @classmethod
    def read(cls, file: File, disk: bytes, partition: int, path: str) -> SegmentIndex:
        """``Corrupt`` if it is not a segment of this partition of this data directory."""
        size = file.size()
        if size < SEGMENT_OVERHEAD_BYTES:
            raise Corrupt(f"{path} is cut off: it has {size} bytes", path=path)
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), path).must_be(KIND, disk, path)
        footer = file.read_at(size - _FOOTER.size, _FOOTER.size)
        crc, count, payload_bytes, magic = _FOOTER.unpack(footer)
        start = HEAD_BYTES + payload_bytes
        whole = magic == _FOOTER_MAGIC and start + count * HEAD.itemsize + _FOOTER.size == size
        heads_data = file.read_at(start, count * HEAD.itemsize) if whole else b""
        if not whole or crc != crc32(footer[4:], crc32(heads_data)):
            raise Corrupt(f"the index of {path} is damaged", path=path)
        if head.number != partition:
            raise Corrupt(f"{path} is of partition {head.number}", path=path, expected=partition)
        heads = np.frombuffer(heads_data, dtype=HEAD)
        return cls(path, heads, np.cumsum(heads["size"], dtype=np.int64))

    @property
    def indexes(self) -> npt.NDArray[np.int64]:
        return self.heads["index"].astype(np.int64)

    @property
    def bytes_in_memory(self) -> int:
        return self.heads.nbytes + self.ends.nbytes

    @property
    def stored_bytes(self) -> int:
        """What all its entries take in the file."""
        return (int(self.ends[-1]) if len(self.ends) else 0) + self.heads.nbytes

    def bytes_of(self, wanted: IndexSet) -> int:
        """What these entries take in a file."""
        chosen = wanted.contains(self.indexes)
        return int(self.heads["size"][chosen].sum(dtype=np.int64)) + HEAD.itemsize * int(
            chosen.sum()
        )

    def chunks(self, wanted: IndexSet, bytes_max: int) -> Iterator[Places]:
        """The places of entries in a set, about so many bytes to be read at a time.

        An entry that alone has more makes a chunk of its own.
        """
        places = np.flatnonzero(wanted.contains(self.indexes))
        if not len(places):
            return
        ends, sizes = self.ends[places], self.heads["size"][places].astype(np.int64)
        cost = sizes.copy()
        gaps = ends[1:] - sizes[1:] - ends[:-1]
        cost[1:] += np.where(gaps > GAP_BYTES_MAX, 0, gaps)
        cost = np.cumsum(cost)
        start = spent = 0
        while start < len(places):
            stop = max(start + 1, int(np.searchsorted(cost, spent + bytes_max, side="right")))
            yield places[start:stop]
            start, spent = stop, int(cost[stop - 1])

    def entries_at(self, file: File, places: Places) -> Entries:
        """Entries at these places, each with its checksum verified."""
        heads, payloads = self.stored(file, places)
        return Entries.checked(heads, payloads, self.path)

    def stored(self, file: File, places: Places) -> tuple[Heads, list[Payload]]:
        """What the file has at these places. Nothing is verified.

        Neighbours are read at once, and so are entries with a small gap between them: reading over
        it takes less time than asking twice.
        """
        heads, ends = self.heads[places], self.ends[places]
        starts = ends - heads["size"]
        breaks = (np.flatnonzero(starts[1:] - ends[:-1] > GAP_BYTES_MAX) + 1).tolist()
        payloads: list[Payload] = []
        for low, high in pairwise([0, *breaks, len(places)]):
            payloads += self._read_span(file, starts[low:high], ends[low:high])
        return heads, payloads

    def _read_span(self, file: File, starts: Positions, ends: Positions) -> list[Payload]:
        first, size = int(starts[0]), int(ends[-1] - starts[0])
        data = file.read_at(HEAD_BYTES + first, size)
        if len(data) != size:
            raise Corrupt(f"{self.path} is cut off", path=self.path)
        view = memoryview(data)
        pairs = zip((starts - first).tolist(), (ends - first).tolist(), strict=True)
        return [view[start:end] for start, end in pairs]
