"""Entries, in batches: an index, the epoch under which it was numbered, and opaque bytes.

A batch is columnar everywhere: in a WAL file, in memory, in a segment file and on the wire.

    heads      index  u64 | epoch  u64 | size  u32 | check  u32      24 bytes each, little-endian
    payloads   one after another

The only work per entry is its checksum. It is computed once, when the entry is made, and copied
with the heads.

``check`` is the CRC-32 of the payload, XORed with a mix of index, epoch and size, so that an entry
in the place of another one is detected. Persisted: keep stable.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from stratalog.errors import Corrupt, Invalid
from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments.format.checksum import crc32
from stratalog.segments.format.slices import Slices

HEAD = np.dtype([("index", "<u8"), ("epoch", "<u8"), ("size", "<u4"), ("check", "<u4")])
Heads = npt.NDArray[np.void]
Numbers = npt.NDArray[np.uint64]
Payload = bytes | memoryview

EPOCH_MAX = 2**63 - 1
PAYLOAD_BYTES_MAX = 2**32 - 1

INDEX_FACTOR = 0x9E3779B97F4A7C15
EPOCH_FACTOR = 0xC2B2AE3D27D4EB4F
SIZE_FACTOR = 0x165667B19E3779F9
FEW = 32

_HEAD = struct.Struct("<QQII")


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a partition's log."""

    index: int
    epoch: int
    payload: bytes


class Entries:
    """Entries in ascending order of their indexes, which may have gaps. Immutable."""

    __slots__ = (
        "_indexes",
        "_payload_bytes",
        "first",
        "first_epoch",
        "heads",
        "last",
        "last_epoch",
        "payloads",
    )

    heads: Heads
    payloads: Sequence[Payload]
    """May be views of a buffer that was read from a file. Iterating over the entries gives
    bytes."""

    first: int
    """The lowest index; 0 if there are no entries."""

    last: int
    """The highest index; 0 if there are no entries."""

    first_epoch: int
    last_epoch: int

    def __init__(self, heads: Heads, payloads: Sequence[Payload]) -> None:
        """From heads with their payloads. ``following`` and ``of`` compute heads."""
        self.heads = heads
        self.payloads = payloads
        if len(heads):
            self.first, self.first_epoch, *_ = heads.item(0)
            self.last, self.last_epoch, *_ = heads.item(-1)
        else:
            self.first = self.last = self.first_epoch = self.last_epoch = 0
        self._indexes: IndexSet | None = None
        self._payload_bytes: int | None = None

    @classmethod
    def following(cls, previous: int, epoch: int, payloads: Sequence[bytes]) -> Entries:
        """Entries with the indexes after ``previous``, in one epoch."""
        if len(payloads) <= FEW and type(previous) is int and type(epoch) is int:
            kept = _kept(payloads)
            if kept:
                last = previous + len(kept)
                _check((previous + 1, last), (epoch, epoch), max(map(len, kept)))
            return cls(_few_heads(previous + 1, epoch, kept), kept)
        return cls._made(np.arange(previous + 1, previous + 1 + len(payloads)), epoch, payloads)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Entries:
        """From single entries. ``Invalid`` unless their indexes ascend and no epoch descends."""
        listed = list(entries)
        try:
            indexes = np.array([entry.index for entry in listed], dtype=np.int64)
            epochs = np.array([entry.epoch for entry in listed], dtype=np.int64)
        except OverflowError:
            raise Invalid(f"indexes go to {INDEX_MAX}, and epochs to {EPOCH_MAX}") from None
        if (indexes[1:] <= indexes[:-1]).any():
            raise Invalid("the indexes of entries ascend", hint="Sort them; none comes twice.")
        if (epochs[1:] < epochs[:-1]).any():
            raise Invalid("the epochs of entries do not descend")
        return cls._made(indexes, epochs, [entry.payload for entry in listed])

    @classmethod
    def _made(
        cls, indexes: npt.NDArray[np.int64], epochs: object, payloads: Sequence[bytes]
    ) -> Entries:
        kept = _kept(payloads)
        # Three columns of 64 bits, of which the last has the size below and the check above.
        columns = np.empty((len(kept), 3), dtype="<u8")
        heads = columns.view(HEAD).reshape(len(kept))
        if not len(kept):
            return cls(heads, kept)
        try:
            columns[:, 0] = indexes
            columns[:, 1] = epochs
            sizes = np.fromiter(map(len, kept), dtype=np.uint64, count=len(kept))
            checks = np.fromiter(map(crc32, kept), dtype=np.uint64, count=len(kept))
        except (TypeError, OverflowError, ValueError) as error:
            raise Invalid(f"these are no entries: {error}") from None
        ends = (columns.item(0, 1), columns.item(-1, 1))
        _check((indexes.item(0), indexes.item(-1)), ends, int(sizes.max()))
        checks ^= _identity(columns[:, 0], columns[:, 1], sizes)
        checks <<= 32
        columns[:, 2] = checks | sizes
        return cls(heads, kept)

    @classmethod
    def checked(cls, heads: Heads, payloads: Sequence[Payload], path: str) -> Entries:
        """From stored bytes. ``Corrupt`` with the index of the first damaged entry."""
        wrong = damaged(heads, payloads)
        if wrong.any():
            index = int(heads["index"][wrong.argmax()])
            raise Corrupt(
                f"entry {index} in {path} is damaged: its checksum does not match",
                hint="Keep the file. Restore the partition from another replica.",
                path=path,
                expected=index,
            )
        return cls(heads, payloads)

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Entry]:
        indexes, epochs = self.heads["index"].tolist(), self.heads["epoch"].tolist()
        return map(Entry, indexes, epochs, map(bytes, self.payloads))

    def __repr__(self) -> str:
        return f"Entries({self.indexes!r}, {self.payload_bytes} bytes)"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Entries)
            and np.array_equal(self.heads, other.heads)
            and list(self.payloads) == list(other.payloads)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def indexes(self) -> IndexSet:
        if self._indexes is None:
            if len(self.heads) and self.last - self.first + 1 == len(self.heads):
                self._indexes = IndexSet(range(self.first, self.last + 1))
            else:
                self._indexes = IndexSet.of(self.heads["index"].astype(np.int64))
        return self._indexes

    @property
    def payload_bytes(self) -> int:
        if self._payload_bytes is None:
            if len(self) <= FEW:
                self._payload_bytes = sum(map(len, self.payloads))
            else:
                self._payload_bytes = int(self.heads["size"].sum(dtype=np.int64))
        return self._payload_bytes

    @property
    def stored_bytes(self) -> int:
        """Their size in a file: heads and payloads."""
        return self.payload_bytes + self.heads.nbytes

    def part(self, start: int, stop: int) -> Entries:
        """By position, not by index."""
        return Entries(self.heads[start:stop], self.payloads[start:stop])

    def up_to(self, last: int) -> Entries:
        """The entries at or below an index."""
        return self.part(0, int(np.searchsorted(self.heads["index"], last, side="right")))

    def above(self, index: int) -> Entries:
        """The entries above an index."""
        start = int(np.searchsorted(self.heads["index"], index, side="right"))
        return self.part(start, len(self))

    def select(self, wanted: IndexSet) -> Entries:
        """The entries with the wanted indexes."""
        chosen = wanted.contains(self.heads["index"].astype(np.int64))
        if chosen.all():
            return self
        payloads, places = self.payloads, np.flatnonzero(chosen)
        if isinstance(payloads, Slices):
            return Entries(self.heads[chosen], payloads.at(places))
        return Entries(self.heads[chosen], [payloads[place] for place in places.tolist()])

    def parts(self) -> Sequence[Payload]:
        """All payloads, one after another, in as few parts as possible."""
        return self.payloads.parts() if isinstance(self.payloads, Slices) else self.payloads

    def equals_head_by_head(self, other: Entries) -> bool:
        """Whether both have the same entries by index, epoch, size and check."""
        return np.array_equal(self.heads, other.heads)


def _kept(payloads: Sequence[bytes]) -> tuple[bytes, ...]:
    kept = tuple(payloads)  # the caller may use its list again
    if not set(map(type, kept)) <= {bytes}:
        raise Invalid("a payload is bytes", hint="Use bytes(...), also for a memoryview.")
    return kept


def _check(indexes: tuple[int, int], epochs: tuple[int, int], largest: int) -> None:
    """``Invalid`` unless the first and last index and epoch, and the largest size, are possible."""
    if indexes[0] < 1 or indexes[1] > INDEX_MAX:
        raise Invalid(f"the indexes of entries go from 1 to {INDEX_MAX}")
    if not 1 <= epochs[0] <= epochs[1] <= EPOCH_MAX:
        raise Invalid(f"epochs go from 1 to {EPOCH_MAX}")
    if largest > PAYLOAD_BYTES_MAX:
        raise Invalid(f"a payload has up to {PAYLOAD_BYTES_MAX} bytes", actual=largest)


def _few_heads(first: int, epoch: int, payloads: Sequence[bytes]) -> Heads:
    """As in ``Entries._made``. For few entries this is faster than NumPy."""
    heads = []
    for index, payload in enumerate(payloads, first):
        size = len(payload)
        mixed = (index * INDEX_FACTOR + epoch * EPOCH_FACTOR + size * SIZE_FACTOR) % 2**64
        heads.append(_HEAD.pack(index, epoch, size, crc32(payload) ^ mixed >> 32))
    return np.frombuffer(bytearray().join(heads), dtype=HEAD)


def joined(several: Sequence[Entries]) -> Entries:
    """Consecutive batches as one."""
    if len(several) == 1:
        return several[0]
    if not several:
        return NO_ENTRIES
    payloads = [payload for each in several for payload in each.payloads]
    return Entries(np.concatenate([each.heads for each in several]), payloads)


def divided(entries: Entries, entries_max: int, bytes_max: int) -> Iterator[Entries]:
    """Parts within both limits. An entry that exceeds ``bytes_max`` is a part of its own."""
    sizes = entries.heads["size"].astype(np.int64) + HEAD.itemsize
    before = np.cumsum(sizes) - sizes
    start = 0
    while start < len(entries):
        limit = int(before[start]) + bytes_max
        stop = int(np.searchsorted(before + sizes, limit, side="right"))
        stop = min(max(stop, start + 1), start + entries_max)
        yield entries.part(start, stop)
        start = stop


def cut(data: memoryview | bytes, sizes: npt.NDArray[np.int64]) -> list[bytes]:
    """Split adjacent payloads into separate bytes objects."""
    ends = np.cumsum(sizes)
    starts = (ends - sizes).tolist()
    whole = data if isinstance(data, bytes) else bytes(data)
    return [whole[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


def damaged(heads: Heads, payloads: Sequence[Payload]) -> npt.NDArray[np.bool_]:
    """For each entry whether its payload is damaged."""
    checks = np.array(list(map(crc32, payloads)), dtype=np.uint32)
    identity = _identity(heads["index"], heads["epoch"], heads["size"].astype(np.uint64))
    wrong: npt.NDArray[np.bool_] = (checks ^ identity) != heads["check"]
    return wrong


def _identity(indexes: Numbers, epochs: Numbers, sizes: Numbers) -> Numbers:
    """The 32 bits that the check is XORed with: a mix of index, epoch and size."""
    mixed: Numbers = indexes * INDEX_FACTOR
    mixed += epochs * EPOCH_FACTOR
    mixed += sizes * SIZE_FACTOR
    mixed >>= 32
    return mixed


NO_ENTRIES = Entries(np.empty(0, dtype=HEAD), ())
