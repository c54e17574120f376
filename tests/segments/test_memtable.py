"""What a WAL file holds of a partition, in memory: the set of its indexes follows its runs."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from stratalog import IndexSet
from stratalog.segments import Entries
from stratalog.segments.read.memtable import Memtable


def test_asking_between_writes_looks_only_at_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    real = IndexSet.union

    def counting(several: Iterable[IndexSet]) -> IndexSet:
        nonlocal looked_at
        listed = list(several)
        looked_at += sum(each.range_count for each in listed)
        return real(listed)

    monkeypatch.setattr(IndexSet, "union", counting)
    table = Memtable(1)
    for index in range(1, 1001):
        table.add(index - 1, Entries.following(index - 1, 1, [b"x"]))
        assert table.indexes.last == index
    assert looked_at <= 2 * 1000


@pytest.mark.parametrize("seed", range(5))
def test_the_indexes_are_those_of_the_runs_after_any_cuts_and_questions(seed: int) -> None:
    random = Random(seed)
    table, last = Memtable(1), 0
    for _ in range(100):
        if random.random() < 0.3:
            last = random.randrange(last + 1)
            table.overwrite(last)
        else:
            first = last + random.randrange(1, 4)
            entries = Entries.following(first - 1, 1, [b"x"] * random.randrange(1, 5))
            table.add(last, entries)
            last = entries.last
        if random.random() < 0.5:
            assert table.indexes == real_indexes(table)
    assert table.indexes == real_indexes(table)


def real_indexes(table: Memtable) -> IndexSet:
    return IndexSet.union(run.indexes for run in table.runs())
