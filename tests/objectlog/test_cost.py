"""A bill: the arithmetic of prices, and estimates that are near to what a log really asks for."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stratalog as sl
from objectlog.whole_log import run
from stratalog.errors import Invalid
from stratalog.objectlog.collection.unlinked_objects import Amount
from stratalog.objectlog.cost.monthly_cost import (
    MONTH_S,
    POLL_S_MIN,
    RATE_MAX,
    Measured,
    Prices,
    Rates,
    bill,
    storage_cost,
)
from stratalog.objectlog.cost.storage import Stored
from stratalog.store import MemoryStore
from stratalog.store.counted import Usage

PRICES = Prices(
    storage_per_gb_month=0.02, class_a_per_1000=0.005, class_b_per_1000=0.0004, egress_per_gb=0.09
)
GB = 2**30


def test_a_bill_is_amounts_times_prices() -> None:
    usage = Usage(2_000_000, 10_000_000, 5000, 7 * GB, 3 * GB)
    made = bill(PRICES, 100 * GB, usage)
    assert {line.what: round(line.cost, 6) for line in made.lines} == {
        "storage": 2.0,
        "class A requests": 10.0,
        "class B requests": 4.0,
        "deletions": 0.0,
        "bytes written": 0.0,
        "bytes read": 0.27,
    }
    assert made.total == pytest.approx(16.27)


def test_without_requests_a_bill_is_for_storage_alone() -> None:
    made = bill(PRICES, 10 * GB)
    assert [line.what for line in made.lines] == ["storage"]
    assert made.total == pytest.approx(0.2)


def test_a_provider_may_call_another_number_of_bytes_a_gb() -> None:
    decimal = msgspec.structs.replace(PRICES, gb_bytes=10**9)
    assert bill(decimal, 10**9).total == pytest.approx(0.02)


def test_each_class_of_objects_has_its_share() -> None:
    stored = Stored("x", {"fragments": Amount(9, 10 * GB), "unreferenced": Amount(1, 5 * GB)})
    assert storage_cost(PRICES, stored) == pytest.approx({"fragments": 0.2, "unreferenced": 0.1})


JSON = b"""{"storage_per_gb_month": 0.02, "class_a_per_1000": 0.005,
"class_b_per_1000": 0.0004, "egress_per_gb": 0.09}"""
TOML = b"""
storage_per_gb_month = 0.02
class_a_per_1000 = 0.005
class_b_per_1000 = 0.0004
egress_per_gb = 0.09
"""


@pytest.mark.parametrize("text", [JSON, TOML], ids=["json", "toml"])
def test_prices_are_read_from_json_and_from_toml(text: bytes) -> None:
    assert Prices.from_text(text) == PRICES


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"[1, 2]",
        b"{}",
        b"\xff",
        b"storage_per_gb_month = 0.02\n",
        b'{"storage_per_gb_month": -1, "class_a_per_1000": 1, "class_b_per_1000": 1}',
        b'{"storage_per_gb_month": "1", "class_a_per_1000": 1, "class_b_per_1000": 1}',
        b'{"storage_per_gb_month": 1, "class_a_per_1000": 1, "class_b_per_1000": 1, "more": 1}',
        b'{"storage_per_gb_month": 1, "class_a_per_1000": 1, "class_b_per_1000": 1, "gb_bytes": 0}',
        b"storage_per_gb_month = nan\nclass_a_per_1000 = 1\nclass_b_per_1000 = 1\n",
    ],
)
def test_what_is_no_list_of_prices_is_refused_with_a_hint(text: bytes) -> None:
    with pytest.raises(Invalid) as caught:
        Prices.from_text(text)
    assert "docs/guide/cost.md" in caught.value.hint


@given(st.binary(max_size=100))
def test_any_bytes_are_prices_or_refused(text: bytes) -> None:
    for read in (Prices.from_text, Measured.from_json):
        with pytest.raises(Invalid):
            read(text)


def test_stats_of_a_writer_and_a_reader_can_be_stored_and_projected_to_a_month() -> None:
    async def scenario() -> tuple[bytes, bytes]:
        store = MemoryStore()
        async with sl.LogWriter.open(store, create=True) as log:
            for _ in range(10):
                await log.append(b"1234567890")
            written = msgspec.json.encode(log.stats)
        async with sl.LogReader.open(store) as reader:
            assert len([record async for record in reader.records()]) == 10
            return written, msgspec.json.encode(reader.stats)

    writer, reader = (Measured.from_json(data) for data in run(scenario()))
    assert writer.class_a_requests >= 20
    assert writer.bytes_written > 10 * 500
    assert reader.class_b_requests == 11
    assert reader.class_a_requests == reader.bytes_written == 0
    assert reader.bytes_read > 10 * 500
    an_hour = msgspec.structs.replace(reader, elapsed_us=3_600_000_000)
    assert an_hour.a_month.class_b_requests == round(11 * MONTH_S / 3600)


def test_stats_of_no_time_are_refused() -> None:
    with pytest.raises(Invalid):
        Measured.from_json(b'{"elapsed_us": 0}')


@pytest.mark.parametrize("value", [b"-5", b"1" + b"0" * 400, b"-1" + b"0" * 400, b"1.5", b"1e400"])
@pytest.mark.parametrize("name", [b"elapsed_us", b"class_a_requests", b"bytes_read"])
def test_stats_that_cannot_be_are_refused(name: bytes, value: bytes) -> None:
    with pytest.raises(Invalid):
        Measured.from_json(b'{"elapsed_us": 1000000, "%s": %s}' % (name, value))


def test_stats_that_were_not_read_from_a_file_are_checked_too() -> None:
    with pytest.raises(Invalid, match="bytes_written is -1"):
        Measured(elapsed_us=1, bytes_written=-1)


def test_expected_appends_cost_about_what_they_really_cost() -> None:
    appends, size = 300, 100

    async def scenario() -> Usage:
        store = MemoryStore()
        async with sl.LogWriter.open(store, create=True) as log:
            before = Measured.from_json(msgspec.json.encode(log.stats))
            for _ in range(appends):
                await log.append(b"x" * size)
            after = Measured.from_json(msgspec.json.encode(log.stats))
        return Usage(
            class_a_requests=after.class_a_requests - before.class_a_requests,
            bytes_written=after.bytes_written - before.bytes_written,
        )

    real = run(scenario())
    rates = Rates(appends_per_second=appends / MONTH_S, append_bytes=size)
    assert rates.a_month.class_a_requests == pytest.approx(real.class_a_requests, rel=0.05)
    assert rates.a_month.bytes_written == pytest.approx(real.bytes_written, rel=0.5)


def test_an_interval_caps_the_requests_and_followers_add_reads() -> None:
    busy = Rates(appends_per_second=50.0, append_bytes=200)
    capped = Rates(appends_per_second=50.0, append_bytes=200, interval_s=1.0, followers=3)
    assert busy.a_month.class_b_requests == 0
    assert busy.a_month.class_a_requests == pytest.approx(50 * capped.a_month.class_a_requests)
    assert capped.a_month.class_b_requests == round(3 * 2 * MONTH_S)
    assert capped.a_month.bytes_read > 3 * 50 * 200 * MONTH_S


@pytest.mark.parametrize(
    "name", ["appends_per_second", "append_bytes", "interval_s", "followers", "poll_s"]
)
@pytest.mark.parametrize(
    "value",
    [-1, -1.0, float("nan"), float("inf"), -(10**400), 10**400, 10**5000, 1e300, "1", None, True],
    ids=lambda value: str(value) if isinstance(value, str | float) else type(value).__name__,
)
def test_illegal_rates_are_refused(name: str, value: float) -> None:
    with pytest.raises(Invalid, match=name):
        Rates(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("poll_s", [0.0, 1e-320])
def test_nobody_polls_all_the_time(poll_s: float) -> None:
    with pytest.raises(Invalid, match="poll_s"):
        Rates(poll_s=poll_s, followers=1)


def test_the_largest_rates_have_a_month() -> None:
    rates = Rates(
        appends_per_second=RATE_MAX,
        append_bytes=int(RATE_MAX),
        followers=int(RATE_MAX),
        interval_s=5e-324,
        poll_s=POLL_S_MIN,
    )
    assert bill(PRICES, 1, rates.a_month).total < float("inf")
