"""`cost`: bytes by class, requests by class, and the bill."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import stratalog as sl
from cli.calls import call, call_json, error_json, new_log, new_url, run

PRICES = """
currency = "EUR"
storage_per_gb_month = 1.0
class_a_per_1000 = 2.0
class_b_per_1000 = 0.5
egress_per_gb = 4.0
gb_bytes = 1000
"""


@pytest.fixture
def prices(tmp_path: Path) -> str:
    file = tmp_path / "prices.toml"
    file.write_text(PRICES)
    return str(file)


def written(url: str, file: Path) -> None:
    """The stats that a program leaves."""

    async def write() -> bytes:
        async with sl.LogWriter.open(url) as log:
            await log.append(b"more")
            return msgspec.json.encode(log.stats)

    file.write_bytes(run(write()))


def test_without_prices_it_shows_what_is_stored() -> None:
    url = new_log(b"one", b"two")
    shown = call("cost", url).stdout
    for name in ("fragments", "snapshots", "manifest", "unreferenced", "total"):
        assert name in shown
    told = call_json("cost", url)
    assert told["stored"]["fragments"]["objects"] == 1
    assert told["total"]["bytes"] == sum(each["bytes"] for each in told["stored"].values())
    assert told["bill"] is None
    assert told["cost_per_month"] is None


def test_with_prices_storage_has_a_cost(prices: str) -> None:
    url = new_log(b"one")
    told = call_json("cost", url, "--prices", prices)
    assert told["bill"]["currency"] == "EUR"
    assert told["cost_per_month"] == pytest.approx(told["total"]["bytes"] / 1000)
    shown = call("cost", url, "--prices", prices).stdout
    assert "A month, in EUR" in shown
    assert "class A" not in shown


def test_stats_of_programs_add_up_to_requests_of_a_month(prices: str, tmp_path: Path) -> None:
    url, file = new_log(b"one"), tmp_path / "stats.json"
    written(url, file)
    once = call_json("cost", url, "--prices", prices, "--stats", str(file))
    twice = call_json("cost", url, "--prices", prices, "--stats", str(file), "--stats", str(file))
    usage = once["usage_per_month"]["class_a_requests"]
    assert usage > 0
    assert twice["usage_per_month"]["class_a_requests"] == 2 * usage
    costs = {line["what"]: line["cost"] for line in once["bill"]["lines"]}
    assert costs["class A requests"] == pytest.approx(usage / 1000 * 2.0)
    assert once["cost_per_month"] == pytest.approx(sum(costs.values()))


def test_rates_give_requests_also_without_prices(prices: str) -> None:
    url = new_log(b"one")
    rates = ("--appends-per-second", "10", "--append-bytes", "100", "--followers", "1")
    shown = call("cost", url, *rates).stdout
    assert "Asked for in a month" in shown
    assert "class A requests" in call("cost", url, *rates, "--prices", prices).stdout
    told = call_json("cost", url, *rates, "--interval-s", "1")
    assert told["usage_per_month"]["class_a_requests"] == pytest.approx(
        2.0833 * 2_629_800, rel=0.01
    )


@pytest.mark.parametrize("option", ["--prices", "--stats"])
def test_a_file_that_is_not_one_is_named(option: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    url = new_log(b"one")
    told = error_json("cost", url, option, str(wrong), code=2)
    assert "wrong.json" in told["message"]
    assert error_json("cost", url, option, str(tmp_path / "none"), code=3)["kind"] == "not-found"
    assert error_json("cost", url, option, str(tmp_path), code=2)["kind"] == "invalid"


def test_a_log_that_is_not_there_is_not_found() -> None:
    assert error_json("cost", new_url(), code=3)["kind"] == "not-found"
