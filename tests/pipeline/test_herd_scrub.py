"""Scrub of a herd: it finds what the library's own scrub finds, and leaves a table of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import stratalog as sl
from objectlog.planted_damage import PLANTERS, RECORDS, Planter, Victim
from objectlog.whole_log import run
from pipeline.herds import (
    delete,
    drop,
    fill,
    ids_of,
    new_place,
    paths_below,
    root_of,
    set_cursor,
    store_of,
)
from stratalog import ScrubOptions
from stratalog.errors import Invalid, NotFound
from stratalog.objectlog.check.damage import Damage, DamageKind
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.check.scrub_report import ScrubReport
from stratalog.objectlog.stored.manifest import load_manifest
from stratalog.pipeline import HerdScrubOptions, scrub_herd
from stratalog.pipeline.check.audit import load_audit, load_whole_audit, read_audit, runs
from stratalog.pipeline.check.scrub import _even_shares
from stratalog.pipeline.check.scrub_examine_tasks import examine
from stratalog.pipeline.check.scrub_results import AddedUp, HerdScrub, LogScrub
from stratalog.pipeline.check.scrub_rows import WALKED
from stratalog.pipeline.check.scrub_walk_tasks import walk
from stratalog.pipeline.jobs.logs import LogRef
from stratalog.setsum import Setsum
from stratalog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_TASKS = HerdScrubOptions(tasks_per_slot=1)


def by_library(store: sl.Store) -> ScrubReport:
    return run(scrub(store, options=ScrubOptions(processes=0)))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A herd with one log for each planted damage, and two good ones."""
    root = str(tmp_path_factory.mktemp("damaged"))
    for number, (_, planter) in enumerate(PLANTERS.values()):
        place = new_place(root, f"victim-{number:02d}")

        async def plant(place: sl.Store = place, planter: Planter = planter) -> None:
            await planter(await Victim.make(place))

        run(plant())
    fill(root, {"good": 40, "empty": 0})
    return root


@pytest.fixture(scope="module", params=[0, 100], ids=["in tasks", "here"])
def found(spark: SparkSession, damaged: str, request: pytest.FixtureRequest) -> HerdScrub:
    """The trees are walked by tasks, or by this process."""
    options = HerdScrubOptions(tasks_per_slot=1, here_max=request.param)
    return scrub_herd(spark, damaged, options=options)


def test_each_damage_is_found_as_the_library_finds_it(damaged: str, found: HerdScrub) -> None:
    assert len(found.logs) == len(PLANTERS) + 2
    for number, (name, (kind, _)) in enumerate(PLANTERS.items()):
        log = next(each for each in found.logs if each.log == f"victim-{number:02d}")
        expected = by_library(store_of(damaged, f"victim-{number:02d}"))
        assert set(log.damages) == set(expected.damages), name
        assert set(log.remarks) == set(expected.remarks), name
        assert kind in {each.kind for each in (*log.damages, *log.remarks)}, name
        assert (log.fragments, log.records, log.snapshots, log.num_bytes) == (
            expected.fragments,
            expected.records,
            expected.snapshots,
            expected.num_bytes,
        ), name
        assert (log.first_offset, log.limit_offset) == (
            expected.first_offset,
            expected.limit_offset,
        ), name


def test_what_is_good_adds_up(damaged: str, found: HerdScrub) -> None:
    good = next(each for each in found.logs if each.log == "good")
    assert good.clean
    assert good.records == 40
    assert good.expected_sum == good.actual_sum
    manifest, _ = run(load_manifest(store_of(damaged, "good")))
    assert manifest.setsum.hexdigest() == good.actual_sum
    untouched = [each for each in found.logs if each.clean and each.records == RECORDS]
    assert untouched, "remarks cost nothing"
    assert all(each.expected_sum == each.actual_sum for each in untouched)
    assert not found.clean
    assert found.damages == sum(len(each.damages) for each in found.logs)


def test_the_audit_has_a_row_for_each_fragment_and_each_log(
    spark: SparkSession, damaged: str, found: HerdScrub
) -> None:
    rows = read_audit(spark, damaged, found.run).toArrow().to_pylist()
    logs = {row["log_id"]: row for row in rows if row["object"] == "log"}
    assert logs.keys() == {each.log_id for each in found.logs}
    fragments = [row for row in rows if row["object"] == "fragment"]
    read = [row for row in fragments if row["verdict"] != "fragment-missing" and row["num_bytes"]]
    assert len(read) == found.fragments
    assert sum(row["records"] for row in read) == found.records
    for log in found.logs:
        row = logs[log.log_id]
        assert (row["verdict"] == "ok") == (not log.damages)
        verdicts = {each["verdict"] for each in rows if each["log_id"] == log.log_id}
        assert {each.kind.value for each in log.damages} - {"fragment-size"} <= verdicts | {
            "fragment-unreadable"
        }
    good = [row for row in fragments if row["log"] == "good"]
    assert [row["verdict"] for row in good] == ["ok", "ok"]
    assert Setsum.total(
        Setsum.from_hexdigest(row["actual_sum"]) for row in good
    ).hexdigest() == next(log.actual_sum for log in found.logs if log.log == "good")
    audit = run(load_audit(open_store(damaged)))
    assert (audit.run, audit.damages, audit.records) == (found.run, found.damages, found.records)
    assert audit.damages or audit.troubles


def halves(root: str, between: Callable[[], None]) -> dict[str, list[dict[str, Any]]]:
    """The two halves of a scrub by this process, and something that happens between them."""
    refs = [LogRef(name, log_id) for name, log_id in ids_of(root).items()]
    walked = [*walk(root, refs, 60.0)]
    between()
    rows = [row for batch in examine(root, "run", 60.0, walked) for row in batch.to_pylist()]
    return {
        name: [row for row in rows if row["log_id"] == log_id]
        for name, log_id in ids_of(root).items()
    }


def damages_in(rows: Sequence[Mapping[str, Any]]) -> list[Damage]:
    notes = [pickle.loads(row["note"]) for row in rows if row["note"]]
    return [damage for note in notes if isinstance(note, tuple) for damage in note]


def test_a_collection_meanwhile_is_no_damage(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 40, "b": 40}, fragments=4)

    def collect() -> None:
        set_cursor(root, "a", 25)
        run(sl.collect(store_of(root, "a"), options=sl.CollectorOptions(interval_s=0.0)))

    rows = halves(root, collect)
    assert [sum(row["let_go"] for row in rows[name]) for name in "ab"] == [2, 0]
    assert [sum(row["fragments"] for row in rows[name]) for name in "ab"] == [2, 4]
    assert [sum(row["hashed"] for row in rows[name]) for name in "ab"] == [40, 40]
    assert damages_in([*rows["a"], *rows["b"]]) == []


def test_what_is_appended_meanwhile_is_no_part_of_the_sum(tmp_path: Path) -> None:
    """The manifest whose sum is compared is read before the tree is walked."""
    root = root_of(tmp_path)
    fill(root, {"a": 40})
    rows = halves(root, lambda: fill(root, {"a": 10}))
    assert sum(row["hashed"] for row in rows["a"]) == 40
    assert sum(row["records"] for row in rows["a"]) == 40


def test_a_fragment_that_is_lost_meanwhile_is_damage(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 40, "b": 40})
    prefix = f"logs/{ids_of(root)['a']}/log/"
    rows = halves(root, lambda: delete(root, paths_below(root, prefix)[0]))
    assert [each.kind for each in damages_in(rows["a"])] == [DamageKind.FRAGMENT_MISSING]
    assert sum(row["hashed"] for row in rows["a"]) == 20
    assert damages_in(rows["b"]) == []


def test_old_audits_go_and_those_that_did_not_end_stay(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 10})
    store = open_store(root)
    run(store.put_if_absent("audits/20200101T000000000Z-000000/part-x.parquet", b"x"))
    options = HerdScrubOptions(tasks_per_slot=1, keep_audits=2)
    told = [scrub_herd(spark, root, options=options).run for _ in range(3)]
    assert run(runs(store)) == told[1:]
    assert {path.split("/")[1] for path in paths_below(root, "audits/")} == set(told[1:])


def test_scrubs_of_some_logs_push_out_none_of_all(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 10, "b": 10})
    store = open_store(root)
    options = HerdScrubOptions(tasks_per_slot=1, keep_audits=2)
    whole = scrub_herd(spark, root, options=options).run
    some = [scrub_herd(spark, root, logs=["a"], options=options).run for _ in range(4)]
    assert run(runs(store)) == [whole, *some[2:]]
    found = run(load_whole_audit(store))
    assert found is not None
    assert found.run == whole


def test_what_was_not_hashed_is_not_called_clean(tmp_path: Path) -> None:
    """Should a task's answer be lost, the log is told as one that was not scrubbed."""
    root = root_of(tmp_path)
    fill(root, {"a": 40, "b": 40})
    refs = [LogRef(name, log_id) for name, log_id in ids_of(root).items()]
    rows = [row for batch in walk(root, refs, 60.0) for row in batch.to_pylist()]
    found = AddedUp()
    for row in rows:
        if row["note"] and row["log_id"] != ids_of(root)["b"]:
            found.add_note(row["log_id"], row["note"])
    of_a, of_b = sorted((log for log in found.logs(refs) if isinstance(log, LogScrub)), key=str)
    assert of_a.trouble == "0 of its 40 records were hashed; scrub it again"
    assert of_b.trouble == "no task has reported it"
    assert not of_a.clean
    assert not of_b.clean


def test_a_log_that_is_dropped_meanwhile_is_no_damage(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 10, "b": 10})
    ids = ids_of(root)
    drop(root, "a")
    found = scrub_herd(spark, root, log_ids=[*ids.values()], options=FEW_TASKS)
    assert [log.log for log in found.logs] == ["b"]
    assert (found.gone, found.clean) == (1, True)


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("sizes", [[], [1], [5, 5, 5], [1 << 30, 1, 1, 1 << 30, 7], [1 << 27] * 9])
def test_shares_have_every_fragment_once_and_are_even(sizes: list[int], slots: int) -> None:
    columns = [
        pa.array([b"x"] * len(sizes) if "entry" in field.name else [None] * len(sizes), field.type)
        for field in WALKED
    ]
    table = pa.Table.from_arrays(columns, schema=WALKED).set_column(
        3, "num_bytes", pa.array(sizes, pa.int64())
    )
    shares = [share.column("num_bytes").to_pylist() for share in _even_shares(table, slots)]
    assert [size for share in shares for size in share] == sizes
    assert all(shares)
    if len(sizes) == 9:
        assert max(map(sum, shares)) <= 2 * (1 << 27)


def test_only_these_logs(spark: SparkSession, tmp_path: Path) -> None:
    root = root_of(tmp_path)
    fill(root, {"a": 10, "b": 10})
    delete(root, *paths_below(root, f"logs/{ids_of(root)['a']}/log/"))
    found = scrub_herd(spark, root, logs=["b"], options=FEW_TASKS)
    assert [log.log for log in found.logs] == ["b"]
    assert found.clean
    with pytest.raises(NotFound, match="no log 'c'"):
        scrub_herd(spark, root, logs=["c"])


def test_where_there_is_no_herd_that_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no herd"):
        scrub_herd(spark, root_of(tmp_path))
    with pytest.raises(Invalid, match="in memory"):
        scrub_herd(spark, "memory://x")
    with pytest.raises(NotFound, match="never audited"):
        read_audit(spark, root_of(tmp_path))


def test_an_illegal_option_is_refused() -> None:
    for wrong in ({"tasks_per_slot": 0}, {"keep_audits": 0}, {"timeout_s": 0}, {"here_max": -1}):
        with pytest.raises(Invalid):
            HerdScrubOptions(**wrong)
