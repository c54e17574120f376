"""Materialize on Spark: outputs are what a plain model says, whatever happens between the steps."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import stratalog as sl
from objectlog.whole_log import collect_roots, replace_bytes
from stratalog.errors import Conflict, Corrupt, Invalid, NotFound, StratalogError, Trimmed
from stratalog.herd import Herd, RollUpOptions, roll_up
from stratalog.herd.names import log_store
from stratalog.pipeline import Trouble, read_output
from stratalog.pipeline.materialize import (
    Materialized,
    MaterializeOptions,
    MaterializeProgress,
    materialize,
)
from stratalog.pipeline.materialize.merge import LatestByKey, latest_by_key
from stratalog.pipeline.materialize.merge_job import Merged, MergeJob, Work
from stratalog.pipeline.outputs import Outputs, load_output, tidy_outputs
from stratalog.pipeline.outputs.output import OUTPUT, Output
from stratalog.store.document import Document
from stratalog.store.protocol import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.pipeline.materialize.merge import Merge

KEY = "get_json_object(cast(body as string), '$.id')"
DELETED = "get_json_object(cast(body as string), '$.v') = 'gone'"
LATEST = latest_by_key(KEY, deleted_sql=DELETED)

Row = tuple[str, int, bytes]


class Logs:
    """A herd, and a model of what its output must be."""

    def __init__(self, root: str, seed: int = 0) -> None:
        self.root = root
        self.random = Random(seed)
        self.ids: dict[str, str] = {}
        self.tails: defaultdict[str, int] = defaultdict(lambda: 1)
        self.latest: defaultdict[str, dict[str, tuple[int, bytes]]] = defaultdict(dict)

    @property
    def store(self) -> Store:
        return sl.open_store(self.root)

    def append(self, batches: Sequence[tuple[str, Sequence[bytes]]]) -> None:
        """Each batch is a fragment."""

        async def main() -> None:
            async with Herd.open(self.root, server="a") as herd:
                for name, bodies in batches:
                    log = await herd.create(name, exist_ok=True)
                    self.ids[name] = await log.id()
                    span = await log.append_many(bodies)
                    self.note(name, span.first.offset, bodies)

        asyncio.run(main())

    def note(self, name: str, first: int, bodies: Sequence[bytes]) -> None:
        for offset, body in enumerate(bodies, first):
            record = json.loads(body)
            self.latest[name][record["id"]] = (offset, body)
            if record["v"] == "gone":
                del self.latest[name][record["id"]]
            self.tails[name] = offset + 1

    def record(self, keys: int = 8) -> bytes:
        value = "gone" if self.random.random() < 0.2 else self.random.randrange(1000)
        return json.dumps({"id": f"k{self.random.randrange(keys)}", "v": value}).encode()

    def append_some(self, names: Sequence[str]) -> None:
        self.append(
            [
                (name, [self.record() for _ in range(self.random.randrange(1, 12))])
                for name in names
                for _ in range(self.random.randrange(1, 3))
            ]
        )

    def run(self, spark: SparkSession, merge: Merge = LATEST, **kwargs: Any) -> Materialized:
        return materialize(spark, self.root, merge, **kwargs)

    def rows(self, spark: SparkSession, only: Sequence[str] | None = None) -> dict[str, set[Row]]:
        found: defaultdict[str, set[Row]] = defaultdict(set)
        for row in read_output(spark, self.root, "latest", only).collect():
            found[row["log"]].add((row["key"], row["offset"], bytes(row["body"])))
        return dict(found)

    def expected(self, names: Sequence[str] | None = None) -> dict[str, set[Row]]:
        return {
            name: {(key, offset, body) for key, (offset, body) in latest.items()}
            for name, latest in self.latest.items()
            if latest and (names is None or name in names)
        }

    def output(self, name: str, job: str = "latest") -> Output:
        return asyncio.run(load_output(self.root, job, self.ids[name]))

    def cursor(self, name: str) -> int | None:
        async def load() -> int | None:
            cursors = sl.CursorStore(log_store(self.store, self.ids[name]))
            try:
                return (await cursors.load("compaction")).offset
            except NotFound:
                return None

        return asyncio.run(load())

    def check(self, spark: SparkSession) -> None:
        """All is merged, and all cursors stand where the outputs do."""
        assert self.rows(spark) == self.expected()
        for name, tail in self.tails.items():
            assert (self.output(name).upto, self.cursor(name)) == (tail, tail), name


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(str(tmp_path / "herd"))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[list[Work]]:
    """The logs of each Spark job that was run."""
    jobs: list[list[Work]] = []
    run = MergeJob.run

    def watched(self: MergeJob, works: Sequence[Work]) -> Merged:
        jobs.append([*works])
        return run(self, works)

    monkeypatch.setattr(MergeJob, "run", watched)
    return jobs


def kinds(troubles: Sequence[Trouble]) -> dict[str, type[StratalogError]]:
    return {trouble.log: type(trouble.error) for trouble in troubles}


class TestLatestByKey:
    def test_the_output_is_the_latest_of_each_key_after_each_run(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        names = [f"log-{number:02}" for number in range(12)]
        heard: list[MaterializeProgress] = []
        for number in range(3):
            before = dict(logs.tails)
            some = [name for name in names if number == 0 or logs.random.random() < 0.5]
            logs.append_some(some)
            done = logs.run(spark, on_progress=heard.append)
            assert done.troubles == ()
            assert {each.name for each in done.logs} == {*some}
            assert done.unchanged == len(names) - len(some)
            assert {each.name: each.records for each in done.logs} == {
                name: logs.tails[name] - before.get(name, 1) for name in some
            }
            assert done.rows == sum(len(logs.latest[name]) for name in some)
            logs.check(spark)
        assert {each.stage for each in heard} >= {"plan", "publish"}

    def test_logs_can_be_chosen_by_name_or_by_a_roll_up(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        logs.append_some(["a", "b", "c"])
        assert [each.name for each in logs.run(spark, logs=["b", "b"]).logs] == ["b"]
        assert logs.rows(spark) == logs.expected(["b"])

        async def select() -> list[str]:
            async with Herd.open(logs.root, server="w") as herd:
                found = await roll_up(herd, options=RollUpOptions(age_s=0.0))
                return [each.log_id for each in found.selected]

        selected = asyncio.run(select())
        assert {*selected} == {logs.ids["a"], logs.ids["c"]}
        done = logs.run(spark, log_ids=selected)
        assert {each.name for each in done.logs} == {"a", "c"}
        logs.check(spark)
        assert asyncio.run(select()) == []

    def test_columns_are_computed_and_may_change_between_runs(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        value = "get_json_object(cast(body as string), '$.v')"
        first = latest_by_key(KEY, {"v": value})
        second = latest_by_key(KEY, {"v": value, "length": "length(body)"})
        logs.append([("a", [b'{"id":"k","v":"1"}']), ("b", [b'{"id":"k","v":"2"}'])])
        logs.run(spark, first)
        logs.append([("a", [b'{"id":"l","v":"3"}'])])
        logs.run(spark, second)
        rows = read_output(spark, logs.root, "latest").select("log", "key", "v", "length")
        assert {tuple(row) for row in rows.collect()} == {
            ("a", "k", "1", 18),
            ("a", "l", "3", 18),
            ("b", "k", "2", None),
        }
        logs.append([("a", [b'{"id":"m","v":"4"}']), ("b", [b'{"id":"k","v":"5"}'])])
        logs.run(spark, second)
        rows = read_output(spark, logs.root, "latest", logs=["b"]).select("v", "length")
        assert [tuple(row) for row in rows.collect()] == [("5", 18)]

    def test_a_record_without_a_key_is_refused_or_dropped(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        logs.append([("a", [b'{"id":"k","v":1}'])])
        asyncio.run(append_plain(logs, "a", b"no key"))
        done = logs.run(spark)
        (trouble,) = done.troubles
        assert "the record at offset 2 of the log a has no key" in str(trouble)
        assert isinstance(trouble.error, Invalid)
        assert logs.cursor("a") is None
        done = logs.run(spark, latest_by_key(KEY, without_key="drop"))
        assert (done.records, done.rows, done.troubles) == (2, 1, ())

    def test_a_log_with_such_a_record_does_not_stop_the_others(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        names = [f"log-{number}" for number in range(7)]
        logs.append([(name, [b'{"id":"k","v":1}']) for name in names])
        asyncio.run(append_plain(logs, "log-4", b"no key"))
        done = logs.run(spark)
        assert [each.log for each in done.troubles] == ["log-4"]
        assert sorted(each.name for each in done.logs) == sorted({*names} - {"log-4"})
        assert set(logs.rows(spark)) == {*names} - {"log-4"}

    def test_where_many_have_one_the_run_fails(
        self, spark: SparkSession, logs: Logs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("stratalog.pipeline.materialize.job.UNMERGED_MAX", 1)
        logs.append([(name, [b'{"id":"k","v":1}']) for name in "abc"])
        for name in "abc":
            asyncio.run(append_plain(logs, name, b"no key"))
        with pytest.raises(Invalid, match="has no key"):
            logs.run(spark)

    def test_another_rule_under_the_same_name_is_refused(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        logs.append([("a", [b'{"id":"k","v":1}'])])
        logs.run(spark)
        logs.append([("a", [b'{"id":"l","v":2}'])])
        with pytest.raises(Invalid, match="another rule") as caught:
            logs.run(spark, latest_by_key("offset"))
        assert "another job name" in caught.value.hint
        logs.run(spark)
        logs.check(spark)

    def test_a_large_plan_travels_as_rows(
        self, spark: SparkSession, logs: Logs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("stratalog.pipeline.spark.tasks.CLOSURE_BYTES_MAX", 0)
        for _ in range(2):
            logs.append_some([f"log-{number}" for number in range(9)])
            logs.run(spark, options=MaterializeOptions(split_bytes=200))
            logs.check(spark)

    @pytest.mark.parametrize(
        "merge",
        [
            latest_by_key("get_json_object(body"),
            latest_by_key("no_such_function(body)"),
            latest_by_key("customer"),
            latest_by_key("offset", {"x": "nonsense("}),
            latest_by_key("offset", deleted_sql="customer = 1"),
        ],
    )
    def test_a_wrong_expression_is_one_readable_error_before_any_work(
        self, spark: SparkSession, tmp_path: Path, merge: Merge
    ) -> None:
        with pytest.raises(Invalid, match="the merge cannot be done") as caught:
            materialize(spark, str(tmp_path / "not-even-there"), merge)
        assert len(str(caught.value).splitlines()) == 1
        assert "offset, timestamp, body and log" in caught.value.hint

    def test_a_column_must_have_a_name_of_its_own(self) -> None:
        with pytest.raises(Invalid, match="has a column 'Offset' already"):
            latest_by_key("offset", {"Offset": "1"})
        with pytest.raises(Invalid, match="without_key"):
            LatestByKey("offset", without_key="keep")  # type: ignore[arg-type]


async def append_plain(logs: Logs, name: str, body: bytes) -> None:
    async with Herd.open(logs.root, server="a") as herd:
        await herd.log(name).append(body)


class TestOtherMerges:
    def test_a_function_of_ones_own(self, spark: SparkSession, logs: Logs) -> None:
        from pyspark.sql import functions as sf

        def count(last: DataFrame | None, added: DataFrame) -> DataFrame:
            counted = added.groupBy("log").agg(sf.count("*").alias("records"))
            both = counted if last is None else last.unionByName(counted)
            return both.groupBy("log").agg(sf.sum("records").alias("records"))

        options = MaterializeOptions(job="counts", cursor="counts")
        for _ in range(2):
            logs.append_some(["a", "b"])
            assert logs.run(spark, count, options=options).troubles == ()
        found = {
            row["log"]: row["records"] for row in read_output(spark, logs.root, "counts").collect()
        }
        assert found == {name: tail - 1 for name, tail in logs.tails.items()}

    def test_a_merge_that_keeps_nothing_gives_an_output_without_files(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        logs.append_some(["a", "b"])
        nothing_of_a = latest_by_key(KEY, deleted_sql="log = 'a'")
        for version in (1, 2):
            done = logs.run(spark, nothing_of_a)
            assert done.troubles == ()
            output = logs.output("a")
            assert (output.files, output.version, output.upto) == ((), version, logs.tails["a"])
            assert logs.cursor("a") == output.upto
            assert {*logs.rows(spark)} == {"b"}
            logs.append_some(["a", "b"])

    @pytest.mark.parametrize(
        ("select", "told"),
        [
            (["offset"], "must give the column `log`"),
            (["offset", "'x' as log"], "the log 'x', which it was not given"),
            (["offset", "cast(null as string) as log"], "the log None, which it was not given"),
            (["offset", "offset as log"], "must give the column `log`"),
        ],
    )
    def test_one_that_does_not_fit_is_told_and_changes_nothing(
        self, spark: SparkSession, logs: Logs, select: list[str], told: str
    ) -> None:
        logs.append([("a", [b'{"id":"k","v":1}'])])
        with pytest.raises(Invalid, match=told) as caught:
            logs.run(spark, lambda _, added: added.selectExpr(*select))
        assert "\n" not in str(caught.value)
        assert logs.cursor("a") is None
        with pytest.raises(NotFound):
            logs.output("a")

    @pytest.mark.parametrize(
        ("select", "told"),
        [
            ("cast(cast(body as string) as int) as number", "cannot be cast"),
            ("assert_true(offset > 5, 'too small')", "too small"),
        ],
    )
    def test_a_record_that_it_cannot_cope_with_is_the_trouble_of_its_log(
        self, spark: SparkSession, logs: Logs, select: str, told: str
    ) -> None:
        logs.append([("a", [b'{"id":"k","v":1}'])])
        (trouble,) = logs.run(spark, lambda _, added: added.selectExpr("log", select)).troubles
        assert isinstance(trouble.error, Invalid)
        assert told in str(trouble)
        assert "\n" not in str(trouble)
        assert logs.cursor("a") is None
        with pytest.raises(NotFound):
            logs.output("a")


class TestLargeLogs:
    def test_a_large_log_is_divided_and_small_ones_are_not(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        def body(number: int) -> bytes:
            return json.dumps({"id": f"{number:05}", "v": logs.random.randbytes(60).hex()}).encode()

        options = MaterializeOptions(file_bytes=40_000, split_bytes=100_000)
        logs.append([("large", [body(n) for n in range(k, k + 500)]) for k in range(0, 3000, 500)])
        logs.append_some(["a", "b"])
        assert logs.run(spark, options=options).troubles == ()
        files = {name: logs.output(name).files for name in ("large", "a", "b")}
        assert (len(files["a"]), len(files["b"])) == (1, 1)
        assert len(files["large"]) >= 5
        assert all(file.num_bytes < 80_000 for file in files["large"])
        assert len({file.path.partition("-")[0] for file in files["large"]}) >= 5, "as many tasks"
        logs.check(spark)
        logs.append([("large", [body(n) for n in range(2900, 3100)])])
        assert logs.run(spark, options=options).records == 200
        logs.check(spark)

    def test_many_logs_go_through_several_jobs(
        self, spark: SparkSession, logs: Logs, planned: list[list[Work]]
    ) -> None:
        logs.append_some(["a", "b", "c"])
        logs.run(spark, options=MaterializeOptions(logs_at_once=2))
        assert [len(works) for works in planned] == [2, 1]
        logs.check(spark)


class TestCost:
    def test_only_what_is_new_is_read_and_a_log_without_news_costs_no_write(
        self, spark: SparkSession, logs: Logs, planned: list[list[Work]]
    ) -> None:
        logs.append([(name, [logs.record()]) for name in ("a", "b") for _ in range(5)])
        logs.run(spark)
        logs.append([("a", [logs.record()])])
        logs.run(spark)
        counts = [{work.name: len(work.part.fragments) for work in works} for works in planned]
        assert counts == [{"a": 5, "b": 5}, {"a": 1}]
        done = logs.run(spark, logs=["a", "b"])
        assert len(planned) == 2, "nothing to do is no Spark job"
        assert (done.unchanged, done.usage.class_a_requests, done.usage.bytes_written) == (2, 0, 0)
        assert done.usage.class_b_requests == 2 * 4, "entry, cursor, OUTPUT, manifest"
        logs.check(spark)


class Crash(BaseException):
    """The driver dies here."""


class TestCrashes:
    @pytest.mark.parametrize(
        ("step", "when"),
        [("merge", "after"), ("put", "before"), ("put", "after"), ("advance", "after")],
    )
    def test_between_the_steps(
        self,
        spark: SparkSession,
        logs: Logs,
        monkeypatch: pytest.MonkeyPatch,
        step: str,
        when: str,
    ) -> None:
        logs.append_some(["a", "b"])
        logs.run(spark)
        logs.append_some(["a", "b"])
        with monkeypatch.context() as patch:
            self.plant(patch, step, when)
            with pytest.raises(Crash):
                logs.run(spark)
        done = logs.run(spark)
        assert done.troubles == ()
        if (step, when) == ("put", "after"):
            assert done.caught_up >= 1
        logs.check(spark)
        for name in ("a", "b"):
            asyncio.run(tidy_outputs(logs.root, "latest", logs.ids[name]))
            assert set(self.files(logs, name)) == logs.output(name).names
        logs.check(spark)

    def plant(self, patch: pytest.MonkeyPatch, step: str, when: str) -> None:
        if step == "merge":
            run = MergeJob.run

            def crash_beside_it(self: MergeJob, works: Sequence[Work]) -> Merged:
                if when == "after":
                    run(self, works)
                raise Crash

            patch.setattr(MergeJob, "run", crash_beside_it)
            return
        owner = Document if step == "put" else Outputs
        real = getattr(owner, step)

        async def crash_beside(self: Any, *args: Any, **kwargs: Any) -> object:
            if step == "put" and not self.path.endswith(f"/{OUTPUT}"):
                return await real(self, *args, **kwargs)
            if when == "after":
                await real(self, *args, **kwargs)
            raise Crash

        patch.setattr(owner, step, crash_beside)

    def files(self, logs: Logs, name: str) -> Iterator[str]:
        for path in Path(logs.root, "outputs", "latest", logs.ids[name]).glob("*.parquet"):
            yield path.name


class TestTroubles:
    def test_a_log_that_fails_does_not_stop_the_others(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        names = ["fine", "gone", "trimmed", "rotten", "lost"]
        logs.append_some(names)
        logs.run(spark)
        for _ in range(2):
            logs.append_some(names)
        asyncio.run(self.damage(logs))
        done = logs.run(spark, log_ids=[logs.ids[name] for name in names])
        assert kinds(done.troubles) == {
            logs.ids["gone"]: NotFound,
            logs.ids["trimmed"]: Trimmed,
            "rotten": Corrupt,
            "lost": Corrupt,
        }
        assert [each.name for each in done.logs] == ["fine"]
        assert logs.rows(spark, only=["fine"]) == logs.expected(["fine"])
        assert "the log rotten: log/" in str(next(t for t in done.troubles if t.log == "rotten"))

    async def damage(self, logs: Logs) -> None:
        async with Herd.open(logs.root, server="a") as herd:
            await herd.drop("gone")
        trimmed = log_store(logs.store, logs.ids["trimmed"])
        async with sl.LogReader.open(trimmed) as reader:
            await collect_roots(trimmed, len(reader.manifest.entries) - 1)
        rotten = log_store(logs.store, logs.ids["rotten"])
        async with sl.LogReader.open(rotten) as reader:
            newest = reader.manifest.fragments[-1]
        data = bytearray((await rotten.get(newest.path)).data)
        data[10] ^= 1
        await replace_bytes(rotten, newest.path, bytes(data))
        lost = await load_output(logs.root, "latest", logs.ids["lost"])
        folder = f"outputs/latest/{logs.ids['lost']}"
        await logs.store.delete_many([f"{folder}/{lost.files[0].path}"])

    def test_names_that_nobody_has_are_told_and_dropped_logs_passed_over(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        logs.append_some(["a", "dropped"])

        async def drop() -> None:
            async with Herd.open(logs.root, server="a") as herd:
                await herd.drop("dropped")

        asyncio.run(drop())
        done = logs.run(spark, logs=["a", "dropped", "nobody"])
        assert kinds(done.troubles) == {"dropped": NotFound, "nobody": NotFound}
        assert [each.name for each in done.logs] == ["a"]
        assert logs.run(spark).troubles == ()

    def test_a_worker_that_was_overtaken_says_so_and_nothing_is_lost(
        self, spark: SparkSession, logs: Logs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logs.append_some(["a", "b"])
        run = MergeJob.run

        def overtaken(self: MergeJob, works: Sequence[Work]) -> Merged:
            merged = run(self, works)
            monkeypatch.setattr(MergeJob, "run", run)
            assert logs.run(spark, logs=["a"]).troubles == ()
            return merged

        monkeypatch.setattr(MergeJob, "run", overtaken)
        done = logs.run(spark)
        assert kinds(done.troubles) == {"a": Conflict}
        assert [each.name for each in done.logs] == ["b"]
        logs.check(spark)

    def test_a_log_that_is_dropped_while_the_job_runs_does_not_stop_the_others(
        self, spark: SparkSession, logs: Logs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logs.append_some(["a", "b"])
        run = MergeJob.run

        async def drop() -> None:
            async with Herd.open(logs.root, server="a") as herd:
                await herd.drop("b")

        def dropped(self: MergeJob, works: Sequence[Work]) -> Merged:
            monkeypatch.setattr(MergeJob, "run", run)
            asyncio.run(drop())
            return run(self, works)

        monkeypatch.setattr(MergeJob, "run", dropped)
        done = logs.run(spark)
        [trouble] = done.troubles
        assert (trouble.log, type(trouble.error)) == ("b", NotFound)
        assert "was deleted while it was read" in str(trouble)
        assert [each.name for each in done.logs] == ["a"]
        assert logs.rows(spark) == logs.expected(["a"])

    def test_two_logs_of_one_name_are_not_mixed(
        self, spark: SparkSession, logs: Logs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logs.append_some(["a", "b"])
        look = Outputs.look

        async def namesake(self: Outputs, log_id: str, name: str | None = None) -> Any:
            return await look(self, log_id, "a")

        monkeypatch.setattr(Outputs, "look", namesake)
        done = logs.run(spark, log_ids=[logs.ids["a"], logs.ids["b"]])
        assert kinds(done.troubles) == {logs.ids["b"]: Conflict}
        assert [each.log_id for each in done.logs] == [logs.ids["a"]]

    def test_a_failure_that_no_log_is_guilty_of_is_told_as_it_is(
        self, spark: SparkSession, logs: Logs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        logs.append_some(["a"])

        def broken(_: Any) -> Any:
            raise RuntimeError("out of luck")

        def fail(self: MergeJob, works: Sequence[Work]) -> Merged:
            self.spark.range(1).mapInArrow(broken, "id long").collect()
            raise AssertionError("it went well")

        monkeypatch.setattr(MergeJob, "run", fail)
        with pytest.raises(StratalogError, match="out of luck"):
            logs.run(spark)


class TestReading:
    def test_what_was_planned_stays_readable_until_the_second_publication(
        self, spark: SparkSession, logs: Logs
    ) -> None:
        logs.append_some(["a"])
        logs.run(spark)
        first, expected = read_output(spark, logs.root, "latest"), logs.expected()["a"]
        logs.append_some(["a"])
        logs.run(spark)
        rows = {(row["key"], row["offset"], bytes(row["body"])) for row in first.collect()}
        assert rows == expected

    def test_there_must_be_something(self, spark: SparkSession, logs: Logs) -> None:
        with pytest.raises(NotFound, match="no herd"):
            read_output(spark, logs.root, "latest")
        logs.append_some(["a"])
        with pytest.raises(NotFound, match="the job 'other' has published no output"):
            read_output(spark, logs.root, "other")


class TestOptions:
    @pytest.mark.parametrize(
        "options",
        [
            {"job": "a/b"},
            {"cursor": "a-b"},
            {"file_bytes": 0},
            {"split_bytes": 0},
            {"logs_at_once": 0},
        ],
    )
    def test_those_that_make_no_sense_are_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(Invalid):
            MaterializeOptions(**options)

    def test_logs_are_chosen_in_one_way(self, spark: SparkSession, logs: Logs) -> None:
        with pytest.raises(Invalid, match="not both"):
            logs.run(spark, logs=["a"], log_ids=["b"])

    def test_a_herd_in_memory_cannot_be_seen_by_workers(self, spark: SparkSession) -> None:
        with pytest.raises(Invalid, match="in memory"):
            materialize(spark, "memory://x", LATEST)


@pytest.mark.s3
def test_on_a_bucket(spark: SparkSession, s3_url: str) -> None:
    logs = Logs(s3_url)
    for _ in range(2):
        logs.append_some(["a", "b", "c"])
        assert logs.run(spark).troubles == ()
        logs.check(spark)
