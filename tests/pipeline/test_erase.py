"""Erasing by a condition, on Spark: what is found in the log, and in what its pins hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import stratalog as sl
from pipeline.spark_logs import fill, rows_in, rows_of, stage
from stratalog.errors import Conflict, Invalid
from stratalog.pipeline import compact_by_key, erase_where, matching, read_log
from stratalog.testing import Row

AT_ONCE = sl.CompactOptions(interval_s=0.0)


async def mixed(url: str) -> list[Row]:
    """Fragments of a writer and of a sink."""
    await fill(url)
    await stage(url, [b"s%d" % each for each in range(10)], [b"t%d" % each for each in range(10)])
    return await fill(url, fragments=2)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "log").as_uri()


def test_what_matches_is_gone(spark: SparkSession, url: str) -> None:
    before = asyncio.run(mixed(url))
    where = "string(body) LIKE '%7'"
    made = erase_where(spark, url, where, note="case 12", options=AT_ONCE)
    doomed = {offset for offset, _, body in before if body.endswith(b"7")}
    assert made is not None
    assert made.complete, made.reasons
    assert made.is_about(where)
    assert made.records == len(doomed) > 5
    left = [row for row in before if row[0] not in doomed]
    assert asyncio.run(rows_in(url)) == left
    assert rows_of(read_log(spark, url)) == left
    assert asyncio.run(sl.verify_certificate(made, url, query=where)).holds
    assert erase_where(spark, url, where) is None


def test_offsets_and_times_may_be_asked_for(spark: SparkSession, url: str) -> None:
    rows = asyncio.run(mixed(url))
    assert list(matching(spark, url, "offset IN (3, 17)")) == [3, 17]
    at = rows[20][1]
    found = matching(spark, url, f"timestamp = timestamp_micros({at})")
    assert list(found) == [row[0] for row in rows if row[1] == at]
    assert list(matching(spark, url, "CAST(NULL AS BOOLEAN)")) == []


def test_a_pin_may_hold_what_the_log_has_not_any_more(spark: SparkSession, url: str) -> None:
    before = asyncio.run(mixed(url))
    sevens = [offset for offset, _, body in before if body.endswith(b"7")]

    async def pin_and_compact() -> None:
        await sl.PinStore(url).create("old")
        await sl.compact(url, sl.IndexSet(), up_to=41, options=AT_ONCE)

    asyncio.run(pin_and_compact())
    assert list(matching(spark, url, "string(body) LIKE '%7'")) == sevens
    with pytest.raises(Conflict, match="the pin old"):
        erase_where(spark, url, "offset = 3")


def test_the_key_index_is_forgotten(spark: SparkSession, url: str) -> None:
    asyncio.run(mixed(url))
    compact_by_key(spark, url, "string(body)", options=AT_ONCE)

    async def index() -> list[str]:
        return [row.path async for row in sl.open_store(url).list("live/")]

    assert asyncio.run(index())
    assert erase_where(spark, url, "offset = 3", options=AT_ONCE) is not None
    assert asyncio.run(index()) == []


@pytest.mark.parametrize("where", ["nonsense =", "colour = 'red'", "offset", ""])
def test_what_is_no_condition_is_refused(spark: SparkSession, url: str, where: str) -> None:
    asyncio.run(fill(url))
    with pytest.raises(Invalid):
        erase_where(spark, url, where)
    assert asyncio.run(sl.list_certificates(url)) == []
