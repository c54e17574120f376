"""The pure part of retention: trees of any shape, cut by age and by size."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectlog.trees import LEAF, MadeLog, Shape, drawn_shapes, shapes
from objectlog.whole_log import run
from objectlog.wrapped_stores import CountingStore
from stratalog.objectlog.stored.cache import ByteCache
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.position import LogPosition
from stratalog.objectlog.stored.snapshot import Entry, Snapshot, SnapshotPointer
from stratalog.objectlog.tree.retention import (
    Cut,
    RetentionLimits,
    find_retention_cut,
    retention_cut,
)
from stratalog.objectlog.tree.walk import Tree
from stratalog.store import MemoryStore


def fragments_of(made: MadeLog) -> list[Fragment]:
    def below(entries: tuple[Entry, ...]) -> list[Fragment]:
        found: list[Fragment] = []
        for entry in entries:
            if isinstance(entry, SnapshotPointer):
                found += below(made.nodes[entry.path].entries)
            else:
                found.append(entry)
        return found

    return below(made.manifest.entries)


def expected(made: MadeLog, before_us: int | None, bytes_max: int | None) -> Cut:
    """One fragment after the other, as a person would."""
    fragments = fragments_of(made)
    offset, gone = made.manifest.first_offset, 0
    for number, each in enumerate(fragments[:-1]):
        is_old = before_us is not None and each.limit.timestamp_us < before_us
        left = sum(later.num_bytes for later in fragments[number:])
        is_too_much = bytes_max is not None and left > bytes_max
        if not is_old and not is_too_much:
            break
        offset, gone = each.limit.offset, gone + each.num_bytes
    return Cut(offset, gone)


def every_case(made: MadeLog) -> list[tuple[int | None, int | None]]:
    times = [each.limit.timestamp_us for each in fragments_of(made)]
    total = sum(entry.num_bytes for entry in made.manifest.entries)
    ages: list[int | None] = [None, 0, *range(times[0] - 1, times[-1] + 3)]
    sizes: list[int | None] = [None, 1, *range(50, total + 101, 50)]
    return [(age, size) for age in ages for size in sizes]


@pytest.mark.parametrize("fragments", range(1, 7))
def test_every_tree_is_cut_where_a_list_would_be(fragments: int) -> None:
    for shape in shapes(fragments, 3):
        made = MadeLog(shape, records=2)
        for before_us, bytes_max in every_case(made):
            limits = RetentionLimits(before_us, bytes_max)
            found = retention_cut(made.manifest, made.nodes, limits)
            assert found == expected(made, before_us, bytes_max), (shape, before_us, bytes_max)


@given(drawn_shapes(), st.data())
def test_larger_trees(shape: Shape, data: st.DataObject) -> None:
    made = MadeLog(shape)
    before_us, bytes_max = data.draw(st.sampled_from(every_case(made)))
    found = retention_cut(made.manifest, made.nodes, RetentionLimits(before_us, bytes_max))
    assert found == expected(made, before_us, bytes_max)


def test_only_the_nodes_on_the_cut_are_read() -> None:
    leaf_node = (LEAF,) * 8
    shape: Shape = ((leaf_node,) * 8, (leaf_node,) * 8, LEAF)
    made = MadeLog(shape)

    async def main() -> None:
        store = MemoryStore()
        await made.store(store)
        counting = CountingStore(store)
        for before_us, bytes_max in [(1_000 + 30, None), (None, 4_000), (1_000 + 30, 4_000)]:
            counting.reset()
            tree = Tree(counting, ByteCache[Snapshot](0))
            limits = RetentionLimits(before_us, bytes_max)
            found = await find_retention_cut(tree, made.manifest, limits)
            assert found == expected(made, before_us, bytes_max)
            assert counting.reads <= 4

    run(main())


def test_what_was_not_judged_neither_counts_nor_goes() -> None:
    """Of what came since, nobody knows how much will be left."""
    made = MadeLog((LEAF,) * 6)  # 100 bytes each, one record each

    def cut(counted_to: int, bytes_max: int) -> int:
        limits = RetentionLimits(bytes_max=bytes_max, counted_to=counted_to)
        return retention_cut(made.manifest, made.nodes, limits).offset

    assert cut(4, 250) == 2
    assert cut(4, 300) == 1
    assert cut(4, 1) == 4
    assert cut(7, 1) == 6, "the newest one stays"
    assert cut(1, 1) == 1


def test_what_has_no_time_is_not_old() -> None:
    made = MadeLog((LEAF, LEAF, LEAF))
    timeless = [
        msgspec.structs.replace(
            each, start=LogPosition(each.start.offset), limit=LogPosition(each.limit.offset)
        )
        for each in made.manifest.fragments
    ]
    manifest = msgspec.structs.replace(made.manifest, fragments=tuple(timeless))
    assert retention_cut(manifest, {}, RetentionLimits(10**15)) == Cut(1, 0)
    assert retention_cut(manifest, {}, RetentionLimits(10**15, 150)) == Cut(3, 200)


def test_an_empty_log_has_nothing_to_give() -> None:
    made = MadeLog((LEAF,))
    empty = msgspec.structs.replace(made.manifest, fragments=(), initial_offset=LogPosition(7))
    assert retention_cut(empty, {}, RetentionLimits(10**15, 1)) == Cut(7, 0)
