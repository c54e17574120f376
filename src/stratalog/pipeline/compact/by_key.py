"""Compacting logs by key: the last record of each key lives, and a run reads only what is new.

    read       what is new in each log, and the index of the rest     (key_state)
    ask        one Spark query for all: which records are dead        (key_query)
    apply      drop them, and put the new index                       (apply_verdict)

A log whose index cannot be used is read from its beginning. Spark's tasks read and apply for many
logs; one that fails is listed in ``troubles``, and the others go on. ``docs/design/011-by-key.md``
says why this is safe.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from pyspark.sql import SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Corrupt, Invalid, NotFound, StratalogError, Trimmed
from stratalog.herd import log_store
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import DEFAULT_OPTIONS
from stratalog.objectlog.holds import PolicyStore
from stratalog.objectlog.stored import Live, check_offset
from stratalog.objectlog.tree import Window
from stratalog.pipeline.compact.apply_verdict import (
    CompactedLog,
    CompactedLogs,
    Judged,
    apply_verdict,
    compacted_log,
)
from stratalog.pipeline.compact.key_index import is_about_the_index
from stratalog.pipeline.compact.key_query import Answer, Question, ask
from stratalog.pipeline.compact.key_rule import GRACE_S, ByKey, KeyRule, checked_rule
from stratalog.pipeline.compact.key_state import KeyState, read_key_state
from stratalog.pipeline.compact.rewrite_tasks import rewriting_in_tasks
from stratalog.pipeline.jobs import HerdJob, LogRef
from stratalog.pipeline.read import PIN_S, Hold, Part, Place, Planned, plan_log, plan_together
from stratalog.pipeline.spark import OnProgress, absolute_url, below, in_groups, watched
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Store, open_store

log = logging.getLogger(__name__)

HERE_MAX = 32
ROUND_BYTES = 16 << 20
"""How many bytes of verdicts are sent to tasks at a time."""

OF_ONE_LOG = (Corrupt, Invalid, NotFound, Trimmed)
"""Failures that are about a log. After others, the rest would fail as well."""


def compact_by_key(
    spark: SparkSession,
    url: Place,
    key: str | ByKey,
    *,
    tombstone_sql: str | None = None,
    grace_s: float = GRACE_S,
    up_to: int | None = None,
    incremental: bool = True,
    on_progress: OnProgress | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> CompactedLog:
    """Drop all but the last record of each key among those before ``up_to``, by default all.

    ``key`` is an SQL expression over ``offset, timestamp, body``; a record where it is null lives.
    A record for which ``tombstone_sql`` is true means that its key is gone: it lives for
    ``grace_s`` seconds after it was appended, and then goes together with all that is older.

    What the next run needs to know of these records is kept beside the log, so it reads only what
    was appended since. Without ``incremental`` this one reads everything.
    """
    place = absolute_url(url)
    if up_to is not None:
        check_offset(up_to)
    rule = checked_rule(spark, _rule_of(key, tombstone_sql, grace_s))
    store, ref = open_store(place), LogRef(None, place)

    def read(incremental: bool) -> KeyState:
        return loop_thread().run(
            lambda: read_key_state(store, ref, rule.digest, up_to=up_to, incremental=incremental)
        )

    expired_by_us = _expired_by_us(rule.by, runtime)
    state = read(incremental)
    if state.is_empty:
        return _unchanged(state)
    try:
        (answer,) = _answers(spark, rule, [(place, state)], expired_by_us)
    except StratalogError as error:
        if state.index is None or not is_about_the_index(error):
            raise
        log.info("the key index of %s cannot be used: %s", place, error)
        state = read(False)
        (answer,) = _answers(spark, rule, [(place, state)], expired_by_us)
    return loop_thread().run(
        lambda: apply_verdict(
            store,
            Judged(state, answer),
            rule.digest,
            options=options,
            on_progress=on_progress,
            rewrite=rewriting_in_tasks(spark, place, options),
            runtime=runtime,
        )
    )


def compact_logs_by_key(
    spark: SparkSession,
    root_url: str,
    rule: ByKey,
    *,
    log_ids: Sequence[str],
    incremental: bool = True,
    ordered_by: Live | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> CompactedLogs:
    """Compact these logs of a herd by one rule, each from where its last run ended.

    One query judges the new records of all of them. If policies have ordered it, nothing is dropped
    from a log whose policy says something else by then than ``ordered_by``.
    """
    job = HerdJob(spark, root_url, runtime)
    checked = checked_rule(spark, rule)
    refs = job.find(log_ids=log_ids)
    states = job.for_each(refs, partial(_read_state, checked.digest, incremental)).values
    judging = _Judging(job, checked, _expired_by_us(rule, runtime))
    with watched(spark, on_progress):
        judging.judge([state for state in states if not state.is_empty])
    logs = [_unchanged(state) for state in states if state.is_empty]
    for some in in_groups(judging.judged, attrgetter("num_bytes"), ROUND_BYTES):
        judged = {each.state.ref.log_id: each for each in some}
        logs += job.for_each(
            [each.state.ref for each in some],
            partial(_apply, checked.digest, judged, options, ordered_by),
            here_max=HERE_MAX,
            on_progress=on_progress,
        ).values
    return CompactedLogs(looked_at=len(refs), logs=tuple(logs), **job.ended())


async def _read_state(rule: str, incremental: bool, root: Store, ref: LogRef) -> KeyState:
    return await read_key_state(log_store(root, ref.id), ref, rule, incremental=incremental)


async def _apply(
    rule: str,
    judged: dict[str | None, Judged],
    options: CompactOptions,
    ordered_by: Live | None,
    root: Store,
    ref: LogRef,
) -> CompactedLog:
    store, guard = log_store(root, ref.id), None
    if ordered_by is not None:
        guard = partial(PolicyStore(store).check_live, ordered_by)
    return await apply_verdict(store, judged[ref.log_id], rule, options=options, guard=guard)


class _Judging:
    """The logs of a herd that are judged together, as long as all can be."""

    def __init__(self, job: HerdJob, rule: KeyRule, expired_by_us: int) -> None:
        self._job = job
        self._rule = rule
        self._expired_by_us = expired_by_us
        self.judged: list[Judged] = []

    def judge(self, states: Sequence[KeyState]) -> None:
        """All of them with one query. If that fails for one log, in halves until it is alone."""
        if not states:
            return
        try:
            places = [(below(self._job.place, f"logs/{each.ref.log_id}"), each) for each in states]
            answers = _answers(self._job.spark, self._rule, places, self._expired_by_us)
        except StratalogError as error:
            self._go_on_after(error, states)
        else:
            self.judged += map(Judged, states, answers)

    def _go_on_after(self, error: StratalogError, states: Sequence[KeyState]) -> None:
        if len(states) > 1 and isinstance(error, OF_ONE_LOG):
            half = len(states) // 2
            self.judge(states[:half])
            self.judge(states[half:])
        elif len(states) == 1 and states[0].index and is_about_the_index(error):
            log.info("the key index of %s cannot be used: %s", states[0].ref.label, error)
            self.judge([replace(states[0], index=None)])
        else:
            for each in states:
                self._job.fail(each.ref, error.copy())


def _answers(
    spark: SparkSession,
    rule: KeyRule,
    places: Sequence[tuple[str, KeyState]],
    expired_by_us: int,
) -> list[Answer]:
    """Ask about these logs, whose new records are pinned meanwhile."""
    planned = loop_thread().run(lambda: _plan_all(places))
    try:
        parts = [part for each in planned for part in each.parts]
        questions = [
            Question(part, state, expired_by_us)
            for part, (_, state) in zip(parts, places, strict=True)
        ]
        return ask(spark, rule, questions)
    finally:
        for each in planned:
            loop_thread().run(each.release)


async def _plan_all(places: Sequence[tuple[str, KeyState]]) -> list[Planned]:
    hold = Hold.lasting(PIN_S)

    async def plan(place: tuple[str, KeyState]) -> Planned:
        url, state = place
        window = Window(state.start, state.up_to)
        if state.start >= state.up_to:
            return Planned((Part(url, (), window),))
        return await plan_log(url, window, hold)

    return await plan_together(places, plan)


def _unchanged(state: KeyState) -> CompactedLog:
    return compacted_log(state.ref, state.name, state.up_to)


def _rule_of(key: str | ByKey, tombstone_sql: str | None, grace_s: float) -> ByKey:
    if isinstance(key, str):
        return ByKey(key, tombstone_sql, grace_s)
    if tombstone_sql is not None or grace_s != GRACE_S:
        raise Invalid(
            "a rule says itself what a tombstone is, and how long it lives",
            hint="Give the key as an expression, or all of it as a ByKey.",
        )
    return key


def _expired_by_us(rule: ByKey, runtime: Runtime) -> int:
    """Tombstones of this time or before have outlived their grace."""
    return runtime.now_us() - int(rule.grace_s * 1e6)
