"""Payloads in one buffer are what a list of them would be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stratalog.indexset import IndexSet
from stratalog.segments.format.entries import Entries
from stratalog.segments.format.slices import Slices

PARTS = st.lists(st.tuples(st.binary(max_size=5), st.integers(0, 3)), max_size=12)


def laid_out(parts: list[tuple[bytes, int]]) -> tuple[Slices, list[bytes]]:
    """Each payload, and after it a gap of so many bytes."""
    sizes = np.array([len(payload) for payload, _ in parts], dtype=np.int64)
    steps = sizes + np.array([gap for _, gap in parts], dtype=np.int64)
    starts = np.cumsum(steps) - steps
    buffer = b"".join(payload + b"?" * gap for payload, gap in parts)
    return Slices(memoryview(buffer), starts, starts + sizes), [payload for payload, _ in parts]


@given(PARTS, st.slices(12))
def test_as_a_list(parts: list[tuple[bytes, int]], some: slice) -> None:
    slices, listed = laid_out(parts)
    assert len(slices) == len(listed)
    assert list(slices) == listed
    assert [slices[place] for place in range(len(listed))] == listed
    assert list(slices[some]) == listed[some]
    assert b"".join(slices.parts()) == b"".join(listed)


def test_neighbours_are_one_part() -> None:
    slices, _ = laid_out([(b"a", 0), (b"bc", 0), (b"", 0), (b"d", 2), (b"e", 0)])
    assert slices[:4].parts() == [b"abcd"]
    assert len(slices.parts()) == 5


@given(PARTS, st.sets(st.integers(1, 12)))
def test_entries_are_chosen_as_from_a_list(
    parts: list[tuple[bytes, int]], wanted: set[int]
) -> None:
    slices, listed = laid_out(parts)
    made = Entries.following(0, 1, listed)
    cut = Entries.checked(made.heads, slices, "a/path")
    assert cut == made
    chosen = cut.select(IndexSet.of(wanted))
    assert list(chosen) == [entry for entry in made if entry.index in wanted]
    assert b"".join(chosen.parts()) == b"".join(entry.payload for entry in chosen)
    assert list(cut.above(3)) == list(made)[3:]
