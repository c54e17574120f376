"""Reading while a log is compacted, again and again: the records that live are always there.

One thread compacts, each time with fewer records alive, and goes on appending. Others read: readers
that were opened before, during and after, through the library and through Spark, in one go and as a
stream. Whatever they see, each live record is there once, in its place, as it was written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

import stratalog as sl
from pipeline.spark_logs import fill, rows_in, rows_of, stage
from stratalog.pipeline import read_log
from stratalog.testing import Row

AT_ONCE = sl.CompactOptions(interval_s=0.0, live_share_min=1.0)
RECORDS = 400
LIVE = sl.IndexSet.of(range(3, RECORDS + 1, 7))
"""What nobody gives up."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


@pytest.fixture
def rows(url: str) -> list[Row]:
    """Fragments of a writer and of a sink, and what is in them."""

    async def write() -> list[Row]:
        await fill(url, fragments=16)
        await stage(url, *([b"s%d-%d" % (part, each) for each in range(20)] for part in range(2)))
        while (count := len(await rows_in(url))) < RECORDS + 20:
            await fill(url, fragments=max(1, (RECORDS + 20 - count) // 20))
        return await rows_in(url)

    return asyncio.run(write())


@contextmanager
def compacted_meanwhile(url: str) -> Iterator[list[int]]:
    """Compacts in another thread until the block ends; gives how much went each time."""
    stop, dropped = threading.Event(), [0]
    failures: list[BaseException] = []
    random = Random(7)

    async def work() -> None:
        alive = sl.IndexSet(range(1, RECORDS + 1))
        while not stop.is_set():
            given_up = sl.IndexSet.of(random.sample(range(1, RECORDS + 1), 12))
            alive = (alive - given_up) | LIVE
            done = await sl.compact(url, alive, up_to=RECORDS + 1, options=AT_ONCE)
            dropped.append(done.records)
            async with sl.LogWriter.open(url) as log:
                await log.append(b"meanwhile")
            await asyncio.sleep(0.05)

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield dropped
    finally:
        stop.set()
        thread.join(60)
    assert not failures, failures
    assert sum(dropped) > 12, "it has compacted"


def check(found: list[Row], rows: list[Row]) -> None:
    """Every live record once, in order; what else there is, is as it was written."""
    offsets = [row[0] for row in found]
    assert offsets == sorted(set(offsets))
    known = {row[0]: row for row in rows}
    assert all(known[row[0]] == row for row in found if row[0] <= RECORDS)
    assert [row for row in found if row[0] in LIVE] == [row for row in rows if row[0] in LIVE]


def test_through_the_library(url: str, rows: list[Row]) -> None:
    async def slowly(log: sl.LogReader) -> list[Row]:
        found: list[Row] = []
        async for each in log.records(1):
            found.append((each.offset, each.timestamp_us, each.body))
            if each.offset % 40 == 0:
                await asyncio.sleep(0.03)
        return found

    async def follow(log: sl.LogReader) -> list[Row]:
        found: list[Row] = []
        async for batch in log.follow(1):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
            if found[-1][0] > RECORDS + 25:
                break
        return found

    async def main() -> None:
        options = sl.ReaderOptions(prefetch_fragments=1, cache_bytes=0)
        async with sl.LogReader.open(url, options=options) as before:
            with compacted_meanwhile(url):
                following = asyncio.create_task(follow(before))
                check(await slowly(before), rows)
                for _ in range(10):
                    async with sl.LogReader.open(url, options=options) as during:
                        check(await slowly(during), rows)
                check(await asyncio.wait_for(following, 60), rows)
            check(await slowly(before), rows)
        check(await rows_in(url), rows)

    asyncio.run(main())


def test_through_spark(spark: SparkSession, url: str, rows: list[Row], tmp_path: Path) -> None:
    before = {via: read_log(spark, url, via=via) for via in ("native", "arrow")}
    stream = spark.readStream.format("stratalog").option("maxRecordsPerTrigger", 60).load(url)
    with compacted_meanwhile(url):
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        for _ in range(3):
            for via in ("native", "arrow"):
                check(rows_of(read_log(spark, url, via=via)), rows)
        assert query.awaitTermination(180)
        assert query.exception() is None
        for frame in before.values():  # as it was when it was planned
            assert [row for row in rows_of(frame) if row[0] <= len(rows)] == rows
    check(rows_of(spark.read.parquet(str(tmp_path / "out"))), rows)
    check(rows_of(read_log(spark, url)), rows)
