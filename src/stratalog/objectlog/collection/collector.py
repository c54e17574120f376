"""Collection: giving back the space before the lowest cursor, in three phases.

    compute    cursors, manifest ──► a plan, installed in gc/GARBAGE
    publish    verify, look at the cursors again ──► the manifest without what goes
    delete     what the manifest no longer reaches, children first ──► the plan is emptied

Each phase is idempotent and can be called by any process, also after a crash: the manifest shows
how far a plan has come. ``docs/design/005-collection.md`` argues why this is safe beside writers,
readers, cursors and other collectors, without a clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from stratalog.errors import Conflict, Denied, NotFound
from stratalog.objectlog.append import LogWriter
from stratalog.objectlog.collection.clear_pins import clear_pins, root_of
from stratalog.objectlog.collection.collection_plan import plan_collection
from stratalog.objectlog.collection.delete_unreachable import OnRemoved, Removal, Removed
from stratalog.objectlog.collection.installed_plan import InstalledPlan
from stratalog.objectlog.collection.lowest_cursor import check_cut_off, list_cursors, lowest
from stratalog.objectlog.collection.older_manifest import check_cursors
from stratalog.objectlog.collection.plan_check import check_compaction, check_plan
from stratalog.objectlog.collection.reach import Root
from stratalog.objectlog.holds import CursorStore, PinStore, detach_fork
from stratalog.objectlog.options import MIB, CollectorOptions
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    MANIFEST_PATH,
    Garbage,
    Manifest,
    PlanState,
    load_garbage,
    load_manifest,
    writer_label,
)
from stratalog.objectlog.tree import Reloads, Tree, amend, missing
from stratalog.renamed import renamed_parameters
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, PatientStore, StoreLike, open_store, put_once

log = logging.getLogger(__name__)

DEFAULT_OPTIONS = CollectorOptions()
SNAPSHOT_CACHE_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a collection would do now, and why it goes no further."""

    first_offset: int
    cut: int
    first_to_keep: int
    held_by: str
    """The name of the lowest cursor, or ``the cut-off``."""

    records: int
    fragments: int
    fragment_bytes: int
    plan: Garbage | None
    ignored: tuple[str, ...]
    """Cursors before the start of the log: they were written and never counted."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection did."""

    first_offset: int
    records: int
    fragments: int
    fragment_bytes: int
    removed: Removed


class Collector:
    """Collects one log. ``log_writer``, an open one of this process, writes the manifest for it."""

    @renamed_parameters(through="log_writer")
    def __init__(
        self,
        url: StoreLike,
        *,
        writer: str | None = None,
        log_writer: LogWriter | None = None,
        options: CollectorOptions = DEFAULT_OPTIONS,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> None:
        store = open_store(url)
        self._store = PatientStore(store, runtime, options.timeout_s)
        self._cursors = CursorStore(store, writer=writer, runtime=runtime)
        self._pins = PinStore(store, owner=writer, runtime=runtime)
        self._writer = writer_label(writer)
        self._log_writer = log_writer
        self._options = options
        self._runtime = runtime
        self._installed = InstalledPlan(self._store, self._writer, options.timeout_s, runtime)
        self._tree = Tree(self._store, SNAPSHOT_CACHE_BYTES)
        self._reloads = Reloads(self._store)

    async def plan(self) -> tuple[Garbage | None, PlanState]:
        """The plan that is installed, if any, and what has become of it."""
        plan, _ = await load_garbage(self._store)
        if plan is None or plan.is_empty:
            return None, PlanState.EMPTY
        manifest, _ = await load_manifest(self._store)
        return plan, plan.state(manifest)

    async def preview(self, cut_off: int | None = None) -> Outlook:
        """What ``compute`` would plan. Read-only."""
        cursors = await list_cursors(self._store, self._cursors)
        manifest, etag = await load_manifest(self._store)
        manifest.check_writable()
        if not self._options.older_manifest:
            check_cursors(cursors, manifest)
        cut, held_by = lowest(cursors, manifest, cut_off)
        try:
            plan = await plan_collection(self._tree, manifest, cut, self._writer, self._runtime)
        except NotFound as gone:
            await self._reloads.after(gone, etag)
            raise _overtaken() from None
        first_to_keep = plan.first_to_keep.offset if plan else manifest.first_offset
        return Outlook(
            first_offset=manifest.first_offset,
            cut=cut,
            first_to_keep=first_to_keep,
            held_by=held_by,
            records=first_to_keep - manifest.first_offset,
            fragments=plan.fragments if plan else 0,
            fragment_bytes=plan.fragment_bytes if plan else 0,
            plan=plan,
            ignored=tuple(c.name for c in cursors if c.holds(manifest.first_offset) is None),
        )

    async def compute(self, cut_off: int | None = None) -> Garbage | None:
        """Phase one: install the plan. None if nothing lies before the cut.

        The cut is the lowest cursor, or ``cut_off`` if that is lower. A log without any cursor is
        refused with ``Invalid``; ``Conflict`` if another collection is under way.
        """
        before = await self._installed.check_empty()
        plan = (await self.preview(cut_off)).plan
        if plan is not None:
            await self._installed.install(plan, before)
        return plan

    async def publish(self) -> Manifest:
        """Phase two: the manifest without what goes. Idempotent.

        ``Conflict`` if the plan had to be cancelled: a cursor needs its data now, or the tree has
        changed. ``Corrupt`` if the stored plan does not balance; then nothing was changed.
        """
        plan, state, manifest, _ = await self._loaded()
        if plan is None:
            raise NotFound(
                "no collection is under way", path=GARBAGE_PATH, hint="Begin with compute()."
            )
        if state is PlanState.LIVE:
            publish = self._publish if plan.compaction is None else self._publish_compaction
            manifest = await publish(plan, manifest)
            state = plan.state(manifest)
        if state is not PlanState.PUBLISHED:
            await self.cancel()
            raise _overtaken()
        await self._installed.note_published(plan)
        return manifest

    async def delete(self, on_progress: OnRemoved | None = None) -> Removed:
        """Phase three: delete what the published plan dropped, then empty the plan.

        Waits until ``interval_s`` have passed since the publication, for the sake of slow readers.
        """
        plan, state, manifest, etag = await self._loaded()
        if plan is None:
            return Removed()
        if state is not PlanState.PUBLISHED:
            raise Conflict(
                "the collection is not published", path=GARBAGE_PATH, hint="Call publish() first."
            )
        if plan.compaction is not None:
            return await self._delete_compacted(plan, manifest, etag, on_progress)
        try:
            await self._removal().check_unreachable(plan, manifest)
        except NotFound as gone:
            if await self._installed.is_there(plan):
                raise missing(gone.path) from None
            return Removed()
        await self._courtesy(await self._installed.note_published(plan))
        held, _ = await self._pins.release_expired()
        removal = self._removal(on_progress, [root_of(pin) for pin in held])
        removed = await removal.remove(plan.dropped, plan.snapshots_to_replace)
        await self._installed.empty(plan)
        return removed

    async def _delete_compacted(
        self, plan: Garbage, manifest: Manifest, etag: str, on_progress: OnRemoved | None
    ) -> Removed:
        """Delete what was below the old root, and is below neither the new one nor a pin.

        The manifest is not older than the publication. What it does not link, no later manifest
        will link, and no later pin.
        """
        await self._courtesy(await self._installed.note_published(plan))
        held, _ = await self._pins.release_expired()
        roots = [Root("the manifest", manifest.entries), *map(root_of, held)]
        try:
            removed = await self._removal(on_progress, roots).remove(plan.dropped)
        except NotFound as gone:
            await self._reloads.after(gone, etag)
            return await self.delete(on_progress)
        await self._installed.empty(plan)
        return removed

    async def run(self, plan: Garbage, on_progress: OnRemoved | None = None) -> Removed:
        """Install the plan of a compaction, publish it, and delete what it drops.

        ``Conflict`` if another plan is installed, or if the tree has changed since this one was
        made. A plan that does not balance is ``Corrupt`` before it is installed.
        """
        before = await self._installed.check_empty()
        manifest, _ = await load_manifest(self._store)
        if plan.state(manifest) is not PlanState.LIVE:
            raise _overtaken()
        await check_compaction(plan, manifest, self._tree)
        await self._installed.install(plan, before)
        await self.publish()
        return await self.delete(on_progress)

    async def clear_pins(self, on_progress: OnRemoved | None = None) -> Removed:
        """Delete what only pins held that are released now, or that are past their expiry."""
        return await clear_pins(
            self._store,
            self._pins,
            self._reloads,
            partial(self._removal, on_progress),
            older_manifest=self._options.older_manifest,
        )

    async def cancel(self) -> None:
        """Give up a plan that is not published yet. ``Conflict`` if it is.

        The epoch is raised, so that a collector that is just about to publish the plan fails.
        """
        plan, _ = await load_garbage(self._store)
        if plan is None or plan.is_empty:
            return
        given_up = plan

        def bar(manifest: Manifest) -> Manifest | None:
            if given_up.state(manifest) in (PlanState.PUBLISHED, PlanState.DEAD):
                return None
            return msgspec.structs.replace(
                manifest, sweep_epoch=manifest.sweep_epoch + 1, write_id=self._runtime.new_id()
            )

        manifest = await amend(self._store, bar, self._patience())
        if plan.state(manifest) is PlanState.PUBLISHED:
            raise Conflict(
                "the collection is already published",
                path=GARBAGE_PATH,
                hint="Finish it with delete().",
            )
        await self._installed.empty(plan)

    async def collect(
        self, cut_off: int | None = None, on_progress: OnRemoved | None = None
    ) -> Collected:
        """All three phases, after finishing what another run has left."""
        check_cut_off(cut_off)
        removed = await self.clear_pins(on_progress)
        for attempts_left in reversed(range(self._options.attempts_max)):
            try:
                removed += await self.finish(on_progress)
                plan = await self.compute(cut_off)
                if plan is None:
                    break
                manifest = await self.publish()
            except (Conflict, NotFound) as error:
                # A plan that is not found has been finished by another collector.
                if attempts_left == 0 or error.path == MANIFEST_PATH:
                    raise
                continue
            removed += await self.delete(on_progress)
            await self._detach()
            return Collected(
                first_offset=manifest.first_offset,
                records=plan.records,
                fragments=plan.fragments,
                fragment_bytes=plan.fragment_bytes,
                removed=removed,
            )
        await self._detach()
        manifest, _ = await load_manifest(self._store)
        return Collected(manifest.first_offset, 0, 0, 0, removed)

    async def finish(self, on_progress: OnRemoved | None = None) -> Removed:
        """Finish or undo the change of the past that another run has left."""
        plan, state = await self.plan()
        if plan is None:
            return Removed()
        if state is not PlanState.PUBLISHED:
            try:
                await self.publish()
            except Conflict as error:
                log.info("a collection that was left was cancelled: %s", error)
                return Removed()
        return await self.delete(on_progress)

    async def _loaded(self) -> tuple[Garbage | None, PlanState, Manifest, str]:
        """The plan, if one is installed, what has become of it, and the manifest that tells."""
        plan, _ = await load_garbage(self._store)
        manifest, etag = await load_manifest(self._store)
        if plan is None or plan.is_empty:
            return None, PlanState.EMPTY, manifest, etag
        return plan, plan.state(manifest), manifest, etag

    def _removal(self, on_progress: OnRemoved | None = None, keep: Sequence[Root] = ()) -> Removal:
        return Removal(
            self._store,
            self._tree,
            self._options.timeout_s,
            self._runtime,
            on_progress,
            keep,
        )

    async def _detach(self) -> None:
        """Release the source of a fork that does not need it any more, if that is permitted."""
        try:
            await detach_fork(self._store, runtime=self._runtime)
        except Denied as error:
            log.warning("the fork could not release its source: %s", error)

    # Publishing

    async def _publish(self, plan: Garbage, manifest: Manifest) -> Manifest:
        try:
            replaced = {p.path: await self._tree.snapshot(p) for p in plan.snapshots_to_replace}
        except NotFound as gone:
            return await self._reloaded(gone, plan)
        check_plan(plan, manifest, replaced)
        for cursor in await self._cursors.list():
            held = cursor.holds(manifest.first_offset)
            if held is not None and held < plan.first_to_keep.offset:
                await self.cancel()
                raise Conflict(
                    f"the cursor {cursor.name!r} needs what was to be collected; nothing was lost",
                    actual=held,
                    hint="Collect again.",
                )
        for node in plan.snapshots_to_make:
            await put_once(self._store, partial(str, node.path), node.to_json(), self._patience())
        return await self._put(plan)

    async def _publish_compaction(self, plan: Garbage, manifest: Manifest) -> Manifest:
        """No offset leaves the log, so no cursor is asked. All that is linked is stored already."""
        try:
            await check_compaction(plan, manifest, self._tree)
        except NotFound as gone:
            return await self._reloaded(gone, plan)
        return await self._put(plan)

    async def _reloaded(self, gone: NotFound, plan: Garbage) -> Manifest:
        """The newest manifest. While a plan is live, all nodes that it was made for are linked."""

        def is_live(manifest: Manifest) -> bool:
            return plan.state(manifest) is PlanState.LIVE

        return await self._reloads.after(gone, None, is_live)

    async def _put(self, plan: Garbage) -> Manifest:
        def publish(current: Manifest) -> Manifest | None:
            if plan.state(current) is not PlanState.LIVE:
                return None
            return plan.apply(current, self._runtime.new_id())

        if self._log_writer is not None and await self._log_writer.amend(publish):
            return self._log_writer.manifest
        return await amend(self._store, publish, self._patience())

    # Afterwards

    async def _courtesy(self, plan: Garbage) -> None:
        since_us = self._runtime.now_us() - (plan.published_us or 0)
        left_s = self._options.interval_s - max(0, since_us) / 1e6
        if left_s > 0:
            await asyncio.sleep(left_s)

    def _patience(self) -> Patience:
        return Patience(self._runtime, self._options.timeout_s)


@renamed_parameters(through="log_writer")
async def collect(
    url: StoreLike,
    *,
    cut_off: int | None = None,
    log_writer: LogWriter | None = None,
    on_progress: OnRemoved | None = None,
    options: CollectorOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Collected:
    """Give back the space before the lowest cursor, or before ``cut_off`` if that is lower."""
    collector = Collector(url, log_writer=log_writer, options=options, runtime=runtime)
    return await collector.collect(cut_off, on_progress)


def _overtaken() -> Conflict:
    return Conflict(
        "the tree has changed since the collection was planned; nothing was lost",
        path=GARBAGE_PATH,
        hint="Collect again.",
    )
