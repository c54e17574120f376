"""The streaming source: where it starts, how much it takes, what it holds, and lost data."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
)
from pyspark.sql.streaming.query import StreamingQuery

import stratalog as sl
from pipeline.spark_logs import RECORDS, collect_before, fill, rows_of
from stratalog.errors import Invalid, NotFound, Trimmed
from stratalog.pipeline import readable_spark_errors
from stratalog.pipeline.data_source.data_source import SplitPartition, register
from stratalog.pipeline.data_source.stream_reader import LogStreamReader
from stratalog.pipeline.read import log_stream
from stratalog.pipeline.read.options import parse_stream
from stratalog.testing import Row

TERMINATION_S_MAX = 120
RELEASE_S_MAX = 30.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


@pytest.fixture
def rows(url: str) -> list[Row]:
    return asyncio.run(fill(url))


Open = Callable[..., LogStreamReader]


@pytest.fixture
def open_reader(url: str, rows: list[Row]) -> Iterator[Open]:
    """Readers as Spark makes them, without Spark."""
    opened: list[LogStreamReader] = []

    def make(**options: object) -> LogStreamReader:
        texts = {name: str(value) for name, value in options.items()}
        opened.append(LogStreamReader(parse_stream({"path": url, **texts})))
        return opened[-1]

    yield make
    for reader in opened:
        reader.stop()


def at(offset: int) -> dict[str, int]:
    return {"offset": offset}


def batches_of(
    reader: LogStreamReader, start: dict[str, int] | None = None, limit: ReadLimit | None = None
) -> list[list[int]]:
    """The offsets of each batch until there is nothing more, as Spark would run them."""
    start = start or reader.initialOffset()
    found: list[list[int]] = []
    while True:
        end = reader.latestOffset(start, limit or reader.getDefaultReadLimit())
        if end == start:
            return found
        found.append(offsets_between(reader, start, end))
        reader.commit(end)
        start = end


def offsets_between(
    reader: LogStreamReader, start: dict[str, int], end: dict[str, int]
) -> list[int]:
    return [
        offset
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for offset in batch.column(0).to_pylist()
    ]


def pins_of(url: str) -> list[tuple[int, int]]:
    pins = asyncio.run(sl.PinStore(url).list())
    return [(pin.from_offset, pin.to_offset) for pin in pins]


def cursor_of(url: str, name: str = "totals") -> int:
    return asyncio.run(sl.CursorStore(url).load(name)).offset


class TestStart:
    def test_a_query_begins_at_the_first_record(self, url: str, open_reader: Open) -> None:
        collect_before(url, 35)
        reader = open_reader()
        assert reader.initialOffset() == at(31)
        assert batches_of(reader) == [[*range(31, RECORDS + 1)]]

    def test_it_may_begin_at_an_offset(self, open_reader: Open) -> None:
        assert batches_of(open_reader(startingOffset=95)) == [[*range(95, RECORDS + 1)]]
        assert open_reader(startingOffset=RECORDS + 1).initialOffset() == at(RECORDS + 1)
        with pytest.raises(Invalid, match=f"ends at {RECORDS + 1}"):
            open_reader(startingOffset=RECORDS + 2).initialOffset()

    def test_it_may_begin_at_the_end_and_stays_there(self, url: str, open_reader: Open) -> None:
        reader = open_reader(startingOffset="latest")
        assert reader.initialOffset() == at(RECORDS + 1)
        asyncio.run(fill(url, fragments=1))
        assert reader.initialOffset() == at(RECORDS + 1), "Spark asks more than once"
        assert batches_of(reader) == [[*range(RECORDS + 1, RECORDS + 11)]]

    def test_it_may_begin_at_a_time(self, rows: list[Row], open_reader: Open) -> None:
        assert open_reader(startingTime=rows[40][1]).initialOffset() == at(41)
        assert open_reader(startingTime=rows[40][1] + 1).initialOffset() == at(51)
        assert open_reader(startingTime=1).initialOffset() == at(1)
        assert open_reader(startingTime=2**62).initialOffset() == at(RECORDS + 1)

    def test_there_must_be_a_log(self, tmp_path: Path) -> None:
        reader = LogStreamReader(parse_stream({"path": str(tmp_path / "none")}))
        with pytest.raises(NotFound, match="there is no log"):
            reader.initialOffset()


class TestAdmission:
    def test_without_limits_a_batch_takes_all(self, open_reader: Open) -> None:
        reader = open_reader()
        assert reader.getDefaultReadLimit() == ReadAllAvailable()
        assert [len(batch) for batch in batches_of(reader)] == [RECORDS]

    def test_records_are_limited_exactly(self, open_reader: Open) -> None:
        reader = open_reader(maxRecordsPerTrigger=33)
        assert reader.getDefaultReadLimit() == ReadMaxRows(33)
        batches = batches_of(reader)
        assert [len(batch) for batch in batches] == [33, 33, 33, 1]
        assert [*chain(*batches)] == [*range(1, RECORDS + 1)]

    def test_bytes_are_limited_by_whole_fragments(self, url: str, open_reader: Open) -> None:
        async def size() -> int:
            async with sl.LogReader.open(url) as reader:
                return (await reader.scan(1))[0].num_bytes

        reader = open_reader(maxBytesPerTrigger=int(2.5 * asyncio.run(size())))
        assert isinstance(reader.getDefaultReadLimit(), ReadMaxBytes)
        assert [len(batch) for batch in batches_of(reader)] == [20] * 5

    def test_one_fragment_is_always_let_in(self, open_reader: Open) -> None:
        batches = batches_of(open_reader(maxBytesPerTrigger=1))
        assert [len(batch) for batch in batches] == [10] * 10

    def test_of_two_limits_the_tighter_one_holds(self, open_reader: Open) -> None:
        both = {"maxBytesPerTrigger": 1, "maxRecordsPerTrigger": 7}
        batches = batches_of(open_reader(**both))
        assert [*chain(*batches)] == [*range(1, RECORDS + 1)]
        assert [len(batch) for batch in batches][:4] == [7, 3, 7, 3]

    def test_a_limit_of_the_engine_comes_before_the_options(self, open_reader: Open) -> None:
        reader = open_reader(maxRecordsPerTrigger=7)
        assert reader.latestOffset(at(1), ReadAllAvailable()) == at(RECORDS + 1)
        assert reader.latestOffset(at(1), ReadMaxRows(4)) == at(5)
        assert open_reader().latestOffset(at(1), ReadMaxFiles(2)) == at(21)

    def test_available_now_ends_at_the_tail_of_its_beginning(
        self, url: str, open_reader: Open
    ) -> None:
        reader = open_reader(maxRecordsPerTrigger=60)
        reader.prepareForTriggerAvailableNow()
        asyncio.run(fill(url, fragments=3))
        assert [len(batch) for batch in batches_of(reader)] == [60, 40]
        assert reader.latestOffset(at(RECORDS + 1), ReadAllAvailable()) == at(RECORDS + 1)

    def test_what_is_new_is_found(
        self, url: str, open_reader: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited: list[float] = []

        async def appended_meanwhile(pause_s: float) -> None:
            waited.append(pause_s)
            if len(waited) == 3:
                await fill(url, fragments=1)

        reader = open_reader()
        end = reader.latestOffset(at(1), ReadAllAvailable())
        monkeypatch.setattr("stratalog.pipeline.read.log_stream.asyncio.sleep", appended_meanwhile)
        for _ in range(3):
            assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert reader.latestOffset(end, ReadAllAvailable()) == at(RECORDS + 11)
        assert reader.reportLatestOffset() == at(RECORDS + 11)
        assert len(waited) == 3, "the first look after a batch is at once"
        assert waited == sorted(waited)
        assert waited[0] < waited[2]


class TestHolding:
    def test_a_batch_is_pinned_until_it_is_committed(self, url: str, open_reader: Open) -> None:
        reader = open_reader()
        reader.partitions(at(5), at(25))
        reader.partitions(at(25), at(30))
        assert sorted(pins_of(url)) == [(5, 25), (25, 30)]
        reader.commit(at(25))
        assert pins_of(url) == [(25, 30)]
        reader.stop()
        assert pins_of(url) == []

    def test_asking_for_the_next_batch_says_that_the_last_one_is_done(
        self, url: str, open_reader: Open
    ) -> None:
        reader = open_reader(maxRecordsPerTrigger=5)
        reader.partitions(at(1), at(6))
        reader.latestOffset(at(6), ReadMaxRows(5))
        assert pins_of(url) == []

    def test_a_planned_batch_is_read_whatever_becomes_of_the_log(
        self, url: str, open_reader: Open
    ) -> None:
        reader = open_reader()
        partitions = reader.partitions(at(5), at(25))
        collect_before(url, 95)
        found = [
            offset
            for partition in partitions
            for batch in reader.read(partition)
            for offset in batch.column(0).to_pylist()
        ]
        assert found == [*range(5, 25)]

    def test_names_of_pins_are_used_again(self, url: str, open_reader: Open) -> None:
        reader = open_reader(maxRecordsPerTrigger=10)
        for start in range(1, 51, 10):
            reader.partitions(at(start), at(start + 10))
            reader.commit(at(start + 10))
            collect_before(url, 1)
        reader.partitions(at(51), at(61))
        names = {row.name for row in (Path(url.removeprefix("file://")) / "pin").iterdir()}
        assert len([name for name in names if name.startswith("spark_")]) == 1

    def test_nothing_is_pinned_if_nobody_wants_it(self, url: str, open_reader: Open) -> None:
        reader = open_reader(pin="false")
        assert offsets_between(reader, at(1), at(4)) == [1, 2, 3]
        assert pins_of(url) == []

    def test_a_batch_without_records_has_no_partition(self, url: str, open_reader: Open) -> None:
        assert open_reader().partitions(at(7), at(7)) == []
        assert pins_of(url) == []

    def test_a_reader_travels_to_tasks_without_what_it_holds(self, open_reader: Open) -> None:
        reader = open_reader(maxRecordsPerTrigger=5)
        partitions = reader.partitions(at(1), at(6))
        (partition,) = pickle.loads(pickle.dumps(partitions))
        assert isinstance(partition, SplitPartition)
        copied = pickle.loads(pickle.dumps(reader))
        (batch,) = copied.read(partition)
        assert batch.column(0).to_pylist() == [1, 2, 3, 4, 5]
        assert copied.reportLatestOffset() is None


class TestCursor:
    def test_a_cursor_goes_along_and_nothing_is_pinned(self, url: str, open_reader: Open) -> None:
        reader = open_reader(cursor="totals", startingOffset=11)
        assert reader.initialOffset() == at(11)
        assert cursor_of(url) == 11
        assert offsets_between(reader, at(11), at(31)) == [*range(11, 31)]
        assert pins_of(url) == []
        assert cursor_of(url) == 11, "the batch is not done yet"
        reader.commit(at(31))
        assert cursor_of(url) == 31
        reader.latestOffset(at(41), ReadAllAvailable())
        assert cursor_of(url) == 41
        reader.commit(at(31))
        assert cursor_of(url) == 41, "it does not go back"

    def test_collection_waits_for_the_cursor(self, url: str, open_reader: Open) -> None:
        reader = open_reader(cursor="totals")
        reader.initialOffset()
        reader.commit(at(31))
        collect_before(url, 95)
        assert offsets_between(reader, at(31), at(41)) == [*range(31, 41)]

    def test_a_new_query_takes_its_cursor_back_to_its_start(
        self, url: str, open_reader: Open
    ) -> None:
        asyncio.run(sl.CursorStore(url).create("totals", 80))
        reader = open_reader(cursor="totals")
        assert reader.initialOffset() == at(1)
        assert cursor_of(url) == 1

    def test_a_query_that_goes_on_leaves_its_cursor_until_more_is_done(
        self, url: str, open_reader: Open
    ) -> None:
        asyncio.run(sl.CursorStore(url).create("totals", 11))
        reader = open_reader(cursor="totals")
        assert offsets_between(reader, at(21), at(31)) == [*range(21, 31)]
        assert cursor_of(url) == 21, "what lies before the batch is done"

    def test_a_cursor_that_somebody_deleted_is_there_again(
        self, url: str, open_reader: Open
    ) -> None:
        reader = open_reader(cursor="totals")
        reader.initialOffset()

        async def delete() -> None:
            await (await sl.CursorStore(url).load("totals")).delete()

        asyncio.run(delete())
        reader.commit(at(21))
        reader.commit(at(31))
        assert cursor_of(url) == 31

    def test_a_cursor_that_somebody_moved_does_not_end_the_query(
        self, url: str, open_reader: Open, caplog: pytest.LogCaptureFixture
    ) -> None:
        reader = open_reader(cursor="totals")
        reader.initialOffset()

        async def move() -> None:
            await (await sl.CursorStore(url).load("totals")).move(15)

        asyncio.run(move())
        with caplog.at_level(logging.WARNING, log_stream.__name__):
            reader.commit(at(21))
        assert "stays where it is for now" in caplog.text
        reader.commit(at(21))
        assert cursor_of(url) == 21


class TestLostData:
    def test_records_that_were_collected_are_named_and_what_to_do(
        self, url: str, open_reader: Open
    ) -> None:
        collect_before(url, 45)
        for lost in (
            lambda: open_reader().latestOffset(at(5), ReadAllAvailable()),
            lambda: open_reader().partitions(at(5), at(60)),
            lambda: open_reader(startingOffset=5).initialOffset(),
        ):
            with pytest.raises(Trimmed, match="records 5 to 40 of") as told:
                lost()
            assert told.value.first_offset == 41
            assert "failOnDataLoss" in told.value.hint
            assert "cursor" in told.value.hint

    def test_it_may_go_on_at_the_first_record_and_says_so(
        self, url: str, open_reader: Open, caplog: pytest.LogCaptureFixture
    ) -> None:
        collect_before(url, 45)
        reader = open_reader(failOnDataLoss="false", maxRecordsPerTrigger=50)
        with caplog.at_level(logging.WARNING, log_stream.__name__):
            batches = batches_of(reader, at(5))
        assert batches == [[*range(41, 91)], [*range(91, RECORDS + 1)]]
        assert caplog.text.count("records 5 to 40") == 1
        assert offsets_between(reader, at(5), at(30)) == []

    def test_a_target_that_was_collected_is_reached(self, url: str, open_reader: Open) -> None:
        reader = open_reader(failOnDataLoss="false")
        reader.prepareForTriggerAvailableNow()
        asyncio.run(fill(url, fragments=5))
        collect_before(url, 125)
        assert reader.latestOffset(at(5), ReadAllAvailable()) == at(RECORDS + 1)
        assert reader.partitions(at(5), at(RECORDS + 1)) == []

    def test_another_log_in_its_place_is_noticed(self, url: str, open_reader: Open) -> None:
        for call in (
            lambda: open_reader().latestOffset(at(500), ReadAllAvailable()),
            lambda: open_reader().partitions(at(50), at(500)),
        ):
            with pytest.raises(Invalid, match="is at offset 500, but the log") as told:
                call()
            assert "another checkpoint" in told.value.hint

    def test_a_sealed_log_simply_has_no_more_records(self, url: str, open_reader: Open) -> None:
        asyncio.run(sl.Sealer(url).seal())
        reader = open_reader()
        assert [len(batch) for batch in batches_of(reader)] == [RECORDS]
        assert reader.latestOffset(at(RECORDS + 1), ReadAllAvailable()) == at(RECORDS + 1)


class TestOnSpark:
    def start(
        self,
        spark: SparkSession,
        url: str,
        place: Path,
        options: dict[str, str],
        *,
        now: bool = True,
    ) -> StreamingQuery:
        register(spark)
        frame = spark.readStream.format("stratalog").options(**options).load(url)
        writing = (
            frame.writeStream.format("parquet")
            .option("path", str(place / "out"))
            .option("checkpointLocation", str(place / "checkpoint"))
        )
        return (writing.trigger(availableNow=True) if now else writing).start()

    def written(self, spark: SparkSession, place: Path) -> list[Row]:
        frame: DataFrame = spark.read.parquet(str(place / "out"))
        return rows_of(frame)

    def test_a_query_that_is_started_again_goes_on_where_it_was(
        self, spark: SparkSession, url: str, rows: list[Row], tmp_path: Path
    ) -> None:
        options = {"maxRecordsPerTrigger": "60", "cursor": "totals"}
        query = self.start(spark, url, tmp_path, options)
        assert query.awaitTermination(TERMINATION_S_MAX)
        assert [progress["numInputRows"] for progress in query.recentProgress] == [60, 40]
        assert self.written(spark, tmp_path) == rows
        assert cursor_of(url) == RECORDS + 1, "the last batch too, which Spark never commits"

        more = asyncio.run(fill(url, fragments=1))
        query = self.start(spark, url, tmp_path, options)
        assert query.awaitTermination(TERMINATION_S_MAX)
        assert self.written(spark, tmp_path) == more
        assert cursor_of(url) == RECORDS + 11

    def test_a_query_sees_what_is_appended_and_holds_nothing_when_it_has_stopped(
        self, spark: SparkSession, url: str, rows: list[Row], tmp_path: Path
    ) -> None:
        query = self.start(spark, url, tmp_path, {}, now=False)
        try:
            query.processAllAvailable()
            assert self.written(spark, tmp_path) == rows
            more = asyncio.run(fill(url, fragments=1))
            query.processAllAvailable()
            assert self.written(spark, tmp_path) == more
        finally:
            query.stop()

        async def released() -> None:
            async with asyncio.timeout(RELEASE_S_MAX):
                while await sl.PinStore(url).list():
                    await asyncio.sleep(0.05)

        asyncio.run(released())

    def test_lost_data_ends_a_query_with_a_readable_error(
        self, spark: SparkSession, url: str, rows: list[Row], tmp_path: Path
    ) -> None:
        query = self.start(spark, url, tmp_path, {"toOffset": "5"})
        with pytest.raises(Invalid, match="toOffset is one of"), readable_spark_errors():
            query.awaitTermination(TERMINATION_S_MAX)
        collect_before(url, 45)
        query = self.start(spark, url, tmp_path, {"startingOffset": "5"})
        with pytest.raises(Trimmed, match="records 5 to 40") as lost, readable_spark_errors():
            query.awaitTermination(TERMINATION_S_MAX)
        assert lost.value.first_offset == 41
        assert "failOnDataLoss" in lost.value.hint

    def test_a_herd_as_a_stream_is_refused(
        self, spark: SparkSession, url: str, rows: list[Row], tmp_path: Path
    ) -> None:
        query = self.start(spark, url, tmp_path, {"herd": "true"})
        with pytest.raises(Invalid, match="herd") as refused, readable_spark_errors():
            query.awaitTermination(TERMINATION_S_MAX)
        assert "one query for each log" in refused.value.hint
