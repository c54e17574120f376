"""The one set type: immutable sets of indexes, kept as sorted ranges.

    IndexSet.of([1, 2, 3, 5, 9])    →  1–3, 5, 9

A set is one sorted array of bounds: it is entered at the even ones and left at the odd ones,

    members   1 2 3   5       9
    bounds   [1     4 5  6    9  10]

so that whether an index is a member is the parity of its place among them, and every operation on
two sets is one merge of two sorted arrays, whatever the operation. Memory and time go with the
number of ranges, not of members: three million members in one range are two numbers.

Indexes are whole numbers from 0 to 2**63 - 2. The binary form is persisted: keep stable.

    bytes 0–3     ``IXS1``
    bytes 4–7     CRC-32 of what follows, little-endian
    then          how far each bound is from the one before it, as unsigned LEB128
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import cast

import numpy as np
import numpy.typing as npt

from stratalog.errors import Corrupt, Invalid

INDEX_MAX = 2**63 - 2

Indexes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NO_BOUNDS = np.empty(0, dtype=np.int64)
_MAGIC = b"IXS1"
_CRC_BYTES = 4
_HEAD_BYTES = len(_MAGIC) + _CRC_BYTES
_GROUP_BITS = 7
_GROUPS_MAX = 9


class IndexSet:
    """An immutable set of indexes. Supports ``|``, ``&``, ``-``, ``^``, ``<=``, ``in`` and ``len``.

    Iterating gives the members in ascending order; ``ranges`` gives far fewer things.
    """

    __slots__ = ("_bounds", "_count", "first", "last")

    _bounds: Indexes
    _count: int

    first: int | None
    """The lowest member."""

    last: int | None
    """The highest member."""

    def __init__(self, *ranges: range) -> None:
        """The members of these ranges, which may overlap and come in any order."""
        if len(ranges) == 1 and ranges[0]:
            self._adopt(np.array(_checked_range(ranges[0]), dtype=np.int64))
            return
        pairs = [_checked_range(each) for each in ranges if each]
        self._adopt(_merged(np.array(pairs, dtype=np.int64).reshape(-1, 2)))

    def _adopt(self, bounds: Indexes) -> None:
        bounds.flags.writeable = False
        self._bounds = bounds
        if len(bounds):
            self.first, limit = bounds.item(0), bounds.item(-1)
            self.last = limit - 1
            steps = limit - self.first if len(bounds) == 2 else (bounds[1::2] - bounds[::2]).sum()
            self._count = int(steps)
        else:
            self.first = self.last = None
            self._count = 0

    @classmethod
    def _of_bounds(cls, bounds: Indexes) -> IndexSet:
        """From bounds that are sorted and all different."""
        made = cls.__new__(cls)
        made._adopt(bounds)
        return made

    # Making one

    @classmethod
    def of(cls, indexes: Iterable[int] | npt.ArrayLike) -> IndexSet:
        """From an iterable, a NumPy array or an Arrow array, in any order, with repetitions."""
        if isinstance(indexes, IndexSet):
            return indexes
        members = _as_indexes(indexes)
        if not len(members):
            return cls._of_bounds(_NO_BOUNDS)
        if (members[1:] <= members[:-1]).any():
            members = np.unique(members)
        _check_members(int(members[0]), int(members[-1]))
        breaks = np.flatnonzero(members[1:] - members[:-1] != 1)
        bounds = np.empty(2 * len(breaks) + 2, dtype=np.int64)
        bounds[0], bounds[-1] = members[0], members[-1] + 1
        bounds[1:-1:2] = members[breaks] + 1
        bounds[2::2] = members[breaks + 1]
        return cls._of_bounds(bounds)

    @classmethod
    def of_ranges(cls, firsts: Indexes, lasts: Indexes) -> IndexSet:
        """From many ranges, each with its first and its last member. They may overlap."""
        if not len(firsts):
            return cls._of_bounds(_NO_BOUNDS)
        _check_members(int(firsts.min()), int(lasts.max()))
        return cls._of_bounds(_merged(np.column_stack([firsts, lasts + 1])))

    @classmethod
    def union(cls, several: Iterable[IndexSet]) -> IndexSet:
        """The members of all of these sets."""
        bounds = [each._bounds for each in several]
        return cls._of_bounds(_merged(np.concatenate(bounds or [_NO_BOUNDS]).reshape(-1, 2)))

    @classmethod
    def from_bytes(cls, data: bytes) -> IndexSet:
        """From the binary form. ``Corrupt`` if it is not one."""
        body = data[_HEAD_BYTES:]
        if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEAD_BYTES:
            raise Corrupt("these bytes are not a set of indexes")
        if zlib.crc32(body) != int.from_bytes(data[len(_MAGIC) : _HEAD_BYTES], "little"):
            raise Corrupt("a set of indexes is damaged: its checksum is another")
        steps = _decode_varints(body)
        bounds = np.cumsum(steps)
        if len(bounds) % 2 or (steps[1:] <= 0).any() or (bounds < 0).any():
            raise Corrupt("a set of indexes is damaged: its ranges are not in order")
        return cls._of_bounds(bounds)

    def to_bytes(self) -> bytes:
        """The binary form: a few bytes for each range."""
        body = _encode_varints(np.diff(self._bounds, prepend=0))
        return _MAGIC + zlib.crc32(body).to_bytes(_CRC_BYTES, "little") + body

    @classmethod
    def from_json(cls, ranges: object) -> IndexSet:
        """From the JSON form. ``Invalid`` if it is not one."""
        if not isinstance(ranges, list):
            raise _not_json(ranges)
        made = []
        for each in ranges:
            if not isinstance(each, list) or list(map(type, each)) != [int, int]:
                raise _not_json(each)
            made.append(range(*each))
        return cls(*made)

    def to_json(self) -> list[list[int]]:
        """The JSON form: ``[[start, limit], …]``, without the limits."""
        pairs: list[list[int]] = self._bounds.reshape(-1, 2).tolist()
        return pairs

    # Looking at it

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.ranges())

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int | np.integer) or not 0 <= index <= INDEX_MAX:
            return False
        return bool(np.searchsorted(self._bounds, index, side="right") % 2)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and np.array_equal(self._bounds, other._bounds)

    def __hash__(self) -> int:
        return hash(self._bounds.tobytes())

    def __repr__(self) -> str:
        shown = [
            f"{each.start}" if len(each) == 1 else f"{each.start}–{each.stop - 1}"
            for each, _ in zip(self.ranges(), range(8), strict=False)
        ]
        more = self.range_count - len(shown)
        return f"IndexSet({', '.join(shown)}{f', and {more} more ranges' if more else ''})"

    def __reduce__(self) -> tuple[Callable[[bytes], IndexSet], tuple[bytes]]:
        return IndexSet.from_bytes, (self.to_bytes(),)

    @property
    def range_count(self) -> int:
        """Of how many ranges it consists."""
        return len(self._bounds) // 2

    def ranges(self) -> Iterator[range]:
        """Its ranges, ascending. They neither overlap nor touch."""
        return (range(start, limit) for start, limit in self.to_json())

    def to_numpy(self) -> Indexes:
        """All members, ascending."""
        starts, limits = self._bounds[::2], self._bounds[1::2]
        sizes = limits - starts
        before = np.cumsum(sizes) - sizes
        members: Indexes = np.arange(self._count, dtype=np.int64)
        members += np.repeat(starts - before, sizes)
        return members

    @property
    def bounds(self) -> Indexes:
        """Where it is entered and left, in turn: for work on many ranges at once. Read-only."""
        return self._bounds

    def contains(self, indexes: npt.ArrayLike) -> Mask:
        """For each of these indexes whether it is a member."""
        places = np.searchsorted(self._bounds, _as_indexes(indexes), side="right")
        return (places & 1).astype(np.bool_)

    def meets(self, firsts: Indexes, lasts: Indexes) -> Mask:
        """For each range, given by its first and its last index, whether it has a member."""
        entered = np.searchsorted(self._bounds, firsts, side="right")
        left = np.searchsorted(self._bounds, lasts, side="right")
        inside: Mask = np.logical_or(entered & 1, left > entered)
        return inside

    def count_in(self, within: range) -> int:
        """How many members lie in a range."""
        return len(self.within(within))

    def overlaps(self, other: IndexSet | range) -> bool:
        """Whether any member lies in a range, or in another set."""
        if isinstance(other, range):
            return self.count_in(other) > 0
        return bool(self & other)

    # Making others

    def __or__(self, other: IndexSet) -> IndexSet:
        return self._combined(other, np.logical_or)

    def __and__(self, other: IndexSet) -> IndexSet:
        return self._combined(other, np.logical_and)

    def __sub__(self, other: IndexSet) -> IndexSet:
        return self._combined(other, np.greater)

    def __xor__(self, other: IndexSet) -> IndexSet:
        return self._combined(other, np.not_equal)

    def __le__(self, other: IndexSet) -> bool:
        return not self - other

    def __ge__(self, other: IndexSet) -> bool:
        return other <= self

    def floor(self, lowest: int) -> IndexSet:
        """The members that are at or above an index."""
        return self.within(range(max(0, lowest), INDEX_MAX + 1))

    def limit(self, highest: int) -> IndexSet:
        """The members that are at or below an index."""
        return self.within(range(min(max(0, highest + 1), INDEX_MAX + 1)))

    def within(self, span: range) -> IndexSet:
        """The members that lie in a range."""
        start, limit = _checked_range(span)
        if start >= limit:
            return EMPTY
        low = int(np.searchsorted(self._bounds, start, side="right"))
        high = int(np.searchsorted(self._bounds, limit, side="left"))
        parts = [[start]] * (low % 2) + [self._bounds[low:high]] + [[limit]] * (high % 2)
        return IndexSet._of_bounds(np.concatenate(parts).astype(np.int64))

    def remove_prefix(self, prefix: IndexSet) -> IndexSet:
        """What comes after its beginning. ``Invalid`` if it does not begin with ``prefix``."""
        if not prefix:
            return self
        assert prefix.last is not None
        if self.limit(prefix.last) != prefix:
            raise Invalid(
                f"{self!r} does not begin with {prefix!r}",
                hint="Use - to take away members wherever they are.",
            )
        return self.floor(prefix.last + 1)

    def _combined(self, other: IndexSet, keep: Callable[[Mask, Mask], Mask]) -> IndexSet:
        """Each bound of either set in turn: whether what begins there is in one, and in the other.

        A stable sort of two sorted arrays merges them. A bound that both have comes twice, and the
        second one counts.
        """
        if not isinstance(other, IndexSet):
            return NotImplemented
        both = np.concatenate([self._bounds, other._bounds])
        order = np.argsort(both, kind="stable")
        of_self = order < len(self._bounds)
        passed = np.cumsum(of_self)
        in_self = (passed & 1).astype(np.bool_)
        in_other = ((np.arange(1, len(both) + 1) - passed) & 1).astype(np.bool_)
        points, kept = both[order], keep(in_self, in_other)
        if len(points):
            last = np.append(points[1:] != points[:-1], True)
            points, kept = points[last], kept[last]
        changes = np.diff(kept.view(np.int8), prepend=np.int8(0)) != 0
        return IndexSet._of_bounds(points[changes])


def _as_indexes(indexes: object) -> Indexes:
    """Whatever holds whole numbers, as an array of them."""
    if getattr(indexes, "null_count", 0):  # a column of Arrow, in one chunk or in several
        raise Invalid("an index is missing (null)", hint="Leave such rows out.")
    try:
        is_array = isinstance(indexes, np.ndarray) or hasattr(indexes, "__array__")
        array = np.asarray(indexes if is_array else list(cast(Iterable[int], indexes)))
        if not array.size:
            return np.empty(0, dtype=np.int64)
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise TypeError
        if array.dtype == np.uint64 and int(array.max()) > INDEX_MAX:
            raise OverflowError
        return array.astype(np.int64, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise Invalid(
            "indexes are whole numbers", hint=f"From 0 to {INDEX_MAX}, in one dimension."
        ) from None


def _check_members(lowest: int, highest: int) -> None:
    if lowest < 0 or highest > INDEX_MAX:
        wrong = lowest if lowest < 0 else highest
        raise Invalid(
            f"not an index: {wrong}", hint=f"Indexes go from 0 to {INDEX_MAX}.", actual=wrong
        )


def _checked_range(each: range) -> tuple[int, int]:
    if each.step != 1:
        raise Invalid(f"a range of indexes has no gaps: {each!r}", hint="Use IndexSet.of.")
    if each:
        _check_members(each.start, each.stop - 1)
    return each.start, each.stop


def _merged(pairs: Indexes) -> Indexes:
    """The bounds of ranges that may overlap, touch, and come in any order."""
    if not len(pairs):
        return _NO_BOUNDS
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    reach = np.maximum.accumulate(pairs[:, 1])
    apart = pairs[1:, 0] > reach[:-1]
    starts = pairs[np.append(True, apart), 0]
    limits = reach[np.append(apart, True)]
    return np.column_stack([starts, limits]).reshape(-1)


def _encode_varints(values: Indexes) -> bytes:
    """Seven bits a byte, the lowest first; all bytes of a number but its last have the top bit."""
    groups = np.ones(len(values), dtype=np.int64)
    for number in range(1, _GROUPS_MAX):
        groups += values >> (_GROUP_BITS * number) > 0
    starts = np.cumsum(groups) - groups
    encoded = np.zeros(int(groups.sum()), dtype=np.uint8)
    for number in range(_GROUPS_MAX):
        having = groups > number
        if not having.any():
            break
        group = (values[having] >> (_GROUP_BITS * number)) & 0x7F
        more = (groups[having] > number + 1).astype(np.int64) << _GROUP_BITS
        encoded[starts[having] + number] = (group | more).astype(np.uint8)
    return encoded.tobytes()


def _decode_varints(data: bytes) -> Indexes:
    encoded = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(encoded < 0x80)
    if len(encoded) and (not len(ends) or ends[-1] != len(encoded) - 1):
        raise Corrupt("a set of indexes is damaged: it is cut off")
    starts = np.append(0, ends[:-1] + 1) if len(ends) else ends
    groups = ends - starts + 1
    if len(groups) and groups.max() > _GROUPS_MAX:
        raise Corrupt("a set of indexes is damaged: a bound is too large")
    values = np.zeros(len(ends), dtype=np.int64)
    for number in range(int(groups.max()) if len(groups) else 0):
        having = groups > number
        group = (encoded[starts[having] + number] & 0x7F).astype(np.int64)
        values[having] |= group << (_GROUP_BITS * number)
    return values


def _not_json(found: object) -> Invalid:
    return Invalid(
        f"not ranges of indexes: {found!r}", hint="The form is [[start, limit], …].", actual=found
    )


EMPTY = IndexSet()
