"""`read` and `follow`: what people, pipes and programs get."""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
from pathlib import Path

import pytest

import stratalog as sl
from cli.calls import TIMEOUT_S, call, error_json, new_log, new_url, run, start
from stratalog.cli.commands.records.formats import printable
from stratalog.objectlog.stored.fragment import encode_fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH


def test_a_pipe_gets_the_bodies_a_line_each() -> None:
    assert call("read", new_log(b"one", b"", b"\xff")).stdout_bytes == b"one\n\n\xff\n"


def test_text_has_offset_and_time() -> None:
    (line,) = call("read", new_log(b"one"), "--format", "text").stdout.splitlines()
    offset, time, body = line.split()
    assert (offset, body) == ("1", "one")
    assert time.endswith("Z")


def test_text_keeps_each_record_on_one_line_and_hides_nothing_from_the_eye() -> None:
    assert printable(b"a\nb\x1b[31m\xff\xc2\x9b\tc") == "a\\nb\\x1b[31m\\xff\\x9b\tc"


def test_json_has_text_as_text_and_other_bytes_as_base64() -> None:
    lines = call("read", new_log("ä\n".encode(), b"\xff\0"), "--json").stdout.splitlines()
    first, second = map(json.loads, lines)
    assert first["offset"] == 1
    assert first["timestamp_us"] > 0
    assert first["body"] == "ä\n"
    assert base64.b64decode(second["body_base64"]) == b"\xff\0"
    assert "body" not in second


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--from", "3"], b"c\nd\n"),
        (["--to", "3"], b"a\nb\n"),
        (["--from", "2", "--to", "4"], b"b\nc\n"),
        (["--limit", "1"], b"a\n"),
        (["--from", "2", "--limit", "2"], b"b\nc\n"),
        (["--from", "9"], b""),
        (["--from-time", "1"], b"a\nb\nc\nd\n"),
        (["--from-time", "2999-01-01"], b""),
        (["--to-time", "1970-01-01T00:00:01"], b""),
        (["--to-time", "2999-01-01T00:00:00+02:00"], b"a\nb\nc\nd\n"),
    ],
)
def test_a_part_of_the_log_by_offset_time_and_number(options: list[str], expected: bytes) -> None:
    assert call("read", new_log(b"a", b"b", b"c", b"d"), *options).stdout_bytes == expected


def test_a_limit_holds_across_fragments() -> None:
    url = new_log(b"a", b"b")
    call("append", url, input=b"c\nd\n")
    assert call("read", url, "--limit", "3").stdout_bytes == b"a\nb\nc\n"


@pytest.mark.parametrize(
    "options",
    [
        ["--from", "0"],
        ["--limit", "0"],
        ["--from-time", "yesterday"],
        ["--format", "xml"],
        ["--json", "--format", "raw"],
    ],
)
def test_a_wrong_option_is_told_as_such(options: list[str]) -> None:
    result = call("read", new_log(), *options, code=2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def _trimmed_log(first_offset: int) -> str:
    url = new_url()
    manifest = sl.Manifest(
        setsum=sl.Setsum(),
        collected=sl.Setsum(),
        acc_bytes=0,
        writer="test",
        snapshots=(),
        fragments=(),
        initial_offset=sl.LogPosition(first_offset),
        initial_seq_no=1,
        format="1.0",
        write_id="1",
        linked={},
    )
    run(sl.open_store(url).put_if_absent(MANIFEST_PATH, manifest.to_json()))
    return url


def test_reading_begins_where_the_log_begins_unless_an_offset_is_asked_for() -> None:
    url = _trimmed_log(10)
    call("append", url, input=b"ten\n")
    assert call("read", url).stdout_bytes == b"ten\n"
    error = error_json("read", url, "--from", "9", code=10)
    assert (error["kind"], error["actual"]) == ("trimmed", 10)
    assert "10" in error["hint"]


def test_changed_bytes_are_noticed_unless_verification_is_off() -> None:
    url = new_log(b"truth")

    async def tamper() -> None:
        store = sl.open_store(url)
        async with sl.LogReader.open(url) as log:
            (fragment,) = await log.scan()
        blob = await store.get(fragment.path)
        forged = encode_fragment(1, fragment.start.timestamp_us, [b"lies!"]).data
        await store.put_if_match(fragment.path, forged, blob.etag)

    run(tamper())
    error = error_json("read", url, code=13)
    assert error["kind"] == "corrupt"
    assert error["path"].startswith("log/")
    assert call("read", url, "--no-verify").stdout_bytes == b"lies!\n"


def test_follow_gives_what_is_there_and_ends_when_nothing_comes() -> None:
    url = new_log(b"a", b"b")
    options = ("--idle-timeout", "0")
    assert call("follow", url, "--from-start", *options).stdout_bytes == b"a\nb\n"
    assert call("follow", url, "--from", "2", *options).stdout_bytes == b"b\n"
    assert call("follow", url, *options).stdout_bytes == b""
    assert json.loads(call("follow", url, "--from", "2", "--json", *options).stdout)["body"] == "b"


def test_follow_begins_in_one_place() -> None:
    error = error_json("follow", new_log(), "--from", "1", "--from-start", code=2)
    assert error["kind"] == "invalid"


def test_follow_prints_records_as_they_come_until_ctrl_c(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    call("init", url)
    call("append", url, input=b"one\n")
    with start("follow", url, "--from-start") as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"one\n"
        call("append", url, input=b"two\n")
        assert program.stdout.readline() == b"two\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(TIMEOUT_S) == 130
        assert program.stderr.read() == b""


def test_a_broken_pipe_ends_the_program_quietly(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    call("init", url)
    call("append", url, input=b"some line of text\n" * 100_000)
    with start("read", url) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == b"some line of text\n"
        program.stdout.close()
        assert program.wait(TIMEOUT_S) == 141
        assert program.stderr.read() == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_told_without_a_traceback(tmp_path: Path, unbuffered: str) -> None:
    url = str(tmp_path / "log")
    call("init", url)
    call("append", url, input=b"x\n")
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with (
        open("/dev/full", "wb") as full,
        start("read", url, stdout=full, env=environment) as program,
    ):
        _, complaint = program.communicate(timeout=TIMEOUT_S)
        assert program.returncode == 1
        assert complaint.startswith(b"error: No space left")
        assert complaint.count(b"\n") == 2, "the message and what to do next, nothing else"


def test_a_terminal_gets_text(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    call("init", url)
    call("append", url, input=b"one\n")
    terminal, inner = pty.openpty()
    try:
        with start("read", url, stdout=inner) as program:
            assert program.wait(TIMEOUT_S) == 0
        assert os.read(terminal, 1000).split()[::2] == [b"1", b"one"]
    finally:
        os.close(inner)
        os.close(terminal)
