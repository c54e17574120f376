"""The pipeline: the jobs over a herd, one after the other, once or for ever.

    roll-up ──► materialize ──► compact ──► collect ──► scrub ──► verify
    marks       what waits      what no     what is     all       how it fits
                                longer      merged or   records   together
                                lives       too old

Each stage finds its work in what is stored and is idempotent. So a run that was killed anywhere is
resumed by the next one, on any machine, and two runs at a time do some work twice and nothing
wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid, NotFound, StratalogError
from stratalog.herd import check_name
from stratalog.pipeline.check import load_whole_audit
from stratalog.pipeline.jobs import check_herd, place_of, require
from stratalog.pipeline.materialize import Merge, latest_by_key
from stratalog.pipeline.outputs import HerdSize
from stratalog.pipeline.run.run_report import (
    STAGES,
    Failure,
    OnEvent,
    RunEvent,
    RunReport,
    Stage,
    Totals,
    largest_logs,
    size_bins,
)
from stratalog.pipeline.run.stages import RunOptions, Stages
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import PatientStore, open_store, redact

BACK_OFF_S_MAX = 3600.0
AUDIT_TIMEOUT_S = 30.0
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
    return _run(spark, root_url, server, merge, on_event, runtime, stages, options)


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

    A round that fails is reported like any other, and the next one comes later and later. What
    looks at the whole herd (scrub, verify, collecting what others have left) is done in the first
    round and then every ``thorough_every_s``, counted from the last time or from the newest audit
    of all logs, which may be another worker's.
    """
    require(every_s >= 0, "every_s is not negative")
    require(thorough_every_s >= 0, "thorough_every_s is not negative")
    run = partial(_run, spark, root_url, server, merge, on_event, runtime)
    rounds = failures = 0
    thorough_us: int | None = None
    while not stop.is_set():
        thorough = _is_due(root_url, thorough_us, thorough_every_s, runtime)
        if thorough:
            thorough_us = runtime.now_us()
        chosen = [each for each in stages if thorough or each not in ("scrub", "verify")]
        within = options if thorough else replace(options, measure=False)
        report = run(chosen, within, everything=thorough)
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
    """Whether it is time to look at the whole herd, and no other worker has done it."""

    def is_old(time_us: int) -> bool:
        return runtime.now_us() - time_us >= every_s * 1e6

    if last_us is None or not is_old(last_us):
        return last_us is None
    root = PatientStore(open_store(place_of(root_url)), runtime, AUDIT_TIMEOUT_S)
    try:
        audit = loop_thread().run(lambda: load_whole_audit(root))
    except StratalogError:
        return True
    return audit is None or is_old(audit.started_us)


def _run(
    spark: SparkSession,
    root_url: str,
    server: str,
    merge: Merge | str | None,
    on_event: OnEvent | None,
    runtime: Runtime,
    chosen: Sequence[Stage],
    options: RunOptions,
    *,
    everything: bool = True,
) -> RunReport:
    """With ``everything`` also what an earlier run has left is compacted and collected."""
    merge = latest_by_key(merge) if isinstance(merge, str) else merge
    place, server = place_of(root_url), check_name(server, "server")
    stages = Stages(spark, place, server, merge, options, on_event, runtime, everything)
    chosen, started_us = _checked(chosen, merge), runtime.now_us()
    before, after = HerdSize(), HerdSize()
    error: StratalogError | None = None
    try:
        loop_thread().run(lambda: check_herd(open_store(place)))
        before = stages.measured()
        for stage in chosen:
            stages.do(stage)
        after = stages.measured()
    except StratalogError as raised:
        error = raised
    measured = options.measure and error is None
    return RunReport(
        root=redact(place),
        server=server,
        started_us=started_us,
        ended_us=runtime.now_us(),
        stages=tuple(stages.reports),
        before=Totals.of(before) if measured else None,
        after=Totals.of(after) if measured else None,
        sizes=size_bins(before.logs, after.logs) if measured else (),
        largest=largest_logs(before.logs, after.logs) if measured else (),
        proof=stages.proof,
        findings=stages.findings,
        failure=None if error is None else Failure.of(error),
        error=error,
    )


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
