"""Bugs on purpose in compaction, each in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped. Each docstring
says which promise of the store, or of a reader, it breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from simulation.planting import plant
from stratalog.indexset import IndexSet
from stratalog.objectlog.collection import collector as collector_module
from stratalog.objectlog.collection.collector import Collector
from stratalog.objectlog.collection.delete_unreachable import OnRemoved, Removed
from stratalog.objectlog.compaction.compact_log import Compactor
from stratalog.objectlog.compaction.rewrite_groups import Candidate
from stratalog.objectlog.erasure import erase_records as erasing_module
from stratalog.objectlog.erasure.erase_records import Eraser
from stratalog.objectlog.holds.pin import Pin
from stratalog.objectlog.read import reader as reader_module
from stratalog.objectlog.stored.fragment import Fragment, compacted_path
from stratalog.objectlog.stored.manifest import Manifest
from stratalog.objectlog.stored.names import UploadNames
from stratalog.objectlog.stored.plan import Garbage, PlanState
from stratalog.objectlog.stored.snapshot import snapshot_path
from stratalog.objectlog.tree.filter_rows import Survivors
from stratalog.objectlog.tree.seek_window import Window, cut
from stratalog.setsum import EMPTY, Setsum

_divide = Survivors.divide
_compacted_names = UploadNames.compacted


async def _content(*_: object) -> None:
    """A verifier that finds nothing."""


def _without_the_last(rows: Survivors) -> Survivors:
    mask = np.arange(len(rows)) < len(rows) - 1
    return rows._where(mask)


@contextmanager
def drop_a_live_record() -> Iterator[None]:
    """One record that lives goes with those that do not: ``records``."""

    def careless(self: Survivors, live: IndexSet) -> tuple[Survivors, Survivors]:
        kept, _ = _divide(self, live)
        if len(kept) < 2:
            return _divide(self, live)
        fewer = live - IndexSet.of([kept.rows.column(0)[-1].as_py()])
        return _divide(self, fewer)

    with plant(Survivors, "divide", careless):
        yield


@dataclass(frozen=True, slots=True)
class Subtracted(Survivors):
    """Rows whose sum is what was there without what stays."""

    difference: Setsum = EMPTY

    @property
    def setsum(self) -> Setsum:
        return self.difference


@contextmanager
def balance_by_subtraction() -> Iterator[None]:
    """A record is lost on the way, and the sums balance all the same: ``records``."""

    def losing(self: Survivors, live: IndexSet) -> tuple[Survivors, Survivors]:
        kept, dead = _divide(self, live)
        fewer = _without_the_last(kept) if len(kept) > 1 else kept
        difference = self.setsum - fewer.setsum
        hidden = Subtracted(dead.rows, dead.item_offsets, dead.item_times_us, difference)
        return fewer, hidden

    with plant(Survivors, "divide", losing):
        yield


@contextmanager
def replace_what_a_pin_holds() -> Iterator[None]:
    """What was replaced is deleted although a pin leads to it: ``pinned``."""
    delete = Collector._delete_compacted

    async def nobody() -> tuple[list[Pin], list[Pin]]:
        return [], []

    async def ruthless(
        self: Collector, plan: Garbage, manifest: Manifest, etag: str, on_progress: OnRemoved
    ) -> Removed:
        with plant(self._pins, "release_expired", nobody):
            return await delete(self, plan, manifest, etag, on_progress)

    with plant(Collector, "_delete_compacted", ruthless):
        yield


@contextmanager
def commit_on_a_stale_tree() -> Iterator[None]:
    """A plan is applied to a root that it was not made for: ``records``, or ``balance``."""
    judged = Garbage.state

    def hopeful(self: Garbage, manifest: Manifest) -> PlanState:
        found = judged(self, manifest)
        is_late = self.compaction is not None and found is PlanState.DEAD
        return PlanState.LIVE if is_late else found

    with (
        plant(Garbage, "state", hopeful),
        plant(collector_module, "check_compaction", _content),
    ):
        yield


@contextmanager
def compact_the_newest_fragment() -> Iterator[None]:
    """The fragment by which writers know what became of theirs is rewritten: ``newest``."""
    candidates = Compactor._candidates

    async def greedy(self: Compactor, manifest: Manifest) -> list[Candidate]:
        found = await candidates(self, manifest)
        if not manifest.fragments:
            return found
        newest = manifest.fragments[-1]
        before = found[-1].fragment.limit.offset if found else manifest.first_offset
        if newest.limit.offset <= self.up_to and before == newest.start.offset:
            found.append(await self._judged(newest, manifest))
        return found

    with (
        plant(Compactor, "_candidates", greedy),
        plant(collector_module, "check_compaction", _content),
    ):
        yield


@contextmanager
def merge_equal_sums_under_one_name() -> Iterator[None]:
    """Nodes are named by their sum alone, so that one comes back after it was deleted."""
    snapshot = UploadNames.snapshot

    def by_sum(self: UploadNames, setsum: Setsum) -> str:
        snapshot(self, setsum)
        return snapshot_path(setsum, "0" * 12, 1)

    def by_range(self: UploadNames, first: int, last: int) -> str:
        _compacted_names(self, first, last)
        return compacted_path(first, last, "0" * 12, 1)

    with (
        plant(UploadNames, "snapshot", by_sum),
        plant(UploadNames, "compacted", by_range),
    ):
        yield


@contextmanager
def certify_what_others_hold() -> Iterator[None]:
    """A certificate does not ask who else holds the records: ``erased``."""

    def careless(*_: object) -> tuple[str, ...]:
        return ()

    with plant(erasing_module, "reasons_against", careless):
        yield


@contextmanager
def certify_beside_a_compaction() -> Iterator[None]:
    """A compaction has read the records before they were erased, and stores them again after:
    ``erased``."""
    delete_copies = Eraser._delete_copies

    async def alone(self: Eraser, wanted: IndexSet) -> Any:
        return replace(await delete_copies(self, wanted), stages=())

    with plant(Eraser, "_delete_copies", alone):
        yield


@contextmanager
def read_on_from_the_old_place() -> Iterator[None]:
    """What takes the place of a fragment is read from its beginning: twice, to a reader."""

    def whole(batch: pa.RecordBatch, fragment: Fragment, window: Window) -> pa.RecordBatch:
        return batch if fragment.is_sparse else cut(batch, fragment, window)

    with plant(reader_module, "cut", whole):
        yield


PLANTED = (
    drop_a_live_record,
    balance_by_subtraction,
    replace_what_a_pin_holds,
    commit_on_a_stale_tree,
    compact_the_newest_fragment,
    merge_equal_sums_under_one_name,
    read_on_from_the_old_place,
    certify_what_others_hold,
    certify_beside_a_compaction,
)
