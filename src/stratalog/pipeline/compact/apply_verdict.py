"""What a compaction by key does with one log after the query: drop what is dead, then remember.

The index of what is left is exact only if nothing but this run has dropped records since the log
was read (``key_state``). The manifest names the last plan that did. If that is not the one which
was there before, the index stays as it is, and the next run finds that it is out of date.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from stratalog.errors import StratalogError
from stratalog.indexset import EMPTY, IndexSet
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import Compacted, Compactor, Intent, Known, OnProgress, Rewrite
from stratalog.objectlog.stored import FORMAT, load_manifest
from stratalog.objectlog.tree import delete_surely
from stratalog.pipeline.compact.key_index import (
    INDEX_PATH,
    TIMEOUT_S,
    IndexNames,
    KeyIndex,
    fetch_gone,
    load_index,
    replace_index,
    store_gone,
)
from stratalog.pipeline.compact.key_query import Answer
from stratalog.pipeline.compact.key_state import KeyState
from stratalog.pipeline.jobs import Dropped, LogRef, Trouble
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, PatientStore, Store, Usage

log = logging.getLogger(__name__)

Guard = Callable[[], Awaitable[None]]
"""Raises if the compaction is not wanted any more."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A log, and what the query has found out about it."""

    state: KeyState
    answer: Answer

    @property
    def live(self) -> IndexSet:
        """All offsets but the dead ones: what was never judged is not dropped."""
        return IndexSet(range(self.state.up_to)) - self.answer.verdict.dead

    @property
    def num_bytes(self) -> int:
        """About how many bytes it has on its way to a task."""
        verdict = self.answer.verdict
        return 8 * (verdict.dead.range_count + verdict.must_drop.range_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedLog:
    """What was dropped from one log."""

    log: str | None
    log_id: str
    up_to: int
    """The offset after the last record that was judged."""

    read: int
    """How many records were read to find out what lives."""

    live: int
    """How many of those that were judged live."""

    records: int
    """How many went."""

    fragments: int
    rewritten: int
    bytes_before: int
    bytes_after: int
    objects: int
    """How many objects were deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedLogs(Dropped):
    """What was dropped from all."""

    looked_at: int
    logs: tuple[CompactedLog, ...]
    gone: int
    troubles: tuple[Trouble, ...]
    seconds: float
    usage: Usage = field(default_factory=Usage)


def compacted_log(
    ref: LogRef,
    name: str | None,
    up_to: int,
    done: Compacted | None = None,
    *,
    read: int = 0,
    live: int = 0,
) -> CompactedLog:
    """What a compaction did with a log; nothing if there is none."""
    return CompactedLog(
        log=name,
        log_id=ref.log_id or "",
        up_to=up_to,
        read=read,
        live=live,
        records=done.records if done else 0,
        fragments=done.fragments if done else 0,
        rewritten=done.rewritten if done else 0,
        bytes_before=done.bytes_before if done else 0,
        bytes_after=done.bytes_after if done else 0,
        objects=done.removed.fragments + done.removed.snapshots if done else 0,
    )


async def apply_verdict(
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
    state, verdict = judged.state, judged.answer.verdict
    plans = _Plans(PatientStore(store, runtime, options.timeout_s), state.compacted, guard)
    compactor = Compactor(
        store,
        judged.live,
        state.up_to,
        must_drop=verdict.must_drop,
        known=Known(verdict.dead, state.compacted),
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
    return compacted_log(
        state.ref,
        state.name,
        state.up_to,
        done,
        read=judged.answer.read,
        live=verdict.judged - len(verdict.dead),
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
    if judged.state.index is not None:
        named = named | judged.state.index.names
    ours = [part.path for part in judged.answer.parts if part.path not in named]
    await delete_surely(patient, ours, patience)


async def _remember(
    store: Store, judged: Judged, rule: str, dropped: IndexSet, plan: str | None, runtime: Runtime
) -> None:
    """Put the index of what is left. If another run was faster, its index stays."""
    state, answer = judged.state, judged.answer
    if (
        state.index is not None
        and answer.parts == state.index.parts
        and plan == state.index.compacted
    ):
        return  # nothing was new, and nothing went
    patient, patience = PatientStore(store, runtime, TIMEOUT_S), Patience(runtime, TIMEOUT_S)
    if (await load_manifest(patient))[0].compacted != plan:
        await _forget(store, judged, runtime)
        return
    before = EMPTY
    if state.index is not None and not answer.is_rewritten:
        before = await fetch_gone(patient, state.index.gone)
    known = state.start if state.index is None else state.index.up_to
    gone = await store_gone(patient, before | dropped, IndexNames(runtime), patience)
    index = KeyIndex(
        up_to=max(known, state.up_to),
        rule=rule,
        compacted=plan,
        epoch=state.epoch,
        buckets=answer.buckets,
        parts=answer.parts,
        gone=gone,
        format=FORMAT,
        write_id=runtime.new_id(),
    )
    if not await replace_index(patient, index, state.etag, patience):
        log.info("another run has stored a key index of %s", store.url)
