"""Entries, in batches: an index, the epoch under which it was numbered, and opaque bytes.

An entry covers a span of indexes: its own, and maybe some more. A batch of n records is one entry
with a span of n. A batch of entries is columnar everywhere: in a WAL file, in memory, in a segment
file and on the wire.

    heads      index  u64 | epoch  u32 | more  u32 | size  u32 | check  u32      24 bytes each,
    payloads   one after another                                                 little-endian

``more`` is the span less one. Formats before spans had an epoch of 64 bits in place of both, so
their entries have a span of 1 unless they have an epoch that is too large.

The only work per entry is its checksum. It is computed once, when the entry is made, and copied
with the heads.

``check`` is the CRC-32 of the payload, XORed with a mix of index, epoch, span and size, so that an
entry in the place of another one is detected. Persisted: keep stable.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from stratalog.errors import Corrupt, Invalid
from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments.format.checksum import crc32
from stratalog.segments.format.slices import Slices

HEAD = np.dtype(
    [("index", "<u8"), ("epoch", "<u4"), ("more", "<u4"), ("size", "<u4"), ("check", "<u4")]
)
Heads = npt.NDArray[np.void]
Numbers = npt.NDArray[np.uint64]
Indexes = npt.NDArray[np.int64]
Payload = bytes | memoryview

Clock = Callable[[Payload], int | None]
"""Tells the time of an entry from its payload; ``None`` if it has none."""

EPOCH_MAX = 2**32 - 1
SPAN_MAX = 2**32
PAYLOAD_BYTES_MAX = 2**32 - 1

INDEX_FACTOR = 0x9E3779B97F4A7C15
EPOCH_FACTOR = 0xC2B2AE3D27D4EB4F
SIZE_FACTOR = 0x165667B19E3779F9
FEW = 32
ENTRY_MEMORY_BYTES = 250
RUN_MEMORY_BYTES = 750
"""What Python takes for the object of a payload, and for the columns around a run of them."""

_HEAD = struct.Struct("<QIIII")


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a partition's log."""

    index: int
    epoch: int
    payload: bytes
    span: int = 1
    """How many indexes it covers, from ``index`` on."""

    @property
    def last(self) -> int:
        """The last index that it covers."""
        return self.index + self.span - 1


class Entries:
    """Entries in ascending order of their indexes, which may have gaps. Immutable."""

    __slots__ = (
        "_head_bytes",
        "_heads",
        "_indexes",
        "_payload_bytes",
        "first",
        "first_epoch",
        "last",
        "last_epoch",
        "payloads",
    )

    payloads: Sequence[Payload]
    """May be views of a buffer that was read from a file, or of a caller's memory. Iterating over
    the entries gives bytes."""

    first: int
    """The lowest index; 0 if there are no entries."""

    last: int
    """The highest index that is covered; 0 if there are no entries."""

    first_epoch: int
    last_epoch: int

    def __init__(self, heads: Heads, payloads: Sequence[Payload]) -> None:
        """From heads with their payloads. ``following`` and ``of`` compute heads."""
        self._heads: Heads | None = heads
        self._head_bytes: bytes | None = None
        self.payloads = payloads
        if len(heads):
            self.first, self.first_epoch, *_ = heads.item(0)
            start, self.last_epoch, more, *_ = heads.item(-1)
            self.last = start + more
        else:
            self.first = self.last = self.first_epoch = self.last_epoch = 0
        self._indexes: IndexSet | None = None
        self._payload_bytes: int | None = None

    @classmethod
    def following(
        cls,
        previous: int,
        epoch: int,
        payloads: Sequence[Payload],
        spans: Sequence[int] | None = None,
    ) -> Entries:
        """Entries with the indexes after ``previous``, in one epoch.

        ``spans`` says how many indexes each of them covers; by default, one. A payload is kept
        without a copy: nobody may change the memory of a view any more.
        """
        kept = _kept(payloads)
        if spans is not None and len(spans) != len(kept):
            raise Invalid(f"{len(kept)} payloads have {len(spans)} spans")
        if 0 < len(kept) <= FEW and type(previous) is int and type(epoch) is int:
            return cls._few(previous, epoch, kept, [1] * len(kept) if spans is None else spans)
        widths = _spans(spans, len(kept))
        starts = np.cumsum(widths) - widths + (previous + 1)
        return cls._made(starts, epoch, widths, kept)

    @classmethod
    def _few(
        cls, previous: int, epoch: int, payloads: tuple[Payload, ...], spans: Sequence[int]
    ) -> Entries:
        """As ``_made``. For few entries this is faster than NumPy, which is not used at all."""
        if set(map(type, spans)) != {int} or min(spans) < 1 or max(spans) > SPAN_MAX:
            raise _wrong_span()
        sizes = list(map(len, payloads))
        last = previous + sum(spans)
        _check((previous + 1, last), (epoch, epoch), max(sizes))
        heads, index = [], previous + 1
        for payload, size, span in zip(payloads, sizes, spans, strict=True):
            number = epoch | span - 1 << 32
            mixed = (index * INDEX_FACTOR + number * EPOCH_FACTOR + size * SIZE_FACTOR) % 2**64
            heads.append(_HEAD.pack(index, epoch, span - 1, size, crc32(payload) ^ mixed >> 32))
            index += span
        made = cls.__new__(cls)
        made._heads, made._head_bytes, made.payloads = None, b"".join(heads), payloads
        made.first, made.last = previous + 1, last
        made.first_epoch = made.last_epoch = epoch
        made._indexes, made._payload_bytes = None, sum(sizes)
        return made

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Entries:
        """From single entries. ``Invalid`` unless their indexes ascend and no epoch descends."""
        listed = list(entries)
        try:
            indexes = np.array([entry.index for entry in listed], dtype=np.int64)
            epochs = np.array([entry.epoch for entry in listed], dtype=np.int64)
        except OverflowError:
            raise Invalid(f"indexes go to {INDEX_MAX}, and epochs to {EPOCH_MAX}") from None
        spans = _spans([entry.span for entry in listed], len(listed))
        if (indexes[1:] - indexes[:-1] < spans[:-1]).any():
            raise Invalid("the indexes of entries ascend", hint="Sort them; none is covered twice.")
        if (epochs[1:] < epochs[:-1]).any():
            raise Invalid("the epochs of entries do not descend")
        return cls._made(indexes, epochs, spans, _kept([entry.payload for entry in listed]))

    @classmethod
    def _made(
        cls, indexes: Indexes, epochs: object, spans: Indexes, kept: tuple[Payload, ...]
    ) -> Entries:
        # Three columns of 64 bits: the second has the epoch below and the span above, the last one
        # the size below and the check above.
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
        last = indexes.item(-1) + spans.item(-1) - 1
        _check((indexes.item(0), last), ends, int(sizes.max()))
        columns[:, 1] |= (spans - 1).astype(np.uint64) << np.uint64(32)
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
        return map(Entry, indexes, epochs, map(bytes, self.payloads), self.spans.tolist())

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
    def heads(self) -> Heads:
        """Of few entries they are made when somebody asks: most writes need only their bytes."""
        if self._heads is None:
            self._heads = np.frombuffer(self._head_bytes or b"", dtype=HEAD)
        return self._heads

    @property
    def head_bytes(self) -> bytes:
        """The heads as they are stored."""
        return self.heads.tobytes() if self._head_bytes is None else self._head_bytes

    @property
    def has_no_gaps(self) -> bool:
        """Whether they cover all from the first index to the last one."""
        return (
            self._head_bytes is not None
            or len(self) == self.last - self.first + 1
            or (self.indexes.range_count == 1)
        )

    @property
    def indexes(self) -> IndexSet:
        """All indexes that are covered."""
        if self._indexes is None:
            count = len(self)
            if count and (self._head_bytes is not None or self.last - self.first < count):
                self._indexes = IndexSet(range(self.first, self.last + 1))
            else:
                self._indexes = covered(self.heads)
        return self._indexes

    @property
    def spans(self) -> Indexes:
        """How many indexes each entry covers."""
        spans: Indexes = self.heads["more"].astype(np.int64) + 1
        return spans

    @property
    def ends(self) -> Indexes:
        """The last index that each entry covers."""
        return ends_of(self.heads)

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
        return self.payload_bytes + len(self) * HEAD.itemsize

    @property
    def memory_bytes(self) -> int:
        """About what they take in memory."""
        return self.payload_bytes + len(self) * ENTRY_MEMORY_BYTES + RUN_MEMORY_BYTES

    def part(self, start: int, stop: int) -> Entries:
        """By position, not by index."""
        return Entries(self.heads[start:stop], self.payloads[start:stop])

    def up_to(self, last: int) -> Entries:
        """The entries that end at or below an index."""
        return self.part(0, int(np.searchsorted(self.ends, last, side="right")))

    def above(self, index: int) -> Entries:
        """The entries that begin above an index."""
        start = int(np.searchsorted(self.heads["index"], index, side="right"))
        return self.part(start, len(self))

    def fitting(self, index: int, bytes_max: int) -> Entries:
        """The entries from the one that covers an index on, or from the next one: as many as have
        so many bytes of payload together, and at least one."""
        start = int(np.searchsorted(self.ends, index)) if index > self.first else 0
        if not start and self.payload_bytes <= bytes_max:
            return self
        sizes = np.cumsum(self.heads["size"][start:], dtype=np.int64)
        count = int(np.searchsorted(sizes, bytes_max, side="right"))
        return self.part(start, start + max(count, 1))

    def select(self, wanted: IndexSet) -> Entries:
        """The entries that cover a wanted index."""
        chosen = meets(wanted, self.heads)
        if chosen.all():
            return self
        payloads, places = self.payloads, np.flatnonzero(chosen)
        if isinstance(payloads, Slices):
            return Entries(self.heads[chosen], payloads.at(places))
        return Entries(self.heads[chosen], [payloads[place] for place in places.tolist()])

    def time_max(self, time_of: Clock) -> int | None:
        """The highest time of an entry."""
        times = map(time_of, self.payloads)
        return max((time for time in times if time is not None), default=None)

    def splits(self, index: int) -> bool:
        """Whether one entry covers an index and the next one too, so that nothing ends there."""
        return splits(self.heads, index)

    def copied(self) -> Entries:
        """With all payloads in a buffer of their own, one after another, that may be changed."""
        ends = np.cumsum(self.heads["size"], dtype=np.int64)
        buffer = memoryview(bytearray().join(self.parts()))
        return Entries(self.heads, Slices(buffer, ends - self.heads["size"], ends))

    def parts(self) -> Sequence[Payload]:
        """All payloads, one after another, in as few parts as possible."""
        return self.payloads.parts() if isinstance(self.payloads, Slices) else self.payloads

    def equals_head_by_head(self, other: Entries) -> bool:
        """Whether both have the same entries by index, epoch, size and check."""
        return np.array_equal(self.heads, other.heads)


def _kept(payloads: Sequence[Payload]) -> tuple[Payload, ...]:
    kept = tuple(payloads)  # the caller may use its list again
    kinds = set(map(type, kept))
    if kinds <= {bytes}:
        return kept
    if not kinds <= {bytes, memoryview}:
        raise Invalid(
            "a payload is bytes, or a memoryview of memory that does not change any more",
            hint="Use bytes(...), or memoryview(...).",
        )
    try:
        return tuple(each if type(each) is bytes else memoryview(each).cast("B") for each in kept)
    except TypeError as error:
        raise Invalid(f"a payload is contiguous: {error}", hint="Use bytes(...).") from None


def _spans(spans: Sequence[int] | None, count: int) -> Indexes:
    """``Invalid`` if one is not possible."""
    if spans is None:
        return np.ones(count, dtype=np.int64)
    try:
        widths = np.array(spans, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise _wrong_span() from None
    if count and (int(widths.min()) < 1 or int(widths.max()) > SPAN_MAX):
        raise _wrong_span()
    return widths


def _wrong_span() -> Invalid:
    return Invalid(f"an entry covers 1 to {SPAN_MAX} indexes")


def _check(indexes: tuple[int, int], epochs: tuple[int, int], largest: int) -> None:
    """``Invalid`` unless the first and last index and epoch, and the largest size, are possible."""
    if indexes[0] < 1 or indexes[1] > INDEX_MAX:
        raise Invalid(f"the indexes of entries go from 1 to {INDEX_MAX}")
    if not 1 <= epochs[0] <= epochs[1] <= EPOCH_MAX:
        raise Invalid(f"epochs go from 1 to {EPOCH_MAX}", actual=epochs)
    if largest > PAYLOAD_BYTES_MAX:
        raise Invalid(f"a payload has up to {PAYLOAD_BYTES_MAX} bytes", actual=largest)


def joined(several: Sequence[Entries]) -> Entries:
    """Consecutive batches as one."""
    if len(several) == 1:
        return several[0]
    if not several:
        return NO_ENTRIES
    payloads = [payload for each in several for payload in each.payloads]
    heads = b"".join([each.head_bytes for each in several])  # NumPy takes longer for few entries
    return Entries(np.frombuffer(heads, dtype=HEAD), payloads)


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
    sizes = heads["size"].astype(np.uint64)
    identity = _identity(heads["index"], numbers_of(heads), sizes)
    wrong: npt.NDArray[np.bool_] = (checks ^ identity) != heads["check"]
    return wrong


def ends_of(heads: Heads) -> Indexes:
    """The last index that each entry covers."""
    ends: Indexes = heads["index"].astype(np.int64)
    ends += heads["more"]
    return ends


def numbers_of(heads: Heads) -> Numbers:
    """Epoch and span of each entry as one number: the epoch of formats before spans."""
    numbers: Numbers = heads["more"].astype(np.uint64)
    numbers <<= np.uint64(32)
    numbers |= heads["epoch"]
    return numbers


def must_have_no_spans(heads: Heads, path: str) -> None:
    """``Invalid`` if a file of a format before spans has an epoch that is too large today."""
    wrong = heads["more"] > 0
    if wrong.any():
        head = heads[int(wrong.argmax())]
        raise epoch_too_large(int(numbers_of(heads)[wrong].max()), path, int(head["index"]))


def epoch_too_large(epoch: int, path: str, index: int) -> Invalid:
    """Formats before spans had room for larger epochs."""
    return Invalid(
        f"{path} has entry {index} under epoch {epoch}, and epochs go to {EPOCH_MAX}",
        hint="Open it with the version of stratalog that wrote it, and copy its entries under "
        "smaller epochs.",
        path=path,
        expected=EPOCH_MAX,
        actual=epoch,
    )


def splits(heads: Heads, index: int) -> bool:
    """Whether one of the entries covers an index and the next one too."""
    place = int(np.searchsorted(heads["index"], index, side="right")) - 1
    if place < 0:
        return False
    start, _, more, *_ = heads.item(place)
    return bool(start <= index < start + more)


def covered(heads: Heads) -> IndexSet:
    """All indexes that some entries cover."""
    starts = heads["index"].astype(np.int64)
    if not heads["more"].any():
        return IndexSet.of(starts)
    return IndexSet.of_ranges(starts, ends_of(heads))


def meets(wanted: IndexSet, heads: Heads) -> npt.NDArray[np.bool_]:
    """For each entry whether it covers a wanted index."""
    starts = heads["index"].astype(np.int64)
    if not heads["more"].any():
        return wanted.contains(starts)
    return wanted.meets(starts, ends_of(heads))


def _identity(indexes: Numbers, numbers: Numbers, sizes: Numbers) -> Numbers:
    """The 32 bits that the check is XORed with: a mix of index, epoch, span and size."""
    mixed: Numbers = indexes * INDEX_FACTOR
    mixed += numbers * EPOCH_FACTOR
    mixed += sizes * SIZE_FACTOR
    mixed >>= 32
    return mixed


NO_ENTRIES = Entries(np.empty(0, dtype=HEAD), ())
