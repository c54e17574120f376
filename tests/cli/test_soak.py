"""`soak`: a short one for people, for programs and for a terminal, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.calls import TIMEOUT_S, call, call_json, error_json, new_log, new_url, start
from stratalog.cli.commands.check.soak import watching
from stratalog.soak.writers import LocalWriter

SHORT = ("--duration", "1s", "--rate", "200")


def test_a_good_log_is_proven_to_people() -> None:
    done = call("soak", new_url(), *SHORT)
    shown = done.stdout
    for what in ("acknowledged", "unknown", "lag", "p99", "collections", "forks", "violations"):
        assert what in shown
    assert shown.splitlines()[-1].startswith("proven: ")


def test_programs_get_the_report_and_a_history(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    told = call_json("soak", new_url(), *SHORT, "--history", str(file), "--writers", "2")
    assert told["proven"] is True
    assert told["violations"] == []
    figures = told["figures"]
    assert figures["read"] == figures["acknowledged"] + figures["landed"] > 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    appended = sum(line["count"] for line in lines if line["kind"] == "append")
    assert appended == figures["called"]


def test_a_broken_promise_is_told_with_the_code_of_corruption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = LocalWriter.append

    async def doubling(self: LocalWriter, bodies: Any) -> Any:
        position = await honest(self, bodies)
        await honest(self, bodies)
        return position

    monkeypatch.setattr(LocalWriter, "append", doubling)
    shown = call("soak", new_url(), *SHORT, code=13).stdout
    assert "Violations" in shown
    assert "once" in shown
    told = json.loads(call("soak", new_url(), *SHORT, "--json", code=13).stdout)
    assert told["proven"] is False
    assert {"rule", "detail"} == set(told["violations"][0])


def test_a_log_that_exists_needs_force() -> None:
    url = new_log(b"mine")
    told = error_json("soak", url, *SHORT, code=4)
    assert told["kind"] == "exists"
    assert "--force" in told["hint"]
    assert call_json("soak", url, *SHORT, "--force")["proven"] is True


def test_progress_goes_to_standard_error_line_by_line_without_a_terminal() -> None:
    done = call("soak", new_url(), "--duration", "1s", "--rate", "100")
    assert "of 1 s: " in done.stderr
    assert "0 violations" in done.stderr


def test_an_interrupted_one_says_how_far_it_came_and_where_the_log_is(tmp_path: Path) -> None:
    url = tmp_path / "log"
    with start("soak", str(url), "--duration", "60s", "--rate", "100") as program:
        assert program.stderr is not None
        assert b" of 60 s: " in program.stderr.readline()
        program.send_signal(signal.SIGINT)
        out, shown = program.communicate(timeout=TIMEOUT_S)
    assert (program.returncode, out) == (130, b"")
    assert b"error: interrupted after " in shown
    assert b" of 60 s: " in shown
    assert f"next: The log stays at {url.as_uri()}".encode() in shown
    assert call_json("info", str(url))["records"] >= 0


def test_progress_does_not_go_beyond_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    figures: Any = SimpleNamespace(
        elapsed_s=11.2, rate=1.0, acknowledged=2, read=2, unknown=0, lag=0, violations=0
    )
    with watching(10.0, shown=True) as watch:
        watch(figures)
    assert capsys.readouterr().err.startswith("10 of 10 s: ")


def test_a_history_needs_its_directory(tmp_path: Path) -> None:
    file = str(tmp_path / "none" / "history.jsonl")
    told = error_json("soak", new_url(), *SHORT, "--history", file, code=3)
    assert told["message"] == f"there is no directory {tmp_path / 'none'}"


def test_a_terminal_gets_a_table_that_changes(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    args = ("soak", str(tmp_path / "log"), "--duration", "2s", "--rate", "100")
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with start(*args, stderr=terminal, env=environment) as process:
        os.close(terminal)
        drawn = b""
        while True:
            try:
                some = os.read(controller, 65536)
            except OSError:
                break
            if not some:
                break
            drawn += some
        out, _ = process.communicate(timeout=TIMEOUT_S)
    os.close(controller)
    assert process.returncode == 0
    assert "soaking," in drawn.decode()
    assert "lag" in drawn.decode()
    assert out.decode().splitlines()[-1].startswith("proven: ")


def test_wrong_options_are_told() -> None:
    assert error_json("soak", new_url(), "--duration", "soon", code=2)["kind"] == "invalid"
    assert error_json("soak", new_url(), "--duration", "0s", code=2)["kind"] == "invalid"
    assert error_json("soak", new_url(), "--rate", "0", code=2)["kind"] == "invalid"
