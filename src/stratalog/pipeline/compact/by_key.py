"""Compacting logs by key: the last record of each key lives, and a run reads only what is new.

    look       what is new in each log, and the index of the rest     (key_settling)
    ask        one Spark query for all: which records are dead        (key_query)
    settle     drop them, and put the new index                       (key_settling)

A log whose index cannot be used is read from its beginning. Many logs are looked at and settled by
Spark's tasks; one that fails is told in ``troubles``, and the others go on.
``docs/design/011-by-key.md`` tells why this is safe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from stratalog.blocking import loop_thread
from stratalog.errors import Corrupt, Invalid, NotFound, StratalogError, Trimmed
from stratalog.herd import log_store
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import DEFAULT_OPTIONS, OnProgress
from stratalog.objectlog.holds import PolicyStore
from stratalog.objectlog.stored import MANIFEST_PATH, Live, check_offset
from stratalog.objectlog.tree import Window
from stratalog.pipeline.compact.apply_keys import Judged, Standing, compacted_log, look, settle
from stratalog.pipeline.compact.key_index import is_about_the_index
from stratalog.pipeline.compact.key_query import Answer, Question, ask
from stratalog.pipeline.compact.key_rule import KeyRule, checked_rule
from stratalog.pipeline.compact.results import GRACE_S, ByKey, CompactedLog, CompactedLogs
from stratalog.pipeline.compact.rewrite_tasks import rewriting_in_tasks
from stratalog.pipeline.jobs import LogRef, Trouble, find_logs, for_each_log, open_root, place_of
from stratalog.pipeline.source import LOGS_AT_ONCE, PIN_S, Hold, Part, Place, Planned, plan_log
from stratalog.pipeline.spark import OnTasks, absolute_url, below, check_reachable, watched
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import CountedStore, Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

HERE_MAX = 32
SETTLED_AT_ONCE = 32
ROUND_BYTES = 16 << 20
"""What a round of settling sends to every task: the verdicts about its logs."""

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
    place = check_reachable(absolute_url(url))
    if up_to is not None:
        check_offset(up_to)
    rule = checked_rule(spark, _rule_of(key, tombstone_sql, grace_s))
    store, ref = open_store(place), LogRef(None, place)

    def stand(incremental: bool) -> Standing:
        return loop_thread().run(
            lambda: look(store, ref, rule.digest, up_to=up_to, incremental=incremental)
        )

    expired_by_us = _expired_by_us(rule.by, runtime)
    standing = stand(incremental)
    if standing.is_empty:
        return compacted_log(standing)
    try:
        (answer,) = _answers(spark, rule, [(place, standing)], expired_by_us)
    except StratalogError as error:
        if standing.index is None or not is_about_the_index(error):
            raise
        log.info("the key index of %s cannot be used: %s", place, error)
        standing = stand(False)
        (answer,) = _answers(spark, rule, [(place, standing)], expired_by_us)
    judged = Judged(standing, answer)
    return loop_thread().run(
        lambda: settle(
            store,
            judged,
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
    on_progress: OnTasks | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> CompactedLogs:
    """Compact these logs of a herd by one rule, each from where its last run ended.

    One query judges the new records of all of them. If policies have ordered it, nothing is dropped
    from a log whose policy says something else by then than ``ordered_by``.
    """
    place, started_us = place_of(root_url), runtime.now_us()
    checked = checked_rule(spark, rule)
    counted = CountedStore(open_root(place))
    refs = loop_thread().run(lambda: find_logs(counted, log_ids=log_ids))
    looked = for_each_log(spark, place, refs, _Looking(checked.digest, incremental))
    herd = _Herd(spark, place, checked, _expired_by_us(rule, runtime))
    with watched(spark, on_progress):
        herd.judge([standing for standing in looked.values if not standing.is_empty])
    logs = [compacted_log(standing) for standing in looked.values if standing.is_empty]
    usage, gone = counted.usage + looked.usage, looked.gone + herd.gone
    troubles = [*looked.troubles, *herd.troubles]
    for some in _rounds(herd.judged):
        done = for_each_log(
            spark,
            place,
            [judged.standing.ref for judged in some],
            _Settling(
                checked.digest,
                {each.standing.ref.log_id: each for each in some},
                options,
                ordered_by,
            ),
            at_once=SETTLED_AT_ONCE,
            here_max=HERE_MAX,
            on_tasks=on_progress,
        )
        logs += done.values
        troubles += done.troubles
        usage, gone = usage + done.usage, gone + done.gone
    return CompactedLogs(
        looked_at=len(refs),
        logs=tuple(logs),
        gone=gone,
        troubles=tuple(troubles),
        seconds=(runtime.now_us() - started_us) / 1e6,
        usage=usage,
    )


@dataclass(frozen=True, slots=True)
class _Looking:
    """Where a log stands."""

    rule: str
    incremental: bool

    async def __call__(self, root: Store, ref: LogRef) -> Standing:
        assert ref.log_id is not None
        store = log_store(root, ref.log_id)
        return await look(store, ref, self.rule, incremental=self.incremental)


@dataclass(frozen=True, slots=True)
class _Settling:
    """Drops what is dead in a log."""

    rule: str
    judged: dict[str | None, Judged]
    options: CompactOptions
    ordered_by: Live | None

    async def __call__(self, root: Store, ref: LogRef) -> CompactedLog:
        assert ref.log_id is not None
        store, guard = log_store(root, ref.log_id), None
        if self.ordered_by is not None:
            guard = partial(PolicyStore(store).check_live, self.ordered_by)
        judged = self.judged[ref.log_id]
        return await settle(store, judged, self.rule, options=self.options, guard=guard)


class _Herd:
    """The logs of a herd that are judged together, as long as all can be."""

    def __init__(self, spark: SparkSession, place: str, rule: KeyRule, expired_by_us: int) -> None:
        self._spark = spark
        self._place = place
        self._rule = rule
        self._expired_by_us = expired_by_us
        self.judged: list[Judged] = []
        self.troubles: list[Trouble] = []
        self.gone = 0

    def judge(self, standings: Sequence[Standing]) -> None:
        """All of them with one query. If that fails for one log, in halves until it is alone."""
        if not standings:
            return
        try:
            places = [(self._url_of(standing), standing) for standing in standings]
            # The library tells more about a log that cannot be read than Spark does.
            answers = _answers(self._spark, self._rule, places, self._expired_by_us, native=False)
        except StratalogError as error:
            self._go_on_after(error, standings)
        else:
            self.judged += map(Judged, standings, answers)

    def _go_on_after(self, error: StratalogError, standings: Sequence[Standing]) -> None:
        if len(standings) > 1 and isinstance(error, OF_ONE_LOG):
            half = len(standings) // 2
            self.judge(standings[:half])
            self.judge(standings[half:])
        elif len(standings) == 1 and standings[0].index and is_about_the_index(error):
            log.info("the key index of %s cannot be used: %s", standings[0].ref.label, error)
            self.judge([replace(standings[0], index=None)])
        elif isinstance(error, NotFound) and (error.path or "").endswith(MANIFEST_PATH):
            self.gone += 1  # dropped since it was looked at
        else:
            self.troubles += [Trouble(each.ref.label, error.copy()) for each in standings]

    def _url_of(self, standing: Standing) -> str:
        return below(self._place, f"logs/{standing.ref.log_id}")


def _answers(
    spark: SparkSession,
    rule: KeyRule,
    places: Sequence[tuple[str, Standing]],
    expired_by_us: int,
    *,
    native: bool = True,
) -> list[Answer]:
    """Ask about these logs, whose new records are pinned meanwhile."""
    with _pinned(places) as parts:
        questions = [
            Question(part, standing.index, standing.first_offset, standing.up_to, expired_by_us)
            for part, (_, standing) in zip(parts, places, strict=True)
        ]
        return ask(spark, rule, questions, native=native)


@contextmanager
def _pinned(places: Sequence[tuple[str, Standing]]) -> Iterator[list[Part]]:
    """The new records of each log."""
    planned = loop_thread().run(lambda: _plan_all(places))
    try:
        yield [part for each in planned for part in each.parts]
    finally:
        for each in planned:
            loop_thread().run(each.release)


async def _plan_all(places: Sequence[tuple[str, Standing]]) -> list[Planned]:
    hold, room = Hold.lasting(PIN_S), asyncio.Semaphore(LOGS_AT_ONCE)

    async def one(url: str, standing: Standing) -> Planned:
        window = Window(standing.start, standing.up_to)
        if standing.start >= standing.up_to:
            return Planned((Part(url, (), window),))
        async with room:
            return await plan_log(url, window, hold)

    outcomes = await asyncio.gather(*(one(*each) for each in places), return_exceptions=True)
    planned = [each for each in outcomes if isinstance(each, Planned)]
    for each in outcomes:
        if isinstance(each, BaseException):
            for done in planned:
                await done.release()
            raise each
    return planned


def _rounds(judged: Sequence[Judged]) -> Iterator[list[Judged]]:
    """A few logs at a time, by what is known about them."""
    some: list[Judged] = []
    size = 0
    for each in judged:
        if some and size + each.num_bytes > ROUND_BYTES:
            yield some
            some, size = [], 0
        some.append(each)
        size += each.num_bytes
    if some:
        yield some


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
