"""The stages of a run: each begins one job, and reports what it did in the same form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Corrupt
from stratalog.herd import COMPACTION, Herd, RolledUp, RollUpOptions, roll_up
from stratalog.pipeline.check import (
    HerdScrub,
    HerdScrubOptions,
    HerdVerify,
    HerdVerifyOptions,
    describe,
    scrub_herd,
    verify_herd,
)
from stratalog.pipeline.collect import HerdCollect, HerdCollectOptions, collect_herd
from stratalog.pipeline.compact import HerdCompact, HerdCompactOptions, compact_herd
from stratalog.pipeline.jobs import Trouble, check_job, require
from stratalog.pipeline.materialize import (
    Materialized,
    MaterializeOptions,
    MaterializeProgress,
    Merge,
    materialize,
)
from stratalog.pipeline.outputs import HerdSize, measure_herd
from stratalog.pipeline.run.run_report import OnEvent, Proof, RunEvent, Stage, StageReport, texts_of
from stratalog.runtime import Runtime
from stratalog.store import CountedStore, open_store

T = TypeVar("T")

_UNITS = {"plan": "logs looked at", "merge": "tasks", "publish": "logs published"}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run does in each stage."""

    job: str = "latest"
    """The name of the job whose outputs are made."""

    cursor: str = COMPACTION
    """The cursor up to which logs are compacted."""

    age_s: float = 0.0
    """Materialize what has waited for so long. 0 is all that waits."""

    records: int = 10_000
    """Materialize at once what has so many records waiting."""

    interval_s: float = 5.0
    """How long slow readers get before anything is deleted."""

    sweep: bool = False
    """Also delete the objects that nothing links."""

    keep_audits: int = 10
    """How many audits are kept."""

    trust_policies: bool = False
    """Whether the SQL of policies may use all that the session has (``HerdCompactOptions``)."""

    measure: bool = True
    """Measure the herd before and after: one or two reads a log, each time."""

    def __post_init__(self) -> None:
        check_job(self.job, self.cursor)
        require(self.age_s >= 0, "age_s is not negative")
        require(self.records >= 1, "records is at least 1")
        require(self.interval_s >= 0, "interval_s is not negative")
        require(self.keep_audits >= 1, "keep_audits is at least 1")


@dataclass
class Stages:
    """The stages of one run, and what they leave to those after them."""

    spark: SparkSession
    place: str
    server: str
    merge: Merge | None
    options: RunOptions
    on_event: OnEvent | None
    runtime: Runtime
    everything: bool
    """Whether also what an earlier run has left is compacted and collected."""

    reports: list[StageReport] = field(default_factory=list, init=False)
    proof: Proof | None = field(default=None, init=False)
    findings: tuple[str, ...] | None = field(default=None, init=False)
    _selected: list[str] | None = field(default=None, init=False)
    _materialized: list[str] | None = field(default=None, init=False)
    _retained: Sequence[str] = field(default=(), init=False)

    def measured(self) -> HerdSize:
        """What the herd holds now, if that is asked for."""
        if not self.options.measure:
            return HerdSize()
        return measure_herd(self.spark, self.place, job=self.options.job)

    def do(self, stage: Stage) -> None:
        work: dict[Stage, Callable[[], StageReport]] = {
            "roll-up": self._roll_up,
            "materialize": self._do_materialize,
            "compact": self._compact,
            "collect": self._collect,
            "scrub": self._scrub,
            "verify": self._verify,
        }
        self._emit(RunEvent(kind="begun", stage=stage))
        started_us = self.runtime.now_us()
        report = work[stage]()
        report = replace(report, seconds=(self.runtime.now_us() - started_us) / 1e6)
        self.reports.append(report)
        self._emit(RunEvent(kind="ended", stage=stage, report=report))

    def _roll_up(self) -> StageReport:
        counted = CountedStore(open_store(self.place))
        options = RollUpOptions(age_s=self.options.age_s, records=self.options.records)

        async def find() -> RolledUp:
            async with Herd.open(counted, server=self.server, runtime=self.runtime) as herd:
                return await roll_up(herd, options=options)

        found = loop_thread().run(find)
        self._selected = [each.log_id for each in found.selected]
        return StageReport(
            stage="roll-up",
            seconds=0,
            logs=len(found.dirty),
            records=sum(each.records for each in found.dirty),
            figures={
                "marks": found.marks,
                "selected": len(found.selected),
                "clean": found.clean,
                "gone": found.gone,
            },
            requests=counted.usage,
            troubles=texts_of(found.troubles),
        )

    def _do_materialize(self) -> StageReport:
        assert self.merge is not None

        def on_progress(each: MaterializeProgress) -> None:
            self._progress("materialize", each.done, each.total, _UNITS[each.stage])

        done = materialize(
            self.spark,
            self.place,
            self.merge,
            log_ids=self._selected,
            options=MaterializeOptions(job=self.options.job, cursor=self.options.cursor),
            on_progress=on_progress,
            runtime=self.runtime,
        )
        self._materialized = [each.log_id for each in done.logs]
        return _report(
            "materialize",
            done,
            len(done.logs),
            (done.bytes_in, done.bytes_out),
            rows=done.rows,
            unchanged=done.unchanged,
            caught_up=done.caught_up,
            plan_s=round(done.plan_s, 3),
            merge_s=round(done.merge_s, 3),
            publish_s=round(done.publish_s, 3),
        )

    def _compact(self) -> StageReport:
        options = HerdCompactOptions(
            interval_s=self.options.interval_s, trust_policies=self.options.trust_policies
        )
        log_ids = None if self.everything else self._selected
        begin = partial(compact_herd, log_ids=log_ids, options=options)
        done = self._begun("compact", begin, unit="logs")
        self._retained = [each.log_id for each in done.retained]
        return _report(
            "compact",
            done,
            done.changed,
            (done.bytes_before, done.bytes_after),
            looked_at=done.looked_at,
            policies=done.policies,
            asked=len(done.logs),
            not_due=done.not_due,
            retention_moved=len(done.retained),
            retention_bytes=sum(each.num_bytes for each in done.retained),
            gone=done.gone,
        )

    def _collect(self) -> StageReport:
        options = self.options
        changed = None
        if not self.everything and self._materialized is not None:
            changed = [*dict.fromkeys((*self._materialized, *self._retained))]
        collecting = HerdCollectOptions(
            cursor=options.cursor,
            job=options.job,
            interval_s=options.interval_s,
            sweep=options.sweep,
        )
        begin = partial(collect_herd, log_ids=changed, options=collecting)
        done = self._begun("collect", begin)
        return _report(
            "collect",
            done,
            len(done.logs),
            (done.bytes_before, done.bytes_after),
            looked_at=done.looked_at,
            objects=done.objects,
            gone=done.gone,
        )

    def _scrub(self) -> StageReport:
        options = HerdScrubOptions(keep_audits=self.options.keep_audits)
        done = self._begun("scrub", partial(scrub_herd, options=options))
        self.proof = Proof(
            audit=done.run,
            logs=len(done.logs),
            compared=len(done.compared),
            records=done.records,
            expected_sum=done.expected_sum,
            actual_sum=done.actual_sum,
            collected_sum=done.collected_sum,
            damages=texts_of(
                f"{log.label}: {each.path}: {describe(each)}"
                for log in done.damaged
                for each in log.damages
            ),
        )
        return _report(
            "scrub",
            done,
            len(done.logs),
            (done.num_bytes, done.num_bytes),
            fragments=done.fragments,
            damages=done.damages,
            gone=done.gone,
            audit=done.run,
        )

    def _verify(self) -> StageReport:
        options = HerdVerifyOptions(cursor=self.options.cursor, job=self.options.job)
        done = self._begun("verify", partial(verify_herd, options=options))
        self.findings = texts_of(done.findings)
        return _report(
            "verify",
            done,
            len(done.logs),
            (done.num_bytes, done.num_bytes),
            findings=len(done.findings),
            marks=done.marks,
            waiting=done.waiting,
            gone=done.gone,
        )

    def _begun(self, stage: Stage, begin: Callable[..., T], unit: str = "tasks") -> T:
        """What a job comes to, whose progress is that of its stage."""
        on_progress = partial(self._progress, stage, unit=unit)
        return begin(self.spark, self.place, on_progress=on_progress, runtime=self.runtime)

    def _progress(self, stage: Stage, done: int, total: int, unit: str) -> None:
        self._emit(RunEvent(kind="progress", stage=stage, done=done, total=total, unit=unit))

    def _emit(self, event: RunEvent) -> None:
        if self.on_event is not None:
            self.on_event(event)


def _report(
    stage: Stage,
    done: Materialized | HerdCompact | HerdCollect | HerdScrub | HerdVerify,
    logs: int,
    num_bytes: tuple[int, int],
    **figures: float | str,
) -> StageReport:
    """What a job did, in the form that all have. ``num_bytes`` are those before and after."""
    errors = [each.error for each in done.troubles if isinstance(each, Trouble)]
    return StageReport(
        stage=stage,
        seconds=0,
        logs=logs,
        records=done.records,
        bytes_before=num_bytes[0],
        bytes_after=num_bytes[1],
        figures=figures,
        requests=done.usage,
        troubles=texts_of(done.troubles),
        corrupt=sum(isinstance(each, Corrupt) for each in errors),
    )
