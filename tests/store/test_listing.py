"""Listings of servers with either order become one order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import Unavailable
from stratalog.store import Listed
from stratalog.store.listing import begin_after, in_byte_order, is_past

part = st.text(alphabet="ab01-.!~é/", min_size=1, max_size=4)
path = st.lists(part, min_size=1, max_size=3).map("/".join)


def parts(text: str) -> list[str]:
    return text.split("/")


@given(prefix=st.one_of(st.just(""), path), after=st.one_of(st.just(""), path), wanted=path)
def test_a_listing_begins_before_every_wanted_path_in_both_orders(
    prefix: str, after: str, wanted: str
) -> None:
    wanted = prefix + wanted
    begin = begin_after(prefix, after)
    if wanted > after and begin:
        assert wanted > begin
        assert parts(wanted) > parts(begin)
        assert not wanted.startswith(f"{begin}/")


@given(prefix=path, seen=path, later=path)
def test_a_listing_ends_only_where_nothing_wanted_follows_in_either_order(
    prefix: str, seen: str, later: str
) -> None:
    wanted = prefix + later
    if is_past(seen, prefix):
        assert wanted < seen
        if parts(prefix)[:-1] == parts(seen)[: prefix.count("/")]:
            assert parts(wanted) < parts(seen)


@given(st.sets(path, max_size=20))
def test_rows_in_the_order_of_directories_are_put_right(paths: set[str]) -> None:
    rows = (Listed(each, 1) for each in sorted(paths, key=parts))
    assert [row.path for row in in_byte_order(rows, 20)] == sorted(paths)


def test_a_row_that_comes_too_late_is_an_error_and_no_silent_disorder() -> None:
    rows = (Listed(each, 1) for each in ("a/1", "a/2", "a/3", "a-1"))
    with pytest.raises(Unavailable, match="out of order"):
        list(in_byte_order(rows, 2))
