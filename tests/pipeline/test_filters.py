"""Filters of Spark as the part of a log that they leave: never less than what passes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from stratalog.objectlog.tree.seek_window import Window
from stratalog.pipeline.data_source.filter_push_down import narrowed

OFFSET = ("offset",)
TIME = ("timestamp",)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_767_268_800_000_000


@pytest.mark.parametrize(
    ("filters", "window"),
    [
        ([], Window()),
        ([EqualTo(OFFSET, 7)], Window(7, 8)),
        ([EqualNullSafe(OFFSET, 7)], Window(7, 8)),
        ([GreaterThan(OFFSET, 7)], Window(8)),
        ([GreaterThanOrEqual(OFFSET, 7)], Window(7)),
        ([LessThan(OFFSET, 7)], Window(0, 7)),
        ([LessThanOrEqual(OFFSET, 7)], Window(0, 8)),
        ([In(OFFSET, (9, 3, 5))], Window(3, 10)),
        ([GreaterThan(OFFSET, 7), LessThan(OFFSET, 9), IsNotNull(OFFSET)], Window(8, 9)),
        ([EqualTo(TIME, NOON)], Window(0, None, NOON_US, NOON_US + 1)),
        ([GreaterThan(TIME, NOON)], Window(0, None, NOON_US + 1)),
        ([LessThanOrEqual(TIME, NOON)], Window(0, None, None, NOON_US + 1)),
        (
            [GreaterThanOrEqual(TIME, NOON.astimezone(timezone(timedelta(hours=5))))],
            Window(0, None, NOON_US),
        ),
        (
            [In(TIME, (NOON, NOON + timedelta(seconds=1)))],
            Window(0, None, NOON_US, NOON_US + 10**6 + 1),
        ),
    ],
)
def test_a_filter_leaves_a_window(filters: list[Filter], window: Window) -> None:
    assert narrowed(Window(), filters) == window


@pytest.mark.parametrize(
    "unknown",
    [
        Not(EqualTo(OFFSET, 7)),
        EqualTo(("body",), b"7"),
        EqualTo(("log",), "a"),
        EqualTo(OFFSET, "7"),
        In(OFFSET, (1, None)),
        In(OFFSET, ()),
        EqualTo(("offset", "x"), 7),
    ],
)
def test_what_is_not_understood_leaves_everything(unknown: Filter) -> None:
    assert narrowed(Window(3, 9), [unknown]) == Window(3, 9)


def test_filters_narrow_what_was_asked_for() -> None:
    asked = Window(10, 20, 100, 200)
    assert narrowed(asked, [GreaterThan(OFFSET, 5), LessThan(OFFSET, 15)]) == Window(
        10, 15, 100, 200
    )
    assert narrowed(asked, [LessThan(OFFSET, -3)]).to_offset == 0


@given(
    st.lists(
        st.builds(
            lambda kind, value: kind(OFFSET, value),
            st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
            st.integers(-2, 12),
        ),
        max_size=3,
    ),
    st.integers(0, 10),
)
def test_an_offset_that_passes_all_filters_is_in_the_window(
    filters: list[EqualTo], offset: int
) -> None:
    passes: dict[type, Callable[[int], bool]] = {
        EqualTo: lambda value: offset == value,
        GreaterThan: lambda value: offset > value,
        GreaterThanOrEqual: lambda value: offset >= value,
        LessThan: lambda value: offset < value,
        LessThanOrEqual: lambda value: offset <= value,
    }
    window = narrowed(Window(), filters)
    if all(passes[type(each)](each.value) for each in filters):
        assert window.from_offset <= offset
        assert window.to_offset is None or offset < window.to_offset
