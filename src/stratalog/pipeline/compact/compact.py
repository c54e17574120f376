"""Compact a herd: do with each log what its policy says.

    look       which logs have a policy, and whose rule is to be asked again
    compact    drop what no longer lives: by key, many logs in one job; by a query, one by one
    retain     move the cursors of the policies over what is too old, or too much

Logs without a policy are left as they are. Nothing is cut off here: retention moves a cursor, and
collection does the rest when all others have passed. A log that fails is told in ``troubles``, and
the others go on. By size a log is only cut once what is dead in it has gone: otherwise a compaction
that fails for a while would cost records that live.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid, NotFound, StratalogError
from stratalog.herd import log_store
from stratalog.indexset import IndexSet
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import Compactor, Intent
from stratalog.objectlog.holds import PolicyStore, Retained
from stratalog.objectlog.stored import Live, Policy, load_manifest
from stratalog.pipeline.compact.by_key import compact_logs_by_key
from stratalog.pipeline.compact.by_query import live_by_query
from stratalog.pipeline.compact.results import GRACE_S, ByKey, CompactedLog
from stratalog.pipeline.jobs import (
    LogRef,
    Outcome,
    Trouble,
    find_logs,
    for_each_log,
    open_root,
    place_of,
    require,
)
from stratalog.pipeline.spark import OnTasks
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import CountedStore, Store, Usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACTIONS_AT_ONCE = 4
"""In one process. Each holds a few fragments in memory."""


@dataclass(frozen=True, kw_only=True)
class HerdCompactOptions:
    """How the logs of a herd are compacted. What goes is told by their policies."""

    interval_s: float = 5.0
    """How long after publishing the deletions begin, for the sake of slow readers."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer."""

    here_max: int = 32
    """So many logs are rewritten by this process, more by Spark's tasks."""

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
class HerdCompact:
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

    @property
    def records(self) -> int:
        """How many records were dropped."""
        return sum(each.records for each in self.logs)

    @property
    def bytes_before(self) -> int:
        return sum(each.bytes_before for each in self.logs)

    @property
    def bytes_after(self) -> int:
        return sum(each.bytes_after for each in self.logs)


DEFAULT_OPTIONS = HerdCompactOptions()


def compact_herd(
    spark: SparkSession,
    root_url: str,
    *,
    logs: Sequence[str] | None = None,
    log_ids: Sequence[str] | None = None,
    options: HerdCompactOptions = DEFAULT_OPTIONS,
    on_progress: OnTasks | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> HerdCompact:
    """Do with these logs, or with all, what their policies say. Told are logs, done and due."""
    run = _Run(spark, place_of(root_url), options, on_progress, runtime)
    return run.run(logs, log_ids)


@dataclass(frozen=True, slots=True)
class _Found:
    """A log with a policy."""

    ref: LogRef
    policy: Policy
    first_offset: int
    tail: int

    @property
    def log_id(self) -> str:
        assert self.ref.log_id is not None
        return self.ref.log_id

    @property
    def is_due(self) -> bool:
        return self.policy.is_due(self.first_offset, self.tail)

    @property
    def has_news(self) -> bool:
        """Whether there are records that its rule was not asked about."""
        return self.policy.live is not None and (self.policy.judged or 0) < self.tail


class _Run:
    """One compaction of a herd, and what it has come to so far."""

    def __init__(
        self,
        spark: SparkSession,
        place: str,
        options: HerdCompactOptions,
        on_progress: OnTasks | None,
        runtime: Runtime,
    ) -> None:
        self._spark = spark
        self._place = place
        self._options = options
        self._on_progress = on_progress
        self._runtime = runtime
        self._done: list[CompactedLog] = []
        self._troubles: list[Trouble] = []
        self._usage = Usage()
        self._gone = 0
        self._ended = self._due = 0

    def run(self, logs: Sequence[str] | None, log_ids: Sequence[str] | None) -> HerdCompact:
        started_us = self._runtime.now_us()
        counted = CountedStore(open_root(self._place))
        refs = loop_thread().run(lambda: find_logs(counted, names=logs, log_ids=log_ids))
        looked = for_each_log(self._spark, self._place, refs, _look)
        self._usage += counted.usage + looked.usage
        self._gone += looked.gone
        self._troubles += looked.troubles
        found = [each for each in looked.values if each is not None]
        self._compact([each for each in found if each.is_due])
        retained = self._settle(found)
        return HerdCompact(
            looked_at=len(refs),
            policies=len(found),
            not_due=sum(each.policy.live is not None and not each.is_due for each in found),
            logs=tuple(self._done),
            retained=retained,
            gone=self._gone,
            troubles=tuple(self._troubles),
            seconds=(self._runtime.now_us() - started_us) / 1e6,
            usage=self._usage,
        )

    # What lives

    def _compact(self, due: Sequence[_Found]) -> None:
        self._due = len(due)
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
                self._fail(each, _unknown_rule())
        for (live, share), some in by_key.items():
            self._by_key(live, share, some)
        self._by_query(by_query)

    def _by_key(self, live: Live, share: float, logs: Sequence[_Found]) -> None:
        """All logs of one rule in one job."""
        assert live.key is not None
        try:
            grace_s = GRACE_S if live.grace_s is None else live.grace_s
            rule = ByKey(live.key, live.tombstone, grace_s)
            done = compact_logs_by_key(
                self._spark,
                self._place,
                rule,
                log_ids=[each.log_id for each in logs],
                ordered_by=live,
                options=self._with(share),
                runtime=self._runtime,
            )
        except StratalogError as error:
            for each in logs:
                self._fail(each, error)
            return
        names = {each.log_id: each.ref.name for each in logs}
        self._done += [replace(each, log=each.log or names.get(each.log_id)) for each in done.logs]
        self._troubles += done.troubles
        self._usage += done.usage
        self._gone += done.gone
        self._tell(len(logs))

    def _by_query(self, logs: Sequence[_Found]) -> None:
        """First all queries, one by one: they share the name of a view. Then the rewriting."""
        asked: dict[str | None, _Asked] = {}
        for each in logs:
            assert each.policy.live is not None
            assert each.policy.live.sql is not None
            url = log_store(open_root(self._place), each.log_id).url
            try:
                live = live_by_query(self._spark, url, each.policy.live.sql, each.tail)
            except StratalogError as error:
                outcome: Outcome[None] = Outcome(each.ref, error=error)
                if outcome.is_gone:
                    self._gone += 1
                else:
                    self._fail(each, error)
            else:
                rule, share = each.policy.live, each.policy.live_share_min
                asked[each.log_id] = _Asked(rule, live, each.tail, share)
        refs = [each.ref for each in logs if each.log_id in asked]
        done = for_each_log(
            self._spark,
            self._place,
            refs,
            _Compacting(asked, self._options),
            at_once=COMPACTIONS_AT_ONCE,
            here_max=self._options.here_max,
            tasks_per_slot=1,
        )
        self._done += done.values
        self._troubles += done.troubles
        self._usage += done.usage
        self._gone += done.gone
        self._tell(len(refs))

    def _with(self, share: float) -> CompactOptions:
        return CompactOptions(
            live_share_min=share,
            interval_s=self._options.interval_s,
            timeout_s=self._options.timeout_s,
        )

    # What is retained

    def _settle(self, found: Sequence[_Found]) -> tuple[LogRetained, ...]:
        """Note how far the rules were asked, and move the cursors."""
        judged = {each.log_id: each.up_to for each in self._done}
        work = [each for each in found if each.log_id in judged or each.policy.retain is not None]
        up_to_date = {each.log_id for each in work if each.log_id in judged or not each.has_news}
        done = for_each_log(
            self._spark,
            self._place,
            [each.ref for each in work],
            _Settling(
                {each.log_id: each.policy for each in work},
                judged,
                {each.log_id: each.tail for each in work if each.log_id in up_to_date},
            ),
        )
        self._troubles += done.troubles
        self._usage += done.usage
        return tuple(each for each in done.values if each.offset > each.offset_before)

    # Telling

    def _fail(self, log: _Found, error: StratalogError) -> None:
        self._troubles.append(Trouble(log.ref.label, error))
        self._tell(1)

    def _tell(self, logs: int) -> None:
        self._ended += logs
        if self._on_progress is not None:
            self._on_progress(self._ended, self._due)


async def _look(root: Store, ref: LogRef) -> _Found | None:
    """The policy of a log, whose cursor is there, or None."""
    assert ref.log_id is not None
    store = log_store(root, ref.log_id)
    policies = PolicyStore(store)
    try:
        policy = await policies.load()
    except NotFound:
        return None
    await policies.hold()
    manifest, _ = await load_manifest(store)
    named = LogRef(ref.name or manifest.name, ref.log_id)
    return _Found(named, policy, manifest.first_offset, manifest.tail.offset)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a query has said about one log."""

    rule: Live
    live: IndexSet
    up_to: int
    live_share_min: float


@dataclass(frozen=True, slots=True)
class _Compacting:
    """Drops what does not live."""

    asked: Mapping[str | None, _Asked]
    options: HerdCompactOptions

    async def __call__(self, root: Store, ref: LogRef) -> CompactedLog:
        assert ref.log_id is not None
        asked, store = self.asked[ref.log_id], log_store(root, ref.log_id)

        async def still_wanted(_: Intent) -> None:
            await PolicyStore(store).check_live(asked.rule)

        done = await Compactor(
            store,
            asked.live,
            asked.up_to,
            witness=still_wanted,
            options=CompactOptions(
                live_share_min=asked.live_share_min,
                interval_s=self.options.interval_s,
                timeout_s=self.options.timeout_s,
            ),
        ).run()
        return CompactedLog(
            log=ref.name,
            log_id=ref.log_id,
            up_to=done.up_to,
            read=0,
            live=len(asked.live),
            records=done.records,
            fragments=done.fragments,
            rewritten=done.rewritten,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
            objects=done.removed.fragments + done.removed.snapshots,
        )


@dataclass(frozen=True, slots=True)
class _Settling:
    """Moves the cursor of a policy, then notes how far its rule was asked.

    In this order: the note changes the policy, and retention wants it as it was loaded.
    """

    policies: Mapping[str, Policy]
    judged: Mapping[str, int]
    up_to_date: Mapping[str, int]
    """The logs of which everything was judged, up to these offsets."""

    async def __call__(self, root: Store, ref: LogRef) -> LogRetained:
        assert ref.log_id is not None
        policy, store = self.policies[ref.log_id], PolicyStore(log_store(root, ref.log_id))
        kept = Retained(0, 0, 0)
        if policy.retain is not None:
            judged = None if policy.live is None else self.up_to_date.get(ref.log_id)
            by_size = ref.log_id in self.up_to_date
            kept = await store.retain(policy, by_size=by_size, judged=judged)
        if ref.log_id in self.judged:
            await store.note_judged(policy, self.judged[ref.log_id])
        return LogRetained(
            log=ref.name,
            log_id=ref.log_id,
            offset_before=kept.offset_before,
            offset=kept.offset,
            num_bytes=kept.num_bytes,
        )


def _unknown_rule() -> Invalid:
    return Invalid("the policy has a rule of a newer version", hint="Upgrade stratalog.")
