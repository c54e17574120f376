"""`seal`, `migrate`, and a log that begins at another offset, from the shell."""

from __future__ import annotations

import re

import stratalog as sl
from cli.calls import bodies_of, call, call_json, error_json, new_log, new_url, run


def test_a_sealed_log_takes_no_more_records() -> None:
    url = new_log(b"a", b"b")
    told = call("seal", url, "--note", "we moved")
    assert told.stdout == "the log is sealed; it ends at offset 3\n"
    refused = error_json("append", url, input=b"c\n", code=7)
    assert refused["kind"] == "sealed"
    assert "`stratalog migrate`" in refused["hint"]
    assert bodies_of(url) == [b"a", b"b"]
    again = call_json("seal", url, "--note", "another reason")
    assert (again["sealed_before"], again["next_offset"]) == (True, 3)
    assert (again["note"], again["successor"]) == ("we moved", None)
    assert "already sealed" in call("seal", url).stdout


def test_a_log_goes_on_at_its_successor() -> None:
    url, successor = new_log(b"a", b"b"), new_url()
    told = call("migrate", url, successor)
    assert told.stdout == f"the log is sealed; it goes on at {successor} with offset 3\n"
    assert f"It goes on at {successor}" in error_json("append", url, input=b"c\n", code=7)["hint"]
    call("append", successor, input=b"c\n")
    followed = call("follow", url, "--from-start", "--idle-timeout", "0")
    assert followed.stdout == "a\nb\nc\n"
    again = call_json("migrate", url, successor)
    assert (again["url"], again["successor"], again["next_offset"]) == (url, successor, 3)
    assert f"it goes on at {successor}" in call("seal", url).stdout


def test_a_second_successor_and_a_place_that_is_taken_are_refused() -> None:
    url, taken = new_log(b"a"), new_log(b"b")
    assert error_json("migrate", url, taken, code=4)["kind"] == "exists"
    assert call_json("info", url)["sealed"] is False
    call("migrate", url, new_url())
    assert error_json("migrate", url, new_url(), code=5)["kind"] == "conflict"


def test_info_shows_the_seal_and_both_ends_of_a_migration() -> None:
    url, successor = new_log(b"a"), new_url()
    call("migrate", url, successor, "--note", "full")
    facts = call_json("info", url)
    assert (facts["sealed"], facts["writable"]) == (True, False)
    assert facts["seal"]["note"] == "full"
    assert facts["seal"]["successor"] == successor
    assert facts["predecessor"] is None
    text = call("info", url).stdout
    assert f": full; goes on at {successor}" in text
    assert re.search(r"^writable +no \(sealed\)$", text, re.MULTILINE)
    assert re.search(r"^writable +yes$", call("info", successor).stdout, re.MULTILINE)
    assert "continues" not in text
    assert call_json("info", successor)["predecessor"] == url
    assert call_json("info", successor)["seal"] is None
    assert url in call("info", successor).stdout.split("continues")[1]


def test_a_log_begins_at_the_offset_that_is_asked_for() -> None:
    url = new_url()
    call("init", url, "--first-offset", "1000")
    assert call_json("append", url, input=b"a\n")["first_offset"] == 1000

    async def first() -> int:
        async with sl.LogReader.open(url) as log:
            return log.first_offset

    assert run(first()) == 1000
    assert error_json("init", new_url(), "--first-offset", "0", code=2)["kind"] == "invalid"
