"""Which records of a key live: decided from the rows of a bucket. Pure; no loop over records.

    offset     1      2      3      4      5      6
    key        a      b      a      -      b      a
                                           tomb
    lives                           yes    until its grace is over
                                                  yes
    must_drop         yes, once 5 does not live any more

The last record of a key lives, and so does every record without a key. A tombstone that is the last
of its key lives for its time of grace. What was older than it must go with it: a reader that meets
an old value and no tombstone would take it for the present one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.indexset import IndexSet

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

NO_KEY = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the records that were judged."""

    judged: int
    dead: IndexSet
    must_drop: IndexSet
    """Those among the dead that must go now."""


def judge(rows: pa.Table, *, up_to: int, expired_by_us: int) -> Verdict:
    """Judge the rows before ``up_to``, which ascend by offset, each key with all of its rows.

    Tombstones of ``expired_by_us`` or before have outlived their grace.
    """
    offsets = numbers_of(rows, "offset")
    count = int(np.searchsorted(offsets, up_to))
    rows, offsets = rows.slice(0, count), offsets[:count]
    keys, key_count = _keys(rows)
    has_key = keys != NO_KEY
    places = np.arange(count, dtype=np.int64)
    last_of = np.zeros(key_count, dtype=np.int64)
    last_of[keys[has_key]] = places[has_key]  # of several places of a key, the last stays
    is_last: Flags = np.ones(count, dtype=np.bool_)
    is_last[has_key] = last_of[keys[has_key]] == places[has_key]
    is_tombstone = rows.column("tombstone").to_numpy().astype(np.bool_)
    is_over = has_key & is_tombstone & (numbers_of(rows, "timestamp_us") <= expired_by_us)
    is_dead = ~is_last | is_over  # one that is over and not the last is dead in any case
    is_forgotten = is_over[last_of] if key_count else np.zeros(0, dtype=np.bool_)
    must_drop: Flags = np.zeros(count, dtype=np.bool_)
    must_drop[has_key] = is_forgotten[keys[has_key]] & ~is_last[has_key]
    return Verdict(count, IndexSet.of(offsets[is_dead]), IndexSet.of(offsets[must_drop]))


def by_offset(*tables: pa.Table) -> pa.Table:
    """The rows of all, ascending by offset."""
    rows = pa.concat_tables(tables).combine_chunks()
    offsets = numbers_of(rows, "offset")
    if (offsets[1:] > offsets[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(offsets, kind="stable")))


def without(rows: pa.Table, gone: IndexSet, first_offset: int) -> pa.Table:
    """The rows of records that the log still has."""
    offsets = numbers_of(rows, "offset")
    there = (offsets >= first_offset) & ~gone.contains(offsets)
    return rows if there.all() else rows.filter(pa.array(there))


def numbers_of(rows: pa.Table, name: str) -> Numbers:
    found: Numbers = rows.column(name).to_numpy()
    return found


def _keys(rows: pa.Table) -> tuple[Numbers, int]:
    """A number for each key, equal where the keys are, and how many there are."""
    encoded = rows.column("key").combine_chunks().dictionary_encode()
    numbers = pc.fill_null(encoded.indices, NO_KEY).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64), len(encoded.dictionary)
