"""The data source on Spark: the rows of a log, isolated at the plan, with errors that say why."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pyspark_stratalog
import stratalog as sl
from objectlog.whole_log import replace_bytes
from pipeline.spark_logs import (
    PER_FRAGMENT,
    RECORDS,
    collect_before,
    fill,
    fill_herd,
    rows_of,
)
from stratalog.errors import Corrupt, Invalid, NotFound, Trimmed
from stratalog.objectlog.stored.fragment import encode_fragment
from stratalog.pipeline import readable_spark_errors
from stratalog.pipeline.data_source.data_source import (
    HERD_RECORDS_TYPE,
    RECORDS_TYPE,
    StratalogSource,
    register,
)
from stratalog.testing import Row

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


@pytest.fixture
def rows(url: str) -> list[Row]:
    return asyncio.run(fill(url))


def load(spark: SparkSession, url: str, **options: object) -> DataFrame:
    texts = {name: str(value) for name, value in options.items()}
    return spark.read.format("stratalog").options(**texts).load(url)


def read(frame: DataFrame) -> list[Row]:
    with readable_spark_errors():
        return rows_of(frame)


def fragments_of(url: str) -> list[sl.Fragment]:
    async def main() -> list[sl.Fragment]:
        async with sl.LogReader.open(url) as reader:
            return await reader.scan(reader.first_offset)

    return asyncio.run(main())


def pins_of(url: str) -> list[sl.Pin]:
    return asyncio.run(sl.PinStore(url).list())


class TestBatch:
    def test_a_log_is_a_frame_of_its_records(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        frame = load(spark, url)
        assert frame.schema == RECORDS_TYPE
        assert read(frame) == rows
        assert len(pins_of(url)) == 1, "the plan is made once for a frame"
        assert read(frame.where("offset % 7 = 0")) == rows[6::7]
        assert len(pins_of(url)) == 1

    def test_the_format_is_found_without_registration(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        assert pyspark_stratalog.DefaultSource is StratalogSource
        assert read(load(spark.newSession(), url, pin="false")) == rows
        assert pins_of(url) == []

    def test_a_log_is_a_view_in_sql(self, spark: SparkSession, url: str, rows: list[Row]) -> None:
        spark.sql(
            "create or replace temporary view orders using stratalog "
            f"options (path '{url}', fromOffset '91')"
        )
        assert spark.sql("select min(offset), count(*) from orders").first() == (91, 10)

    def test_bounds_are_given_by_options(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        register(spark)
        assert read(load(spark, url, fromOffset=15, toOffset=32)) == rows[14:31]
        times = {"fromTime": rows[30][1], "toTime": rows[50][1]}
        assert read(load(spark, url, **times)) == rows[30:50]
        assert sorted((pin.from_offset, pin.to_offset) for pin in pins_of(url)) == [
            (15, 32),
            (31, 51),
        ]

    def test_a_frame_may_be_used_twice_with_different_filters(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        frame = load(spark, url)
        low, high = frame.where("offset <= 20"), frame.where("offset > 80")
        assert read(low) == rows[:20]
        assert read(frame) == rows
        assert read(low.union(high)) == rows[:20] + rows[80:]

    def test_an_empty_log_has_no_rows(self, spark: SparkSession, url: str) -> None:
        asyncio.run(sl.create_log(url))
        assert load(spark, url).count() == 0

    def test_small_splits_read_the_same(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        frame = load(spark, url, splitBytes=1, verify="true")
        assert frame.rdd.getNumPartitions() == RECORDS // PER_FRAGMENT
        assert read(frame) == rows

    def test_pushed_filters_prune_what_is_planned_and_give_the_same_rows(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        pushing = spark.newSession()
        pushing.conf.set(PUSHDOWN, "true")
        noon = f"timestamp_micros({rows[40][1]})"
        for condition, expected, planned in [
            ("offset = 15", rows[14:15], 1),
            ("offset in (15, 25, 35)", [rows[14], rows[24], rows[34]], 3),
            ("offset > 20 and offset <= 31", rows[20:31], 2),
            ("offset < 11", rows[:10], 1),
            (f"timestamp = {noon}", rows[40:50], 1),
            (f"timestamp >= {noon} and offset < 71", rows[40:70], 3),
            ("offset >= 500", [], 1),
        ]:
            frame = load(pushing, url, pushFilters="true", splitBytes=1, pin="false")
            frame = frame.where(condition)
            assert read(frame) == expected, condition
            assert frame.rdd.getNumPartitions() == planned, condition

    def test_pushed_filters_need_a_setting_of_spark(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        with pytest.raises(Exception, match=PUSHDOWN):
            read(load(spark, url, pushFilters="true"))


class TestHerd:
    def test_a_herd_is_a_frame_with_the_names_of_the_logs(
        self, spark: SparkSession, url: str
    ) -> None:
        sizes = {"orders-1": 2, "orders-2": 1, "bills": 3, "empty": 0}
        asyncio.run(fill_herd(url, sizes))
        frame = load(spark, url, herd="true")
        assert frame.schema == HERD_RECORDS_TYPE
        counts = {row["log"]: row["count"] for row in frame.groupBy("log").count().collect()}
        assert counts == {name: 10 * size for name, size in sizes.items() if size}
        chosen = load(spark, url, herd="true", logs="orders-*,empty", fromOffset=9)
        assert sorted((row["log"], row["offset"]) for row in chosen.collect()) == [
            *(("orders-1", offset) for offset in range(9, 21)),
            *(("orders-2", offset) for offset in range(9, 11)),
        ]


class TestIsolation:
    def test_what_was_planned_is_read_whatever_becomes_of_the_log(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        frame = load(spark, url)
        assert frame.count() == RECORDS
        asyncio.run(fill(url, fragments=2))
        collect_before(url, RECORDS + 15)
        assert read(frame) == rows
        assert [row[0] for row in read(load(spark, url))] == [*range(RECORDS + 11, RECORDS + 21)]

        (pin,) = [pin for pin in pins_of(url) if pin.from_offset == 1]
        asyncio.run(pin.release())
        collect_before(url, RECORDS + 15)
        with pytest.raises(Trimmed, match="collected while they were read") as gone:
            read(frame)
        assert gone.value.first_offset == RECORDS + 11
        assert "pin" in gone.value.hint


class TestBadInput:
    def test_a_wrong_option_is_told_with_the_right_one(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        with (
            pytest.raises(Invalid, match="no option fromofset") as refused,
            readable_spark_errors(),
        ):
            load(spark, url, fromOfset=3)
        assert refused.value.hint == "Did you mean fromOffset?"
        with pytest.raises(Invalid, match="fromTime cannot be 'noon'"):
            read(load(spark, url, fromTime="noon"))

    def test_another_schema_is_refused(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        frame = spark.read.format("stratalog").schema("offset int").load(url)
        with pytest.raises(Invalid, match="columns") as refused, readable_spark_errors():
            frame.count()
        assert "select or cast" in refused.value.hint

    def test_there_is_no_log(self, spark: SparkSession, url: str) -> None:
        with pytest.raises(NotFound, match="there is no log"):
            read(load(spark, url))

    def test_a_record_that_was_changed_is_noticed_unless_told_otherwise(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        victim = fragments_of(url)[3]
        forged = encode_fragment(31, rows[30][1], [b"forged"] * PER_FRAGMENT)
        asyncio.run(replace_bytes(sl.open_store(url), victim.path, forged.data))
        with pytest.raises(Corrupt, match=r"has \d+ bytes, not") as damage:
            read(load(spark, url))
        assert damage.value.path == victim.path
        assert read(load(spark, url, verify="false"))[30][2] == b"forged"

    def test_a_fragment_that_is_missing_is_damage(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        victim = fragments_of(url)[3]
        frame = load(spark, url)
        asyncio.run(sl.open_store(url).delete_many([victim.path]))
        with pytest.raises(Corrupt, match="is missing although the log links it") as damage:
            read(frame)
        assert damage.value.path == victim.path

    def test_a_log_that_is_deleted_under_a_query_is_told(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        frame = load(spark, url, pin="false")
        assert frame.count() == RECORDS
        asyncio.run(sl.destroy(url))
        with pytest.raises(NotFound, match="deleted while it was read") as gone:
            read(frame)
        assert "Plan the query again" in gone.value.hint

    def test_a_file_that_is_no_parquet_is_damage(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        victim = fragments_of(url)[3]
        asyncio.run(replace_bytes(sl.open_store(url), victim.path, b"nonsense"))
        with pytest.raises(Corrupt, match="has 8 bytes"):
            read(load(spark, url))
        with pytest.raises(Corrupt, match="is not readable as Parquet"):
            read(load(spark, url, verify="false"))


@pytest.mark.s3
def test_a_log_on_s3_is_read_the_same(spark: SparkSession, s3_url: str) -> None:
    rows = asyncio.run(fill(s3_url))
    assert read(load(spark, s3_url)) == rows
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    assert read(load(spark, f"{s3_url}?endpoint={endpoint}", fromOffset=95)) == rows[94:]
    asyncio.run(fill_herd(f"{s3_url}/herd", {"a": 1, "b": 2}))
    frame = load(spark, f"{s3_url}/herd?endpoint={endpoint}", herd="true", logs="b", toOffset=4)
    assert sorted((row["log"], row["offset"]) for row in frame.collect()) == [
        ("b", 1),
        ("b", 2),
        ("b", 3),
    ]
