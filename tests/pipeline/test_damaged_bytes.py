"""What Spark does with objects that are not what was stored: it refuses them, and publishes nothing
that came of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import stratalog as sl
from objectlog.trees import LEAF
from objectlog.wal3_logs import Wal3Log
from objectlog.whole_log import replace_bytes
from pipeline.herds import KEY, ids_of, root_of, store_of
from pipeline.herds import fill as fill_herd
from pipeline.spark_logs import PER_FRAGMENT, fill, rows_in, rows_of
from stratalog.errors import Corrupt, StratalogError
from stratalog.objectlog.stored import Fragment, load_manifest, with_digest
from stratalog.pipeline import (
    compact_by_key,
    compact_log,
    erase_where,
    latest_by_key,
    pinned_log,
    read_log,
    readable_spark_errors,
    scrub_herd,
    verify_herd,
)
from stratalog.pipeline.check import HerdVerifyOptions
from stratalog.pipeline.materialize import materialize
from stratalog.pipeline.read import native_check
from stratalog.pipeline.read.fetch import records_of
from stratalog.pipeline.read.native_check import check_files
from stratalog.pipeline.read.splits import Part, Split
from stratalog.testing import Row

SEED = 23
BITS = 300
AT_ONCE = sl.CompactOptions(interval_s=0.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


@pytest.fixture
def rows(url: str) -> list[Row]:
    return asyncio.run(fill(url))


def fragments_of(url: str) -> Sequence[Fragment]:
    async def scan() -> Sequence[Fragment]:
        async with sl.LogReader.open(url) as reader:
            return await reader.scan(1)

    return asyncio.run(scan())


def file_of(url: str, fragment: Fragment) -> Path:
    return Path(url.removeprefix("file://")) / fragment.path


def flip(file: Path, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(bytes(data))


def body_bit(file: Path) -> int:
    """A bit of the fourth body, which is stored as it is: it is too short to compress."""
    return 8 * (file.read_bytes().index(b"34") + 1) + 3


def statistics_bit(file: Path) -> int:
    """A bit of the maximum of the offsets, in the footer: 40 becomes 32."""
    data = file.read_bytes()
    return 8 * data.rindex((40).to_bytes(8, "little")) + 3


def flipped_body(url: str) -> None:
    file = file_of(url, fragments_of(url)[3])
    flip(file, body_bit(file))


def flipped_statistics(url: str) -> None:
    file = file_of(url, fragments_of(url)[3])
    flip(file, statistics_bit(file))


def doubled(url: str) -> None:
    """A fragment under the path of another one, of the same size or not."""
    fragments = fragments_of(url)
    file_of(url, fragments[3]).write_bytes(file_of(url, fragments[4]).read_bytes())


def swapped(url: str) -> None:
    one, other = (file_of(url, fragment) for fragment in fragments_of(url)[3:5])
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def cut_short(url: str) -> None:
    file = file_of(url, fragments_of(url)[3])
    file.write_bytes(file.read_bytes()[:-1])


def grown(url: str) -> None:
    file = file_of(url, fragments_of(url)[3])
    file.write_bytes(file.read_bytes() + b"\0")


Damaging = Callable[[str], None]
WITHIN: tuple[Damaging, ...] = (flipped_body, flipped_statistics, doubled, swapped)
SIZES: tuple[Damaging, ...] = (cut_short, grown)
ALL = pytest.mark.parametrize("damage", [*WITHIN, *SIZES], ids=lambda each: each.__name__)


def read(spark: SparkSession, url: str, **options: Any) -> list[Row]:
    with readable_spark_errors(), pinned_log(spark, url, **options) as frame:
        return rows_of(frame)


class TestThroughTheLibrary:
    @ALL
    def test_damage_is_refused(
        self, spark: SparkSession, url: str, rows: list[Row], damage: Damaging
    ) -> None:
        damage(url)
        victim = fragments_of(url)[3].path
        with pytest.raises(Corrupt) as refused:
            read(spark, url, via="arrow")
        assert refused.value.path == victim

    def test_so_does_the_format_and_what_is_whole_is_read(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        flipped_statistics(url)
        frame = spark.read.format("stratalog").load(url)
        with pytest.raises(Corrupt), readable_spark_errors():
            rows_of(frame)
        assert read(spark, url, via="arrow", to_offset=31) == rows[:30]

    def test_every_flip_is_named(self, url: str, rows: list[Row]) -> None:
        """What a task does, without Spark, for some bits of a fragment: all are tried in
        ``tests/formats``."""
        fragment = fragments_of(url)[3]
        split, file = Split((Part(url, (fragment,)),)), file_of(url, fragment)
        whole = file.read_bytes()
        for bit in random.Random(SEED).sample(range(8 * len(whole)), BITS):
            flip(file, bit)
            for verify in (True, "records"):
                with pytest.raises(Corrupt):
                    [*records_of(split, verify=verify)]
            file.write_bytes(whole)
        assert sum(batch.num_rows for batch in records_of(split)) == PER_FRAGMENT

    def test_without_a_digest_the_records_are_checked(self, url: str, rows: list[Row]) -> None:
        fragment = with_digest(fragments_of(url)[3], None)
        split = Split((Part(url, (fragment,)),))
        assert sum(batch.num_rows for batch in records_of(split)) == PER_FRAGMENT
        flipped_body(url)
        with pytest.raises(Corrupt, match="does not add up"):
            [*records_of(split)]
        assert sum(batch.num_rows for batch in records_of(split, verify=False)) == PER_FRAGMENT

    def test_a_stream_refuses_it(
        self, spark: SparkSession, url: str, rows: list[Row], tmp_path: Path
    ) -> None:
        flipped_body(url)

        def start(verify: str) -> Any:
            stream = spark.readStream.format("stratalog").option("verify", verify).load(url)
            writer = stream.writeStream.format("parquet").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{verify}"))
            return writer.start(str(tmp_path / f"out-{verify}"))

        with pytest.raises(Corrupt), readable_spark_errors():
            start("true").awaitTermination()
        start("false").awaitTermination()
        assert spark.read.parquet(str(tmp_path / "out-false")).count() == len(rows)


class TestNatively:
    @pytest.mark.parametrize("damage", SIZES, ids=lambda each: each.__name__)
    @pytest.mark.parametrize("listed", [False, True])
    def test_sizes_are_compared(
        self,
        spark: SparkSession,
        url: str,
        rows: list[Row],
        damage: Damaging,
        listed: bool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        if listed:
            monkeypatch.setattr(native_check, "HEADS_MAX", 0)
        damage(url)
        with pytest.raises(Corrupt, match=r"has \d+ bytes, not") as refused:
            read_log(spark, url, via="native")
        assert refused.value.path == fragments_of(url)[3].path
        assert asyncio.run(sl.PinStore(url).list()) == []
        read_log(spark, url, via="native", verify=False, pin_s=None)
        assert read(spark, url, via="native", to_offset=31) == rows[:30]

    @pytest.mark.parametrize("listed", [False, True])
    def test_a_missing_object_is_told_at_once(
        self, url: str, rows: list[Row], listed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if listed:
            monkeypatch.setattr(native_check, "HEADS_MAX", 0)
        fragments = tuple(fragments_of(url))
        file_of(url, fragments[3]).unlink()
        with pytest.raises(Corrupt, match="is missing although the log links it"):
            asyncio.run(check_files([Part(url, fragments)]))

    def test_two_entries_for_one_file_are_refused(self, url: str, rows: list[Row]) -> None:
        fragments = [*fragments_of(url)]
        fragments[4] = msgspec.structs.replace(
            fragments[4], path=fragments[3].path, num_bytes=fragments[3].num_bytes
        )
        with pytest.raises(Corrupt, match="two entries of a log lead to"):
            asyncio.run(check_files([Part(url, tuple(fragments))]))

    def test_a_fork_may_share_files_with_its_source(self, url: str, rows: list[Row]) -> None:
        part = Part(url, tuple(fragments_of(url)))
        asyncio.run(check_files([part, replace(part, log="another")]))

    def test_logs_of_wal3(self, spark: SparkSession, url: str) -> None:
        made = Wal3Log(((LEAF, LEAF), LEAF, LEAF), by_uuid=True)
        asyncio.run(made.store(sl.open_store(url)))
        assert read(spark, url, via="native", verify="bytes") == made.rows

    @ALL
    def test_all_is_refused_if_the_bytes_are_read(
        self, spark: SparkSession, url: str, rows: list[Row], damage: Damaging
    ) -> None:
        assert read(spark, url, via="native", verify="bytes") == rows
        damage(url)
        with pytest.raises(Corrupt) as refused:
            read(spark, url, via="native", verify="bytes")
        assert refused.value.path == fragments_of(url)[3].path

    def test_what_it_cannot_notice_without(
        self, spark: SparkSession, url: str, rows: list[Row]
    ) -> None:
        """As the guide says. If this fails, the guide can promise more."""
        flipped_body(url)
        found = read(spark, url)
        assert [row[:2] for row in found] == [row[:2] for row in rows]
        assert found != rows


def compacting_by_key(spark: SparkSession, url: str) -> None:
    compact_by_key(spark, url, "string(body)", options=AT_ONCE)


def compacting_by_query(spark: SparkSession, url: str) -> None:
    compact_log(spark, url, "SELECT max(offset) FROM log", options=AT_ONCE)


def erasing(spark: SparkSession, url: str) -> None:
    erase_where(spark, url, "string(body) = '5'", options=AT_ONCE)


JOBS = (compacting_by_key, compacting_by_query, erasing)


class TestJobs:
    @pytest.mark.parametrize("job", JOBS, ids=lambda each: each.__name__)
    @pytest.mark.parametrize("damage", [flipped_body, doubled], ids=lambda each: each.__name__)
    def test_nothing_is_published(
        self,
        spark: SparkSession,
        url: str,
        rows: list[Row],
        damage: Damaging,
        job: Callable[[SparkSession, str], None],
    ) -> None:
        damage(url)
        store = sl.open_store(url)
        before = asyncio.run(load_manifest(store))[0].fragments
        with pytest.raises(Corrupt):
            job(spark, url)
        assert asyncio.run(load_manifest(store))[0].fragments == before
        assert asyncio.run(rows_in(url, to_offset=31)) == rows[:30]

    def test_of_a_herd(self, spark: SparkSession, tmp_path: Path) -> None:
        root = root_of(tmp_path)
        fill_herd(root, {"bad": 30, "good": 30}, fragments=3)
        url = store_of(root, "bad").url
        file = file_of(url, fragments_of(url)[1])
        flip(file, 8 * file.read_bytes().rindex(b"PAR1") - 200)
        with pytest.raises(Corrupt):
            [*records_of(Split((Part(url, tuple(fragments_of(url))),)))]
        scrubbed = scrub_herd(spark, root)
        assert [log.log for log in scrubbed.logs if log.damages] == ["bad"]
        verified = verify_herd(spark, root, options=HerdVerifyOptions(records=True))
        assert {each.log for each in verified.findings} >= {"bad"}
        done = materialize(spark, root, latest_by_key(KEY))
        assert [(each.log, type(each.error)) for each in done.troubles] == [("bad", Corrupt)]
        assert [each.name for each in done.logs] == ["good"]
        with pytest.raises(StratalogError):
            asyncio.run(sl.CursorStore(url).load("compaction"))
        assert ids_of(root).keys() == {"bad", "good"}


@pytest.mark.s3
def test_a_damaged_object_of_a_bucket_is_refused(spark: SparkSession, s3_url: str) -> None:
    asyncio.run(fill(s3_url, fragments=2))
    fragment, store = fragments_of(s3_url)[1], sl.open_store(s3_url)
    whole = asyncio.run(store.get(fragment.path)).data
    for bit in random.Random(SEED).sample(range(8 * len(whole)), 3):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        asyncio.run(replace_bytes(store, fragment.path, bytes(damaged)))
        with pytest.raises(Corrupt) as refused:
            read(spark, s3_url)
        assert refused.value.path == fragment.path
