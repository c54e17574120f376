"""Compaction: dropping the records that no longer live, without renumbering any other.

    group      the fragments below ``up_to`` that are not mostly alive     (rewrite_groups)
    rewrite    what lives in them, as sparse fragments, under an upload guard      (rewrite)
    plan       the tree with these in place, its new nodes stored          (relink)
    publish    verify, then one manifest CAS, through gc/GARBAGE           (collector)
    delete     what neither the new root nor a pin reaches

The owner of the state says which offsets live; below ``up_to`` all others are dead. Nothing at or
above ``up_to`` is changed, nor is the newest fragment of a log that is not sealed. Rows that leave
are hashed into ``collected``. Appends, readers, cursors, collectors and sweeps go on meanwhile. A
compaction that was cut short can be finished by any process that finds its plan.
``docs/design/010-compaction.md`` has the protocol.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

from stratalog.errors import Conflict, Invalid, NotFound, StratalogError
from stratalog.indexset import EMPTY as NOTHING
from stratalog.indexset import IndexSet
from stratalog.objectlog.append import LogWriter
from stratalog.objectlog.collection import Collector, Removed
from stratalog.objectlog.compaction.relink import Replaced, changed, plan_compaction, replant
from stratalog.objectlog.compaction.rewrite import OnProgress, Rewrite, Rewriter
from stratalog.objectlog.compaction.rewrite_groups import Candidate, group, neighbourhoods
from stratalog.objectlog.holds import UploadGuard
from stratalog.objectlog.options import MIB, CollectorOptions, CompactOptions
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    Entry,
    Fragment,
    Garbage,
    Manifest,
    check_bytes,
    check_offset,
    load_manifest,
    writer_label,
)
from stratalog.objectlog.tree import Reloads, Tree, Window, survivors_of
from stratalog.renamed import renamed_parameters
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Patience, PatientStore, StoreLike, open_store, put_once

log = logging.getLogger(__name__)

DEFAULT_OPTIONS = CompactOptions()
SNAPSHOT_CACHE_BYTES = 8 * MIB
STAGE_NOTE = "a compaction"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    up_to: int
    records: int
    """How many records went."""

    fragments: int
    """How many fragments were replaced, and by how many."""

    rewritten: int
    bytes_before: int
    bytes_after: int
    setsum: Setsum
    """The sum of the records that went, hashed from them."""

    removed: Removed
    dropped: IndexSet = NOTHING
    """Which offsets went."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a compaction is about to publish: the log before it and after it."""

    plan_id: str
    tail: int
    before: Setsum
    """The sum of all records of the log up to ``tail``."""

    removed: Setsum
    after: Setsum
    collected: Setsum
    """The sum of all that has ever left the log, this included."""

    dropped: IndexSet
    objects: tuple[str, ...]
    """The fragments that have what goes. The new tree does not lead to them."""

    foreign: tuple[tuple[str, str], ...]
    """Those that belong to the log that this one was forked from, with its URL."""


@dataclass(frozen=True, slots=True)
class Known:
    """The dead records that the log has, all of them, if its last compaction was this one."""

    dead: IndexSet
    compacted: str | None


Witness = Callable[[Intent], Awaitable[None]]
"""Called before each attempt to publish. If it raises, nothing was changed."""


@renamed_parameters(pressing="must_drop", through="log_writer")
async def compact(
    url: StoreLike,
    live: IndexSet,
    *,
    up_to: int,
    must_drop: IndexSet = NOTHING,
    log_writer: LogWriter | None = None,
    on_progress: OnProgress | None = None,
    writer: str | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Compacted:
    """Drop what is not ``live`` among the records before offset ``up_to``.

    ``up_to`` is at most the tail. Offsets stay what they are. Records in fragments that are mostly
    alive stay until more of their neighbours die (``live_share_min``), but for those of
    ``must_drop``, which go at once. The newest fragment stays as it is. ``Conflict`` if the log is
    collected or compacted by others again and again.
    """
    return await Compactor(
        url,
        live,
        up_to,
        must_drop=must_drop,
        log_writer=log_writer,
        on_progress=on_progress,
        writer=writer,
        options=options,
        runtime=runtime,
    ).run()


@dataclass(eq=False)
class Compactor:
    """One compaction.

    ``witness`` is called with what will be published. ``rewrite`` reads and stores elsewhere what
    this process would. A ``narrow`` compaction looks only at the fragments that have an offset of
    ``must_drop``.
    """

    url: StoreLike
    live: IndexSet
    up_to: int
    _: KW_ONLY
    must_drop: IndexSet = NOTHING
    log_writer: LogWriter | None = None
    on_progress: OnProgress | None = None
    witness: Witness | None = None
    narrow: bool = False
    known: Known | None = None
    rewrite: Rewrite | None = None
    writer: str | None = None
    options: CompactOptions = DEFAULT_OPTIONS
    runtime: Runtime = DEFAULT_RUNTIME

    def __post_init__(self) -> None:
        _check(self.live, self.up_to, self.must_drop)
        options, runtime = self.options, self.runtime
        self._url = open_store(self.url)
        self._store = PatientStore(self._url, runtime, options.timeout_s)
        self._tree = Tree(self._store, SNAPSHOT_CACHE_BYTES)
        self._writer = writer_label(self.writer)
        self._reloads = Reloads(self._store)
        collecting = CollectorOptions(interval_s=options.interval_s, timeout_s=options.timeout_s)
        self._collector = Collector(
            self._url,
            writer=self.writer,
            log_writer=self.log_writer,
            options=collecting,
            runtime=runtime,
        )

    async def run(self) -> Compacted:
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()
        if self.up_to > manifest.tail.offset:
            raise Invalid(
                f"offset {self.up_to} is beyond the tail: what will be there was not judged",
                hint="up_to is at most the tail that the owner of the state has read up to.",
                expected=manifest.tail.offset,
                actual=self.up_to,
            )
        for _ in range(self.options.attempts_max - 1):
            with contextlib.suppress(Conflict):
                return await self._attempt()
        return await self._attempt()

    async def _attempt(self) -> Compacted:
        removed = await self._finish_others()
        guard = await UploadGuard.register(
            self._url, owner=self._writer, note=STAGE_NOTE, runtime=self.runtime
        )
        try:
            # Younger than the guard. An erasure that does not find the guard has taken its records
            # out of the log before this manifest.
            manifest, etag = await load_manifest(self._store)
            try:
                return await self._compact(manifest, guard, removed)
            except NotFound as gone:
                await self._reloads.after(gone, etag)
                raise changed() from None
        finally:
            try:
                await guard.release()
            except StratalogError as error:
                log.info("the guard of a compaction was not released: %s", error)

    async def _compact(self, manifest: Manifest, guard: UploadGuard, removed: Removed) -> Compacted:
        options = self.options
        found = [
            each
            for neighbours in neighbourhoods(await self._candidates(manifest))
            for each in group(neighbours, options.live_share_min, options.fragment_bytes)
        ]
        if not found:
            return Compacted(self.up_to, 0, 0, 0, 0, 0, EMPTY, removed)
        if self.rewrite is not None:
            replaced = await self.rewrite(found, self.live, guard, self.on_progress)
        else:
            here = Rewriter(self._store, self._tree, self.live, options, self.runtime)
            replaced = await here.rewrite(found, guard.names, self.on_progress)
        removed += await self._link(replaced, guard)
        return Compacted(
            up_to=self.up_to,
            records=sum(len(each.dropped) for each in replaced),
            fragments=sum(len(each.group.fragments) for each in replaced),
            rewritten=len(replaced),
            bytes_before=sum(f.num_bytes for each in replaced for f in each.group.fragments),
            bytes_after=sum(each.entry.num_bytes for each in replaced),
            setsum=Setsum.total(each.discarded for each in replaced),
            removed=removed,
            dropped=IndexSet.union(each.dropped for each in replaced),
        )

    async def _link(self, replaced: Sequence[Replaced], guard: UploadGuard) -> Removed:
        """Put what was rewritten into the tree; again if the tree changed, but not what it holds.

        ``Conflict`` if the fragments that were to be replaced are not there any more.
        """
        attempts_left = self.options.attempts_max
        while True:
            plan, intent = await self._plan(replaced, guard)
            if self.witness is not None:
                await self.witness(intent)
            attempts_left -= 1
            try:
                return await self._carry_out(plan)
            except Conflict:
                if attempts_left == 0:
                    raise
                await self._finish_others()

    async def _carry_out(self, plan: Garbage) -> Removed:
        try:
            return await self._collector.run(plan)
        except (Conflict, NotFound) as error:
            manifest, _ = await load_manifest(self._store)
            if manifest.compacted == plan.plan_id:
                return Removed()  # another process has found the plan and finished it
            if error.path == GARBAGE_PATH:
                raise changed() from None  # or has cancelled it
            raise

    async def _finish_others(self) -> Removed:
        """Finish or undo what another run has left."""
        try:
            return await self._collector.finish()
        except NotFound as gone:
            if gone.path == GARBAGE_PATH:
                raise changed() from None  # another process was faster
            raise

    # Judging and rewriting

    async def _candidates(self, manifest: Manifest) -> list[Candidate]:
        window = Window(manifest.first_offset, self.up_to)
        found: list[Candidate] = []

        def wanted(entry: Entry) -> bool:
            span = range(entry.start.offset, entry.limit.offset)
            return window.overlaps(entry) and (not self.narrow or self.must_drop.overlaps(span))

        async for fragment in self._tree.fragments(manifest.entries, wanted):
            if fragment.limit.offset > self.up_to or fragment == manifest.newest:
                break
            found.append(await self._judged(fragment, manifest))
            if found[-1].must_drop and not fragment.is_ours_to_change:
                raise Invalid(
                    f"{fragment.path} was written by another program, or by a newer version",
                    path=fragment.path,
                    hint="It cannot be rewritten here. Copy the log, and compact the copy.",
                )
        return found

    async def _judged(self, fragment: Fragment, manifest: Manifest) -> Candidate:
        live = self.live.count_in(fragment.offsets)
        must_drop = self.must_drop.overlaps(fragment.offsets)
        if not fragment.is_sparse or not (live or must_drop):
            return Candidate(fragment, live, must_drop)
        if live == fragment.span:
            return Candidate(fragment, fragment.count)
        if self.known is not None and self.known.compacted == manifest.compacted:
            dead = self.known.dead.count_in(fragment.offsets)
            return Candidate(fragment, fragment.count - dead, must_drop)
        # Which of these a sparse fragment still has, only its rows show.
        data = (await self._tree.store_of(fragment).get(fragment.path)).data
        check_bytes(data, fragment)
        there = survivors_of(data, fragment, verify=False).offsets
        return Candidate(fragment, len(there & self.live), there.overlaps(self.must_drop))

    async def _plan(
        self, replaced: Sequence[Replaced], guard: UploadGuard
    ) -> tuple[Garbage, Intent]:
        """The plan that puts these into the tree as it is now; its new nodes are stored."""
        manifest, _ = await load_manifest(self._store)
        after, made = await replant(manifest, replaced, self._tree, guard.names, self._writer)
        for node in made:
            patience = Patience(self.runtime, self.options.timeout_s)
            await put_once(self._store, partial(str, node.path), node.to_json(), patience)
        await guard.check_live()
        plan = plan_compaction(manifest, after, replaced, self.up_to, self._writer, self.runtime)
        lost = [
            fragment
            for each in replaced
            for fragment in each.group.fragments
            if each.dropped.overlaps(fragment.offsets)
        ]
        intent = Intent(
            plan_id=plan.plan_id or "",
            tail=manifest.tail.offset,
            before=Setsum.total(entry.setsum for entry in manifest.entries),
            removed=plan.setsum_to_discard,
            after=Setsum.total(entry.setsum for entry in after),
            collected=manifest.collected_sum + plan.setsum_to_discard,
            dropped=IndexSet.union(each.dropped for each in replaced),
            objects=tuple(each.path for each in lost if each.base is None),
            foreign=tuple((each.base, each.path) for each in lost if each.base is not None),
        )
        return plan, intent


def _check(live: IndexSet, up_to: int, must_drop: IndexSet) -> None:
    check_offset(up_to)
    for several in (live, must_drop):
        if not isinstance(several, IndexSet):
            raise Invalid(
                "live and must_drop are IndexSets",
                hint="Make one with IndexSet.of(offsets).",
            )
    if live.overlaps(must_drop):
        raise Invalid(
            f"offset {(live & must_drop).first} lives, and is to go",
            hint="An offset of must_drop does not live.",
        )
