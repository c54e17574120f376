"""Collection of a herd: what is compacted goes, what is not stays, and one bad log stops nobody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stratalog as sl
from objectlog.leftovers import litter
from objectlog.whole_log import check_whole_log, run
from pipeline.herds import (
    KEY,
    delete,
    drop,
    fill,
    ids_of,
    paths_below,
    root_of,
    set_cursor,
    store_of,
)
from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.stored.plan import GARBAGE_PATH
from stratalog.pipeline import HerdCollectOptions, collect_herd, latest_by_key
from stratalog.pipeline.materialize import materialize
from stratalog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE = HerdCollectOptions(interval_s=0.0)
IN_TASKS = HerdCollectOptions(interval_s=0.0, here_max=0)


def test_what_is_compacted_goes(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    names = [f"log-{number}" for number in range(6)]
    fill(root, dict.fromkeys(names, 40), fragments=4)
    for name in names[:4]:
        set_cursor(root, name, 21)
    done = collect_herd(spark, root, options=IN_TASKS)
    assert sorted(each.log or "" for each in done.logs) == names[:4]
    assert (done.looked_at, done.gone, done.troubles) == (6, 0, ())
    assert done.records == 4 * 20
    for each in done.logs:
        assert (each.records_before, each.records_after, each.records) == (40, 20, 20)
        assert each.bytes_before > each.bytes_after > 0
        assert each.objects == each.fragments + each.snapshots > 0
    assert done.objects == sum(each.objects for each in done.logs)
    assert done.usage.free_requests > 0
    for name in names:
        rows = run(check_whole_log(store_of(root, name)))
        assert rows[0][0] == (21 if name in names[:4] else 1)
    again = collect_herd(spark, root, options=AT_ONCE)
    assert (again.logs, again.records) == ((), 0)


def test_a_collection_that_was_cut_short_is_finished(spark: SparkSession, tmp_path: Path) -> None:
    """It was published, and nothing was deleted: the log begins at its cursor already."""
    root = root_of(tmp_path)
    fill(root, {"a": 40}, fragments=4)
    set_cursor(root, "a", 21)
    store = store_of(root, "a")

    async def begin() -> None:
        collector = sl.Collector(store)
        await collector.compute()
        await collector.publish()

    run(begin())
    objects = len(paths_below(root, f"logs/{ids_of(root)['a']}/log/"))
    done = collect_herd(spark, root, options=AT_ONCE)
    assert [(each.records, each.fragments) for each in done.logs] == [(0, 2)]
    assert len(paths_below(root, f"logs/{ids_of(root)['a']}/log/")) == objects - 2


def test_a_log_that_fails_is_told_and_the_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 40, "b": 40, "c": 40, "d": 40}, fragments=4)
    for name in "abc":
        set_cursor(root, name, 21)
    ids = ids_of(root)
    path = f"logs/{ids['b']}/{GARBAGE_PATH}"
    run(open_store(root).put_if_absent(path, b"this is no plan"))
    drop(root, "c")
    done = collect_herd(spark, root, log_ids=[*ids.values()], options=AT_ONCE)
    assert [each.log for each in done.logs] == ["a"]
    assert done.gone == 1
    told = {each.log: type(each.error) for each in done.troubles}
    assert told == {ids["b"]: Corrupt, ids["d"]: Invalid}
    assert "cursor" in next(str(each) for each in done.troubles if each.log == ids["d"])


def test_leftovers_are_tidied_and_swept_if_asked(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 40}, fragments=4)
    set_cursor(root, "a", 21)
    log_id = ids_of(root)["a"]
    run(litter(store_of(root, "a")))
    left = f"outputs/latest/{log_id}/0123456789ab-1.parquet"
    run(open_store(root).put_if_absent(left, b"nobody names this"))
    untouched = HerdCollectOptions(interval_s=0.0, job=None)
    (first,) = collect_herd(spark, root, options=untouched).logs
    assert (first.output_files, first.swept) == (0, 0)
    options = HerdCollectOptions(interval_s=0.0, sweep=True)
    (second,) = collect_herd(spark, root, logs=["a"], options=options).logs
    assert second.output_files == 1
    assert second.swept > 0
    assert left not in paths_below(root, "outputs/")
    run(check_whole_log(store_of(root, "a")))


def test_a_sweep_is_about_all_logs(spark: SparkSession, tmp_path: Path) -> None:
    """Also about those that have nothing to give back, or no cursor at all."""
    root = root_of(tmp_path)
    fill(root, {"a": 40, "b": 40, "c": 40}, fragments=4)
    for name, offset in (("a", 21), ("b", 1)):
        set_cursor(root, name, offset)
    for name in "abc":
        run(litter(store_of(root, name)))
    options = HerdCollectOptions(interval_s=0.0, sweep=True)
    done = collect_herd(spark, root, options=options)
    assert done.troubles == ()
    assert {each.log: each.records for each in done.logs} == {"a": 20, "b": 0, "c": 0}
    assert all(each.swept for each in done.logs)
    for name in "abc":
        run(check_whole_log(store_of(root, name)))


def test_outputs_of_dropped_logs_go_with_a_sweep(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"dropped": 20, "renewed": 20, "kept": 20, "lost": 20})
    materialize(spark, root, latest_by_key(KEY))
    ids = ids_of(root)
    for name in ("dropped", "renewed"):
        drop(root, name)
    fill(root, {"renewed": 5})
    for path in paths_below(root, f"logs/{ids['lost']}/"):
        delete(root, path)
    collect_herd(spark, root, options=HerdCollectOptions(interval_s=0.0))
    assert {path.split("/")[2] for path in paths_below(root, "outputs/")} == {*ids.values()}
    done = collect_herd(spark, root, options=HerdCollectOptions(interval_s=0.0, sweep=True))
    assert done.dropped_files == 4
    left = {path.split("/")[2] for path in paths_below(root, "outputs/")}
    assert left == {ids["kept"], ids["lost"]}, "what is the last copy stays"


def test_the_wait_for_slow_readers_is_shared(spark: SparkSession, tmp_path: Path) -> None:
    """The logs of one task wait together, not one after the other."""
    root = root_of(tmp_path)
    names = [f"log-{number}" for number in range(12)]
    fill(root, dict.fromkeys(names, 8))
    for name in names:
        set_cursor(root, name, 9)
    options = HerdCollectOptions(interval_s=1.0, here_max=100)
    done = collect_herd(spark, root, options=options)
    assert len(done.logs) == 12
    assert 1.0 <= done.seconds < 12 * 1.0


def test_an_illegal_option_is_refused() -> None:
    for wrong in (
        {"cursor": "a b"},
        {"job": "a/b"},
        {"interval_s": -1.0},
        {"timeout_s": 0.0},
        {"here_max": -1},
    ):
        with pytest.raises(Invalid):
            HerdCollectOptions(**wrong)


def test_deleted_fragments_are_not_needed_to_collect(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 40}, fragments=4)
    set_cursor(root, "a", 21)
    delete(root, paths_below(root, f"logs/{ids_of(root)['a']}/log/")[0])
    assert collect_herd(spark, root, options=AT_ONCE).records == 20
