"""Compaction: dropping the records that no longer live, without renumbering any other.

    read       the fragments below ``up_to`` that are not mostly alive     (grouping)
    rewrite    what lives in them, as sparse fragments, under a stage      (survivors)
    plan       the tree with these in place, its new nodes stored          (replanting)
    publish    verify, then one manifest CAS, through gc/GARBAGE           (collector)
    delete     what neither the new root nor a pin reaches

Who owns the state says which offsets live; below ``up_to`` all others are dead. The newest fragment
of a log that is not sealed is never changed, nor anything at or above ``up_to``. What leaves is
hashed from its rows into ``collected``. Appends, readers, cursors, collectors and sweeps go on
meanwhile; whoever finds the plan of a compaction that was cut short can finish it.
``docs/design/010-compaction.md`` has the protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from stratalog.errors import Conflict, Corrupt, Invalid, NotFound, StratalogError
from stratalog.indexset import EMPTY as NOTHING
from stratalog.indexset import IndexSet
from stratalog.objectlog.cache import ByteCache
from stratalog.objectlog.collector import Collector
from stratalog.objectlog.fragment import Fragment
from stratalog.objectlog.garbage import GARBAGE_PATH, Garbage
from stratalog.objectlog.grouping import Candidate, Group, group
from stratalog.objectlog.manifest import Manifest, load_manifest
from stratalog.objectlog.names import writer_label
from stratalog.objectlog.options import MIB, CollectorOptions, CompactOptions
from stratalog.objectlog.position import check_offset
from stratalog.objectlog.removal import Removed
from stratalog.objectlog.replanting import Replaced, changed, plan_compaction, replant
from stratalog.objectlog.snapshot import Snapshot
from stratalog.objectlog.stage import Stage
from stratalog.objectlog.survivors import Survivors, joined, survivors_of
from stratalog.objectlog.tree import Tree, Window, missing
from stratalog.objectlog.writer import LogWriter
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import StoreLike, open_store
from stratalog.store.cas import Patience, put_once
from stratalog.store.patient import PatientStore

log = logging.getLogger(__name__)

DEFAULT_OPTIONS = CompactOptions()
SNAPSHOT_CACHE_BYTES = 8 * MIB
STAGE_NOTE = "a compaction"

OnProgress = Callable[[int, int], None]
"""Called with how many fragments were examined and rewritten, and how many there are."""


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
    """What a compaction is about to publish: the log as it is, and as it will be."""

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
    """The fragments that nothing will lead to any more."""

    foreign: int
    """How many more of them belong to the log that this one was forked from."""


Witness = Callable[[Intent], Awaitable[None]]
"""Called before each attempt to publish. If it raises, nothing was changed."""


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Rows, and the sum that was hashed from them."""

    rows: Survivors
    setsum: Setsum


@dataclass(slots=True)
class _Portion:
    """What goes into one fragment, and what of it does not."""

    fragments: list[Fragment] = field(default_factory=list)
    kept: list[Survivors] = field(default_factory=list)
    setsum: Setsum = EMPTY
    discarded: Setsum = EMPTY
    dropped: list[IndexSet] = field(default_factory=list)

    def add(self, live: _Hashed, dead: _Hashed) -> None:
        self.kept.append(live.rows)
        self.setsum += live.setsum
        self.discarded += dead.setsum
        self.dropped.append(dead.rows.offsets)

    def is_full(self, more: Survivors, fragment_bytes: int) -> bool:
        size = sum(each.rows.nbytes for each in self.kept)
        return bool(size and len(more)) and size + more.rows.nbytes > fragment_bytes


async def compact(
    url: StoreLike,
    live: IndexSet,
    *,
    up_to: int,
    pressing: IndexSet = NOTHING,
    through: LogWriter | None = None,
    on_progress: OnProgress | None = None,
    writer: str | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Compacted:
    """Drop what is not ``live`` among the records before offset ``up_to``.

    ``up_to`` is at most the tail. Offsets stay what they are. Records in fragments that are mostly
    alive stay until more of their neighbours die (``live_share_min``), but for those that are
    ``pressing``; the newest fragment stays as it is. ``Conflict`` if the log is collected or
    compacted by others again and again.
    """
    return await Compactor(
        url,
        live,
        up_to,
        pressing=pressing,
        through=through,
        on_progress=on_progress,
        writer=writer,
        options=options,
        runtime=runtime,
    ).run()


class Compactor:
    """One compaction. A ``witness`` hears what will be published."""

    def __init__(
        self,
        url: StoreLike,
        live: IndexSet,
        up_to: int,
        *,
        pressing: IndexSet = NOTHING,
        through: LogWriter | None = None,
        on_progress: OnProgress | None = None,
        witness: Witness | None = None,
        writer: str | None = None,
        options: CompactOptions = DEFAULT_OPTIONS,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> None:
        _check(live, up_to, pressing)
        self._url = open_store(url)
        self._store = PatientStore(self._url, runtime, options.timeout_s)
        self._tree = Tree(self._store, ByteCache[Snapshot](SNAPSHOT_CACHE_BYTES))
        self._live = live
        self._up_to = up_to
        self._pressing = pressing
        self._witness = witness
        self._on_progress = on_progress
        self._writer = writer_label(writer)
        self._options = options
        self._runtime = runtime
        self._gone: set[str | None] = set()
        collecting = CollectorOptions(interval_s=options.interval_s, timeout_s=options.timeout_s)
        self._collector = Collector(
            self._url, writer=writer, through=through, options=collecting, runtime=runtime
        )

    async def run(self) -> Compacted:
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()
        if self._up_to > manifest.tail.offset:
            raise Invalid(
                f"offset {self._up_to} is beyond the tail: nobody has judged what will be there",
                hint="up_to is at most the tail that the owner of the state has read up to.",
                expected=manifest.tail.offset,
                actual=self._up_to,
            )
        for attempts_left in reversed(range(self._options.attempts_max)):
            try:
                return await self._attempt()
            except Conflict:
                if attempts_left == 0:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self) -> Compacted:
        removed = await self._finish_others()
        stage = await Stage.register(
            self._url, owner=self._writer, note=STAGE_NOTE, runtime=self._runtime
        )
        try:
            return await self._compact(stage, removed)
        except NotFound as gone:
            current, _ = await load_manifest(self._store)
            is_unchanged = current.write_id == stage.manifest.write_id
            if is_unchanged or gone.path in self._gone:
                raise missing(gone.path) from None
            self._gone.add(gone.path)  # if a newer manifest leads there again, it is lost
            raise changed() from None
        finally:
            try:
                await stage.release()
            except StratalogError as error:
                log.info("the stage of a compaction was not released: %s", error)

    async def _compact(self, stage: Stage, removed: Removed) -> Compacted:
        found = group(
            await self._candidates(stage.manifest),
            self._options.live_share_min,
            self._options.fragment_bytes,
        )
        if not found:
            return Compacted(self._up_to, 0, 0, 0, 0, 0, EMPTY, removed)
        replaced = await self._rewrite(found, stage)
        removed += await self._link(replaced, stage)
        return Compacted(
            up_to=self._up_to,
            records=sum(len(each.dropped) for each in replaced),
            fragments=sum(len(each.group.fragments) for each in replaced),
            rewritten=len(replaced),
            bytes_before=sum(f.num_bytes for each in replaced for f in each.group.fragments),
            bytes_after=sum(each.entry.num_bytes for each in replaced),
            setsum=Setsum.total(each.discarded for each in replaced),
            removed=removed,
            dropped=IndexSet.union(each.dropped for each in replaced),
        )

    async def _link(self, replaced: Sequence[Replaced], stage: Stage) -> Removed:
        """Put what was rewritten into the tree; again if the tree changed, but not what it holds.

        ``Conflict`` if the fragments that were to be replaced are not there any more.
        """
        for attempts_left in reversed(range(self._options.attempts_max)):
            plan, intent = await self._plan(replaced, stage)
            if self._witness is not None:
                await self._witness(intent)
            try:
                return await self._carry_out(plan)
            except Conflict:
                if attempts_left == 0:
                    raise
                await self._finish_others()
        raise AssertionError("the last attempt returns or raises")

    async def _carry_out(self, plan: Garbage) -> Removed:
        try:
            return await self._collector.run(plan)
        except (Conflict, NotFound) as error:
            manifest, _ = await load_manifest(self._store)
            if manifest.compacted == plan.plan_id:
                return Removed()  # another has found the plan, and carried it out
            if error.path == GARBAGE_PATH:
                raise changed() from None  # or has undone it
            raise

    async def _finish_others(self) -> Removed:
        """Finish or undo what another run has left."""
        try:
            return await self._collector.finish()
        except NotFound as gone:
            if gone.path == GARBAGE_PATH:
                raise changed() from None  # somebody else was faster
            raise

    # Reading and rewriting

    async def _candidates(self, manifest: Manifest) -> list[Candidate]:
        window = Window(manifest.first_offset, self._up_to)
        found: list[Candidate] = []
        async for fragment in self._tree.walk(manifest, window):
            if fragment.limit.offset > self._up_to or fragment == manifest.newest:
                break
            found.append(await self._judged(fragment))
            if found[-1].is_pressing and not found[-1].is_ours_to_change:
                raise Invalid(
                    f"{fragment.path} was written by another program, or by a newer version",
                    path=fragment.path,
                    hint="It cannot be rewritten here. Copy the log, and compact the copy.",
                )
        return found

    async def _judged(self, fragment: Fragment) -> Candidate:
        span = range(fragment.start.offset, fragment.limit.offset)
        live, is_pressing = self._live.count_in(span), self._pressing.overlaps(span)
        if not fragment.is_sparse or not (live or is_pressing):
            return Candidate(fragment, live, is_pressing)
        if live == fragment.span:
            return Candidate(fragment, fragment.count)
        # Only its rows can tell which of these it still has.
        there = survivors_of(await self._read(fragment), fragment, verify=False).offsets
        return Candidate(fragment, len(there & self._live), there.overlaps(self._pressing))

    async def _read(self, fragment: Fragment) -> bytes:
        return (await self._tree.store_of(fragment).get(fragment.path)).data

    async def _rewrite(self, groups: Sequence[Group], stage: Stage) -> list[Replaced]:
        room = asyncio.Semaphore(self._options.groups_max)
        done, whole = 0, sum(len(each.fragments) for each in groups)

        async def one(each: Group) -> list[Replaced]:
            nonlocal done
            async with room:
                found = await self._rewritten(each, stage)
            done += len(each.fragments)
            if self._on_progress is not None:
                self._on_progress(done, whole)
            return found

        tasks = [asyncio.ensure_future(one(each)) for each in groups]
        try:
            return [each for found in await asyncio.gather(*tasks) for each in found]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rewritten(self, whole: Group, stage: Stage) -> list[Replaced]:
        """Read neighbours, hash what goes, and store what lives, unless its object stays.

        How much lives was estimated by the number of records. Where that was too little, there will
        be several fragments.
        """
        found: list[Replaced] = []
        portion = _Portion()
        for fragment in whole.fragments:
            if fragment is whole.keeper:
                portion.fragments.append(fragment)
                continue
            data = await self._read(fragment)
            live, dead = await self._runtime.compute(partial(self._divided, data, fragment))
            if whole.keeper is None and portion.is_full(live.rows, self._options.fragment_bytes):
                found.append(await self._stored(portion, None, stage))
                portion = _Portion()
            portion.fragments.append(fragment)
            portion.add(live, dead)
        return [*found, await self._stored(portion, whole.keeper, stage)]

    def _divided(self, data: bytes, fragment: Fragment) -> tuple[_Hashed, _Hashed]:
        """What lives in a fragment and what does not, which together are what was promised.

        That is how the fragment is verified: each row is hashed once.
        """
        parts = survivors_of(data, fragment, verify=False).divide(self._live)
        live, dead = (_Hashed(each, each.setsum) for each in parts)
        if live.setsum + dead.setsum != fragment.setsum:
            raise Corrupt(
                f"{fragment.path} does not add up to its setsum",
                path=fragment.path,
                expected=fragment.setsum.hexdigest(),
                actual=(live.setsum + dead.setsum).hexdigest(),
            )
        return live, dead

    async def _stored(self, portion: _Portion, keeper: Fragment | None, stage: Stage) -> Replaced:
        together = Group(tuple(portion.fragments), keeper)
        entry = together.entry
        if keeper is None:
            rows = joined(portion.kept)
            encoded = await self._runtime.compute(
                lambda: rows.encode(self._options.compression, portion.setsum)
            )
            first, last = entry.first_seq_no, entry.seq_no
            assert isinstance(first, int), "others are not compacted"
            assert isinstance(last, int), "others are not compacted"
            path = await put_once(
                self._store,
                lambda: stage.names.compacted(first, last),
                encoded.data,
                self._patience(),
            )
            entry = msgspec.structs.replace(
                entry,
                path=path,
                num_bytes=len(encoded.data),
                setsum=encoded.setsum,
                rows=len(rows),
                base=None,
            )
        return Replaced(together, entry, portion.discarded, IndexSet.union(portion.dropped))

    async def _plan(self, replaced: Sequence[Replaced], stage: Stage) -> tuple[Garbage, Intent]:
        """The plan that puts these into the tree as it is now; its new nodes are stored."""
        manifest, _ = await load_manifest(self._store)
        after, made = await replant(manifest, replaced, self._tree, stage.names, self._writer)
        for node in made:
            named = partial(str, node.path)
            await put_once(self._store, named, node.to_json(), self._patience())
        await stage.check_live()
        plan = plan_compaction(manifest, after, replaced, self._up_to, self._writer, self._runtime)
        gone = [fragment for each in replaced for fragment in each.gone]
        intent = Intent(
            plan_id=plan.plan_id or "",
            tail=manifest.tail.offset,
            before=Setsum.total(entry.setsum for entry in manifest.entries),
            removed=plan.setsum_to_discard,
            after=Setsum.total(entry.setsum for entry in after),
            collected=manifest.collected_sum + plan.setsum_to_discard,
            dropped=IndexSet.union(each.dropped for each in replaced),
            objects=tuple(each.path for each in gone if each.base is None),
            foreign=sum(each.base is not None for each in gone),
        )
        return plan, intent

    def _patience(self) -> Patience:
        return Patience(self._runtime, self._options.timeout_s)


def _check(live: IndexSet, up_to: int, pressing: IndexSet) -> None:
    check_offset(up_to)
    for several in (live, pressing):
        if not isinstance(several, IndexSet):
            raise Invalid(
                "what lives, and what presses, is an IndexSet",
                hint="Make one with IndexSet.of(offsets).",
            )
    if live.overlaps(pressing):
        raise Invalid(
            f"offset {(live & pressing).first} lives, and is to go",
            hint="What is pressing is dead.",
        )
