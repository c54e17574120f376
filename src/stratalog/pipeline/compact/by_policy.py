"""Compact a herd: do with each log what its policy says.

    look       which logs have a policy, and whose rule is to be asked again
    compact    drop what no longer lives: by key, many logs in one job; by a query, one by one
    retain     move the cursors of the policies over what is too old, or too much

Logs without a policy are left as they are. Nothing is cut off here: retention moves a cursor, and
collection does the rest when all other cursors have passed. A log that fails is listed in
``troubles``, and the others go on. Retention by size cuts a log only once what is dead in it has
gone: otherwise a compaction that fails for a while would cost records that live.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from pyspark.sql import SparkSession

from stratalog.errors import Invalid, NotFound, StratalogError
from stratalog.herd import log_store
from stratalog.indexset import IndexSet
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import Compactor
from stratalog.objectlog.holds import PolicyStore, Retained
from stratalog.objectlog.stored import Live, Policy, load_manifest
from stratalog.pipeline.compact.apply_verdict import CompactedLog, compacted_log
from stratalog.pipeline.compact.by_key import compact_logs_by_key
from stratalog.pipeline.compact.by_query import live_by_query
from stratalog.pipeline.compact.key_rule import GRACE_S, ByKey
from stratalog.pipeline.compact.policy_sql import check_live
from stratalog.pipeline.jobs import Dropped, HerdJob, LogRef, Trouble, require
from stratalog.pipeline.spark import OnProgress
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Store, Usage, open_store

COMPACTIONS_AT_ONCE = 4
"""In one process. Each holds a few fragments in memory."""


@dataclass(frozen=True, kw_only=True)
class HerdCompactOptions:
    """How the logs of a herd are compacted. Their policies decide what goes."""

    interval_s: float = 5.0
    """How long after publishing the deletions begin, for the sake of slow readers."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer."""

    here_max: int = 32
    """So many logs are rewritten by this process, more by Spark's tasks."""

    trust_policies: bool = False
    """Whether the SQL of a policy may use all that the session has: functions that call Java,
    files, tables, functions of your own. Then to set a policy is to run code here."""

    def __post_init__(self) -> None:
        require(self.here_max >= 0, "here_max is not negative")
        CompactOptions(interval_s=self.interval_s, timeout_s=self.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRetained:
    """A log of which a part is retained no longer."""

    log: str | None
    log_id: str
    offset_before: int
    offset: int
    """What lies before this may be collected, if no other cursor needs it."""

    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HerdCompact(Dropped):
    """What was done as the policies say."""

    looked_at: int
    policies: int
    """How many logs have one."""

    not_due: int
    """How many have too little news to be asked again."""

    logs: tuple[CompactedLog, ...]
    """Those whose rule was asked."""

    retained: tuple[LogRetained, ...]
    gone: int
    troubles: tuple[Trouble, ...]
    seconds: float
    usage: Usage = field(default_factory=Usage)

    @property
    def changed(self) -> int:
        """How many logs have dropped something."""
        return sum(each.records > 0 for each in self.logs)


DEFAULT_OPTIONS = HerdCompactOptions()


def compact_herd(
    spark: SparkSession,
    root_url: str,
    *,
    logs: Sequence[str] | None = None,
    log_ids: Sequence[str] | None = None,
    options: HerdCompactOptions = DEFAULT_OPTIONS,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> HerdCompact:
    """Do with these logs, or with all, what their policies say. ``on_progress`` counts logs."""
    job = HerdJob(spark, root_url, runtime)
    refs = job.find(logs, log_ids)
    found = [each for each in job.for_each(refs, _look).values if each is not None]
    done = _Compaction(job, options, on_progress).run([each for each in found if each.is_due])
    retained = _settle(job, found, done)
    return HerdCompact(
        looked_at=len(refs),
        policies=len(found),
        not_due=sum(each.policy.live is not None and not each.is_due for each in found),
        logs=tuple(done),
        retained=retained,
        **job.ended(),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    ref: LogRef
    policy: Policy
    first_offset: int
    tail: int

    @property
    def is_due(self) -> bool:
        return self.policy.is_due(self.first_offset, self.tail)

    @property
    def has_news(self) -> bool:
        """Whether there are records that its rule was not asked about."""
        return self.policy.live is not None and (self.policy.judged or 0) < self.tail


@dataclass
class _Compaction:
    """Drops what no longer lives from the logs of a herd whose rules are due."""

    job: HerdJob
    options: HerdCompactOptions
    on_progress: OnProgress | None
    done: list[CompactedLog] = field(default_factory=list)
    ended: int = 0
    due: int = 0

    def run(self, due: Sequence[_Found]) -> list[CompactedLog]:
        self.due = len(due)
        by_key: dict[tuple[Live, float], list[_Found]] = defaultdict(list)
        by_query: list[_Found] = []
        for each in due:
            live, share = each.policy.live, each.policy.live_share_min
            assert live is not None
            if live.key is not None:
                by_key[live, share].append(each)
            elif live.sql is not None:
                by_query.append(each)
            else:
                newer = "the policy has a rule of a newer version"
                self._fail(each, Invalid(newer, hint="Upgrade stratalog."))
        for (live, share), some in by_key.items():
            self._by_key(live, share, some)
        self._by_query(by_query)
        return self.done

    def _by_key(self, live: Live, share: float, logs: Sequence[_Found]) -> None:
        """All logs of one rule in one job."""
        assert live.key is not None
        try:
            if not self.options.trust_policies:
                check_live(self.job.spark, live)
            grace_s = GRACE_S if live.grace_s is None else live.grace_s
            done = compact_logs_by_key(
                self.job.spark,
                self.job.place,
                ByKey(live.key, live.tombstone, grace_s),
                log_ids=[each.ref.id for each in logs],
                ordered_by=live,
                options=_options_of_one(self.options, share),
                runtime=self.job.runtime,
            )
        except StratalogError as error:
            for each in logs:
                self._fail(each, error)
            return
        names = {each.ref.id: each.ref.name for each in logs}
        self.done += [replace(each, log=each.log or names.get(each.log_id)) for each in done.logs]
        self.job.add(done.gone, done.troubles, done.usage)
        self._report(len(logs))

    def _by_query(self, logs: Sequence[_Found]) -> None:
        """First all queries, one by one: they share the name of a view. Then the rewriting."""
        asked: dict[str, tuple[_Found, IndexSet]] = {}
        for each in logs:
            rule = each.policy.live
            assert rule is not None
            assert rule.sql is not None
            url = log_store(open_store(self.job.place), each.ref.id).url
            trusted = self.options.trust_policies
            try:
                live = live_by_query(self.job.spark, url, rule.sql, each.tail, trusted=trusted)
            except StratalogError as error:
                self._fail(each, error)
            else:
                asked[each.ref.id] = each, live
        refs = [each.ref for each in logs if each.ref.id in asked]
        done = self.job.for_each(
            refs,
            partial(_compact, asked, self.options),
            at_once=COMPACTIONS_AT_ONCE,
            here_max=self.options.here_max,
            tasks_per_slot=1,
        )
        self.done += done.values
        self._report(len(refs))

    def _fail(self, log: _Found, error: StratalogError) -> None:
        if not self.job.fail(log.ref, error).is_gone:
            self._report(1)

    def _report(self, logs: int) -> None:
        self.ended += logs
        if self.on_progress is not None:
            self.on_progress(self.ended, self.due)


def _settle(
    job: HerdJob, found: Sequence[_Found], done: Sequence[CompactedLog]
) -> tuple[LogRetained, ...]:
    """Note how far the rules were asked, and move the cursors of the policies."""
    judged = {each.log_id: each.up_to for each in done}
    work = [each for each in found if each.ref.id in judged or each.policy.retain is not None]
    settling = partial(_settle_one, {each.ref.id: each for each in work}, judged)
    moved = job.for_each([each.ref for each in work], settling).values
    return tuple(each for each in moved if each.offset > each.offset_before)


async def _look(root: Store, ref: LogRef) -> _Found | None:
    """The policy of a log, whose cursor is there, or None."""
    store = log_store(root, ref.id)
    policies = PolicyStore(store)
    try:
        policy = await policies.load()
    except NotFound:
        return None
    await policies.hold()
    manifest, _ = await load_manifest(store)
    named = LogRef(ref.name or manifest.name, ref.log_id)
    return _Found(named, policy, manifest.first_offset, manifest.tail.offset)


async def _compact(
    asked: Mapping[str, tuple[_Found, IndexSet]],
    options: HerdCompactOptions,
    root: Store,
    ref: LogRef,
) -> CompactedLog:
    (found, live), store = asked[ref.id], log_store(root, ref.id)
    rule = found.policy.live
    assert rule is not None
    policies = PolicyStore(store)
    done = await Compactor(
        store,
        live,
        found.tail,
        witness=lambda _: policies.check_live(rule),
        options=_options_of_one(options, found.policy.live_share_min),
    ).run()
    return compacted_log(ref, ref.name, done.up_to, done, live=len(live))


async def _settle_one(
    work: Mapping[str, _Found], judged: Mapping[str, int], root: Store, ref: LogRef
) -> LogRetained:
    """Move the cursor of a policy, then note how far its rule was asked.

    In this order: the note changes the policy, and retention wants it as it was loaded.
    """
    found, store = work[ref.id], PolicyStore(log_store(root, ref.id))
    policy, kept = found.policy, Retained(0, 0, 0)
    if policy.retain is not None:
        is_up_to_date = ref.id in judged or not found.has_news
        whole = found.tail if is_up_to_date and policy.live is not None else None
        kept = await store.retain(policy, by_size=is_up_to_date, judged=whole)
    if ref.id in judged:
        await store.note_judged(policy, judged[ref.id])
    return LogRetained(log=ref.name, log_id=ref.id, **asdict(kept))


def _options_of_one(options: HerdCompactOptions, live_share_min: float) -> CompactOptions:
    return CompactOptions(
        live_share_min=live_share_min,
        interval_s=options.interval_s,
        timeout_s=options.timeout_s,
    )
