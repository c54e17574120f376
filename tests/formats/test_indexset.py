"""The one set type: every operation against Python's own sets, its forms, and its limits."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog import IndexSet
from stratalog.errors import Corrupt, Invalid
from stratalog.indexset import EMPTY, INDEX_MAX

MEMBERS = [1, 2, 3, 5, 6, 7, 8, 9, 11]
SOME = IndexSet.of(MEMBERS)

members = st.sets(st.integers(0, 40))
ranges = st.builds(range, st.integers(0, 42), st.integers(0, 42))


def of(indexes: Iterable[int]) -> IndexSet:
    return IndexSet.of(list(indexes))


class TestBehaviour9:
    """Line 9 of the node's disk: floor, limit, in-range, overlap, union, difference, prefix."""

    @pytest.mark.parametrize(
        ("at", "expected"),
        [(0, MEMBERS), (1, MEMBERS), (3, [3, 5, 6, 7, 8, 9, 11]), (4, MEMBERS[3:]), (12, [])],
    )
    def test_floor(self, at: int, expected: list[int]) -> None:
        assert list(SOME.floor(at)) == expected

    @pytest.mark.parametrize(
        ("at", "expected"), [(-1, []), (0, []), (1, [1]), (4, [1, 2, 3]), (11, MEMBERS)]
    )
    def test_limit(self, at: int, expected: list[int]) -> None:
        assert list(SOME.limit(at)) == expected

    def test_within_and_overlap(self) -> None:
        assert list(SOME.within(range(3, 6))) == [3, 5]
        assert list(SOME.within(range(4, 5))) == []
        assert not SOME.overlaps(range(4, 5))
        assert SOME.overlaps(range(4, 6))
        assert SOME.overlaps(of([11, 20]))
        assert not SOME.overlaps(of([4, 10]))

    def test_union_and_difference_join_and_split_ranges(self) -> None:
        assert (SOME | of([4, 10])).to_json() == [[1, 12]]
        assert (SOME - of([2, 6, 7, 8])).to_json() == [[1, 2], [3, 4], [5, 6], [9, 10], [11, 12]]

    def test_ranges_that_shrink_to_one(self) -> None:
        assert (of([1, 2, 3]) - of([1, 3])).to_json() == [[2, 3]]
        assert of([1, 2, 3]).floor(3).to_json() == [[3, 4]]

    def test_a_prefix_is_removed_or_refused(self) -> None:
        assert list(SOME.remove_prefix(of([1, 2, 3, 5]))) == [6, 7, 8, 9, 11]
        assert SOME.remove_prefix(SOME) == EMPTY
        assert SOME.remove_prefix(EMPTY) == SOME
        with pytest.raises(Invalid, match="does not begin with"):
            SOME.remove_prefix(of([1, 3]))

    def test_ranges_that_shrink_to_one_from_each_side(self) -> None:
        assert SOME.limit(1).to_json() == [[1, 2]]
        assert SOME.floor(11).to_json() == [[11, 12]]
        assert SOME.within(range(5, 6)).to_json() == [[5, 6]]
        assert SOME.remove_prefix(SOME.limit(9)).to_json() == [[11, 12]]
        assert (SOME - of([5, 6, 8, 9])).to_json() == [[1, 4], [7, 8], [11, 12]]
        assert SOME - SOME == EMPTY

    def test_in_range_at_the_edges(self) -> None:
        assert [index in SOME for index in (0, 1, 3, 4, 5, 9, 10, 11, 12)] == [
            *(False, True, True, False, True, True, False, True, False)
        ]
        assert (SOME.count_in(range(3, 3)), SOME.count_in(range(99))) == (0, 9)
        assert not SOME.overlaps(range(12, 99))
        assert not SOME.overlaps(range(1))

    def test_duplicates_in_every_operation(self) -> None:
        twice = IndexSet.of([*MEMBERS, *MEMBERS])
        assert twice == SOME == twice | SOME == IndexSet.union([SOME, twice, SOME])
        assert (len(twice), twice - SOME, twice.remove_prefix(SOME)) == (9, EMPTY, EMPTY)

    def test_nothing_can_be_taken_from_the_empty_set(self) -> None:
        assert EMPTY.remove_prefix(EMPTY) == EMPTY == EMPTY & SOME == IndexSet.union([])
        assert EMPTY | EMPTY == EMPTY
        assert not EMPTY.overlaps(SOME)
        assert not SOME.overlaps(EMPTY)
        with pytest.raises(Invalid):
            EMPTY.remove_prefix(of([1]))

    def test_the_empty_set(self) -> None:
        assert (EMPTY.first, EMPTY.last, len(EMPTY), bool(EMPTY)) == (None, None, 0, False)
        assert EMPTY.floor(3) == EMPTY.limit(3) == EMPTY.within(range(9)) == EMPTY - SOME == EMPTY
        assert SOME | EMPTY == SOME - EMPTY == SOME
        assert not EMPTY.overlaps(range(100))

    def test_duplicates_and_any_order(self) -> None:
        assert IndexSet.of([5, 1, 5, 2, 1]) == IndexSet.of([1, 2, 5])
        assert IndexSet(range(3, 6), range(1, 4), range(6, 7)).to_json() == [[1, 7]]

    def test_three_million_members_are_a_few_ranges(self) -> None:
        many = IndexSet(range(3_000_000)) - IndexSet.of(np.arange(0, 3_000_000, 1000))
        assert (len(many), many.range_count) == (2_997_000, 3_000)
        assert IndexSet.from_bytes(many.to_bytes()) == many
        assert len(many.to_bytes()) < 10_000
        every_other = IndexSet.of(np.arange(0, 6_000_000, 2))
        assert len(every_other) == every_other.range_count == 3_000_000
        assert len(every_other & many) == 1_500_000 - 3_000


@given(members, members)
def test_algebra_is_that_of_sets(one: set[int], other: set[int]) -> None:
    left, right = of(one), of(other)
    assert set(left | right) == one | other == set(IndexSet.union([left, right, left]))
    assert set(left & right) == one & other
    assert set(left - right) == one - other
    assert set(left ^ right) == one ^ other
    assert (left <= right, left >= right) == (one <= other, one >= other)
    assert (left == right) == (one == other)
    assert left.overlaps(right) == bool(one & other)


@given(members, ranges)
def test_queries_are_those_of_sets(some: set[int], span: range) -> None:
    made = of(some)
    inside = sorted(some & set(span))
    assert list(made.within(span)) == inside
    assert made.count_in(span) == len(inside)
    assert made.overlaps(span) == bool(inside)
    assert [index in made for index in span] == [index in some for index in span]
    assert made.contains(np.array([*span, 3])).tolist() == [i in some for i in [*span, 3]]
    assert (len(made), list(made)) == (len(some), sorted(some))
    assert (made.first, made.last) == (min(some, default=None), max(some, default=None))
    assert made.to_numpy().tolist() == sorted(some)
    assert [each for several in made.ranges() for each in several] == sorted(some)


@given(st.sets(st.integers(0, INDEX_MAX), max_size=30))
def test_every_form_gives_the_same_set_back(some: set[int]) -> None:
    made = of(some)
    assert IndexSet.from_bytes(made.to_bytes()) == made
    assert IndexSet.from_json(made.to_json()) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(IndexSet.from_bytes(made.to_bytes())) == hash(made)
    assert IndexSet.of(pa.array(sorted(some), pa.uint64())) == made
    assert IndexSet.of(pa.chunked_array([sorted(some), [7]], pa.uint64())) == made | of([7])


@given(st.binary(max_size=40))
def test_any_bytes_are_a_set_or_corrupt(data: bytes) -> None:
    for candidate in (data, b"IXS1" + data):
        with pytest.raises(Corrupt):
            IndexSet.from_bytes(candidate)


@given(members, st.data())
def test_damage_to_the_binary_form_is_found(some: set[int], data: st.DataObject) -> None:
    stored = bytearray(of(some).to_bytes())
    place = data.draw(st.integers(0, len(stored) - 1))
    stored[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Corrupt):
        IndexSet.from_bytes(bytes(stored))
    with pytest.raises(Corrupt):
        IndexSet.from_bytes(of(some).to_bytes() + b"\x81")


@pytest.mark.parametrize(
    "indexes",
    [[-1], [1.5], ["1"], [None], [2**63], [INDEX_MAX + 1], [[1], [2]], np.array([2**63 + 1], "u8")],
)
def test_what_is_no_index_is_refused(indexes: list[int]) -> None:
    with pytest.raises(Invalid):
        IndexSet.of(indexes)


def test_nulls_and_ranges_with_steps_are_refused() -> None:
    with pytest.raises(Invalid, match="null"):
        IndexSet.of(pa.array([1, None]))
    with pytest.raises(Invalid, match="no gaps"):
        IndexSet(range(0, 9, 2))


@pytest.mark.parametrize("form", [None, {}, [1], [[1]], [[1, 2, 3]], [[1.0, 2]], [["1", 2]]])
def test_what_is_no_json_form_is_refused(form: object) -> None:
    with pytest.raises(Invalid, match="not ranges of indexes"):
        IndexSet.from_json(form)


def test_what_lies_beyond_all_indexes() -> None:
    huge = 2**70
    assert huge not in SOME
    assert -1 not in SOME
    assert SOME.floor(huge) == EMPTY
    assert SOME.limit(huge) == SOME
    assert len(IndexSet(range(INDEX_MAX + 1))) == INDEX_MAX + 1
    for span in (range(huge), range(-1, 3)):
        with pytest.raises(Invalid, match="not an index"):
            IndexSet(span)
        with pytest.raises(Invalid, match="not an index"):
            SOME.count_in(span)
    with pytest.raises(Invalid, match="whole numbers"):
        IndexSet.of(7)
    assert IndexSet.of(SOME) is SOME


def test_it_does_not_change() -> None:
    with pytest.raises(ValueError, match="read-only"):
        SOME._bounds[0] = 7


def test_it_shows_itself() -> None:
    assert repr(SOME) == "IndexSet(1–3, 5–9, 11)"
    assert repr(IndexSet.of(range(0, 40, 2))).endswith("14, and 12 more ranges)")
