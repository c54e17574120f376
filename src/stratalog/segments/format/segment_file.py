"""A segment file: entries of one partition, by index. Immutable.

Persisted: keep stable. The head's kind is ``SEG1``, its ``number`` the partition's.

    head 64 | payloads | heads of the entries (see ``entries``) | footer 24
    footer: CRC-32 of the heads and of the footer's rest u32 | entries u32 | payload bytes u64
            | magic ``SLSEGEND``

The heads alone locate an entry: its payload begins at the sum of the sizes before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stratalog.errors import Corrupt
from stratalog.indexset import IndexSet
from stratalog.segments.format.checksum import crc32
from stratalog.segments.format.entries import (
    HEAD,
    NO_ENTRIES,
    Entries,
    Heads,
    covered,
    ends_of,
    meets,
    must_have_no_spans,
)
from stratalog.segments.format.frame import HEAD_BYTES, SEGMENT_MAJOR, Head
from stratalog.segments.format.slices import Positions, Slices
from stratalog.segments.io import Buffer, File

SEGMENT_KIND = b"SEG1"

_FOOTER = struct.Struct("<IIQ8s")
_FOOTER_MAGIC = b"SLSEGEND"
GAP_BYTES_MAX = 16 * 1024
Places = npt.NDArray[np.intp]
SEGMENT_OVERHEAD_BYTES = HEAD_BYTES + _FOOTER.size


class SegmentContent:
    """Serialises a segment file from chunks of entries. Keeps their heads, not their payloads."""

    def __init__(self, head: Head, chunks: Iterable[Entries]) -> None:
        self._head = head
        self._chunks = chunks
        self._heads: list[Heads] = []

    def pieces(self) -> Iterator[Sequence[Buffer]]:
        """The bytes of the file, piece by piece."""
        yield [self._head.to_bytes()]
        for entries in self._chunks:
            self._heads.append(entries.heads)
            yield entries.parts()
        all_heads = self.heads
        heads = all_heads.tobytes()
        payload_bytes = int(all_heads["size"].sum(dtype=np.int64))
        rest = struct.pack("<IQ8s", len(all_heads), payload_bytes, _FOOTER_MAGIC)
        yield [heads, crc32(rest, crc32(heads)).to_bytes(4, "little") + rest]

    @property
    def heads(self) -> Heads:
        """Of all entries written so far."""
        if len(self._heads) != 1:
            self._heads = [np.concatenate([NO_ENTRIES.heads, *self._heads])]
        return self._heads[0]


class Scratch:
    """A buffer that is reused for reading, so that memory is neither allocated nor cleared."""

    def __init__(self, size: int) -> None:
        self._space = memoryview(bytearray(size))

    def room(self, size: int) -> memoryview:
        """``size`` bytes of it, or of a new buffer if it is too small."""
        return self._space[:size] if size <= len(self._space) else np.empty(size, np.uint8).data


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """Where the entries of a segment file lie."""

    path: str
    heads: Heads
    ends: npt.NDArray[np.int64]
    """The end of each payload, relative to the first one's start."""

    @classmethod
    def read(cls, file: File, disk: bytes, partition: int, path: str) -> SegmentIndex:
        """``Corrupt`` if it is damaged, or not a segment of this partition and data directory."""
        size = file.size()
        if size < SEGMENT_OVERHEAD_BYTES:
            raise Corrupt(f"{path} is truncated: it has {size} bytes", path=path)
        head = Head.from_bytes(file.read_at(0, HEAD_BYTES), path).must_be(SEGMENT_KIND, disk, path)
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
        if head.major < SEGMENT_MAJOR:
            must_have_no_spans(heads, path)
        return cls(path, heads, np.cumsum(heads["size"], dtype=np.int64))

    @property
    def indexes(self) -> npt.NDArray[np.int64]:
        """The first index of each entry."""
        return self.heads["index"].astype(np.int64)

    @property
    def lasts(self) -> npt.NDArray[np.int64]:
        """The last index that each entry covers."""
        return ends_of(self.heads)

    @property
    def covered(self) -> IndexSet:
        """All indexes that its entries cover."""
        return covered(self.heads)

    @property
    def bytes_in_memory(self) -> int:
        return self.heads.nbytes + self.ends.nbytes

    @property
    def stored_bytes(self) -> int:
        """The size of all entries in the file."""
        return (int(self.ends[-1]) if len(self.ends) else 0) + self.heads.nbytes

    def bytes_of(self, wanted: IndexSet) -> int:
        """The size of some entries in a file."""
        sizes = self.heads["size"][meets(wanted, self.heads)]
        return int(sizes.sum(dtype=np.int64)) + len(sizes) * HEAD.itemsize

    def must_have(self, wanted: IndexSet) -> None:
        """``Corrupt`` unless all these indexes are in the file."""
        if self.heads["more"].any():
            lacking = len(wanted - self.covered)
        else:
            lacking = len(wanted) - int(wanted.contains(self.indexes).sum())
        if lacking:
            raise Corrupt(
                f"{self.path} lacks {lacking} entries that it should have", path=self.path
            )

    def count_of(self, wanted: IndexSet) -> int:
        """How many entries cover a wanted index."""
        return int(meets(wanted, self.heads).sum())

    def chunks(self, wanted: IndexSet, bytes_max: int) -> Iterator[Places]:
        """The places of the wanted entries, in chunks of about ``bytes_max`` to be read.

        A larger entry is a chunk of its own.
        """
        places = np.flatnonzero(meets(wanted, self.heads))
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

    def first_places(self, wanted: IndexSet, bytes_max: int) -> Places:
        """The places of the first wanted entries: as many as have so many bytes of payload
        together, and at least one."""
        heads, first = self.heads, wanted.first or 0
        start = max(0, int(np.searchsorted(heads["index"], first, side="right")) - 1)
        before = int(self.ends[start - 1]) if start else 0
        # A dead entry may lie among them, so at least one more than fits is looked at.
        stop = int(np.searchsorted(self.ends, before + bytes_max, side="right")) + 2
        places = start + np.flatnonzero(meets(wanted, heads[start:stop]))
        sizes = np.cumsum(heads["size"][places], dtype=np.int64)
        return places[: max(1, int(np.searchsorted(sizes, bytes_max, side="right")))]

    def entries_at(
        self,
        file: File,
        places: Places,
        scratch: Scratch | None = None,
        *,
        writable: bool = False,
    ) -> Entries:
        """The entries at these places, with verified checksums.

        With a scratch, their payloads are views of it, valid until it is used again. ``writable``:
        they are views of a new buffer that may be changed.
        """
        if writable:
            heads, slices = self.stored(file, places, Scratch(0))
            return Entries.checked(heads.copy(), slices, self.path)
        heads, slices = self.stored(file, places, scratch)
        if scratch is None:
            return Entries.checked(heads, slices, self.path)
        return Entries.checked(heads, list(slices), self.path)  # to be written: slice once

    def stored(
        self, file: File, places: Places, scratch: Scratch | None = None
    ) -> tuple[Heads, Slices]:
        """The bytes at these places, not verified.

        Neighbours are read with one call, also across small gaps: that is faster than two calls.
        """
        low, high = places.item(0), places.item(-1) + 1
        are_neighbours = high - low == len(places)
        chosen = slice(low, high) if are_neighbours else places
        heads, ends = self.heads[chosen], self.ends[chosen]
        if are_neighbours and scratch is None:
            heads = heads.copy()  # not a view that keeps all heads of the file alive
        starts = ends - heads["size"]
        if are_neighbours or not len(breaks := _wide_gaps(starts, ends)):
            first, size = starts.item(0), ends.item(-1) - starts.item(0)
            if scratch is None:
                buffer = memoryview(file.read_at(HEAD_BYTES + first, size))
                self._must_be(len(buffer), size)
            else:
                buffer = scratch.room(size)
                self._must_be(file.read_into(HEAD_BYTES + first, buffer), size)
            return heads, Slices(buffer, starts - first, ends - first)
        firsts = starts[np.append(0, breaks)]
        sizes = ends[np.append(breaks, len(places)) - 1] - firsts
        filled = np.cumsum(sizes)
        buffer = (scratch or Scratch(0)).room(int(filled[-1]))
        befores = filled - sizes
        for first, before, size in zip(
            firsts.tolist(), befores.tolist(), sizes.tolist(), strict=True
        ):
            self._must_be(file.read_into(HEAD_BYTES + first, buffer[before : before + size]), size)
        moved = np.repeat(befores - firsts, np.diff(breaks, prepend=0, append=len(places)))
        return heads, Slices(buffer, starts + moved, ends + moved)

    def _must_be(self, found: int, size: int) -> None:
        if found != size:
            raise Corrupt(f"{self.path} is truncated", path=self.path)


def _wide_gaps(starts: Positions, ends: Positions) -> npt.NDArray[np.intp]:
    """The places before which the gap is too large to be read over."""
    return np.flatnonzero(starts[1:] - ends[:-1] > GAP_BYTES_MAX) + 1
