"""Collection: giving back the space before the lowest cursor, in three phases.

    compute    cursors, manifest ──► a plan, installed in gc/GARBAGE
    publish    verify, look at the cursors again ──► the manifest without what goes
    delete     what the manifest no longer reaches, children first ──► the plan is emptied

Each phase can be called on its own, by any process, and again after a crash: what a plan has come
to is read off the manifest. Why this is safe beside writers, readers, cursors and other
collectors, without a clock, is told in ``docs/design/005-collection.md``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from stratalog.errors import Conflict, Denied, Invalid, NotFound
from stratalog.objectlog.append import LogWriter
from stratalog.objectlog.holds import Cursor, CursorStore, Pin, PinStore, detach_fork
from stratalog.objectlog.options import MIB, CollectorOptions
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    MANIFEST_PATH,
    ByteCache,
    Garbage,
    Manifest,
    PlanState,
    Snapshot,
    check_offset,
    load_garbage,
    load_manifest,
    plan_document,
    writer_label,
)
from stratalog.objectlog.tree import (
    OnProgress,
    Reach,
    Removal,
    Removed,
    Root,
    Tree,
    amend,
    check_compaction,
    check_plan,
    missing,
    plan_collection,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    Patience,
    PatientStore,
    StoreLike,
    Superseded,
    Version,
    open_store,
    put_once,
)

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
    """Collects one log. ``through`` is a live writer of this process that is to publish."""

    def __init__(
        self,
        url: StoreLike,
        *,
        writer: str | None = None,
        through: LogWriter | None = None,
        options: CollectorOptions = DEFAULT_OPTIONS,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> None:
        store = open_store(url)
        self._store = PatientStore(store, runtime, options.timeout_s)
        self._cursors = CursorStore(store, writer=writer, runtime=runtime)
        self._pins = PinStore(store, owner=writer, runtime=runtime)
        self._plans = plan_document(self._store, runtime, options.timeout_s)
        self._writer = writer_label(writer)
        self._through = through
        self._options = options
        self._runtime = runtime
        self._tree = Tree(self._store, ByteCache[Snapshot](SNAPSHOT_CACHE_BYTES))

    async def plan(self) -> tuple[Garbage | None, PlanState]:
        """The plan that is installed, if any, and what has become of it."""
        plan, _ = await load_garbage(self._store)
        if plan is None or plan.is_empty:
            return None, PlanState.EMPTY
        manifest, _ = await load_manifest(self._store)
        return plan, plan.state(manifest)

    async def preview(self, cut_off: int | None = None) -> Outlook:
        """What ``compute`` would plan, without a trace."""
        cursors = await self._listed_cursors()
        manifest, etag = await load_manifest(self._store)
        manifest.check_writable()
        cut, held_by = _lowest(cursors, manifest, cut_off)
        try:
            plan = await plan_collection(self._tree, manifest, cut, self._writer, self._runtime)
        except NotFound as gone:
            if (await load_manifest(self._store))[1] == etag:
                raise missing(gone.path) from None
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
        before = await self._idle()
        plan = (await self.preview(cut_off)).plan
        if plan is not None:
            await self._install(plan, before)
        return plan

    async def publish(self) -> Manifest:
        """Phase two: the manifest without what goes. Again without harm.

        ``Conflict`` if the plan had to be cancelled: a cursor needs its data now, or the tree has
        changed. ``Corrupt`` if the stored plan does not balance; then nothing was changed.
        """
        plan, _ = await load_garbage(self._store)
        manifest, _ = await load_manifest(self._store)
        state = PlanState.EMPTY if plan is None else plan.state(manifest)
        if plan is None or state is PlanState.EMPTY:
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
        await self._note_published(plan)
        return manifest

    async def delete(self, on_progress: OnProgress | None = None) -> Removed:
        """Phase three: delete what the published plan dropped, then empty the plan.

        Waits for the rest of ``interval_s`` since the publication, for the sake of slow readers.
        """
        plan, _ = await load_garbage(self._store)
        manifest, etag = await load_manifest(self._store)
        state = PlanState.EMPTY if plan is None else plan.state(manifest)
        if plan is None or state is PlanState.EMPTY:
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
            if await self._is_installed(plan):
                raise missing(gone.path) from None
            return Removed()
        await self._courtesy(await self._note_published(plan))
        held, _ = await self._pins.release_expired()
        removal = self._removal(on_progress, [_root_of(pin) for pin in held])
        removed = await removal.remove(plan.dropped, plan.snapshots_to_replace)
        await self._empty(plan)
        return removed

    async def _delete_compacted(
        self, plan: Garbage, manifest: Manifest, etag: str, on_progress: OnProgress | None
    ) -> Removed:
        """Delete what was below the old root, and is below neither the new one nor a pin.

        The manifest is not older than the publication, so what it does not link now it will never
        link again, and neither will a pin that is made from now on.
        """
        await self._courtesy(await self._note_published(plan))
        held, _ = await self._pins.release_expired()
        roots = [Root("the manifest", manifest.entries, whole=True), *map(_root_of, held)]
        try:
            removed = await self._removal(on_progress, roots).remove(plan.dropped)
        except NotFound as gone:
            if (await load_manifest(self._store))[1] == etag:
                raise missing(gone.path) from None
            return await self.delete(on_progress)
        await self._empty(plan)
        return removed

    async def finish(self, on_progress: OnProgress | None = None) -> Removed:
        """Finish or undo the change of the past that another run has left."""
        return await self._finish(on_progress)

    async def run(self, plan: Garbage, on_progress: OnProgress | None = None) -> Removed:
        """Install the plan of a compaction, publish it, and delete what it drops.

        ``Conflict`` if another one is under way, or if the tree has changed since it was made. One
        that does not balance is ``Corrupt`` before it can be in anybody's way.
        """
        before = await self._idle()
        manifest, _ = await load_manifest(self._store)
        if plan.state(manifest) is not PlanState.LIVE:
            raise _overtaken()
        await check_compaction(plan, manifest, self._tree)
        await self._install(plan, before)
        await self.publish()
        return await self.delete(on_progress)

    async def clear_pins(self, on_progress: OnProgress | None = None) -> Removed:
        """Delete what only pins held that are released now, or that are past their expiry.

        The manifest is read between two listings. It is younger than what the released pins point
        to, so what it does not link is gone from it for good; and a pin that the second listing
        does not show counts only if a manifest that is younger still links what it holds.
        """
        _, released = await self._pins.release_expired()
        if not released:
            return Removed()
        manifest, etag = await load_manifest(self._store)
        held, _ = await self._pins.release_expired()
        roots = [Root("the manifest", manifest.entries, whole=True), *map(_root_of, held)]
        removed = Removed()
        for pin in released:
            try:
                removed += await self._removal(on_progress, roots).remove(pin.entries)
            except NotFound as gone:
                if (await load_manifest(self._store))[1] == etag:
                    raise missing(gone.path) from None
                return removed + await self.clear_pins(on_progress)
            with contextlib.suppress(Conflict):  # another collector has cleared it
                await self._pins.clear(pin)
        return removed

    async def cancel(self) -> None:
        """Give up a plan that is not published yet. ``Conflict`` if it is.

        Raising the epoch bars everybody from publishing it, also one who is just about to.
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
        await self._empty(plan)

    async def collect(
        self, cut_off: int | None = None, on_progress: OnProgress | None = None
    ) -> Collected:
        """All three phases, after finishing what another run has left."""
        _check_cut_off(cut_off)
        removed = await self.clear_pins(on_progress)
        for attempts_left in reversed(range(self._options.attempts_max)):
            try:
                removed += await self._finish(on_progress)
                plan = await self.compute(cut_off)
                if plan is None:
                    break
                manifest = await self.publish()
            except (Conflict, NotFound) as error:
                # Not found is a plan that another collector has finished meanwhile.
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

    async def _finish(self, on_progress: OnProgress | None) -> Removed:
        """Finish or undo the collection that another run has left."""
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

    def _removal(self, on_progress: OnProgress | None = None, keep: Sequence[Root] = ()) -> Removal:
        return Removal(
            self._store,
            self._tree,
            self._options.timeout_s,
            self._runtime,
            on_progress,
            Reach(self._tree, keep) if keep else None,
        )

    async def _detach(self) -> None:
        """A fork that needs its source no more lets go of it, if it may write there."""
        try:
            await detach_fork(self._store, runtime=self._runtime)
        except Denied as error:
            log.warning("the fork could not let go of its source: %s", error)

    # Planning

    async def _listed_cursors(self) -> list[Cursor]:
        cursors = await self._cursors.list()
        if not cursors:
            await load_manifest(self._store)  # without a log, `NotFound` tells more
            raise Invalid(
                "a log without any cursor is not collected: nobody has said what may go",
                hint="Create one, e.g. `stratalog cursor create URL retention OFFSET`.",
            )
        return cursors

    async def _idle(self) -> Version[Garbage] | None:
        """The empty plan, if there is one. ``Conflict`` if another is under way."""
        found = await self._plans.read()
        if found is not None and not found.value.is_empty:
            raise _under_way(found.value)
        return found

    async def _install(self, plan: Garbage, before: Version[Garbage] | None) -> None:
        if isinstance(await self._plans.try_put(before, plan), Superseded):
            raise _under_way(plan)

    # Publishing

    async def _publish(self, plan: Garbage, manifest: Manifest) -> Manifest:
        try:
            replaced = {p.path: await self._tree.snapshot(p) for p in plan.snapshots_to_replace}
        except NotFound as gone:
            current, _ = await load_manifest(self._store)
            if plan.state(current) is PlanState.LIVE:
                raise missing(gone.path) from None
            return current
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
            current, _ = await load_manifest(self._store)
            if plan.state(current) is PlanState.LIVE:
                raise missing(gone.path) from None
            return current
        return await self._put(plan)

    async def _put(self, plan: Garbage) -> Manifest:
        def publish(current: Manifest) -> Manifest | None:
            if plan.state(current) is not PlanState.LIVE:
                return None
            return plan.apply(current, self._runtime.new_id())

        if self._through is not None and await self._through.amend(publish):
            return self._through.manifest
        return await amend(self._store, publish, self._patience())

    async def _note_published(self, plan: Garbage) -> Garbage:
        """Write down when the plan was seen to be published, for the courtesy to readers."""
        stored = await self._plans.read()
        if stored is None or stored.value.plan_id != plan.plan_id:
            return plan
        if stored.value.published_us is not None:
            return stored.value
        noted = msgspec.structs.replace(stored.value, published_us=self._runtime.now_us())
        await self._plans.try_put(stored, noted)
        return noted

    # Afterwards

    async def _courtesy(self, plan: Garbage) -> None:
        since_us = self._runtime.now_us() - (plan.published_us or 0)
        left_s = self._options.interval_s - max(0, since_us) / 1e6
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def _is_installed(self, plan: Garbage) -> bool:
        stored, _ = await load_garbage(self._store)
        return stored is not None and stored.plan_id == plan.plan_id

    async def _empty(self, plan: Garbage) -> None:
        """Put an empty plan in the place of this one; done if another is there already."""
        stored = await self._plans.read()
        if stored is not None and stored.value.plan_id == plan.plan_id:
            empty = Garbage.empty(self._writer, self._runtime.new_id())
            await self._plans.try_put(stored, empty)

    def _patience(self) -> Patience:
        return Patience(self._runtime, self._options.timeout_s)


async def collect(
    url: StoreLike,
    *,
    cut_off: int | None = None,
    through: LogWriter | None = None,
    on_progress: OnProgress | None = None,
    options: CollectorOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Collected:
    """Give back the space before the lowest cursor, or before ``cut_off`` if that is lower."""
    collector = Collector(url, through=through, options=options, runtime=runtime)
    return await collector.collect(cut_off, on_progress)


def _lowest(cursors: list[Cursor], manifest: Manifest, cut_off: int | None) -> tuple[int, str]:
    """The cut, and who holds it there."""
    _check_cut_off(cut_off)
    first_offset = manifest.first_offset
    counting = [
        (held, cursor.name)
        for cursor in cursors
        if (held := cursor.holds(first_offset)) is not None
    ]
    if not counting:
        raise Invalid(
            "no cursor of this log counts: all lie before its start",
            hint="Create one, or move one forward.",
        )
    lowest = min(counting)
    if cut_off is not None and cut_off < lowest[0]:
        return cut_off, "the cut-off"
    return lowest


def _root_of(pin: Pin) -> Root:
    return Root(f"the pin {pin.name!r}", pin.entries, whole=False, window=pin.window)


def _check_cut_off(cut_off: int | None) -> None:
    if cut_off is not None:
        check_offset(cut_off)


def _under_way(plan: Garbage) -> Conflict:
    return Conflict(
        "another collection of this log is under way",
        path=GARBAGE_PATH,
        hint="Let it finish, or go on with it: `stratalog collect` does.",
        actual=plan.plan_id,
    )


def _overtaken() -> Conflict:
    return Conflict(
        "the tree has changed since the collection was planned; nothing was lost",
        path=GARBAGE_PATH,
        hint="Collect again.",
    )
