"""`pin`: holds on a stretch of a log, from the shell."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

import stratalog as sl
from cli.calls import call, call_json, error_json, new_url, run
from stratalog.cli.values import duration_s
from stratalog.runtime import DEFAULT_RUNTIME

HOUR_US = 3_600_000_000
SOON_US = 60_000_000


def log_of_fragments(count: int = 4) -> str:
    """A log with one record in each fragment."""
    url = new_url()

    async def fill() -> None:
        async with sl.LogWriter.open(url, create=True) as log:
            for number in range(1, count + 1):
                await log.append(b"%d" % number)

    run(fill())
    return url


def collect_to(url: str, offset: int) -> None:
    call("cursor", "create", url, f"c{offset}", str(offset))
    call("collect", url, "--interval", "0")


def test_a_pin_lives_from_create_to_release() -> None:
    url = log_of_fragments()
    assert call("pin", "list", url).stdout == "there are no pins\n"
    created = call_json("pin", "create", url, "mine", "--from", "2", "--to", "4", "--note", "why")
    assert (created["done"], created["name"], created["note"]) == ("created", "mine", "why")
    assert (created["from_offset"], created["to_offset"]) == (2, 4)
    assert created["expires_us"] is None
    (listed,) = call_json("pin", "list", url)
    assert listed == {name: value for name, value in created.items() if name != "done"}
    row = call("pin", "list", url).stdout.splitlines()[1].split()
    assert row[:4] == ["mine", "2", "to", "3"]
    assert "never" in row
    released = call("pin", "release", url, "mine").stdout
    assert released.startswith("released the pin mine of offsets 2 to 3")
    assert call_json("pin", "list", url) == []
    assert error_json("pin", "release", url, "mine", code=3)["kind"] == "not-found"


def test_what_a_pin_holds_is_read_after_the_log_was_cut_above_it() -> None:
    url = log_of_fragments()
    call("pin", "create", url, "held", "--from", "2", "--to", "4")
    collect_to(url, 4)
    assert call("read", url).stdout == "4\n"
    assert call("read", url, "--pin", "held").stdout == "2\n3\n"
    assert call("read", url, "--pin", "held", "--from", "3").stdout == "3\n"
    assert call("read", url, "--pin", "held", "--limit", "1").stdout == "2\n"
    call("pin", "release", url, "held")
    assert error_json("read", url, "--pin", "held", code=10)["kind"] == "trimmed"
    assert error_json("read", url, "--pin", "other", code=3)["kind"] == "not-found"


def test_without_a_stretch_everything_that_is_there_is_held() -> None:
    url = log_of_fragments()
    collect_to(url, 3)
    created = call_json("pin", "create", url, "all")
    assert (created["from_offset"], created["to_offset"]) == (3, 5)
    assert error_json("pin", "create", url, "all", code=4)["kind"] == "exists"
    assert error_json("pin", "create", url, "late", "--from", "1", code=10)["kind"] == "trimmed"


def test_an_expiry_is_a_duration_from_now() -> None:
    url = log_of_fragments()
    created = call_json("pin", "create", url, "mine", "--expires", "6h")
    now_us = DEFAULT_RUNTIME.now_us()
    assert abs(created["expires_us"] - now_us - 6 * HOUR_US) < SOON_US
    renewed = call_json("pin", "renew", url, "mine", "--expires", "1h30m")
    assert abs(renewed["expires_us"] - now_us - 1.5 * HOUR_US) < SOON_US
    assert call("pin", "renew", url, "mine").stdout.endswith("expires never\n")
    assert call_json("pin", "list", url)[0]["expires_us"] is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("7d", 604_800), ("1w2d3h", 788_400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "6", "h", "6x", "-6h", "6 h", "1.5h", "٦h", "6h "])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        duration_s(text)


def test_info_counts_the_pins_and_what_they_hold() -> None:
    url = log_of_fragments()
    facts = call_json("info", url)
    assert (facts["pins"], facts["pinned_bytes"]) == (0, 0)
    first = call_json("pin", "create", url, "one", "--to", "3")["bytes"]
    second = call_json("pin", "create", url, "two")["bytes"]
    facts = call_json("info", url)
    assert (facts["pins"], facts["pinned_bytes"]) == (2, first + second)
    assert second == facts["bytes"]


def test_the_pin_of_a_fork_is_not_released_by_mistake(tmp_path: Path) -> None:
    source, target = str(tmp_path / "log"), str(tmp_path / "fork")
    call("init", source)
    call("append", source, input=b"one\n")
    assert call("fork", source, target).stdout.startswith("forked ")
    [pin] = call_json("pin", "list", source)
    refused = error_json("pin", "release", source, pin["name"], code=5)
    assert refused["kind"] == "conflict"
    assert "held by the fork at" in refused["message"]
    assert call("fork", source, target).stdout.endswith("already; nothing was changed\n")
    assert call("pin", "release", source, pin["name"], "--force").stdout.startswith("released")
