"""`erase` and `certificate`: what they take, what they tell, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import stratalog as sl
from cli.calls import call, call_json, error_json
from objectlog.whole_log import rows_of, run
from stratalog.pipeline import session as session_module

AT_ONCE = ("--yes", "--interval", "0")


@pytest.fixture
def url(tmp_path: Path) -> str:
    place = str(tmp_path / "log")

    async def write() -> None:
        async with sl.LogWriter.open(place, create=True) as log:
            for number in range(5):
                await log.append_many([b"%s=%d" % (key, number) for key in (b"a", b"b")])

    run(write())
    return place


@pytest.fixture
def chosen(tmp_path: Path) -> str:
    (tmp_path / "chosen").write_bytes(b"[[3, 4], [6, 7]]")
    return str(tmp_path / "chosen")


def offsets(url: str) -> list[int]:
    return [row[0] for row in run(rows_of(url))]


def test_by_a_file_with_a_certificate(url: str, chosen: str, tmp_path: Path) -> None:
    file = tmp_path / "case-12.json"
    args = ("--offsets-file", chosen, *AT_ONCE)
    told = call("erase", url, *args, "--note", "case 12", "--certificate", str(file)).stdout
    assert told.startswith("erased 2 records; deleted 2 objects that had them\n")
    assert offsets(url) == [1, 2, 4, 5, 7, 8, 9, 10]
    kept = json.loads(file.read_bytes())
    assert kept["id"] in told
    assert (kept["note"], kept["complete"], kept["versions"]) == ("case 12", True, "none")
    for name in ("before", "removed", "after"):
        assert kept[f"setsum_{name}"] in told
    assert "it hashes to what it says" in call("certificate", "verify", str(file)).stdout
    told = call("certificate", "verify", str(file), "--log", url).stdout
    assert "the log has none of the records" in told
    listed = call_json("certificate", "list", url)
    assert [each["id"] for each in listed] == [kept["id"]]
    shown = call("certificate", "show", url, kept["id"]).stdout
    assert json.loads(shown) == kept
    assert call("erase", url, *args).stdout.startswith("the log has no such records; ")
    (checked,) = call_json("certificate", "verify", url, "--id", kept["id"])
    assert (checked["holds"], checked["complete"]) == (True, True)


def test_only_by_somebody_who_says_so(url: str, chosen: str) -> None:
    told = error_json("erase", url, "--offsets-file", chosen, code=2)
    assert "--yes" in told["hint"]
    assert len(offsets(url)) == 10


def test_a_dry_run_tells_who_holds(url: str, chosen: str) -> None:
    call("pin", "create", url, "model_7")
    told = call("erase", url, "--offsets-file", chosen, "--dry-run").stdout
    assert told == "would erase 2 records\nheld by the pin model_7: 2 records\n"
    found = call_json("erase", url, "--offsets-file", chosen, "--dry-run")
    assert found == {
        "records": 2,
        "offsets": [[3, 4], [6, 7]],
        "holders": [{"kind": "pin", "name": "model_7", "records": 2}],
    }
    told = error_json("erase", url, "--offsets-file", chosen, *AT_ONCE, code=5)
    assert "the pin model_7" in told["message"]


def test_despite_a_pin_and_then_to_the_end(url: str, chosen: str) -> None:
    call("pin", "create", url, "model_7")
    done = call("erase", url, "--offsets-file", chosen, "--despite-holders", *AT_ONCE, code=16)
    assert "not complete: still held by the pin model_7" in done.stderr
    assert "the erasure is not complete" in done.stdout
    assert "not complete" in call("certificate", "list", url).stdout
    call("pin", "release", url, "model_7")
    (again,) = call_json("erase", url, "--finish", "--interval", "0")
    assert again["complete"]
    assert call("erase", url, "--finish").stdout == "nothing is left to finish\n"


def test_a_certificate_that_does_not_hold(url: str, chosen: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.json"
    call("erase", url, "--offsets-file", chosen, *AT_ONCE, "--certificate", str(file))
    file.write_bytes(file.read_bytes().replace(b'"records":2', b'"records":3'))
    done = call("certificate", "verify", str(file), code=13)
    assert "something else than when it was written" in done.stdout
    assert "does not hold" in done.stderr
    file.write_bytes(b"{}")
    assert "not a certificate" in call("certificate", "verify", str(file), code=13).stderr


def test_what_cannot_be_is_refused(url: str, chosen: str, tmp_path: Path) -> None:
    assert "give one of" in call("erase", url, code=2).stderr
    assert "give one of" in call("erase", url, "--finish", "--where", "x", code=2).stderr
    args = ("--offsets-file", chosen, *AT_ONCE)
    assert (
        "no directory"
        in call("erase", url, *args, "--certificate", str(tmp_path / "no" / "file"), code=3).stderr
    )
    call("erase", str(tmp_path / "nothing"), *args, code=3)
    assert "not the id" in call("certificate", "show", url, "x", code=2).stderr
    call("certificate", "show", url, "0" * 16, code=3)
    assert call("certificate", "list", url).stdout == "nothing was erased from this log\n"
    assert "nothing was erased" in call("certificate", "verify", url, code=3).stderr
    call("certificate", "verify", str(tmp_path / "typo.json"), code=3)
    assert "leave the rest out" in call("erase", url, "--finish", "--dry-run", code=2).stderr


def test_by_a_condition(url: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the session of the tests: another one would take a while to start."""

    @contextmanager
    def shared(**_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session_module, "session", shared)
    where = "string(body) LIKE 'a=%'"
    told = call_json("erase", url, "--where", where, *AT_ONCE)
    assert (told["records"], told["complete"]) == (5, True)
    assert where not in str(told)
    assert offsets(url) == [2, 4, 6, 8, 10]
    (checked,) = call_json("certificate", "verify", url, "--where", where)
    assert checked["holds"]
    assert (
        "by this condition" in call("certificate", "verify", url, "--where", "true", code=3).stderr
    )
