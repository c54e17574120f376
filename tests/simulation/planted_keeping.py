"""Bugs on purpose in collection, cursors and sweeping, each in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped. Each docstring
says which promise of the store or of the end it breaks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields

from simulation.planting import plant
from stratalog.errors import NotFound
from stratalog.objectlog.collection import collection_plan as planning_module
from stratalog.objectlog.collection import collector as collector_module
from stratalog.objectlog.collection import sweep_log as sweep_module
from stratalog.objectlog.collection.collection_plan import Trim, trim
from stratalog.objectlog.collection.collector import Collector
from stratalog.objectlog.collection.delete_unreachable import Removal
from stratalog.objectlog.collection.older_manifest import Standing
from stratalog.objectlog.holds import cursor as cursor_module
from stratalog.objectlog.holds.cursor import Cursor, CursorStore
from stratalog.objectlog.stored import plan_document
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest, load_manifest
from stratalog.objectlog.stored.plan import Garbage, load_garbage
from stratalog.objectlog.stored.snapshot import Entry, Snapshot
from stratalog.objectlog.tree import fold as rollup_module
from stratalog.objectlog.tree.amend_manifest import Change, Check, is_version
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store.cas import Landed, Patience, swap
from stratalog.store.protocol import Store


@contextmanager
def delete_before_publishing() -> Iterator[None]:
    """What goes is deleted while the manifest still leads to it: ``reached``."""
    publish = Collector._publish

    async def hasty(self: Collector, plan: Garbage, manifest: Manifest) -> Manifest:
        removal = Removal(self._store, self._tree, self._options.timeout_s, self._runtime)
        await removal.remove(plan.dropped, plan.snapshots_to_replace)
        return await publish(self, plan, manifest)

    with plant(Collector, "_publish", hasty):
        yield


@contextmanager
def sweep_without_the_epoch() -> Iterator[None]:
    """A sweep deletes what a writer may still link: ``reached``, or ``linked`` afterwards."""

    async def unchanged(
        store: Store, _epoch: int, _runtime: Runtime, _timeout_s: float
    ) -> Manifest:
        return (await load_manifest(store))[0]

    with plant(sweep_module, "raise_epoch", unchanged):
        yield


@contextmanager
def sweep_with_an_older_manifest() -> Iterator[None]:
    """What shows that a newer manifest was there is ignored: ``reached``."""

    def nothing(*_: object) -> Standing:
        return Standing.LEFT_OVER

    with plant(sweep_module, "standing", nothing), plant(sweep_module, "check_cursors", nothing):
        yield


@contextmanager
def cursor_without_looking_again() -> Iterator[None]:
    """A cursor counts as soon as it is written, whatever is being collected: ``held``."""

    async def trusting(self: CursorStore, cursor: Cursor, _before: Cursor | None) -> Cursor:
        return Cursor(self, cursor.name, cursor._version, counts=True)

    with plant(CursorStore, "_confirmed", trusting):
        yield


@contextmanager
def cursors_not_listed_again() -> Iterator[None]:
    """A cursor that came after the plan was computed is overlooked: ``held``."""
    publish = Collector._publish

    async def nobody() -> list[Cursor]:
        return []

    async def hasty(self: Collector, plan: Garbage, manifest: Manifest) -> Manifest:
        with plant(self._cursors, "list", nobody):
            return await publish(self, plan, manifest)

    with plant(Collector, "_publish", hasty):
        yield


@contextmanager
def two_collectors_at_once() -> Iterator[None]:
    """A plan is installed over a live one: ``plan``."""

    async def ruthless(self: Collector, cut_off: int | None = None) -> Garbage | None:
        plan = (await self.preview(cut_off)).plan
        if plan is not None:
            await self._installed.install(
                plan, await plan_document(self._store, self._runtime, 10.0).read()
            )
        return plan

    with plant(Collector, "compute", ruthless):
        yield


@contextmanager
def constant_empty_plan() -> Iterator[None]:
    """Every empty plan has the same bytes, and so the same etag: ``version``."""
    constant = Garbage.empty("nobody", "0")

    def same(_writer: str, _write_id: str) -> Garbage:
        return constant

    with plant(Garbage, "empty", same):
        yield


@contextmanager
def rebase_that_drops_a_fragment() -> Iterator[None]:
    """After a refusal the manifest that was made before is put all the same: ``growth``."""

    async def stubborn(
        store: Store, change: Change, patience: Patience, _check: Check | None = None
    ) -> Manifest:
        manifest, etag = await load_manifest(store)
        changed = change(manifest)
        if changed is None:
            return manifest
        while True:
            settled = await swap(
                store, MANIFEST_PATH, changed.to_json(), etag, is_version(changed), patience
            )
            if isinstance(settled, Landed):
                return changed
            if settled.current is None:
                raise NotFound("the log is gone", path=MANIFEST_PATH)
            etag = settled.current.etag

    with plant(collector_module, "amend", stubborn):
        yield


@dataclass(frozen=True, slots=True)
class Subtracted(Trim):
    """A trim whose sum is what was there without what stays."""

    difference: Setsum = EMPTY

    @property
    def discarded(self) -> Setsum:
        return self.difference


@contextmanager
def collected_by_subtraction() -> Iterator[None]:
    """The first fragment to keep is lost, and the sums balance all the same: ``collected``."""

    def losing(
        manifest: Manifest,
        cut: int,
        nodes: Mapping[str, Snapshot],
        name: Callable[[Setsum], str],
        writer: str,
    ) -> Trim | None:
        found = trim(manifest, cut, nodes, name, writer)
        if found is None:
            return None
        further: Trim | None = found
        while further is not None and further.first_to_keep == found.first_to_keep:
            cut += 1
            if cut >= manifest.tail.offset:
                return found
            further = trim(manifest, cut, nodes, name, writer)
        assert further is not None
        before = {entry.path: entry.setsum for entry in manifest.entries}
        kept = [] if further.root_after is None else [further.root_after.setsum]
        was = Setsum.total(before[path] for path in further.root_before)
        return Subtracted(
            **{
                **{each.name: getattr(further, each.name) for each in fields(Trim)},
                "dropped": found.dropped,
                "first_to_keep": found.first_to_keep,
                "first_seq_no_to_keep": found.first_seq_no_to_keep,
            },
            difference=was - Setsum.total(kept),
        )

    def content(*_: object) -> None:
        """The verifier finds the same sum by the same way, and so nothing."""

    with (
        plant(planning_module, "trim", losing),
        plant(collector_module, "check_plan", content),
    ):
        yield


@contextmanager
def cancel_without_the_epoch() -> Iterator[None]:
    """A cancelled plan can still be published by one who was just about to: ``held``."""

    async def forgetful(self: Collector) -> None:
        plan, _ = await load_garbage(self._store)
        if plan is not None and not plan.is_empty:
            await self._installed.empty(plan)

    with plant(Collector, "cancel", forgetful):
        yield


@contextmanager
def going_back_forgets_what_was_held() -> Iterator[None]:
    """A cursor whose way back is cut off has lost its old place meanwhile: ``held``."""

    def nothing(_cursor: Cursor, _offset: int) -> int | None:
        return None

    with plant(cursor_module, "_still_held", nothing):
        yield


@contextmanager
def roll_up_behind_something_shallower() -> Iterator[None]:
    """A collection left a fragment in the root, and a roll-up of those after it is linked before
    it: ``balance``."""

    def deepest(_entry: Entry) -> int:
        return sys.maxsize

    with plant(rollup_module, "depth_of", deepest):
        yield


PLANTED = (
    delete_before_publishing,
    sweep_without_the_epoch,
    sweep_with_an_older_manifest,
    cursor_without_looking_again,
    cursors_not_listed_again,
    two_collectors_at_once,
    constant_empty_plan,
    rebase_that_drops_a_fragment,
    collected_by_subtraction,
    cancel_without_the_epoch,
    going_back_forgets_what_was_held,
    roll_up_behind_something_shallower,
)
