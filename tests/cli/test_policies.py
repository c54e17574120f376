"""`policy`: what the pipeline keeps, from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

import stratalog as sl
from cli.calls import call, call_json, error_json, new_log, new_url, run
from stratalog.cli.values import size_bytes

KEY = "get_json_object(string(body), '$.key')"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark says of the SQL is asked in ``tests/pipeline/test_policy_sql.py``."""
    monkeypatch.setattr("stratalog.pipeline.session.can_run_here", lambda: False)


def new_herd(*names: str) -> str:
    root = new_url()

    async def make() -> None:
        async with sl.Herd.open(root, server="api") as herd:
            for name in names:
                await (await herd.create(name)).append_many([b"a", b"b"])

    run(make())
    return root


def test_a_policy_lives_from_set_to_remove() -> None:
    url = new_log(b"a", b"b", b"c")
    error = error_json("policy", "get", url, code=3)
    assert (error["kind"], "policy set" in error["hint"]) == ("not-found", True)
    shown = call("policy", "set", url, "--key", KEY, "--retain-age", "30d").stdout
    assert shown.splitlines() == [
        "set the policy",
        f"  live      the last record of each {KEY}",
        "  retain    30 days",
        "  when      less than 0.5 of a fragment lives, 1 new record or more",
    ]
    got = call_json("policy", "get", url)
    assert got["policy"] == {"live": {"key": KEY}, "retain": {"age_s": 2_592_000.0}}
    assert (got["judged"], got["epoch_us"] > 0) == (None, True)
    told = call("policy", "get", url).stdout
    for part in ("30 days", "not asked yet", KEY):
        assert part in told
    assert [each["name"] for each in call_json("cursor", "list", url)] == ["policy"]
    assert call("policy", "remove", url).stdout == "removed the policy\n"
    assert call_json("cursor", "list", url) == []
    assert error_json("policy", "remove", url, code=3)["kind"] == "not-found"


def test_everything_that_can_be_said() -> None:
    url = new_log(b"a")
    options = ["--key", "body", "--tombstone", "length(body) = 0", "--grace", "2h"]
    options += ["--retain-age", "12h", "--retain-bytes", "1.5GiB"]
    options += ["--live-share-min", "0.25", "--new-records-min", "1000"]
    done = call_json("policy", "set", url, *options)
    assert done == {
        "done": "set",
        "policy": {
            "live": {"key": "body", "tombstone": "length(body) = 0", "grace_s": 7200.0},
            "retain": {"age_s": 43_200.0, "bytes": 1_610_612_736},
            "thresholds": {"live_share_min": 0.25, "new_records_min": 1000},
        },
    }
    told = call("policy", "get", url).stdout
    for part in ("length(body) = 0", "7,200 s", "12 hours", "at most 1.5 GiB", "1,000 new records"):
        assert part in told
    query = "SELECT max(offset) FROM log"
    assert call_json("policy", "set", url, "--live", query)["policy"] == {"live": {"sql": query}}
    assert call_json("policy", "get", url)["policy"] == {"live": {"sql": query}}


def test_a_file_says_the_same(tmp_path: Path) -> None:
    url, file = new_log(b"a"), tmp_path / "policy.json"
    call("policy", "set", url, "--key", "body", "--retain-bytes", "5000")
    policy = call_json("policy", "get", url)["policy"]
    file.write_text(json.dumps(policy))
    other = new_log(b"a")
    assert call_json("policy", "set", other, "--file", str(file))["policy"] == policy
    file.write_text('{"retain": {"age": 5}}')
    error = error_json("policy", "set", other, "--file", str(file), code=2)
    assert "retain.age" in error["message"]
    assert "age_s" in error["hint"]
    assert call_json("policy", "get", other)["policy"] == policy
    call("policy", "set", other, "--file", str(file), "--key", "body", code=2)
    call("policy", "set", other, "--file", str(tmp_path / "none.json"), code=2)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--key", "a", "--live", "b"],
        ["--key", ""],
        ["--tombstone", "a"],
        ["--key", "a", "--grace", "1d"],
        ["--retain-age", "30"],
        ["--retain-age", "0s"],
        ["--retain-bytes", "ten"],
        ["--retain-bytes", "0"],
        ["--retain-bytes", "1000", "--live-share-min", "0.5"],
        ["--key", "a", "--live-share-min", "0"],
        ["--key", "a", "--new-records-min", "-1"],
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str]) -> None:
    url = new_log(b"a")
    call("policy", "set", url, *options, code=2)
    assert call_json("cursor", "list", url) == []


def test_a_log_that_is_not_there() -> None:
    for command in (["get"], ["set", "--key", "a"]):
        error = error_json("policy", command[0], new_url(), *command[1:], code=3)
        assert "no log" in error["message"]


def test_a_cursor_that_was_left_is_told() -> None:
    url = new_log(b"a")
    call("cursor", "create", url, "policy", "1")
    error = error_json("policy", "get", url, code=3)
    assert "holds the log from 1" in error["message"]
    assert "policy remove" in error["hint"]
    call("policy", "remove", url)
    assert call_json("cursor", "list", url) == []


def test_many_logs_of_a_herd_at_once() -> None:
    root = new_herd("orders-eu", "orders-us", "clicks")
    done = call_json("policy", "set", root, "--log", "orders-*", "--retain-age", "1w")
    assert done["logs"] == ["orders-eu", "orders-us"]
    got = call_json("policy", "get", root, "--log", "*")
    assert {each["log"]: each["policy"] is not None for each in got} == {
        "clicks": False,
        "orders-eu": True,
        "orders-us": True,
    }
    shown = call("policy", "get", root, "--log", "*").stdout
    assert "7 days" in shown
    said = call("policy", "set", root, "--log", "clicks", "--log", "orders-eu", "--key", "body")
    assert said.stdout.startswith("set the policy of 2 logs\n")
    place = call("herd", "where", root, "clicks").stdout.strip()
    assert call_json("policy", "get", place)["policy"] == {"live": {"key": "body"}}
    removed = call_json("policy", "remove", root, "--log", "*")
    assert removed["logs"] == ["clicks", "orders-eu", "orders-us"]
    told = call("policy", "remove", root, "--log", "*").stdout
    assert told == "3 logs without a policy now\n"
    error = error_json("policy", "set", root, "--log", "sales-*", "--key", "a", code=3)
    assert "sales-*" in error["message"]


def test_one_log_that_fails_does_not_stop_the_others() -> None:
    root = new_herd("a", "b")
    place = call("herd", "where", root, "a").stdout.strip()
    run(sl.open_store(place).put_if_absent("policy/POLICY", b"{"))
    done = call("policy", "set", root, "--log", "*", "--key", "body", "--json", code=5)
    assert json.loads(done.stdout_bytes)["logs"] == ["b"]
    assert "the log a: not a policy" in done.stderr
    got = call("policy", "get", root, "--log", "*", code=5)
    assert "the last record of each body" in got.stdout
    assert error_json("policy", "get", place, code=13)["kind"] == "corrupt"


@pytest.mark.parametrize("command", [[], ["get"], ["set"], ["remove"]])
def test_help(command: list[str]) -> None:
    assert "policy" in call("policy", *command, "--help").stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("5000", 5000),
        ("64KiB", 65_536),
        ("64 kib", 65_536),
        ("1.5GB", 1_500_000_000),
        ("10GiB", 10 * 2**30),
        ("0.5PiB", 2**49),
        ("12B", 12),
    ],
)
def test_sizes(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "10GiBs", "1.", "5 0", "٣KB", "10 bytes"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="10GiB"):
        size_bytes(text)
