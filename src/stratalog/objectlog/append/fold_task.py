"""Folding in the background: stored beside the commits, linked by a commit that happens anyway.

One is under way at a time. Those that are stored wait in ``ready``, in the order in which they
were planned, and each is planned on top of the ones before it. A commit applies them in that order
and stops at the first that no longer fits (its entries were changed meanwhile); that one and those
after it are dropped and left to the sweep.
"""

import asyncio
import logging

from stratalog.errors import StratalogError
from stratalog.objectlog.append.context import WriterContext
from stratalog.objectlog.stored import Manifest, Snapshot, UploadNames
from stratalog.objectlog.tree import (
    Fold,
    FoldPlan,
    Tree,
    apply_fold,
    children_of,
    make_snapshot,
    plan_fold,
)
from stratalog.store import put_once

log = logging.getLogger(__name__)


class FoldTask:
    def __init__(self, context: WriterContext, tree: Tree) -> None:
        self._context = context
        self._tree = tree
        self._under_way: asyncio.Task[None] | None = None
        self._ready: list[Fold] = []

    def apply(self, manifest: Manifest) -> tuple[Manifest, int]:
        """The manifest with all that is ready and still fits, and how many that are."""
        for number, rollup in enumerate(self._ready):
            rolled = apply_fold(manifest, rollup)
            if rolled is None:
                del self._ready[number:]
                break
            manifest = rolled
        return manifest, len(self._ready)

    def forget(self, count: int) -> None:
        del self._ready[:count]

    def consider(self, manifest: Manifest, names: UploadNames) -> bool:
        """Start the next roll-up if one is due. True if one is under way."""
        if self._under_way is not None and not self._under_way.done():
            return True
        base, _ = self.apply(manifest)
        options = self._context.options
        plan = plan_fold(base, options.rollup_entries, options.snapshot_entries_max)
        if plan is None:
            return False
        self._under_way = asyncio.ensure_future(self._roll_up(plan, names, manifest.sweep_epoch))
        return True

    async def wait(self, known: int) -> bool:
        """Wait for the roll-up under way. True if more than the ``known`` ones are ready now."""
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        return len(self._ready) > known

    async def close(self) -> None:
        """Stop. The sweep deletes what was stored and not linked."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    async def _roll_up(self, plan: FoldPlan, names: UploadNames, sweep_epoch: int) -> None:
        context, host = self._context, await self._host(plan)
        children, replaced = children_of(plan, host, context.options.snapshot_entries_max)
        snapshot = make_snapshot(children, plan.depth, names.snapshot, context.writer)
        data = snapshot.to_json()
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            await put_once(context.store, lambda: snapshot.path, data, context.patience())
        except StratalogError as error:
            log.warning("a snapshot could not be stored, will try again: %s", error)
            return
        context.counters.snapshots.add(loop.time() - started_s, len(data))
        self._tree.remember(snapshot, len(data))
        self._ready.append(Fold(snapshot.pointer(), replaced, sweep_epoch))

    async def _host(self, plan: FoldPlan) -> Snapshot | None:
        """The node that may lend its children. A roll-up does without one that cannot be read."""
        if plan.host is None:
            return None
        try:
            return await self._tree.snapshot(plan.host)
        except StratalogError as error:
            log.warning("cannot read %s: %s", plan.host.path, error)
            return None
