"""The pipeline: the jobs over a herd, one after the other, once or for ever.

    roll-up ──► materialize ──► compact ──► collect ──► scrub ──► verify
    marks       what waits      what no     what is     all       how it fits
                                longer      merged or   records   together
                                lives       too old

Each stage finds its work in what is stored and may be done again without harm. So a run that was
killed anywhere is resumed by the next one, on any machine, and two runs at a time do some work
twice and nothing wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from stratalog.blocking import loop_thread
from stratalog.errors import Corrupt, Invalid, NotFound, StratalogError
from stratalog.herd import COMPACTION, Herd, RolledUp, RollUpOptions, check_name, roll_up
from stratalog.pipeline.check import (
    HerdScrubOptions,
    HerdVerifyOptions,
    describe,
    load_whole_audit,
    scrub_herd,
    verify_herd,
)
from stratalog.pipeline.collect import HerdCollectOptions, collect_herd
from stratalog.pipeline.compact import HerdCompactOptions, compact_herd
from stratalog.pipeline.jobs import (
    Trouble,
    check_herd,
    check_job_cursor,
    open_root,
    place_of,
    require,
)
from stratalog.pipeline.materialize import (
    MaterializeOptions,
    MaterializeProgress,
    Merge,
    latest_by_key,
    materialize,
)
from stratalog.pipeline.outputs import HerdSize, measure_herd
from stratalog.pipeline.run.run_report import (
    STAGES,
    Failure,
    Proof,
    RunReport,
    Stage,
    StageReport,
    Totals,
    largest_logs,
    size_bins,
    told,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import CountedStore, PatientStore, redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BACK_OFF_S_MAX = 3600.0
AUDIT_TIMEOUT_S = 30.0
_MERGING = {"plan": "logs looked at", "merge": "tasks", "publish": "logs published"}


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

    measure: bool = True
    """Measure the herd before and after: one or two reads a log, each time."""

    def __post_init__(self) -> None:
        check_name(self.job, "job")
        check_job_cursor(self.cursor)
        require(self.age_s >= 0, "age_s is not negative")
        require(self.records >= 1, "records is at least 1")
        require(self.interval_s >= 0, "interval_s is not negative")
        require(self.keep_audits >= 1, "keep_audits is at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that a display may want to show."""

    kind: Literal["begun", "progress", "ended", "round"]
    stage: Stage | None = None
    done: int = 0
    total: int = 0
    unit: str = ""
    report: StageReport | None = None
    """What an ended stage did."""

    round: RunReport | None = None
    """What an ended round did."""

    wait_s: float = 0.0
    """How long it is until the next round."""


OnEvent = Callable[[RunEvent], None]
"""May be called from another thread."""

DEFAULT_OPTIONS = RunOptions()


def run_pipeline(
    spark: SparkSession,
    root_url: str,
    *,
    server: str,
    merge: Merge | str | None = None,
    stages: Sequence[Stage] = STAGES,
    options: RunOptions = DEFAULT_OPTIONS,
    on_event: OnEvent | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> RunReport:
    """Do these stages in their order. ``merge`` may be the SQL expression of a key.

    ``server`` names this worker: the marks that stay are put back under it. An error that ends a
    stage ends the run: the report has it as ``failure``, beside what the stages before it did.
    """
    run = _Run(spark, root_url, server, merge, stages, options, on_event, runtime)
    return run.run()


def run_forever(
    spark: SparkSession,
    root_url: str,
    *,
    server: str,
    merge: Merge | str | None = None,
    stages: Sequence[Stage] = STAGES,
    options: RunOptions = DEFAULT_OPTIONS,
    every_s: float,
    stop: threading.Event,
    thorough_every_s: float = 86_400.0,
    on_event: OnEvent | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> int:
    """Round after round, ``every_s`` apart, until ``stop`` is set. Gives how many there were.

    A round that fails is told like any other, and the next one comes later and later. What looks at
    the whole herd (scrub, verify, collecting what others have left) is done in the first round and
    then every ``thorough_every_s``, counted from the last time or from the newest audit of all
    logs, which may be another worker's.
    """
    require(every_s >= 0, "every_s is not negative")
    require(thorough_every_s >= 0, "thorough_every_s is not negative")
    rounds = failures = 0
    thorough_us: int | None = None
    while not stop.is_set():
        thorough = _is_due(root_url, thorough_us, thorough_every_s, runtime)
        if thorough:
            thorough_us = runtime.now_us()
        chosen = [each for each in stages if thorough or each not in ("scrub", "verify")]
        chosen_options = options if thorough else replace(options, measure=False)
        run = _Run(spark, root_url, server, merge, chosen, chosen_options, on_event, runtime)
        report = run.run(everything=thorough)
        if rounds == 0 and isinstance(report.error, Invalid | NotFound):
            raise report.error  # the call is wrong: no later round would go better
        rounds += 1
        failures = failures + 1 if report.failure is not None else 0
        wait_s = min(max(1.0, every_s) * 2**failures, BACK_OFF_S_MAX) if failures else every_s
        if on_event is not None:
            on_event(RunEvent(kind="round", round=report, wait_s=wait_s))
        stop.wait(wait_s)
    return rounds


def _is_due(root_url: str, last_us: int | None, every_s: float, runtime: Runtime) -> bool:
    """Whether it is time to look at the whole herd, and nobody else has done it."""

    def is_old(time_us: int) -> bool:
        return runtime.now_us() - time_us >= every_s * 1e6

    if last_us is None or not is_old(last_us):
        return last_us is None
    root = PatientStore(open_root(place_of(root_url)), runtime, AUDIT_TIMEOUT_S)
    try:
        audit = loop_thread().run(lambda: load_whole_audit(root))
    except StratalogError:
        return True
    return audit is None or is_old(audit.started_us)


class _Run:
    """One run, and what its stages have found so far."""

    def __init__(
        self,
        spark: SparkSession,
        root_url: str,
        server: str,
        merge: Merge | str | None,
        stages: Sequence[Stage],
        options: RunOptions,
        on_event: OnEvent | None,
        runtime: Runtime,
    ) -> None:
        self._spark = spark
        self._place = place_of(root_url)
        self._server = check_name(server, "server")
        self._merge = latest_by_key(merge) if isinstance(merge, str) else merge
        self._stages = _checked(stages, self._merge)
        self._options = options
        self._on_event = on_event
        self._runtime = runtime
        self._everything = True
        self._selected: list[str] | None = None
        self._materialized: list[str] | None = None
        self._retained: list[str] = []
        self._reports: list[StageReport] = []
        self._proof: Proof | None = None
        self._findings: tuple[str, ...] | None = None

    def run(self, *, everything: bool = True) -> RunReport:
        """With ``everything`` also what an earlier run has left is collected."""
        self._everything = everything
        started_us = self._runtime.now_us()
        before, after = HerdSize(), HerdSize()
        error: StratalogError | None = None
        try:
            loop_thread().run(lambda: check_herd(open_root(self._place)))
            before = self._measured()
            for stage in self._stages:
                self._do(stage)
            after = self._measured()
        except StratalogError as raised:
            error = raised
        measured = self._options.measure and error is None
        return RunReport(
            root=redact(self._place),
            server=self._server,
            started_us=started_us,
            ended_us=self._runtime.now_us(),
            stages=tuple(self._reports),
            before=Totals.of(before) if measured else None,
            after=Totals.of(after) if measured else None,
            sizes=size_bins(before.logs, after.logs) if measured else (),
            largest=largest_logs(before.logs, after.logs) if measured else (),
            proof=self._proof,
            findings=self._findings,
            failure=None if error is None else Failure.of(error),
            error=error,
        )

    def _measured(self) -> HerdSize:
        if not self._options.measure:
            return HerdSize()
        return measure_herd(self._spark, self._place, job=self._options.job)

    def _do(self, stage: Stage) -> None:
        work = {
            "roll-up": self._roll_up,
            "materialize": self._materialize,
            "compact": self._compact,
            "collect": self._collect,
            "scrub": self._scrub,
            "verify": self._verify,
        }[stage]
        self._tell(RunEvent(kind="begun", stage=stage))
        started_us = self._runtime.now_us()
        report = work()
        report = replace(report, seconds=(self._runtime.now_us() - started_us) / 1e6)
        self._reports.append(report)
        self._tell(RunEvent(kind="ended", stage=stage, report=report))

    # The stages

    def _roll_up(self) -> StageReport:
        counted = CountedStore(open_root(self._place))
        options = RollUpOptions(
            age_s=self._options.age_s,
            records=self._options.records,
            compaction_cursor=self._options.cursor,
        )

        async def find() -> RolledUp:
            async with Herd.open(counted, server=self._server) as herd:
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
            troubles=told(found.troubles),
        )

    def _materialize(self) -> StageReport:
        assert self._merge is not None

        def progress(each: MaterializeProgress) -> None:
            self._progress("materialize", each.done, each.total, _MERGING[each.stage])

        done = materialize(
            self._spark,
            self._place,
            self._merge,
            log_ids=self._selected,
            options=MaterializeOptions(job=self._options.job, cursor=self._options.cursor),
            on_progress=progress,
            runtime=self._runtime,
        )
        self._materialized = [each.log_id for each in done.logs]
        return StageReport(
            stage="materialize",
            seconds=0,
            logs=len(done.logs),
            records=done.records,
            bytes_before=done.bytes_in,
            bytes_after=done.bytes_out,
            figures={
                "rows": done.rows,
                "unchanged": done.unchanged,
                "caught_up": done.caught_up,
                "plan_s": round(done.plan_s, 3),
                "merge_s": round(done.merge_s, 3),
                "publish_s": round(done.publish_s, 3),
            },
            requests=done.usage,
            troubles=told(map(str, done.troubles)),
            corrupt=_corrupt(done.troubles),
        )

    def _compact(self) -> StageReport:
        done = compact_herd(
            self._spark,
            self._place,
            log_ids=None if self._everything else self._selected,
            options=HerdCompactOptions(interval_s=self._options.interval_s),
            on_progress=partial(self._progress, "compact", unit="logs"),
            runtime=self._runtime,
        )
        self._retained = [each.log_id for each in done.retained]
        return StageReport(
            stage="compact",
            seconds=0,
            logs=done.changed,
            records=done.records,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
            figures={
                "looked_at": done.looked_at,
                "policies": done.policies,
                "asked": len(done.logs),
                "not_due": done.not_due,
                "retention_moved": len(done.retained),
                "retention_bytes": sum(each.num_bytes for each in done.retained),
                "gone": done.gone,
            },
            requests=done.usage,
            troubles=told(map(str, done.troubles)),
            corrupt=_corrupt(done.troubles),
        )

    def _collect(self) -> StageReport:
        options = self._options
        changed = None
        if not self._everything and self._materialized is not None:
            changed = [*dict.fromkeys((*self._materialized, *self._retained))]
        done = collect_herd(
            self._spark,
            self._place,
            log_ids=changed,
            options=HerdCollectOptions(
                cursor=options.cursor,
                job=options.job,
                interval_s=options.interval_s,
                sweep=options.sweep,
            ),
            on_progress=partial(self._progress, "collect", unit="tasks"),
            runtime=self._runtime,
        )
        return StageReport(
            stage="collect",
            seconds=0,
            logs=len(done.logs),
            records=done.records,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
            figures={"looked_at": done.looked_at, "objects": done.objects, "gone": done.gone},
            requests=done.usage,
            troubles=told(map(str, done.troubles)),
            corrupt=_corrupt(done.troubles),
        )

    def _scrub(self) -> StageReport:
        done = scrub_herd(
            self._spark,
            self._place,
            options=HerdScrubOptions(keep_audits=self._options.keep_audits),
            on_progress=partial(self._progress, "scrub", unit="tasks"),
            runtime=self._runtime,
        )
        self._proof = Proof(
            audit=done.run,
            logs=len(done.logs),
            compared=len(done.compared),
            records=done.records,
            expected_sum=done.expected_sum,
            actual_sum=done.actual_sum,
            collected_sum=done.collected_sum,
            damages=told(
                f"{log.label}: {each.path}: {describe(each)}"
                for log in done.damaged
                for each in log.damages
            ),
        )
        return StageReport(
            stage="scrub",
            seconds=0,
            logs=len(done.logs),
            records=done.records,
            bytes_before=done.num_bytes,
            bytes_after=done.num_bytes,
            figures={
                "fragments": done.fragments,
                "damages": done.damages,
                "gone": done.gone,
                "audit": done.run,
            },
            requests=done.usage,
            troubles=told(done.troubles),
        )

    def _verify(self) -> StageReport:
        done = verify_herd(
            self._spark,
            self._place,
            options=HerdVerifyOptions(cursor=self._options.cursor, job=self._options.job),
            on_progress=partial(self._progress, "verify", unit="tasks"),
            runtime=self._runtime,
        )
        self._findings = told(map(str, done.findings))
        return StageReport(
            stage="verify",
            seconds=0,
            logs=len(done.logs),
            records=done.records,
            bytes_before=done.num_bytes,
            bytes_after=done.num_bytes,
            figures={
                "findings": len(done.findings),
                "marks": done.marks,
                "waiting": done.waiting,
                "gone": done.gone,
            },
            requests=done.usage,
            troubles=told(map(str, done.troubles)),
        )

    # Telling

    def _progress(self, stage: Stage, done: int, total: int, unit: str) -> None:
        self._tell(RunEvent(kind="progress", stage=stage, done=done, total=total, unit=unit))

    def _tell(self, event: RunEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)


def _corrupt(troubles: Sequence[Trouble]) -> int:
    return sum(isinstance(each.error, Corrupt) for each in troubles)


def _checked(stages: Sequence[Stage], merge: Merge | None) -> tuple[Stage, ...]:
    """The stages in their order, each once."""
    unknown = [each for each in stages if each not in STAGES]
    if unknown or not stages:
        raise Invalid(
            f"no stage is called {unknown[0]!r}" if unknown else "a run needs a stage",
            hint=f"Choose from {', '.join(STAGES)}.",
        )
    if "materialize" in stages and merge is None:
        raise Invalid(
            "nobody has said how to materialize",
            hint="Give the key of a record as a SQL expression, or leave the stage out.",
        )
    return tuple(each for each in STAGES if each in stages)
