"""`verify`: what it shows people and programs, and how it ends."""

from __future__ import annotations

import json
import re

import stratalog as sl
from cli.calls import call, call_json, error_json, new_log, new_url, run
from soak.described import record


def test_a_good_log_is_verified_and_every_promise_is_named() -> None:
    url = new_log(b"one", b"two")
    shown = call("verify", url).stdout
    for promise in ("structure", "sums", "continuity", "self-description"):
        assert promise in shown
    assert "broken" not in shown
    assert len(re.findall(r"│ held +│", shown)) == 3
    assert re.search(r"self-description │ - +│ no record describes itself", shown)
    assert shown.splitlines()[-1].startswith("verified: 2 records in 1 fragment (")


def test_records_that_describe_themselves_are_a_promise_that_is_held() -> None:
    shown = call("verify", new_log(record(1, 0), record(1, 1))).stdout
    assert len(re.findall(r"│ held +│", shown)) == 4


def test_programs_get_everything_as_json() -> None:
    told = call_json("verify", new_log(record(1, 0), record(1, 1)))
    assert told["proven"] is True
    assert [check["held"] for check in told["checks"]] == [True] * 4
    assert (told["records"], told["described_records"], told["described_writers"]) == (2, 2, 1)
    assert told["hashed"] == told["setsum"]


def test_a_missing_record_is_told_with_the_code_of_corruption() -> None:
    url = new_log(record(1, 0), record(1, 2))
    shown = call("verify", url, code=13).stdout
    assert "broken" in shown
    assert "missing" in shown
    assert "1 from number 1" in shown
    assert shown.splitlines()[-1].startswith("1 finding")
    told = json.loads(call("verify", url, "--json", code=13).stdout)
    assert told["proven"] is False
    assert told["oddities"][0]["kind"] == "missing"


def test_damage_is_told_with_its_kind() -> None:
    url = new_log(b"one")

    async def damage() -> None:
        store = sl.open_store(url)
        await store.delete_many([row.path async for row in store.list("log/")])

    run(damage())
    shown = call("verify", url, code=13).stdout
    assert "fragment-missing" in shown
    assert "stratalog scrub" in shown


def test_a_log_that_is_not_there_is_not_found() -> None:
    assert error_json("verify", new_url(), code=3)["kind"] == "not-found"
