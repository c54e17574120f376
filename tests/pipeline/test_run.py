"""The whole pipeline: once, again, killed anywhere, round after round."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from objectlog.whole_log import FakeClock, check_whole_log, run
from pipeline.herds import KEY, delete, drop, fill, ids_of, paths_below, root_of, store_of
from stratalog.errors import Invalid, NotFound
from stratalog.pipeline import (
    HerdCollectOptions,
    HerdScrubOptions,
    HerdVerifyOptions,
    RunEvent,
    RunOptions,
    collect_herd,
    latest_by_key,
    read_output,
    run_forever,
    run_pipeline,
    scrub_herd,
    verify_herd,
)
from stratalog.pipeline.check.audit import read_audit, runs
from stratalog.pipeline.run.run import _is_due
from stratalog.pipeline.run.run_report import STAGES, RunReport
from stratalog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE = RunOptions(interval_s=0.0)
LOGS = {f"log-{number:02d}": 5 + 7 * number for number in range(20)}


class Killed(Exception):
    """What happens to a process that is killed: nothing of ours catches it."""


def run_all(spark: SparkSession, root: str, **options: object) -> RunReport:
    return run_pipeline(
        spark,
        root,
        server="worker",
        merge=KEY,
        options=AT_ONCE,
        **options,  # type: ignore[arg-type]
    )


def latest_of(spark: SparkSession, root: str, name: str) -> dict[str, int]:
    rows = read_output(spark, root, "latest", [name]).select("key", "offset").collect()
    return {row["key"]: row["offset"] for row in rows}


def test_a_run_does_everything_and_the_next_finds_nothing_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    fill(root, LOGS)
    events: list[RunEvent] = []
    report = run_all(spark, root, on_event=events.append)
    assert report.ok, report
    assert [each.stage for each in report.stages] == list(STAGES)
    records = sum(LOGS.values())
    rolled, merged, compacted, collected, scrubbed, verified = report.stages
    assert (rolled.logs, rolled.records, rolled.figures["selected"]) == (20, records, 20)
    assert (merged.logs, merged.records) == (20, records)
    assert (compacted.logs, compacted.records, compacted.figures["policies"]) == (0, 0, 0)
    assert (collected.logs, collected.records, collected.bytes_after) == (20, records, 0)
    assert (scrubbed.logs, scrubbed.records) == (20, 0)
    assert (verified.logs, verified.figures["findings"]) == (20, 0)
    assert report.before is not None
    assert report.after is not None
    assert (report.before.records, report.after.records) == (records, 0)
    assert report.after.output_rows == sum(min(10, count) for count in LOGS.values())
    assert sum(each.before for each in report.sizes) == 20
    sizes = [each.bytes_before for each in report.largest]
    assert (len(sizes), sizes) == (20, sorted(sizes, reverse=True))
    assert report.proof is not None
    assert report.proof.holds
    assert report.requests.class_a_requests > 0
    assert [each.stage for each in events if each.kind == "begun"] == list(STAGES)
    assert [each.report for each in events if each.kind == "ended"] == list(report.stages)
    told = json.loads(json.dumps(report.to_dict()))
    assert (told["ok"], told["stages"][1]["records"]) == (True, records)
    assert latest_of(spark, root, "log-19")["key-7"] == LOGS["log-19"]

    again = run_all(spark, root)
    assert again.ok
    assert [each.logs for each in again.stages[:4]] == [0, 0, 0, 0]
    assert again.before == again.after == report.after
    assert again.proof is not None
    assert again.proof.collected_sum == report.proof.collected_sum


def test_a_run_that_is_killed_between_stages_is_resumed(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    counts = {f"log-{number}": 20 for number in range(4)}
    fill(root, counts)
    for number, stage in enumerate(STAGES[1:]):

        def kill(event: RunEvent, stage: str = stage) -> None:
            if event.kind == "begun" and event.stage == stage:
                raise Killed

        with pytest.raises(Killed):
            run_all(spark, root, on_event=kill)
        fill(root, {f"log-{number}": 5})
    report = run_all(spark, root)
    assert report.ok, report
    assert report.after is not None
    assert report.after.records == 0
    for name in counts:
        assert max(latest_of(spark, root, name).values()) == 25
    assert run_all(spark, root, stages=("roll-up", "verify")).stages[0].logs == 0


def test_a_log_that_is_dropped_under_a_run_does_not_stop_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 20, "b": 20, "c": 20})

    def change(event: RunEvent) -> None:
        if event.kind == "begun" and event.stage == "collect":
            drop(root, "b")
        elif event.kind == "begun" and event.stage == "scrub":
            drop(root, "c")

    report = run_all(spark, root, on_event=change)
    assert report.ok, report
    assert [each.logs for each in report.stages] == [3, 3, 0, 2, 1, 1]
    assert report.after is not None
    assert report.after.logs == 1


@pytest.mark.s3
def test_a_herd_in_a_bucket_is_kept_in_the_same_way(spark: SparkSession, s3_url: str) -> None:
    """With jobs whose tasks open the bucket: the client does not survive the fork of a worker."""
    fill(s3_url, {"a": 20, "b": 20}, fragments=4)
    scrubbed = scrub_herd(spark, s3_url, options=HerdScrubOptions(here_max=0))
    assert (scrubbed.clean, scrubbed.records) == (True, 40)
    assert read_audit(spark, s3_url).where("verdict = 'ok'").count() == 2 * 4 + 2
    assert run_all(spark, s3_url, stages=("roll-up", "materialize")).ok
    collected = collect_herd(spark, s3_url, options=HerdCollectOptions(interval_s=0.0, here_max=0))
    assert (collected.records, collected.troubles) == (40, ())
    assert verify_herd(spark, s3_url, options=HerdVerifyOptions(here_max=0)).ok


def test_damage_is_told_and_the_others_are_done(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 20, "b": 20})
    delete(root, paths_below(root, f"logs/{ids_of(root)['b']}/log/")[0])
    report = run_all(spark, root)
    assert report.failure is None
    assert (report.ok, report.is_damaged) == (False, True)
    merged = report.stage("materialize")
    assert merged is not None
    assert (merged.logs, len(merged.troubles), merged.corrupt) == (1, 1, 1)
    assert report.proof is not None
    assert [damage.split(":")[0] for damage in report.proof.damages] == ["b"]
    assert "fragment-missing" in report.proof.damages[0]
    run(check_whole_log(store_of(root, "a")))


def test_an_error_that_ends_a_stage_ends_the_run_with_a_report(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 20})
    report = run_pipeline(spark, root, server="worker", merge="no_such_column", options=AT_ONCE)
    assert [each.stage for each in report.stages] == ["roll-up"]
    assert isinstance(report.error, Invalid)
    assert report.failure is not None
    assert report.failure.kind == "invalid"
    assert not report.ok
    assert run_all(spark, root).ok


def test_the_whole_herd_is_looked_at_once_in_a_while_also_without_audits(tmp_path: Path) -> None:
    root, clock = root_of(tmp_path), FakeClock(1_000_000)
    assert _is_due(root, None, 60.0, clock), "the first time"
    assert not _is_due(root, clock.time_us, 60.0, clock)
    clock.time_us += 60_000_000
    assert _is_due(root, 1_000_000, 60.0, clock)


def test_a_wrong_call_is_refused_before_anything_is_done(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    for wrong in ({"stages": ()}, {"stages": ("sweep",)}, {"merge": None}, {"server": "a/b"}):
        with pytest.raises(Invalid):
            run_pipeline(
                spark,
                root,
                **{"server": "worker", "merge": KEY, **wrong},  # type: ignore[arg-type]
            )
    report = run_all(spark, root)
    assert isinstance(report.error, NotFound)
    assert paths_below(root, "") == [], "a misspelt place is not made a herd"
    with pytest.raises(Invalid):
        RunOptions(records=0)


def test_rounds_follow_each_other_and_a_bad_one_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 20})
    stop, broken = threading.Event(), threading.Event()
    reports: list[RunReport] = []
    waits_s: list[float] = []

    def on_event(event: RunEvent) -> None:
        if event.round is None:
            return
        reports.append(event.round)
        waits_s.append(event.wait_s)
        if len(reports) == 1:
            fill(root, {"a": 5})
            broken.set()
        elif len(reports) == 2:
            broken.clear()
        elif len(reports) == 4:
            stop.set()

    def merge(last: DataFrame | None, added: DataFrame) -> DataFrame:
        if broken.is_set():
            raise Invalid("not today")
        return latest_by_key(KEY)(last, added)

    options = {"server": "worker", "merge": merge, "options": AT_ONCE, "every_s": 0.0}
    count = run_forever(spark, root, stop=stop, on_event=on_event, **options)  # type: ignore[arg-type]
    assert count == 4
    assert [report.failure is None for report in reports] == [True, False, True, True]
    assert waits_s == [0.0, 2.0, 0.0, 0.0]
    assert [len(report.stages) for report in reports] == [6, 1, 4, 4], "scrubbed once a day"
    merged = [report.stage("materialize") for report in reports]
    assert [each.records for each in merged if each] == [20, 5, 0]
    collected = [report.stage("collect") for report in reports]
    assert [each.records for each in collected if each] == [20, 5, 0]
    assert len(run(runs(open_store(root)))) == 1
