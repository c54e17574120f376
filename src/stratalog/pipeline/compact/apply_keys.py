"""What a compaction by key does to one log before and after the query: look, compact, remember.

    look      read the manifest and the index: what is new, and what is known
    (query)   which records are dead                                          (key_query)
    settle    compact, then put the index of what is left

The index is exact only if between the two nothing but this run has dropped records. The manifest
names the last plan that did; if that is not the one which was there before, the index is left as it
is, and whoever comes next finds that it is out of date.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass

from stratalog.errors import NotFound, StratalogError
from stratalog.indexset import EMPTY, IndexSet
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import Compacted, Compactor, Intent, Known, OnProgress, Rewrite
from stratalog.objectlog.stored import MANIFEST_PATH, is_being_destroyed, load_manifest
from stratalog.objectlog.tree import delete_surely
from stratalog.pipeline.compact.key_index import (
    INDEX_PATH,
    IndexNames,
    KeyIndex,
    fetch_gone,
    load_index,
    new_index,
    replace_index,
    store_gone,
)
from stratalog.pipeline.compact.key_query import UNIT_ROWS, Answer
from stratalog.pipeline.compact.results import CompactedLog
from stratalog.pipeline.jobs import LogRef
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, PatientStore, Store

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
Guard = Callable[[], Awaitable[None]]
"""Raises if the compaction is not wanted any more."""

GROWTH_MAX = 8
"""An index whose buckets have become so many times too large is made anew."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a log and its index stand, as they were read."""

    ref: LogRef
    name: str | None
    first_offset: int
    up_to: int
    compacted: str | None
    epoch: int
    index: KeyIndex | None
    """Only if it tells what is in the log."""

    etag: str | None
    """The version of the stored index, whether it can be used or not."""

    @property
    def start(self) -> int:
        """The first record that is not in the index."""
        return self.first_offset if self.index is None else max(self.first_offset, self.index.up_to)

    @property
    def is_empty(self) -> bool:
        return self.up_to <= self.first_offset


@dataclass(frozen=True, slots=True)
class Judged:
    """A log, and what the query has found out about it."""

    standing: Standing
    answer: Answer

    @property
    def live(self) -> IndexSet:
        """All offsets but the dead ones: what was never judged is not dropped."""
        return IndexSet(range(self.standing.up_to)) - self.answer.verdict.dead

    @property
    def num_bytes(self) -> int:
        """About how many bytes it has on its way to a task."""
        verdict = self.answer.verdict
        return 8 * (verdict.dead.range_count + verdict.must_drop.range_count)


async def look(
    store: Store, ref: LogRef, rule: str, *, up_to: int | None = None, incremental: bool = True
) -> Standing:
    """Where a log stands, and its index if that is of any use. The manifest is read last.

    A run publishes its compaction before its index. So an index that is read first is never newer
    than the manifest.
    """
    store = PatientStore(store, DEFAULT_RUNTIME, TIMEOUT_S)
    index, etag = await load_index(store)
    manifest, _ = await load_manifest(store)
    manifest.check_writable()
    if is_being_destroyed(manifest):
        raise NotFound(f"the log at {store.url} is being destroyed", path=MANIFEST_PATH)
    tail = manifest.tail.offset
    up_to = tail if up_to is None else min(up_to, tail)
    if index is not None:
        reason = index.why_not(manifest, rule)
        grown = index.rows + max(0, up_to - index.up_to)
        if reason is None and grown > GROWTH_MAX * UNIT_ROWS * index.buckets:
            reason = "the log has outgrown its buckets"
        if reason is not None or not incremental:
            log.info("%s is read from its beginning: %s", store.url, reason or "asked for")
            index = None
    return Standing(
        ref=ref,
        name=ref.name or manifest.name,
        first_offset=manifest.first_offset,
        up_to=up_to,
        compacted=manifest.compacted,
        epoch=manifest.sweep_epoch,
        index=index,
        etag=etag,
    )


async def settle(
    store: Store,
    judged: Judged,
    rule: str,
    *,
    options: CompactOptions,
    on_progress: OnProgress | None = None,
    rewrite: Rewrite | None = None,
    guard: Guard | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> CompactedLog:
    """Drop what is dead, and remember what is left. A ``guard`` may stop it at the last moment."""
    standing, verdict = judged.standing, judged.answer.verdict
    plans = _Plans(PatientStore(store, runtime, options.timeout_s), standing.compacted, guard)
    compactor = Compactor(
        store,
        judged.live,
        standing.up_to,
        must_drop=verdict.must_drop,
        known=Known(verdict.dead, standing.compacted),
        on_progress=on_progress,
        witness=plans.note,
        rewrite=rewrite,
        options=options,
        runtime=runtime,
    )
    try:
        done = await compactor.run()
    except (Exception, asyncio.CancelledError):
        await _if_it_can(_forget(store, judged, runtime), store)
        raise
    if plans.are_ours:
        work = _remember(store, judged, rule, done.dropped, plans.last, runtime)
    else:
        work = _forget(store, judged, runtime)
    await _if_it_can(work, store)
    return compacted_log(standing, done, judged.answer.read, verdict.judged - len(verdict.dead))


def compacted_log(
    standing: Standing, done: Compacted | None = None, read: int = 0, live: int = 0
) -> CompactedLog:
    """What was done, or that nothing was."""
    return CompactedLog(
        log=standing.name,
        log_id=standing.ref.log_id or "",
        up_to=standing.up_to,
        read=read,
        live=live,
        records=done.records if done else 0,
        fragments=done.fragments if done else 0,
        rewritten=done.rewritten if done else 0,
        bytes_before=done.bytes_before if done else 0,
        bytes_after=done.bytes_after if done else 0,
        objects=done.removed.fragments + done.removed.snapshots if done else 0,
    )


class _Plans:
    """Whose plans have dropped records since the log was looked at."""

    def __init__(self, store: Store, last: str | None, guard: Guard | None) -> None:
        self._store = store
        self._guard = guard
        self.last = last
        self._tried = {last}
        self.are_ours = True

    async def note(self, intent: Intent) -> None:
        """Before each attempt to publish: the last plan is still the one that is known."""
        if self._guard is not None:
            await self._guard()
        manifest, _ = await load_manifest(self._store)
        self.are_ours = self.are_ours and manifest.compacted in self._tried
        self._tried.add(intent.plan_id)
        self.last = intent.plan_id


async def _if_it_can(work: Coroutine[None, None, None], store: Store) -> None:
    """The index is a cache: a log is compacted without it as well."""
    try:
        await work
    except StratalogError as error:
        log.info("the key index of %s was not changed: %s", store.url, error)


async def _forget(store: Store, judged: Judged, runtime: Runtime) -> None:
    """Delete what this run has stored for an index that will not be: a record may have been erased
    since, and what is known of it goes as well. But not what another attempt has just stored."""
    patient, patience = PatientStore(store, runtime, TIMEOUT_S), Patience(runtime, TIMEOUT_S)
    current, _ = await load_index(patient)
    named = {INDEX_PATH} if current is None else current.names
    if judged.standing.index is not None:
        named = named | judged.standing.index.names
    ours = [part.path for part in judged.answer.parts if part.path not in named]
    if ours:
        await delete_surely(patient, ours, patience)


async def _remember(
    store: Store, judged: Judged, rule: str, dropped: IndexSet, plan: str | None, runtime: Runtime
) -> None:
    """Put the index of what is left. If another run was faster, its index stays."""
    standing, answer = judged.standing, judged.answer
    if (
        standing.index is not None
        and answer.parts == standing.index.parts
        and plan == standing.index.compacted
    ):
        return  # nothing was new, and nothing went
    patient, patience = PatientStore(store, runtime, TIMEOUT_S), Patience(runtime, TIMEOUT_S)
    if (await load_manifest(patient))[0].compacted != plan:
        await _forget(store, judged, runtime)
        return
    before = EMPTY
    if standing.index is not None and not answer.is_rewritten:
        before = await fetch_gone(patient, standing.index.gone)
    known = standing.start if standing.index is None else standing.index.up_to
    gone = await store_gone(patient, before | dropped, IndexNames(runtime), patience)
    index = new_index(
        up_to=max(known, standing.up_to),
        rule=rule,
        compacted=plan,
        epoch=standing.epoch,
        buckets=answer.buckets,
        parts=answer.parts,
        gone=gone,
        runtime=runtime,
    )
    if not await replace_index(patient, index, standing.etag, patience):
        log.info("another run has stored a key index of %s", store.url)
