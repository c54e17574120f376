"""What a reset of a group's offsets means for each partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.broker.admin.reset import Bounds, Move, Target, Where, moves
from stratalog.errors import Invalid

TOPIC = "orders"


def plan(target: Target, bounds: Bounds, committed: int | None = None) -> Move:
    at = {} if committed is None else {(TOPIC, 0): committed}
    (move,) = moves(TOPIC, target, {0: bounds}, at)
    return move


@pytest.mark.parametrize(
    ("target", "after", "clamped"),
    [
        (Target(Where.EARLIEST), 100, False),
        (Target(Where.LATEST), 200, False),
        (Target(Where.OFFSET, 150), 150, False),
        (Target(Where.OFFSET, 200), 200, False),
        (Target(Where.OFFSET, 99), 100, True),
        (Target(Where.OFFSET, 201), 200, True),
        (Target(Where.TIME, 1), 170, False),
        (Target(Where.SHIFT, 5), 185, False),
        (Target(Where.SHIFT, -5), 175, False),
        (Target(Where.SHIFT, -500), 100, True),
        (Target(Where.SHIFT, 500), 200, True),
    ],
)
def test_each_kind_of_position_has_its_offset(target: Target, after: int, clamped: bool) -> None:
    found = plan(target, Bounds(100, 200, at_time=170), committed=180)
    assert found == Move(TOPIC, 0, 180, after, clamped)


def test_a_time_after_all_records_is_the_end() -> None:
    assert plan(Target(Where.TIME, 1), Bounds(100, 200, at_time=None)).after == 200


def test_nothing_can_be_shifted_where_nothing_is_committed() -> None:
    with pytest.raises(Invalid, match="no committed offset to shift") as refused:
        plan(Target(Where.SHIFT, 1), Bounds(100, 200))
    assert "--to-earliest" in refused.value.hint


def test_partitions_are_planned_in_order_and_each_for_itself() -> None:
    bounds = {2: Bounds(5, 9), 0: Bounds(0, 3), 1: Bounds(7, 7)}
    found = moves(TOPIC, Target(Where.OFFSET, 4), bounds, {(TOPIC, 1): 6, ("other", 0): 1})
    assert [(each.partition, each.before, each.after) for each in found] == [
        (0, None, 3),
        (1, 6, 7),
        (2, None, 5),
    ]


@given(
    start=st.integers(0, 100),
    length=st.integers(0, 100),
    committed=st.integers(0, 300),
    where=st.sampled_from(Where),
    value=st.integers(-300, 300),
    at_time=st.none() | st.integers(0, 300),
)
def test_the_new_offset_always_lies_in_the_partition(
    start: int, length: int, committed: int, where: Where, value: int, at_time: int | None
) -> None:
    bounds = Bounds(start, start + length, at_time)
    found = plan(Target(where, value), bounds, committed)
    assert start <= found.after <= start + length
    again = plan(Target(Where.OFFSET, found.after), bounds, committed)
    assert not again.clamped
