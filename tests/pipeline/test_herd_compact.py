"""The stage `compact`: each log is kept as its policy says, and one without is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stratalog as sl
from objectlog.whole_log import check_whole_log, rows_of, run
from pipeline.herds import KEY, delete, drop, fill, ids_of, paths_below, root_of, store_of
from stratalog.errors import Corrupt, Invalid, NotFound
from stratalog.objectlog.stored.policy import POLICY_CURSOR, POLICY_PATH
from stratalog.pipeline import (
    HerdCompact,
    HerdCompactOptions,
    RunEvent,
    RunOptions,
    compact_herd,
    run_pipeline,
)
from stratalog.pipeline.materialize import MaterializeOptions
from stratalog.pipeline.run import OnEvent
from stratalog.pipeline.run.run import _run
from stratalog.pipeline.run.run_report import STAGES, RunReport, Stage
from stratalog.runtime import DEFAULT_RUNTIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = HerdCompactOptions(interval_s=0.0)
RUN_NOW = RunOptions(interval_s=0.0)
ALL_DEAD_GO = sl.Thresholds(live_share_min=1.0)
BY_QUERY = sl.Policy(
    live=sl.Live(sql=f"SELECT max(offset) FROM log GROUP BY {KEY}"), thresholds=ALL_DEAD_GO
)
BY_KEY = sl.Policy(live=sl.Live(key=KEY), thresholds=ALL_DEAD_GO)
DEAD, LEFT = 45, 15
"""Of 60 records in 6 fragments: the newest one stays whole, and has half of the keys."""

NEWEST_ONLY = sl.Policy(retain=sl.Retention(bytes=1))


def set_policy(root: str, name: str, policy: sl.Policy) -> None:
    run(sl.PolicyStore(store_of(root, name)).set(policy))


def policy_of(root: str, name: str) -> sl.Policy:
    return run(sl.PolicyStore(store_of(root, name)).load())


def cursor_of(root: str, name: str, cursor: str = POLICY_CURSOR) -> int | None:
    store = store_of(root, name)

    async def main() -> int | None:
        try:
            return (await sl.CursorStore(store).load(cursor)).offset
        except NotFound:
            return None

    return run(main())


def offsets_of(root: str, name: str) -> list[int]:
    return [offset for offset, _, _ in run(rows_of(store_of(root, name)))]


def compact_now(spark: SparkSession, root: str, **options: object) -> HerdCompact:
    return compact_herd(spark, root, options=NOW, **options)  # type: ignore[arg-type]


def run_now(
    spark: SparkSession, root: str, *stages: Stage, on_event: OnEvent | None = None
) -> RunReport:
    chosen = stages or STAGES
    return run_pipeline(
        spark,
        root,
        server="worker",
        merge=KEY if "materialize" in chosen else None,
        stages=chosen,
        options=RUN_NOW,
        on_event=on_event,
    )


def test_each_log_is_kept_as_its_policy_says(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"free": 60, "by-query": 60, "short": 60}, fragments=6)
    set_policy(root, "by-query", BY_QUERY)
    set_policy(root, "short", NEWEST_ONLY)
    before = {name: offsets_of(root, name) for name in ("free", "by-query", "short")}
    report = run_now(spark, root, "compact", "collect", "scrub")
    assert report.ok, report
    compacted, collected, scrubbed = report.stages
    assert (compacted.logs, compacted.figures["policies"], compacted.figures["asked"]) == (1, 2, 1)
    assert (compacted.records, compacted.figures["retention_moved"]) == (DEAD, 1)
    assert 0 < compacted.bytes_after < compacted.bytes_before
    assert (collected.logs, collected.records) == (1, 50)
    assert scrubbed.records == 60 + LEFT + 10
    assert offsets_of(root, "free") == before["free"]
    assert set(offsets_of(root, "by-query")) > set(range(51, 61))
    assert offsets_of(root, "short") == list(range(51, 61))
    run(check_whole_log(store_of(root, "by-query"), compacted=True))
    assert policy_of(root, "by-query").judged == 61

    again = run_now(spark, root, "compact", "collect")
    assert again.stages[0].figures["not_due"] == 1
    assert [each.logs for each in again.stages] == [0, 0]
    fill(root, {"by-query": 60, "short": 20}, fragments=6)
    third = run_now(spark, root, "compact", "collect")
    assert third.stages[0].records > 0
    assert third.stages[1].logs == 1
    assert policy_of(root, "by-query").judged == 121


def test_by_key_many_logs_are_done_at_once(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    names = [f"log-{number}" for number in range(3)]
    fill(root, dict.fromkeys(names, 60), fragments=6)
    for name in names[:2]:
        set_policy(root, name, BY_KEY)
    done = compact_now(spark, root)
    assert done.troubles == ()
    assert sorted(each.log_id for each in done.logs) == sorted(
        ids_of(root)[name] for name in names[:2]
    )
    assert done.records == 2 * DEAD, "the newest fragment is never changed"
    for name in names[:2]:
        run(check_whole_log(store_of(root, name), compacted=True))
        assert policy_of(root, name).judged == 61
    assert len(offsets_of(root, names[2])) == 60


@pytest.mark.parametrize("policy", [BY_KEY, BY_QUERY], ids=["key", "query"])
def test_a_policy_that_changes_meanwhile_stops_it(
    spark: SparkSession, tmp_path: Path, policy: sl.Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner has seen that the rule was wrong, while the query ran."""
    root = root_of(tmp_path)
    fill(root, {"a": 60}, fragments=6)
    set_policy(root, "a", policy)
    check, other = sl.PolicyStore.check_live, sl.PolicyStore(store_of(root, "a"))

    async def corrected(self: sl.PolicyStore, live: sl.Live | None) -> None:
        await other.set(sl.Policy(live=sl.Live(key="offset")))
        await check(self, live)

    monkeypatch.setattr(sl.PolicyStore, "check_live", corrected)
    done = compact_now(spark, root)
    assert [str(each.error) for each in done.troubles] == [
        "the policy was changed since it was loaded"
    ]
    assert len(offsets_of(root, "a")) == 60


def test_a_query_is_a_question_and_no_command(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 60, "b": 60}, fragments=6)
    set_policy(root, "a", sl.Policy(live=sl.Live(sql="DROP VIEW log")))
    set_policy(root, "b", BY_QUERY)
    done = compact_now(spark, root)
    assert [each.log for each in done.troubles] == ["a"]
    assert isinstance(done.troubles[0].error, Invalid)
    assert [each.log for each in done.logs] == ["b"]


def test_no_job_moves_the_cursor_of_a_policy() -> None:
    with pytest.raises(Invalid, match="belongs to the policy"):
        RunOptions(cursor=POLICY_CURSOR)
    with pytest.raises(Invalid, match="belongs to the policy"):
        MaterializeOptions(cursor=POLICY_CURSOR)


def test_what_lives_is_not_cut_off_by_what_was_materialized(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    fill(root, {"state": 60, "events": 60}, fragments=6)
    set_policy(root, "state", BY_KEY)
    report = run_now(spark, root)
    assert report.ok, report
    assert cursor_of(root, "state", "compaction") == 61
    assert cursor_of(root, "state") == 1
    collected = report.stage("collect")
    assert collected is not None
    assert (collected.logs, collected.records) == (1, 60)
    assert len(offsets_of(root, "state")) == LEFT
    assert offsets_of(root, "events") == []
    again = run_now(spark, root)
    assert again.ok
    assert len(offsets_of(root, "state")) == LEFT


def test_retention_waits_for_a_slower_cursor(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 60}, fragments=6)
    set_policy(root, "a", NEWEST_ONLY)
    run(sl.CursorStore(store_of(root, "a")).create("billing", 25))
    assert run_now(spark, root, "compact", "collect").ok
    assert cursor_of(root, "a") == 51
    assert offsets_of(root, "a")[0] == 21, "the fragment that holds the slower cursor"


def test_by_age_old_fragments_go(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"old": 60, "young": 60}, fragments=6)
    set_policy(root, "old", sl.Policy(retain=sl.Retention(age_s=0.000001)))
    set_policy(root, "young", sl.Policy(retain=sl.Retention(age_s=3600)))
    report = run_now(spark, root, "compact", "collect")
    assert report.ok
    assert offsets_of(root, "old") == list(range(51, 61))
    assert len(offsets_of(root, "young")) == 60


def test_a_log_is_cut_by_size_only_after_what_is_dead_has_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 60}, fragments=6)
    waiting = sl.Policy(
        live=BY_QUERY.live,
        retain=NEWEST_ONLY.retain,
        thresholds=sl.Thresholds(new_records_min=1000),
    )
    set_policy(root, "a", waiting)
    done = compact_now(spark, root)
    assert (done.not_due, done.retained) == (1, ())
    set_policy(root, "a", sl.Policy(live=sl.Live(sql="nonsense"), retain=NEWEST_ONLY.retain))
    done = compact_now(spark, root)
    assert (len(done.troubles), done.retained) == (1, ())
    set_policy(root, "a", sl.Policy(live=BY_QUERY.live, retain=NEWEST_ONLY.retain))
    done = compact_now(spark, root)
    assert [each.offset for each in done.retained] == [51]


def test_one_that_fails_does_not_stop_the_others(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    names = ("wrong", "damaged", "lost", "good", "newer")
    fill(root, dict.fromkeys(names, 60), fragments=6)
    set_policy(root, "wrong", sl.Policy(live=sl.Live(sql="SELECT no_such_column FROM log")))
    for name in ("good", "lost"):
        set_policy(root, name, BY_QUERY)
    run(store_of(root, "damaged").put_if_absent(POLICY_PATH, b"{"))
    run(store_of(root, "newer").put_if_absent(POLICY_PATH, b'{"live":{"oracle":"delphi"}}'))
    delete(root, paths_below(root, f"logs/{ids_of(root)['lost']}/log/")[0])
    report = run_now(spark, root, "compact", "collect")
    assert report.failure is None
    (compacted, _) = report.stages
    assert (compacted.logs, compacted.records, len(compacted.troubles)) == (1, DEAD, 4)
    assert compacted.corrupt == 2
    for name in names:
        told = any(f"the log {name}:" in each for each in compacted.troubles)
        assert told is (name != "good"), name
    done = compact_now(spark, root, logs=["wrong", "damaged", "newer"])
    kinds = {each.log: type(each.error) for each in done.troubles}
    assert kinds == {"wrong": Invalid, "damaged": Corrupt, "newer": Invalid}
    assert len(offsets_of(root, "good")) == LEFT


def test_a_log_that_is_dropped_meanwhile_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 60, "b": 60}, fragments=6)
    for name in ("a", "b"):
        set_policy(root, name, BY_QUERY)
    ids = ids_of(root)

    def change(event: RunEvent) -> None:
        if event.kind == "begun" and event.stage == "compact":
            drop(root, "b")

    report = run_now(spark, root, "compact", "collect", on_event=change)
    assert report.ok, report
    assert report.stages[0].records == DEAD
    done = compact_now(spark, root, log_ids=[ids["b"]])
    assert (done.policies, done.troubles) == (0, ())


def test_a_cursor_that_somebody_deleted_is_made_again_before_anything_is_collected(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 60}, fragments=6)
    set_policy(root, "a", BY_QUERY)
    store = store_of(root, "a")

    async def delete_it() -> None:
        await (await sl.CursorStore(store).load(POLICY_CURSOR)).delete()

    run(delete_it())
    assert run_now(spark, root).ok
    assert cursor_of(root, "a") == 1
    assert len(offsets_of(root, "a")) == LEFT


def test_rewriting_in_tasks_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 60, "b": 60}, fragments=6)
    for name in ("a", "b"):
        set_policy(root, name, BY_QUERY)
    told: list[tuple[int, int]] = []
    done = compact_herd(
        spark,
        root,
        options=HerdCompactOptions(interval_s=0.0, here_max=0),
        on_progress=lambda done, due: told.append((done, due)),
    )
    assert (done.records, done.troubles, done.changed) == (2 * DEAD, (), 2)
    assert told[-1] == (2, 2)
    assert {each.log for each in done.logs} == {"a", "b"}
    for name in ("a", "b"):
        run(check_whole_log(store_of(root, name), compacted=True))


def test_a_round_obeys_the_policies_of_the_logs_that_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = root_of(tmp_path)
    fill(root, {"idle": 60, "busy": 60}, fragments=6)
    assert run_now(spark, root, "roll-up", "materialize").ok
    for name in ("idle", "busy"):
        set_policy(root, name, NEWEST_ONLY)
    fill(root, {"busy": 10}, fragments=2)
    stages: list[Stage] = ["roll-up", "materialize", "compact", "collect"]
    asked = (spark, root, "worker", KEY, None, DEFAULT_RUNTIME, stages, RUN_NOW)
    report = _run(*asked, everything=False)
    assert report.ok, report
    assert report.stages[2].figures["looked_at"] == 1
    assert offsets_of(root, "busy") == list(range(66, 71))
    assert len(offsets_of(root, "idle")) == 60, "its turn comes when all are looked at"


def test_options_that_are_none() -> None:
    for wrong in ({"here_max": -1}, {"interval_s": -1.0}, {"timeout_s": 0.0}):
        with pytest.raises(Invalid):
            HerdCompactOptions(**wrong)
