"""Spark's filters on offset and timestamp, as the part of a log that they leave.

Only for pruning: Spark is given all filters back and applies them to the rows again. So a filter
that is not understood is passed over, and bounds may be wider than the filter, never narrower.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from stratalog.objectlog.tree import Window
from stratalog.pipeline.read import microseconds_of

Bounds = tuple[int | None, int | None]
"""From, and up to but not including. None: no bound."""


def narrowed(window: Window, filters: Iterable[Filter]) -> Window:
    """The part of a window in which a record can pass all of these filters."""
    for each in filters:
        column = getattr(each, "attribute", None)
        low, high = (None if bound is None else max(0, bound) for bound in _bounds(each))
        if column == ("offset",):
            window = replace(
                window,
                from_offset=max(window.from_offset, low or 0),
                to_offset=_known(min, window.to_offset, high),
            )
        elif column == ("timestamp",):
            window = replace(
                window,
                from_timestamp_us=_known(max, window.from_timestamp_us, low),
                to_timestamp_us=_known(min, window.to_timestamp_us, high),
            )
    return window


def _bounds(each: Filter) -> Bounds:
    """What a filter demands of whole numbers, or nothing."""
    if isinstance(each, In):
        values = [_number(value) for value in each.value]
        known = [value for value in values if value is not None]
        return (min(known), max(known) + 1) if known and len(known) == len(values) else (None, None)
    value = _number(getattr(each, "value", None))
    if value is None:
        return None, None
    match each:
        case EqualTo() | EqualNullSafe():
            return value, value + 1
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value
        case LessThanOrEqual():
            return None, value + 1
        case _:
            return None, None


def _number(value: object) -> int | None:
    """An offset as it is, a time as microseconds."""
    if type(value) is int:
        return value
    if isinstance(value, datetime):
        return microseconds_of(value)
    return None


def _known(choose: Callable[[list[int]], int], *bounds: int | None) -> int | None:
    known = [each for each in bounds if each is not None]
    return choose(known) if known else None
