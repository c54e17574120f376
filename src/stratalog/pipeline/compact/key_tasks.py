"""What a Spark task does for a compaction by key: bring old and new rows together, and judge them.

    rows of the last run, from the parts of a bucket ─┐
                                                      ├─► judge ──► sets, and the parts of this run
    new rows, from Spark ─────────────────────────────┘

A *unit* is one bucket of one log. Its new rows meet in one task, with a row that brings the order:
where the log is, which parts there are, what to do. So a unit without new records is judged too:
the grace of a tombstone may be over. All rows of a unit are in memory at the same time.
"""

import asyncio
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from stratalog.blocking import loop_thread
from stratalog.indexset import EMPTY, IndexSet
from stratalog.pipeline.compact.key_index import (
    NO_ROWS,
    ROWS,
    TIMEOUT_S,
    GoneSet,
    IndexNames,
    IndexPart,
    fetch_gone,
    fetch_part,
    store_part,
)
from stratalog.pipeline.compact.key_verdict import Verdict, by_offset, judge, without
from stratalog.pipeline.spark import in_groups, pickled_batch, whole_errors
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import Patience, PatientStore, open_store

UNITS_AT_ONCE = 16
UNITS_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class UnitWork:
    log: int
    """The number of its log in this query."""

    url: str
    bucket: int
    parts: tuple[IndexPart, ...]
    gone: GoneSet | None
    first_offset: int
    up_to: int
    expired_by_us: int
    is_rewritten: bool
    """Whether all rows go into a part of this run, and not only those that are new."""


@dataclass(frozen=True, slots=True)
class UnitDone:
    log: int
    read: int
    verdict: Verdict
    part: IndexPart | None


def judge_units(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do all units of a task; gives what came of each."""
    names = IndexNames(DEFAULT_RUNTIME)
    gone: dict[str, IndexSet] = {}
    with whole_errors():
        for some in in_groups(_units_of(batches), _bytes_of, UNITS_BYTES, UNITS_AT_ONCE):
            yield pickled_batch(loop_thread().run(partial(_do_all, some, names, gone)))


def _units_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[UnitWork, pa.Table]]:
    taken = [*batches]
    if not taken:
        return
    table = pa.Table.from_batches(taken)
    units = table.column("unit").to_numpy()
    order = np.argsort(units, kind="stable")
    columns = [table.column(field.name).cast(field.type) for field in ROWS]
    work = table.column("work").take(pa.array(order))
    rows = pa.Table.from_arrays(columns, names=ROWS.names).take(pa.array(order))
    edges = np.flatnonzero(np.diff(units[order], prepend=-1, append=-1))
    for start, stop in pairwise(edges.tolist()):
        orders = work.slice(start, stop - start)
        is_row = orders.is_null()
        (pickled,) = orders.drop_null().to_pylist()
        new = rows.slice(start, stop - start).filter(is_row)
        yield pickle.loads(pickled), new.cast(ROWS)


def _bytes_of(unit: tuple[UnitWork, pa.Table]) -> int:
    return sum(part.num_bytes for part in unit[0].parts)


async def _do_all(
    some: list[tuple[UnitWork, pa.Table]], names: IndexNames, gone: dict[str, IndexSet]
) -> list[UnitDone]:
    """Some units. What is gone of a log concerns all its buckets, and is fetched once."""
    wanted = {_gone_of(work): work for work, _ in some if work.parts}
    for known in [*gone]:
        if known not in wanted:
            del gone[known]
    for name, work in wanted.items():
        if name not in gone:
            gone[name] = await fetch_gone(_store_of(work), work.gone)
    return await asyncio.gather(
        *(do_unit(work, new, names, gone.get(_gone_of(work), EMPTY)) for work, new in some)
    )


async def do_unit(work: UnitWork, new: pa.Table, names: IndexNames, gone: IndexSet) -> UnitDone:
    """Judge the rows of one unit, and store those that no part has yet."""
    store = _store_of(work)
    old = NO_ROWS
    if work.parts:
        tables = await asyncio.gather(*(fetch_part(store, part) for part in work.parts))
        old = without(pa.concat_tables(tables), gone, work.first_offset)
    new = by_offset(new)
    rows = by_offset(old, new)
    verdict = judge(rows, up_to=work.up_to, expired_by_us=work.expired_by_us)
    fresh = rows if work.is_rewritten else new
    part = None
    if fresh.num_rows:
        patience = Patience(DEFAULT_RUNTIME, TIMEOUT_S)
        part = await store_part(store, fresh, work.bucket, names, patience)
    return UnitDone(work.log, new.num_rows, verdict, part)


def _store_of(work: UnitWork) -> PatientStore:
    return PatientStore(open_store(work.url), DEFAULT_RUNTIME, TIMEOUT_S)


def _gone_of(work: UnitWork) -> str:
    return f"{work.url} {work.gone.path if work.gone else ''}"
