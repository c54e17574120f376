"""`append`: what becomes of lines and of length-prefixed records, whole and interrupted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    wait_for,
)
from stratalog.cli.commands.records.append import OrderedAppends, _as_one
from stratalog.cli.commands.records.framing import LengthPrefixed, Lines, with_length

RECORDS = st.lists(st.binary(max_size=40), max_size=12)


def test_every_line_is_a_record_and_its_newline_is_no_part_of_it() -> None:
    url = new_log()
    result = call("append", url, input=b"one\n\n two \r\nlast")
    assert result.stdout == "appended 4 records (13 B), offsets 1 to 4\n"
    assert result.stderr == ""
    assert bodies_of(url) == [b"one", b"", b" two \r", b"last"]


def test_programs_are_told_how_many_records_and_where() -> None:
    url = new_log(b"zero")
    assert call_json("append", url, input=b"a\nbc\n") == {
        "records": 2,
        "bytes": 3,
        "first_offset": 2,
        "last_offset": 3,
        "beyond_failure": 0,
        "complete": True,
    }


def test_an_empty_input_appends_nothing() -> None:
    url = new_log()
    assert call("append", url, input=b"").stdout == "nothing was appended\n"
    outcome = call_json("append", url, "--atomic", input=b"")
    assert (outcome["records"], outcome["first_offset"]) == (0, None)
    assert bodies_of(url) == []


def test_a_file_is_appended_in_its_order(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(200_000)]
    (tmp_path / "input").write_bytes(b"\n".join(lines))
    url = new_log()
    call("append", url, str(tmp_path / "input"))
    assert bodies_of(url) == lines


def test_a_dash_is_standard_input() -> None:
    url = new_log()
    call("append", url, "-", input=b"x\n")
    assert bodies_of(url) == [b"x"]


@settings(max_examples=25, deadline=None)
@given(RECORDS)
def test_any_bytes_survive_a_round_trip_behind_their_length(bodies: list[bytes]) -> None:
    stream = b"".join(map(with_length, bodies))
    url = new_log()
    call("append", url, "--length-prefixed", input=stream)
    assert bodies_of(url) == bodies
    assert call("read", url, "--format", "length-prefixed").stdout_bytes == stream


@given(RECORDS, st.integers(1, 50), st.booleans())
def test_records_do_not_depend_on_how_the_input_is_cut(
    bodies: list[bytes], step: int, lines: bool
) -> None:
    splitter: Lines | LengthPrefixed
    if lines:
        bodies = [body.replace(b"\n", b"") for body in bodies]
        splitter, stream = Lines(40), b"".join(body + b"\n" for body in bodies)
    else:
        splitter, stream = LengthPrefixed(40), b"".join(map(with_length, bodies))
    found: list[bytes] = []
    for at in range(0, len(stream), step):
        found += splitter.feed(stream[at : at + step])
    assert found + splitter.end() == bodies


def test_an_endless_line_is_refused_before_it_fills_the_memory() -> None:
    lines = Lines(10)
    assert lines.feed(b"first\n12345") == [b"first"]
    with pytest.raises(sl.errors.Invalid, match="line 2"):
        lines.feed(b"678901")


def test_a_length_that_cannot_be_one_is_refused_with_advice() -> None:
    error = error_json("append", new_log(), "--length-prefixed", input=b"some text\n", code=2)
    assert "record 1 claims" in error["message"]
    assert "big-endian" in error["hint"]


def test_a_torn_input_keeps_the_records_before_the_tear() -> None:
    url = new_log()
    result = call(
        "append", url, "--length-prefixed", input=with_length(b"whole") + b"\0\0\0\5to", code=2
    )
    assert "in the middle of record 2" in result.stderr
    assert result.stdout == "appended the first 1 record (5 B), offsets 1 to 1\n"
    assert bodies_of(url) == [b"whole"]


def test_the_first_record_lands_at_the_expected_offset_and_the_rest_behind_it() -> None:
    url = new_log(b"one")
    lines = b"".join(b"%d\n" % number for number in range(100_000))
    call("append", url, "--expected-offset", "2", input=lines)
    assert len(bodies_of(url)) == 100_001


def test_another_end_of_the_log_than_expected_appends_nothing() -> None:
    url = new_log(b"one", b"two")
    result = call("append", url, "--expected-offset", "2", "--json", input=b"x\n" * 9999, code=5)
    error = json.loads(result.stderr)
    assert (error["kind"], error["expected"], error["actual"]) == ("conflict", 2, 3)
    outcome = json.loads(result.stdout)
    assert (outcome["records"], outcome["complete"]) == (0, False)
    assert bodies_of(url) == [b"one", b"two"]


def test_an_atomic_append_becomes_one_batch() -> None:
    url = new_log()
    call("append", url, "--atomic", input=b"".join(b"%d\n" % number for number in range(100_000)))
    assert len(bodies_of(url)) == 100_000


def test_an_atomic_append_that_is_torn_appends_nothing() -> None:
    url = new_log()
    torn = with_length(b"whole") + b"\0\0"
    result = call("append", url, "--atomic", "--length-prefixed", input=torn, code=2)
    assert result.stdout == "nothing of the input was appended\n"
    assert bodies_of(url) == []


def test_an_atomic_append_is_refused_as_soon_as_it_is_too_large() -> None:
    async def endless() -> AsyncGenerator[list[bytes], None]:
        while True:
            yield [b"x" * 100]

    async def gather() -> None:
        async for _ in _as_one(endless(), 1000):
            pass

    with pytest.raises(sl.errors.Invalid, match="one atomic append of 1000 B"):
        run(gather())


def test_a_log_that_is_missing_is_told_with_the_command_that_makes_it() -> None:
    error = error_json("append", new_url(), input=b"x\n", code=3)
    assert error["kind"] == "not-found"
    assert "stratalog init" in error["hint"]


def test_a_file_that_cannot_be_read_is_told_without_a_traceback(tmp_path: Path) -> None:
    url = new_log()
    missing = call("append", url, str(tmp_path / "missing"), code=3)
    assert "cannot read" in missing.stderr
    assert "next: Check the name of the file." in missing.stderr
    folder = call("append", url, str(tmp_path), code=2)
    assert "Is a directory" in folder.stderr
    assert "Traceback" not in missing.stderr + folder.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_denied(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0)
    call("append", new_log(), str(tmp_path / "secret"), code=12)


class _Stub:
    """A log on which the second batch fails although the third lands."""

    def __init__(self) -> None:
        self.batches = 0

    async def append_many(
        self, bodies: list[bytes], *, expected_offset: int | None = None
    ) -> sl.Span:
        self.batches += 1
        if self.batches == 2:
            raise sl.errors.Unavailable("no answer")
        first = 10 * self.batches
        await asyncio.sleep(0)
        return sl.Span(sl.LogPosition(first), first + len(bodies))


def test_what_lands_beyond_a_failure_is_counted_apart() -> None:
    async def send() -> OrderedAppends:
        pipeline = OrderedAppends(cast(sl.LogWriter, _Stub()), None)
        for _ in range(3):
            await pipeline.send([b"a", b"b"])
        with pytest.raises(sl.errors.Unavailable):
            await pipeline.finish()
        await pipeline.settle()
        return pipeline

    outcome = run(send()).appended
    assert (outcome.records, outcome.first_offset, outcome.last_offset) == (2, 10, 11)
    assert outcome.beyond_failure == 2


def test_two_programs_append_to_one_log_at_the_same_time(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    call("init", url)
    count = 50_000
    for name in ("a", "b"):
        text = "".join(f"{name}{number}\n" for number in range(count))
        (tmp_path / name).write_text(text)
    programs = [start("append", url, str(tmp_path / name)) for name in ("a", "b")]
    for program in programs:
        _, complaint = program.communicate(timeout=TIMEOUT_S)
        assert (program.returncode, complaint) == (0, b"")
    found = bodies_of(url)
    for name in ("a", "b"):
        mine = [body for body in found if body.startswith(name.encode())]
        assert mine == (tmp_path / name).read_bytes().split()


def test_records_of_a_slow_pipe_land_as_they_come_and_ctrl_c_tells_how_many(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    call("init", url)
    with start("append", url) as program:
        assert program.stdin is not None
        program.stdin.write(b"one\ntwo\nthr")
        program.stdin.flush()
        wait_for(url, 2)
        program.send_signal(signal.SIGINT)
        assert program.wait(TIMEOUT_S) == 130
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.read() == b"appended the first 2 records (6 B), offsets 1 to 2\n"
        assert program.stderr.read() == b""
    assert bodies_of(url) == [b"one", b"two"]
