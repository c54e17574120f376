"""Splits: every fragment once, in order, in tasks of about the same size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.position import LogPosition
from stratalog.pipeline.read.splits import (
    OPEN_COST_BYTES,
    SPLIT_FRAGMENTS_MAX,
    Part,
    Split,
    split_evenly,
)
from stratalog.setsum import EMPTY

MIB = 1 << 20


def part_of(number: int, sizes: list[int]) -> Part:
    fragments = [
        Fragment(
            path=f"log/{number}-{index}.parquet",
            seq_no=index,
            start=LogPosition(1 + index),
            limit=LogPosition(2 + index),
            num_bytes=size,
            setsum=EMPTY,
        )
        for index, size in enumerate(sizes)
    ]
    return Part(f"file:///{number}", tuple(fragments), log=f"log-{number}")


def paths_in(parts: list[Part]) -> list[tuple[str, str]]:
    return [(part.url, fragment.path) for part in parts for fragment in part.fragments]


def weights_in(split: Split) -> list[int]:
    return [
        fragment.num_bytes + OPEN_COST_BYTES for part in split.parts for fragment in part.fragments
    ]


sizes_of_parts = st.lists(st.lists(st.integers(0, 8 * MIB), max_size=12), max_size=6)


@given(sizes_of_parts, st.integers(1, 32 * MIB), st.integers(1, 8))
def test_every_fragment_is_in_one_split_and_in_its_order(
    sizes: list[list[int]], split_bytes: int, splits_min: int
) -> None:
    parts = [part_of(number, each) for number, each in enumerate(sizes)]
    splits = split_evenly(parts, split_bytes, splits_min)
    assert paths_in([part for split in splits for part in split.parts]) == paths_in(parts)
    assert all(part.fragments for split in splits for part in split.parts)
    given = [part for split in splits for part in split.parts]
    assert sum(part.num_bytes for part in given) == sum(part.num_bytes for part in parts)


@given(sizes_of_parts, st.integers(1, 32 * MIB))
def test_a_split_is_as_large_as_asked_or_has_one_large_fragment(
    sizes: list[list[int]], split_bytes: int
) -> None:
    parts = [part_of(number, each) for number, each in enumerate(sizes)]
    for split in split_evenly(parts, split_bytes):
        weights = weights_in(split)
        assert len(weights) == 1 or sum(weights) <= split_bytes + weights[-1] / 2


@given(st.integers(1, 200), st.integers(1, 16), st.integers(0, MIB))
def test_fewer_splits_than_asked_for_are_made_smaller(
    fragments: int, splits_min: int, size: int
) -> None:
    splits = split_evenly([part_of(0, [size] * fragments)], 1 << 40, splits_min)
    assert 3 * len(splits) >= 2 * min(fragments, splits_min)
    counts = [len(weights_in(split)) for split in splits]
    assert max(counts[:-1], default=0) - min(counts[:-1], default=0) <= 1


def test_a_log_of_many_tiny_fragments_is_split_by_their_number() -> None:
    splits = split_evenly([part_of(0, [0] * (2 * SPLIT_FRAGMENTS_MAX + 1))], 1 << 60)
    assert [len(weights_in(split)) for split in splits] == [
        SPLIT_FRAGMENTS_MAX,
        SPLIT_FRAGMENTS_MAX,
        1,
    ]


def test_small_logs_share_a_split_and_keep_their_names() -> None:
    (split,) = split_evenly([part_of(1, [5, 5]), part_of(2, []), part_of(3, [5])])
    assert [(part.log, len(part.fragments)) for part in split.parts] == [("log-1", 2), ("log-3", 1)]


def test_nothing_is_no_split() -> None:
    assert split_evenly([]) == []
    assert split_evenly([part_of(0, [])], splits_min=4) == []
