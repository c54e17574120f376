"""`compact`: what it takes, what it tells, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import stratalog as sl
from cli.calls import call, call_json, error_json
from objectlog.whole_log import rows_of, run
from stratalog.pipeline import compact_log, live_set
from stratalog.pipeline import session as session_module

STRICT = sl.CompactOptions(interval_s=0.0, live_share_min=1.0)
STRICTLY = ("--live-share-min", "1", "--interval", "0")
BY_KEY = "SELECT max(offset) FROM log GROUP BY split(string(body), '=')[0]"


@pytest.fixture
def url(tmp_path: Path) -> str:
    place = str(tmp_path / "log")

    async def write() -> None:
        async with sl.LogWriter.open(place, create=True) as log:
            for number in range(5):
                await log.append_many([b"%s=%d" % (key, number) for key in (b"a", b"b")])

    run(write())
    return place


def offsets(url: str) -> list[int]:
    return [row[0] for row in run(rows_of(url))]


def live_file(tmp_path: Path, content: bytes) -> str:
    (tmp_path / "live").write_bytes(content)
    return str(tmp_path / "live")


@pytest.mark.parametrize(
    "content", [b"[[3, 4]]", sl.IndexSet.of([3]).to_bytes()], ids=["json", "binary"]
)
def test_by_a_file(url: str, tmp_path: Path, content: bytes) -> None:
    args = ("--live-file", live_file(tmp_path, content), "--up-to", "9", *STRICTLY)
    told = call("compact", url, *args).stdout
    assert told.startswith("dropped 7 records: 4 fragments became 1 (")
    assert offsets(url) == [3, 9, 10]
    assert call("compact", url, *args).stdout == "nothing to drop\n"
    assert "at most 10" in call("info", url).stdout
    assert call_json("info", url)["compacted"] is True


def test_as_json(url: str, tmp_path: Path) -> None:
    file = live_file(tmp_path, b"[[3, 4]]")
    told = call_json("compact", url, "--live-file", file, "--up-to", "9", *STRICTLY)
    assert (told["up_to"], told["records"], told["fragments"], told["rewritten"]) == (9, 7, 4, 1)
    assert told["objects_deleted"] == 4
    assert told["bytes_after"] < told["bytes_before"]


def test_what_cannot_be_is_refused(url: str, tmp_path: Path) -> None:
    assert "they say what lives" in call("compact", url, code=2).stderr
    file = live_file(tmp_path, b"{}")
    assert "needs --up-to" in call("compact", url, "--live-file", file, code=2).stderr
    told = error_json("compact", url, "--live-file", file, "--up-to", "5", code=2)
    assert "not ranges of indexes" in told["message"]
    file = live_file(tmp_path, b"offsets")
    told = error_json("compact", url, "--live-file", file, "--up-to", "5", code=2)
    assert "is no set of indexes" in told["message"]
    told = error_json(
        "compact", url, "--live-file", live_file(tmp_path, b"[]"), "--up-to", "99", code=2
    )
    assert "beyond the tail" in told["message"]
    assert len(offsets(url)) == 10


def test_a_log_that_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "session", None)
    told = error_json("compact", str(tmp_path / "none"), "--live", BY_KEY, code=3)
    assert told["message"].startswith("there is no log at ")


def test_by_a_query(spark: SparkSession, url: str) -> None:
    assert spark is not None
    told = call_json("compact", url, "--live", BY_KEY, *STRICTLY)
    assert (told["up_to"], told["records"]) == (11, 8)
    assert offsets(url) == [9, 10]


def test_by_key(spark: SparkSession, url: str) -> None:
    assert spark is not None
    key = ("--key", "split(string(body), '=')[0]")
    told = call_json("compact", url, *key, *STRICTLY)
    assert (told["up_to"], told["read"], told["live"], told["records"]) == (11, 10, 2, 8)
    assert told["objects_deleted"] == 4
    assert offsets(url) == [9, 10]
    said = call("compact", url, *key, *STRICTLY).stdout
    assert said == "nothing to drop; 0 records read, 2 live\n"
    told = call_json("compact", url, *key, "--full", *STRICTLY)
    assert (told["read"], told["live"]) == (2, 2)
    gone = ("--tombstone", "string(body) LIKE 'a=%'", "--grace", "0", "--up-to", "10")
    said = call("compact", url, *key, *gone, *STRICTLY).stdout
    assert said == "nothing to drop; 1 record read, 0 live\n"  # the newest fragment stays


def test_options_of_a_key(url: str) -> None:
    for args, message in (
        (("--key", "body", "--live", BY_KEY), "give one of"),
        (("--live", BY_KEY, "--full"), "belong to --key"),
        (("--live", BY_KEY, "--tombstone", "true"), "belong to --key"),
        (("--key", "body", "--grace", "5"), "--grace is how long"),
    ):
        assert message in call("compact", url, *args, code=2).stderr


def test_a_key_that_says_nothing(spark: SparkSession, url: str) -> None:
    assert spark is not None
    told = error_json("compact", url, "--key", "nothing", code=2)
    assert "the key cannot be evaluated" in told["message"]
    assert len(offsets(url)) == 10


def test_a_frame_or_a_set_needs_to_say_how_far_it_goes(spark: SparkSession, url: str) -> None:
    frame = spark.createDataFrame([(3,), (7,), (None,)], "offset bigint")
    assert live_set(frame) == sl.IndexSet.of([3, 7])
    with pytest.raises(sl.errors.Invalid, match="stopped reading"):
        compact_log(spark, url, frame)
    compact_log(spark, url, frame, up_to=9, options=STRICT)
    assert offsets(url) == [3, 7, 9, 10]
    compact_log(spark, url, sl.IndexSet.of([7]), up_to=9, options=STRICT)
    assert offsets(url) == [7, 9, 10]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT max(offset) FROM", "does not say what lives"),
        ("SELECT nothing FROM log", "does not say what lives"),
        ("SELECT body FROM log", "one column of offsets"),
        ("SELECT offset, body FROM log", "one column of offsets"),
    ],
)
def test_a_query_that_says_nothing(spark: SparkSession, url: str, query: str, message: str) -> None:
    with pytest.raises(sl.errors.Invalid, match=message):
        compact_log(spark, url, query, options=STRICT)
    assert len(offsets(url)) == 10
    assert "log" not in [table.name for table in spark.catalog.listTables()]
