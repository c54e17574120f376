"""The options of the source: what is meant, and what is refused with the next step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.markdown_files import table_of
from stratalog.errors import Invalid
from stratalog.objectlog.tree.seek_window import Window
from stratalog.pipeline.read.options import (
    PIN_S,
    READ_NAMES,
    STREAM_NAMES,
    ReadOptions,
    StreamOptions,
    is_herd,
    parse_read,
    parse_stream,
)
from stratalog.pipeline.read.splits import SPLIT_BYTES
from stratalog.pipeline.spark.urls import absolute_url, below

NOON_US = 1_767_268_800_000_000
"""2026-01-01T12:00:00Z"""


def read(**options: str) -> ReadOptions:
    return parse_read({"path": "/data/log", **options})


def stream(**options: str) -> StreamOptions:
    return parse_stream({"path": "/data/log", **options})


def test_without_options_all_is_read_and_pinned_for_an_hour() -> None:
    options = read()
    assert (options.url, options.window) == ("file:///data/log", Window())
    assert (options.herd, options.logs, options.push_filters, options.verify) == (
        False,
        None,
        False,
        True,
    )
    assert (options.pin_s, options.split_bytes) == (PIN_S, SPLIT_BYTES)


def test_the_options_of_a_read() -> None:
    options = read(
        fromOffset="3",
        TOOFFSET="9",
        fromTime="2026-01-01T12:00:00Z",
        totime=str(NOON_US + 1),
        herd="TRUE",
        logs="a, orders-*",
        pinSeconds="0.5",
        splitBytes="1000",
        splitsMin="7",
        verify="true",
        pushFilters="true",
    )
    assert options.window == Window(3, 9, NOON_US, NOON_US + 1)
    assert options.logs == ("a", "orders-*")
    assert (options.herd, options.verify, options.push_filters) == (True, True, True)
    assert (options.pin_s, options.split_bytes, options.splits_min) == (0.5, 1000, 7)


def test_the_options_of_a_stream() -> None:
    options = stream(
        maxRecordsPerTrigger="10",
        maxBytesPerTrigger="20",
        cursor="totals",
        failOnDataLoss="false",
        startingOffset="7",
    )
    assert (options.max_records, options.max_bytes, options.cursor) == (10, 20, "totals")
    assert (options.starting_offset, options.fail_on_data_loss) == (7, False)
    assert stream(startingOffset="Latest").starting_latest
    assert not stream(startingOffset="earliest").starting_latest
    assert stream(startingTime="2026-01-01T13:00:00+01:00").starting_us == NOON_US
    assert stream(pin="false").pin_s is None
    assert stream(herd="false").url == "file:///data/log"


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("2026-01-01T12:00:00Z", NOON_US),
        ("2026-01-01T12:00:00", NOON_US),
        ("2026-01-01 14:00:00.000001+02:00", NOON_US + 1),
        ("2026-01-01", NOON_US - 12 * 3600 * 1_000_000),
        (str(NOON_US), NOON_US),
        ("1905-01-01", 0),
    ],
)
def test_a_time_is_an_iso_time_or_microseconds(text: str, time_us: int) -> None:
    assert read(fromTime=text).window.from_timestamp_us == time_us


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("fromofset", "fromOffset"),
        ("verfy", "verify"),
        ("pin_seconds", "pinSeconds"),
        ("splitsize", "splitsMin"),
        ("log", "logs"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(option: str, meant: str) -> None:
    with pytest.raises(Invalid, match=f"no option {option}") as refused:
        read(**{option: "1"})
    assert refused.value.hint == f"Did you mean {meant}?"
    with pytest.raises(Invalid, match=option):
        is_herd({option: "1"})


def test_an_option_that_resembles_none_is_refused_with_all_of_them() -> None:
    with pytest.raises(Invalid) as refused:
        stream(zebra="red")
    assert all(name in refused.value.hint for name in STREAM_NAMES)


def test_an_option_of_the_other_kind_of_read_is_refused_with_its_counterpart() -> None:
    with pytest.raises(Invalid, match=r"one of spark\.readStream") as refused:
        read(startingOffset="3")
    assert refused.value.hint == "Use fromOffset here."
    with pytest.raises(Invalid, match=r"one of spark\.read$") as refused:
        stream(fromTime="3")
    assert refused.value.hint == "Use startingTime here."
    with pytest.raises(Invalid) as refused:
        read(cursor="c")
    assert refused.value.hint == "Leave it out."


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("fromOffset", "0", "from 1 on"),
        ("toOffset", "-3", "from 1 on"),
        ("toOffset", "9" * 30, "from 1 on"),
        ("fromTime", "yesterday", "ISO time"),
        ("herd", "yes", '"true" or "false"'),
        ("pinSeconds", "0", "seconds"),
        ("pinSeconds", "nan", "seconds"),
        ("pinSeconds", "an hour", "seconds"),
        ("splitBytes", "64m", "whole number"),
        ("verify", "bytes", '"true", "records" or "false"'),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    option: str, value: str, allowed: str
) -> None:
    with pytest.raises(Invalid, match=option) as refused:
        read(**{option: value})
    assert allowed in refused.value.hint


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("startingOffset", "newest", '"earliest", "latest" or an offset'),
        ("startingTime", "now", "ISO time"),
        ("maxRecordsPerTrigger", "0", "from 1 on"),
        ("maxBytesPerTrigger", "1k", "whole number"),
        ("cursor", "my cursor", "letters, digits and underscores"),
        ("failOnDataLoss", "no", '"true" or "false"'),
    ],
)
def test_a_wrong_value_of_a_stream_is_refused_with_what_is_allowed(
    option: str, value: str, allowed: str
) -> None:
    with pytest.raises(Invalid, match=option) as refused:
        stream(**{option: value})
    assert allowed in refused.value.hint


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(Invalid, match="offsets from 5 to 4"):
        read(fromOffset="5", toOffset="4")
    with pytest.raises(Invalid, match="times from 5 to 4"):
        read(fromTime="5", toTime="4")
    with pytest.raises(Invalid, match="pinSeconds"):
        read(pin="false", pinSeconds="5")
    with pytest.raises(Invalid, match="herd"):
        read(logs="a")
    with pytest.raises(Invalid, match="not at both"):
        stream(startingOffset="5", startingTime="5")


def test_names_of_logs_are_names_or_patterns() -> None:
    with pytest.raises(Invalid, match="logs"):
        read(herd="true", logs="a,,b")
    with pytest.raises(Invalid, match="logs"):
        read(herd="true", logs="../secret")


def test_a_herd_as_a_stream_is_refused_with_what_to_do() -> None:
    with pytest.raises(Invalid, match="herd") as refused:
        stream(herd="true")
    assert "one query for each log" in refused.value.hint


def test_one_log_must_be_named() -> None:
    with pytest.raises(Invalid, match="which log"):
        parse_read({})
    with pytest.raises(Invalid, match="several paths"):
        parse_read({"paths": '["a", "b"]'})


def test_a_log_in_memory_is_refused() -> None:
    with pytest.raises(Invalid, match="memory"):
        parse_read({"path": "memory://log"})
    with pytest.raises(Invalid, match="memory"):
        parse_stream({"path": "MEMORY://log"})


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_read({"path": "logs/orders"}).url == (tmp_path / "logs/orders").as_uri()
    assert absolute_url(Path("logs/orders")) == (tmp_path / "logs/orders").as_uri()
    with pytest.raises(Invalid, match="misspelt"):
        parse_read({"path": "s3:/bucket/orders"})


def test_a_place_in_a_bucket_keeps_its_options() -> None:
    url = "s3://bucket/herd/?region=eu-central-1"
    assert absolute_url(url) == url
    assert below(url, "logs/1") == "s3://bucket/herd/logs/1?region=eu-central-1"
    assert below("file:///a?b", "logs/1") == "file:///a?b/logs/1"


def test_every_option_is_named_once() -> None:
    for names in (READ_NAMES, STREAM_NAMES):
        assert len({name.lower() for name in names}) == len(names)


@pytest.mark.parametrize(
    ("heading", "names"), [("## Options", READ_NAMES), ("## Options of a stream", STREAM_NAMES)]
)
def test_the_guide_lists_every_option(heading: str, names: tuple[str, ...]) -> None:
    listed = {
        name for cell in table_of("guide/spark.md", heading) for name in re.findall(r"\w+", cell)
    }
    assert listed == {*names} - {"path"}
