"""`fork` and `copy` from the shell, of our own logs and of those that wal3 made."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import msgspec
import pytest

import stratalog as sl
from cli.calls import (
    TIMEOUT_S,
    bodies_of,
    call,
    call_json,
    error_json,
    new_log,
    new_url,
    run,
    start,
)
from objectlog.trees import LEAF
from objectlog.wal3_logs import Wal3Log
from stratalog.objectlog.stored.manifest import MANIFEST_PATH


def change_note(url: str, name: str, **changes: object) -> None:
    """As if a run had been cut short: put another state into the note of a fork or a copy."""

    async def change() -> None:
        store = sl.open_store(url)
        blob = await store.get(MANIFEST_PATH)
        manifest = json.loads(blob.data)
        manifest[name].update(changes)
        manifest["write_id"] = "0123456789ab"
        await store.put_if_match(MANIFEST_PATH, msgspec.json.encode(manifest), blob.etag)

    run(change())


def wal3_log() -> str:
    url = new_url()
    run(Wal3Log(((LEAF, LEAF), LEAF)).store(sl.open_store(url)))
    return url


class TestFork:
    def test_it_begins_as_its_source_and_goes_on_by_itself(self) -> None:
        source = new_log(b"a", b"b", b"c")
        target = f"{source}/fork"
        told = call("fork", source, target, "--at", "3").stdout
        assert told == f"forked {source} at offset 3 into {target}\n"
        call("append", target, input=b"mine\n")
        assert bodies_of(target) == [b"a", b"b", b"mine"]
        assert bodies_of(source) == [b"a", b"b", b"c"]
        again = call_json("fork", source, target)
        assert (again["at"], again["first_offset"], again["held_by"]) == (3, 1, "pin")

    def test_info_shows_where_it_comes_from_and_what_it_holds_there(self) -> None:
        source = new_log(b"a", b"b")
        call("fork", source, f"{source}/fork")
        fork = call_json("info", f"{source}/fork")["fork"]
        assert (fork["source"], fork["at"], fork["state"]) == (source, 3, "open")
        assert f"{source} at offset 3 (open)" in call("info", f"{source}/fork").stdout
        assert call_json("pin", "list", source)[0]["name"] == fork["hold"]
        assert call_json("info", source)["pins"] == 1

    def test_a_fork_that_is_not_complete_is_shown_and_can_be_given_up(self) -> None:
        source = new_log(b"a", b"b")
        target, other = f"{source}/fork", new_log()
        call("fork", source, target)
        assert error_json("fork", source, target, "--abort", code=5)["kind"] == "conflict"
        change_note(target, "fork", state="forking")
        assert error_json("read", target, code=11)["kind"] == "unavailable"
        assert call_json("info", target, "--tree")["fork"]["state"] == "forking"
        assert "was forked from" in error_json("fork", other, target, "--abort", code=5)["hint"]
        assert call("fork", source, target, "--abort").stdout == f"gave up the fork at {target}\n"
        assert call_json("pin", "list", source) == []
        assert "given up" in error_json("fork", source, target, code=4)["message"]
        assert error_json("fork", source, other, "--abort", "--at", "1", code=2)["kind"]

    def test_a_place_that_is_taken_and_a_point_outside_of_the_log_are_refused(self) -> None:
        source = new_log(b"a")
        call("init", f"{source}/taken")
        assert error_json("fork", source, f"{source}/taken", code=4)["kind"] == "exists"
        assert error_json("fork", source, f"{source}/x", "--at", "9", code=2)["actual"] == 2

    def test_of_a_log_of_wal3_the_command_says_what_holds_it(self) -> None:
        source = wal3_log()
        told = call("fork", source, f"{source}/fork")
        assert "keeps wal3 from collecting anything from offset 1 on" in told.stderr
        call("append", f"{source}/fork", input=b"mine\n")
        facts = call_json("fork", source, f"{source}/fork")
        assert facts["held_by"] == "cursor"
        assert facts["hold"] in told.stderr
        assert [each["name"] for each in call_json("cursor", "list", source)] == [facts["hold"]]


class TestCopy:
    def test_it_has_the_records_and_their_sum(self) -> None:
        source, target = new_log(b"a", b"b", b"c"), new_url()
        told = call("copy", source, target).stdout.splitlines()
        assert told[0].startswith(f"copied 3 records of {source} to {target}: 1 fragment (")
        assert told[1] == "they begin at offset 1 and add up to what the source has"
        assert bodies_of(target) == [b"a", b"b", b"c"]
        assert call_json("info", target)["setsum"] == call_json("info", source)["setsum"]
        assert call("copy", source, target).stdout == f"{target} is a copy of {source} already\n"
        call("append", target, input=b"mine\n")

    def test_a_stretch(self) -> None:
        source, target = new_log(b"a", b"b", b"c", b"d"), new_url()
        copied = call_json("copy", source, target, "--from", "2", "--to", "4")
        assert (copied["first_offset"], copied["next_offset"], copied["records"]) == (2, 4, 2)
        assert call("read", target).stdout == "b\nc\n"
        facts = call_json("info", target)
        assert facts["setsum"] == copied["setsum"]
        assert facts["copy"] == {"source": source, "from": 2, "to": 4, "state": "done"}
        assert f"{source}, offsets 2 to 3 (done)" in call("info", target).stdout
        assert error_json("copy", source, target, "--from", "1", code=4)["kind"] == "exists"
        assert error_json("copy", source, new_url(), "--to", "9", code=2)["kind"] == "invalid"
        assert error_json("copy", new_url(), new_url(), code=3)["kind"] == "not-found"

    def test_half_a_copy_is_shown_completed_and_never_read(self) -> None:
        source, target = new_log(b"a", b"b"), new_url()
        call("copy", source, target)
        change_note(target, "copy", state="copying")
        error = error_json("read", target, code=11)
        assert "Copy it again" in error["hint"]
        assert call_json("info", target)["copy"]["state"] == "copying"
        call("copy", source, target)
        assert call("read", target).stdout == "a\nb\n"

    def test_a_log_of_wal3_becomes_one_that_can_be_written_to(self) -> None:
        source, target = wal3_log(), new_url()
        assert call_json("info", source)["writable"] is False
        assert "Copy it" in error_json("append", source, input=b"x\n", code=2)["hint"]
        call("copy", source, target)
        call("append", target, input=b"mine\n")
        assert call("read", target).stdout == call("read", source).stdout + "mine\n"
        assert "fragment 3 " in call("info", source, "--tree", "--all").stdout

    def test_progress_is_shown_on_a_terminal(self, tmp_path: Path) -> None:
        (tmp_path / "input").write_bytes(b"x\n" * 1000)
        call("init", str(tmp_path / "log"))
        call("append", str(tmp_path / "log"), str(tmp_path / "input"))
        terminal, inner = pty.openpty()
        try:
            arguments = ("copy", str(tmp_path / "log"), str(tmp_path / "copy"))
            with start(*arguments, stderr=inner) as program:
                out, _ = program.communicate(timeout=TIMEOUT_S)
            shown = os.read(terminal, 100_000)
            assert program.returncode == 0
            assert out.startswith(b"copied 1,000 records")
            assert b"copying" in shown
        finally:
            os.close(inner)
            os.close(terminal)


@pytest.mark.parametrize(
    "command",
    ["seal", "migrate", "fork", "copy", "pin list", "pin create", "pin renew", "pin release"],
)
def test_help_teaches(command: str) -> None:
    text = call(*command.split(), "--help").stdout
    assert f"stratalog {command} " in text.split("Example")[1]
    assert "--json" in text
    assert "--verbose" in text
