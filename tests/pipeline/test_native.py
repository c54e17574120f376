"""Reading natively and through Arrow: the same columns and rows, whatever the log is made of."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import DataFrame, SparkSession

import stratalog as sl
from objectlog.trees import LEAF
from objectlog.wal3_logs import Wal3Log
from pipeline.spark_logs import (
    RECORDS,
    collect_before,
    fill,
    fill_herd,
    rows_in,
    rows_of,
    stage,
)
from stratalog.errors import Corrupt, Invalid, NotFound, StratalogError, Trimmed
from stratalog.herd import Herd
from stratalog.pipeline import readable_spark_errors
from stratalog.pipeline.data_source.data_source import HERD_RECORDS_TYPE, RECORDS_TYPE
from stratalog.pipeline.read import native
from stratalog.pipeline.read.dataframes import Via, pinned_herd, pinned_log, read_herd, read_log
from stratalog.pipeline.read.native import hadoop_path, why_not_native
from stratalog.testing import Row

BOTH: tuple[Via, ...] = ("native", "arrow")
ODD_NAME = "a b{x}[y]+%41ü*?#&"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / ODD_NAME / "log").as_uri()


@pytest.fixture
def rows(url: str) -> list[Row]:
    return asyncio.run(fill(url))


def read(spark: SparkSession, url: str, via: Via, **bounds: Any) -> list[Row]:
    with readable_spark_errors(), pinned_log(spark, url, via=via, **bounds) as frame:
        return rows_of(frame)


def types_of(frame: DataFrame) -> list[tuple[str, str]]:
    return [(each.name, each.dataType.simpleString()) for each in frame.schema]


def pins_of(url: str) -> list[sl.Pin]:
    return asyncio.run(sl.PinStore(url).list())


class TestLog:
    @pytest.mark.parametrize("via", get_args(Via))
    def test_every_way_gives_the_same(
        self, spark: SparkSession, url: str, rows: list[Row], via: Via
    ) -> None:
        frame = read_log(spark, url, via=via)
        assert types_of(frame) == [(e.name, e.dataType.simpleString()) for e in RECORDS_TYPE]
        assert rows_of(frame) == rows
        (pin,) = pins_of(url)
        assert (pin.from_offset, pin.to_offset) == (1, RECORDS + 1)

    @pytest.mark.parametrize("via", BOTH)
    def test_bounds_hold_to_the_record(
        self, spark: SparkSession, url: str, rows: list[Row], via: Via
    ) -> None:
        assert read(spark, url, via, from_offset=15, to_offset=32) == rows[14:31]
        assert read(spark, url, via, from_time=rows[30][1], to_time=rows[50][1]) == rows[30:50]
        assert read(spark, url, via, from_offset=35, from_time=rows[30][1]) == rows[34:]
        assert read(spark, url, via, from_offset=RECORDS + 1) == []
        assert read(spark, url, via, to_time="2020-01-01T00:00:00Z") == []
        assert pins_of(url) == []

    def test_natively_spark_reads_the_files_and_filters_reach_them(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        frame = read_log(spark, url, pin_s=None).where("offset > 95")
        plan = frame._jdf.queryExecution().toString()
        assert "FileScan parquet" in plan
        assert "GreaterThan(offset,95)" in plan
        assert rows_of(frame) == rows[95:]
        assert rows_of(read_log(spark, url, pin_s=None).where("offset < 3")) == rows[:2]

    @pytest.mark.parametrize("via", BOTH)
    def test_what_was_planned_is_read_whatever_becomes_of_the_log(
        self, spark: SparkSession, url: str, rows: list[Row], via: Via
    ) -> None:
        with readable_spark_errors(), pinned_log(spark, url, via=via) as frame:
            asyncio.run(fill(url, fragments=1))
            collect_before(url, RECORDS + 5)
            assert rows_of(frame) == rows
        assert pins_of(url) == []
        collect_before(url, RECORDS + 5)
        with pytest.raises(StratalogError), readable_spark_errors():
            rows_of(frame)

    @pytest.mark.parametrize("via", BOTH)
    def test_what_was_collected_is_told(
        self, spark: SparkSession, url: str, rows: list[Row], via: Via
    ) -> None:
        collect_before(url, 45)
        assert read(spark, url, via) == rows[40:]
        with pytest.raises(Trimmed, match="records 5 to 40"):
            read_log(spark, url, via=via, from_offset=5)

    @pytest.mark.parametrize("via", BOTH)
    def test_an_empty_log_has_no_rows(self, spark: SparkSession, url: str, via: Via) -> None:
        asyncio.run(sl.create_log(url))
        frame = read_log(spark, url, via=via)
        assert rows_of(frame) == []
        assert types_of(frame) == types_of(read_log(spark, url))

    def test_a_relative_path_is_that_of_the_driver(
        self,
        spark: SparkSession,
        url: str,
        rows: list[Row],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path / ODD_NAME)
        for via in BOTH:
            assert read(spark, "log", via, from_offset=99) == rows[98:]
        assert rows_of(read_log(spark, Path("log"), from_offset=99)) == rows[98:]


class TestVariants:
    """Logs with fragments that do not know where they are."""

    @pytest.mark.parametrize("via", BOTH)
    def test_fragments_of_a_sink_get_start_and_time_from_the_manifest(
        self, spark: SparkSession, url: str, rows: list[Row], via: Via
    ) -> None:
        asyncio.run(stage(url, [b"x", b"y"], [b"z"]))
        asyncio.run(fill(url, fragments=1))
        expected = asyncio.run(rows_in(url))
        assert [row[2] for row in expected[RECORDS : RECORDS + 3]] == [b"x", b"y", b"z"]
        assert read(spark, url, via) == expected
        assert read(spark, url, via, from_offset=102, to_offset=104) == expected[101:103]
        assert read(spark, url, via, from_time=expected[100][1]) == expected[100:]

    @pytest.mark.parametrize("via", BOTH)
    @pytest.mark.parametrize("by_uuid", [False, True])
    def test_logs_of_wal3_are_read_by_their_rows_times(
        self, spark: SparkSession, url: str, via: Via, by_uuid: bool
    ) -> None:
        made = Wal3Log(((LEAF, LEAF), LEAF, LEAF), by_uuid=by_uuid)
        asyncio.run(made.store(sl.open_store(url)))
        assert read(spark, url, via) == made.rows
        bounds = {"from_time": made.rows[2][1], "to_time": made.rows[4][1]}
        assert read(spark, url, via, **bounds) == made.rows[2:4]

    @pytest.mark.parametrize("via", BOTH)
    def test_a_fork_is_read_where_its_fragments_lie(
        self, spark: SparkSession, url: str, rows: list[Row], tmp_path: Path, via: Via
    ) -> None:
        asyncio.run(stage(url, [b"x"]))
        branch = (tmp_path / "branch").as_uri()
        asyncio.run(sl.fork(url, branch))
        asyncio.run(fill(branch, fragments=1))
        expected = asyncio.run(rows_in(branch))
        assert expected[:RECORDS] == rows
        assert read(spark, branch, via) == expected


class TestHerd:
    SIZES = (("orders-1", 2), ("orders-2", 1), ("bills", 3), ("empty", 0))

    @pytest.mark.parametrize("via", BOTH)
    def test_rows_carry_the_name_of_their_log(
        self, spark: SparkSession, url: str, via: Via
    ) -> None:
        asyncio.run(fill_herd(url, dict(self.SIZES)))

        async def place_of_bills() -> str:
            async with Herd.open(url) as herd:
                return (await herd.log("bills").store()).url

        bills = asyncio.run(place_of_bills())
        asyncio.run(stage(bills, [b"x"]))
        with readable_spark_errors(), pinned_herd(spark, url, via=via) as frame:
            columns = [(e.name, e.dataType.simpleString()) for e in HERD_RECORDS_TYPE]
            assert types_of(frame) == columns
            found = {row["log"]: row["count"] for row in frame.groupBy("log").count().collect()}
            assert found == {"orders-1": 20, "orders-2": 10, "bills": 31}
            assert rows_of(frame.where("log = 'bills'")) == asyncio.run(rows_in(bills))
            assert pins_of(bills)
        assert pins_of(bills) == []
        chosen = read_herd(spark, url, logs=["orders-*"], via=via, from_offset=10, pin_s=None)
        assert sorted((row["log"], row["offset"]) for row in chosen.collect()) == [
            *(("orders-1", offset) for offset in range(10, 21)),
            ("orders-2", 10),
        ]

    def test_names_are_a_list(self, spark: SparkSession, url: str) -> None:
        with pytest.raises(Invalid) as refused:
            read_herd(spark, url, logs="orders-1")
        assert refused.value.hint == "Write logs=['orders-1']."


class TestChoice:
    def test_verified_records_come_through_arrow(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        frame = read_log(spark, url, verify=True, pin_s=None)
        assert "FileScan" not in frame._jdf.queryExecution().toString()
        assert rows_of(frame) == rows
        with pytest.raises(Invalid, match="it decodes without us"):
            read_log(spark, url, via="native", verify=True)

    def test_a_list_that_spark_does_not_take_is_read_through_arrow(
        self,
        spark: SparkSession,
        url: str,
        rows: list[Row],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(native, "LIST_FOLDER", "_no_metadata")
        assert rows_of(read_log(spark, url, pin_s=None)) == rows
        with pytest.raises(Invalid, match="does not take the list"):
            read_log(spark, url, via="native")
        assert pins_of(url) == []

    def test_spark_says_why_it_cannot_reach_a_bucket(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert why_not_native(spark, "file:///log") is None
        assert "class path" in (why_not_native(spark, "s3://bucket/log") or "")
        assert "options" in (why_not_native(spark, "s3://bucket/log?region=x") or "")
        assert "only those of S3" in (why_not_native(spark, "gs://bucket/log") or "")
        with pytest.raises(Invalid, match="class path") as refused:
            read_log(spark, "s3://bucket/log", via="native")
        assert 'via="arrow"' in refused.value.hint
        monkeypatch.setattr(native, "S3A_CLASS", "org.apache.hadoop.fs.Path")
        assert why_not_native(spark, "s3a://bucket/log") is None

    def test_places_in_the_words_of_hadoop(self) -> None:
        assert hadoop_path("s3://bucket/logs/a/?region=x") == "s3a://bucket/logs/a"
        assert hadoop_path("s3a://bucket") == "s3a://bucket"
        assert hadoop_path("file:///a%20b/%C3%BC") == "file:/a b/ü"

    def test_wrong_calls_are_refused(self, spark: SparkSession, url: str) -> None:
        calls: list[tuple[dict[str, Any], str]] = [
            ({"via": "magic"}, "no way to read 'magic'"),
            ({"from_offset": 0}, "not an offset"),
            ({"from_offset": 5, "to_offset": 4}, "are none"),
            ({"from_time": "noon"}, "not a time: 'noon'"),
            ({"to_time": -1}, "not a time: -1"),
            ({"pin_s": 0}, "cannot last"),
            ({"pin_s": "1h"}, "cannot last"),
        ]
        for arguments, message in calls:
            with pytest.raises(Invalid, match=message):
                read_log(spark, url, **arguments)
        with pytest.raises(Invalid, match="memory"):
            read_log(spark, "memory://log")
        with pytest.raises(NotFound, match="there is no log"):
            read_log(spark, url)


def test_a_missing_file_is_a_readable_error(spark: SparkSession, url: str, rows: list[Row]) -> None:
    async def lose() -> None:
        async with sl.LogReader.open(url) as reader:
            (fragment, *_) = await reader.scan(31)
            await sl.open_store(url).delete_many([fragment.path])

    frames = [read_log(spark, url, via=via) for via in BOTH]
    asyncio.run(lose())
    with pytest.raises(Corrupt, match="is missing"), readable_spark_errors():
        rows_of(frames[1])
    with (
        pytest.raises(StratalogError, match=r"FragmentSeqNo=\d+\.parquet"),
        readable_spark_errors(),
    ):
        rows_of(frames[0])


@pytest.mark.s3
def test_a_log_on_s3_is_read_through_arrow(spark: SparkSession, s3_url: str) -> None:
    rows = asyncio.run(fill(s3_url))
    assert read(spark, s3_url, "auto", from_offset=50) == rows[49:]
