"""Logs that were compacted, on Spark: live records at their offsets, however they are read."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stratalog as sl
from pipeline.herds import fill as fill_herd
from pipeline.herds import store_of
from pipeline.spark_logs import fill, rows_in, rows_of, stage
from stratalog.errors import Corrupt
from stratalog.objectlog.compaction.compact_log import STAGE_NOTE, Compactor
from stratalog.objectlog.holds.upload_guard import UploadGuardStore
from stratalog.pipeline import compact_log, erase_where, read_log, scrub_herd
from stratalog.pipeline.compact import rewrite_tasks as rewriting_tasks
from stratalog.pipeline.read.dataframes import Via
from stratalog.store.protocol import Listed
from stratalog.testing import Row

STRICT = sl.CompactOptions(interval_s=0.0, live_share_min=1.0)
LIVE = sl.IndexSet.of([3, 17, 18, 44, 71, 105, 118])
UP_TO = 121


async def mixed(url: str) -> list[Row]:
    """Fragments of a writer and of a sink."""
    await fill(url)
    await stage(url, [b"s%d" % each for each in range(10)], [b"t%d" % each for each in range(10)])
    return await fill(url, fragments=2)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


@pytest.fixture
def left(url: str) -> list[Row]:
    """What is left of such a log."""

    async def main() -> list[Row]:
        rows = await mixed(url)
        await sl.compact(url, LIVE, up_to=UP_TO, options=STRICT)
        expected = [row for row in rows if row[0] in LIVE or row[0] >= UP_TO]
        assert await rows_in(url) == expected
        return expected

    return asyncio.run(main())


@pytest.mark.parametrize("via", ["native", "arrow"])
class TestBatch:
    def test_every_live_record_is_read(
        self, spark: SparkSession, url: str, left: list[Row], via: Via
    ) -> None:
        assert rows_of(read_log(spark, url, via=via)) == left

    def test_offsets_and_times_are_found(
        self, spark: SparkSession, url: str, left: list[Row], via: Via
    ) -> None:
        between = read_log(spark, url, via=via).where("offset >= 17 and offset < 106")
        assert rows_of(between) == [row for row in left if 17 <= row[0] < 106]
        low, high = left[1][1], left[5][1]
        some = read_log(spark, url, via=via, from_time=low, to_time=high)
        assert rows_of(some) == [row for row in left if low <= row[1] < high]


def test_a_plan_shows_what_it_showed_while_the_log_is_compacted(
    spark: SparkSession, url: str
) -> None:
    before = asyncio.run(mixed(url))
    frame = spark.read.format("stratalog").load(url)
    assert frame.count() == len(before)
    asyncio.run(sl.compact(url, LIVE, up_to=UP_TO, options=STRICT))
    assert rows_of(frame) == before
    again = rows_of(spark.read.format("stratalog").load(url))
    assert again == [row for row in before if row[0] in LIVE or row[0] >= UP_TO]


def test_a_stream_passes_over_what_was_compacted(
    spark: SparkSession, url: str, left: list[Row], tmp_path: Path
) -> None:
    stream = spark.readStream.format("stratalog").option("maxRecordsPerTrigger", 30).load(url)
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == left


def test_a_scrub_of_the_herd_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "herd")
    fill_herd(root, {"one": 60, "two": 30}, fragments=6)
    place = store_of(root, "one")
    done = asyncio.run(sl.compact(place, sl.IndexSet.of([7, 33]), up_to=51, options=STRICT))
    assert done.records == 48
    report = scrub_herd(spark, root)
    assert report.clean, report
    assert report.records == 42


class TestRewritingInTasks:
    """Where there is much to rewrite, Spark's tasks do it."""

    @pytest.fixture(autouse=True)
    def much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rewriting_tasks, "HERE_BYTES_MAX", 0)

    def test_the_log_is_the_same_as_if_the_driver_did_it(
        self, spark: SparkSession, url: str, tmp_path: Path
    ) -> None:
        before = asyncio.run(mixed(url))
        told: list[tuple[int, int]] = []
        done = compact_log(
            spark,
            url,
            LIVE,
            up_to=UP_TO,
            on_progress=lambda *each: told.append(each),
            options=STRICT,
        )
        left = [row for row in before if row[0] in LIVE or row[0] >= UP_TO]
        assert asyncio.run(rows_in(url)) == left
        assert done.records == len(before) - len(left)
        report = asyncio.run(sl.scrub(url, options=sl.ScrubOptions(processes=0)))
        assert report.clean, report.damages
        paths = [row.path for row in asyncio.run(listed(url, "log/"))]
        by_tasks = [path for path in paths if re.search(r"/Writer=\w+-\d{7,}/", path)]
        assert len(by_tasks) == done.rewritten
        assert told == [] or told[-1][1] == done.fragments

    def test_a_lost_fragment_is_told_as_such(self, spark: SparkSession, url: str) -> None:
        asyncio.run(mixed(url))
        stored = [row.path for row in asyncio.run(listed(url, "log/"))]
        asyncio.run(sl.open_store(url).delete_many([p for p in stored if p.endswith("2.parquet")]))
        with pytest.raises(Corrupt, match="is missing although"):
            compact_log(spark, url, sl.IndexSet.of([1]), up_to=UP_TO, options=STRICT)

    def test_a_stage_is_not_released_before_the_tasks_have_ended(
        self, spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An erasure would take that for the end of all copies that they store."""
        is_running, may_end = threading.Event(), threading.Event()
        run_job = rewriting_tasks._run

        def slowly(*args: Any) -> Any:
            is_running.set()
            assert may_end.wait(60)
            return run_job(*args)

        monkeypatch.setattr(rewriting_tasks, "_run", slowly)

        async def states() -> list[str]:
            return [
                each.state for each in await UploadGuardStore(url).list() if each.note == STAGE_NOTE
            ]

        async def main() -> None:
            await mixed(url)
            rewrite = rewriting_tasks.rewriting_in_tasks(spark, url, STRICT)
            compactor = Compactor(url, LIVE, UP_TO, rewrite=rewrite, options=STRICT)
            task = asyncio.create_task(compactor.run())
            while not is_running.is_set():
                await asyncio.sleep(0.01)
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0.1)
                assert await states() == ["live"]
            may_end.set()
            await asyncio.wait([task])
            assert task.cancelled()
            stored = [row.path for row in await listed(url, "log/")]
            assert [path for path in stored if re.search(r"/Writer=\w+-\d{7,}/", path)]
            assert await states() == ["released"]

        asyncio.run(main())

    def test_erasing_goes_the_same_way(self, spark: SparkSession, url: str) -> None:
        before = asyncio.run(mixed(url))
        made = erase_where(spark, url, "offset % 10 = 3", options=STRICT)
        assert made is not None
        assert made.complete, made.reasons
        assert asyncio.run(rows_in(url)) == [row for row in before if row[0] % 10 != 3]


async def listed(url: str, prefix: str) -> list[Listed]:
    return [row async for row in sl.open_store(url).list(prefix)]
