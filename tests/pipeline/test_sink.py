"""The sink on Spark: rows become records once, in the order of their partition."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import stratalog as sl
from objectlog.leftovers import unlinked_data
from stratalog.errors import Conflict, Full, Invalid, NotFound, Sealed, StratalogError
from stratalog.herd import Herd, roll_up
from stratalog.objectlog.holds.upload_guard import UploadGuardStore
from stratalog.pipeline import readable_spark_errors, register
from stratalog.pipeline.sink.data_sink import BatchSink
from stratalog.pipeline.sink.link_once import locate
from stratalog.pipeline.sink.options import SinkOptions, Target, parse_sink
from stratalog.pipeline.sink.upload_rows import _bodies, upload_rows

PARTITIONS = 3


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def log_url(tmp_path: Path) -> str:
    url = (tmp_path / "log").as_uri()
    asyncio.run(sl.create_log(url))
    return url


def numbers(spark: SparkSession, count: int = 300) -> DataFrame:
    return spark.range(0, count, 1, PARTITIONS).selectExpr("cast(id as string) as body")


def save(rows: DataFrame, url: str, **options: object) -> None:
    with readable_spark_errors():
        writing = rows.write.format("stratalog").mode("append")
        writing.options(**{name: str(value) for name, value in options.items()}).save(url)


def bodies_of(url: str) -> list[bytes]:
    async def read() -> list[bytes]:
        async with sl.LogReader.open(url) as reader:
            return [record.body async for record in reader.records(reader.first_offset)]

    return asyncio.run(read())


async def swept(url: str) -> None:
    """Sweep until nothing is left: a task that was told to end may upload a little longer.

    Also what is ahead of the tail, which a sweep otherwise spares until the log has grown past it.
    """
    async with asyncio.timeout(60.0):
        await sl.sweep(url, older_manifest=True)
        while await unlinked_data(url) or await UploadGuardStore(url).list():
            await asyncio.sleep(0.2)
            await sl.sweep(url, older_manifest=True)


WHOLE = [b"%d" % number for number in range(300)]


class TestBatch:
    def test_rows_are_appended_in_the_order_of_their_partitions(
        self, spark: SparkSession, log_url: str
    ) -> None:
        save(numbers(spark), log_url, fragmentBytes=64)
        assert bodies_of(log_url) == WHOLE
        save(numbers(spark), log_url, compression="snappy")
        assert bodies_of(log_url) == WHOLE * 2
        assert asyncio.run(sl.scrub(log_url)).clean
        assert asyncio.run(UploadGuardStore(log_url).list()) == [], "the driver has removed them"

    def test_a_numbered_write_is_done_once(self, spark: SparkSession, log_url: str) -> None:
        for _ in range(2):
            save(numbers(spark), log_url, queryId="daily", batchId=7)
        save(numbers(spark, 1), log_url, queryId="daily", batchId=8)
        assert bodies_of(log_url) == [*WHOLE, b"0"]

    def test_what_goes_wrong_after_the_rows_are_linked_is_no_failure(
        self, spark: SparkSession, log_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A caller that got an error would write it again."""
        rows, options = pa.array([b"x"], pa.binary()), SinkOptions(url=log_url)
        target = asyncio.run(locate(options, is_numbered=False))
        sink = BatchSink(replace(target, job="no-such-stage"))
        staged = upload_rows(target, iter([pa.record_batch([rows], names=["body"])]), None)
        with caplog.at_level("INFO", "stratalog.pipeline.sink"):
            sink.commit([staged])
        assert bodies_of(log_url) == [b"x"]
        assert "were not removed" in caplog.text

    def test_the_log_is_created_if_that_is_asked_for(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        url = (tmp_path / "new").as_uri()
        with pytest.raises(NotFound):
            save(numbers(spark), url)
        save(numbers(spark), url, create="true")
        assert bodies_of(url) == WHOLE

    def test_what_was_read_can_be_written(self, spark: SparkSession, tmp_path: Path) -> None:
        first, second = ((tmp_path / name).as_uri() for name in ("first", "second"))
        save(numbers(spark), first, create="true")
        save(spark.read.format("stratalog").load(first), second, create="true")
        assert sorted(bodies_of(second)) == sorted(WHOLE)

    def test_a_log_of_a_herd_is_marked(self, spark: SparkSession, tmp_path: Path) -> None:
        root = (tmp_path / "herd").as_uri()

        async def made() -> None:
            async with Herd.open(root, server="a") as herd:
                await herd.create("orders")

        async def dirty() -> list[str | None]:
            async with Herd.open(root, server="w") as herd:
                return [each.name for each in (await roll_up(herd)).dirty]

        asyncio.run(made())
        save(numbers(spark), root, log="orders")
        save(numbers(spark, 1), root, log="returns", create="true")
        assert sorted(map(str, asyncio.run(dirty()))) == ["orders", "returns"]
        with pytest.raises(NotFound):
            save(numbers(spark), root, log="nobody")

    def test_no_rows(self, spark: SparkSession, log_url: str) -> None:
        save(numbers(spark).where("false"), log_url)
        save(numbers(spark).where("false"), log_url, queryId="q", batchId=0)
        assert bodies_of(log_url) == []
        asyncio.run(swept(log_url))

    def test_a_write_that_fails_leaves_what_a_sweep_removes(
        self, spark: SparkSession, log_url: str
    ) -> None:
        rows = spark.range(0, 3000, 1, 2).selectExpr(
            "cast(if(id = 2900, raise_error('no'), id) as string) as body"
        )
        with pytest.raises(StratalogError):
            save(rows, log_url, fragmentBytes=100)
        assert bodies_of(log_url) == []
        asyncio.run(swept(log_url))

    def test_a_sealed_log_says_so(self, spark: SparkSession, log_url: str) -> None:
        asyncio.run(sl.Sealer(log_url).seal())
        with pytest.raises(Sealed):
            save(numbers(spark), log_url)

    def test_a_log_is_never_overwritten(self, spark: SparkSession, log_url: str) -> None:
        save(numbers(spark), log_url)
        with pytest.raises(Invalid, match="never overwritten"), readable_spark_errors():
            numbers(spark).write.format("stratalog").mode("overwrite").save(log_url)
        assert bodies_of(log_url) == WHOLE

    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            (["id as number"], "column body"),
            (["id as body"], "column body"),
            (["cast(id as string) as body", "id as number"], "number"),
            (["cast(if(id = 7, null, id) as string) as body"], "missing"),
        ],
    )
    def test_rows_that_are_no_records(
        self, spark: SparkSession, log_url: str, rows: list[str], said: str
    ) -> None:
        with pytest.raises(Invalid, match=said) as caught:
            save(spark.range(20).selectExpr(*rows), log_url)
        assert caught.value.hint
        assert bodies_of(log_url) == []


class TestStream:
    def start(
        self, spark: SparkSession, source: str, target: str, checkpoint: Path, **options: str
    ) -> None:
        query = (
            spark.readStream.format("stratalog")
            .option("maxRecordsPerTrigger", "100")
            .load(source)
            .select("body")
            .writeStream.format("stratalog")
            .option("checkpointLocation", str(checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start(target)
        )
        with readable_spark_errors():
            query.awaitTermination()

    def test_a_batch_that_is_repeated_is_not_written_twice(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        source, target = ((tmp_path / name).as_uri() for name in ("source", "target"))
        checkpoint = tmp_path / "checkpoint"
        save(numbers(spark), source, create="true")
        asyncio.run(sl.create_log(target))
        self.start(spark, source, target, checkpoint)
        assert bodies_of(target) == WHOLE
        commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            path.unlink(missing_ok=True)
        save(numbers(spark), source)
        self.start(spark, source, target, checkpoint)
        assert bodies_of(target) == WHOLE * 2
        asyncio.run(sl.sweep(target))
        assert asyncio.run(unlinked_data(target)) == set()
        assert asyncio.run(UploadGuardStore(target).list()) == []

    def test_a_stream_whose_checkpoint_is_new_is_told(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Its batches have numbers that the log knows, and would be taken for written."""
        source, target = ((tmp_path / name).as_uri() for name in ("source", "target"))
        save(numbers(spark), source, create="true")
        asyncio.run(sl.create_log(target))
        self.start(spark, source, target, tmp_path / "first", queryId="orders")
        with pytest.raises(Conflict, match="has written batch 2") as caught:
            self.start(spark, source, target, tmp_path / "second", queryId="orders")
        assert "another queryId" in caught.value.hint
        assert bodies_of(target) == WHOLE

    def test_a_full_table_is_told_before_anything_is_uploaded(
        self, spark: SparkSession, log_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("stratalog.objectlog.bulk.commit.SINKS_MAX", 0)
        target = Target(log_url, SinkOptions(url=log_url), query="q")
        rows = pa.record_batch([pa.array([b"x"], pa.binary())], names=["body"])
        with pytest.raises(Full):
            upload_rows(target, iter([rows]), 1)
        asyncio.run(swept(log_url))

    def test_each_batch_of_a_stream_by_hand(self, spark: SparkSession, tmp_path: Path) -> None:
        source, target = ((tmp_path / name).as_uri() for name in ("source", "target"))
        save(numbers(spark), source, create="true")
        asyncio.run(sl.create_log(target))

        def write(rows: DataFrame, number: int) -> None:
            for _ in range(2):
                save(rows.select("body"), target, queryId="by-hand", batchId=number)

        query = (
            spark.readStream.format("stratalog")
            .load(source)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert sorted(bodies_of(target)) == sorted(WHOLE)


class TestOptions:
    def test_defaults(self, tmp_path: Path) -> None:
        parsed = parse_sink({"path": str(tmp_path)}, streaming=False)
        assert parsed == SinkOptions(url=tmp_path.as_uri())

    @pytest.mark.parametrize(
        ("options", "hint"),
        [
            ({}, "save"),
            ({"path": "x", "fragmentbites": "1"}, "fragmentBytes"),
            ({"path": "x", "queryId": "q"}, "both"),
            ({"path": "x", "batchId": "1"}, "both"),
            ({"path": "x", "queryId": "q", "batchId": "-1"}, "0 on"),
            ({"path": "x", "queryId": "", "batchId": "1"}, "UUID"),
            ({"path": "x", "compression": "lzo"}, "zstd"),
            ({"path": "x", "fragmentBytes": str(1 << 30)}, "memory"),
            ({"path": "x", "log": "a/b"}, "letter"),
            ({"path": "x", "create": "yes"}, "true"),
            ({"path": "memory://x"}, "directory"),
        ],
    )
    def test_wrong_ones_say_what_is_right(self, options: dict[str, str], hint: str) -> None:
        with pytest.raises(Invalid) as caught:
            parse_sink(options, streaming=False)
        assert hint in caught.value.hint


class TestFragments:
    @pytest.mark.parametrize("fragment_bytes", [1, 50, 1000, 10**6])
    @pytest.mark.parametrize("rows", [0, 1, 7, 100])
    def test_bodies_are_divided_in_their_order(self, fragment_bytes: int, rows: int) -> None:
        bodies = [b"x" * (number % 13) for number in range(3 * rows)]
        batches = [
            pa.record_batch([pa.array(bodies[low : low + rows], pa.binary())], ["body"])
            for low in range(0, 3 * rows, rows or 1)
        ]
        pieces = [*_bodies(iter(batches), fragment_bytes)]
        assert [body for piece in pieces for body in piece.to_pylist()] == bodies
        assert all(len(piece) for piece in pieces)
