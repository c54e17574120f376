"""`destroy`: asks for the log's name, or is told not to ask."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest

from cli.calls import TIMEOUT_S, bodies_of, call, call_json, error_json, new_log, run, start
from objectlog.leftovers import everything, litter
from stratalog.objectlog.holds.pin import PinStore
from stratalog.store import open_store


def test_a_log_is_gone() -> None:
    url = new_log(b"a", b"b")
    call("cursor", "create", url, "mine", "1")
    text = call("destroy", url, "--yes").stdout
    assert text.startswith(f"destroyed the log at {url}: 3 objects (")
    assert run(everything(url)) == {}
    assert error_json("destroy", url, "--yes", code=3)["kind"] == "not-found"


def test_programs_get_the_numbers() -> None:
    url = new_log(b"a")
    told = call_json("destroy", url, "-y")
    assert told["url"] == url
    assert told["deleted"]["objects"] == 2
    assert told["deleted"]["bytes"] > 0


def test_without_a_terminal_it_needs_a_yes() -> None:
    url = new_log(b"a")
    error = error_json("destroy", url, code=2, input=url.encode())
    assert error["kind"] == "invalid"
    assert "--yes" in error["hint"]
    assert bodies_of(url) == [b"a"]


def test_a_file_of_others_stops_it() -> None:
    url = new_log(b"a")
    run(open_store(url).put_if_absent("README.md", b"mine"))
    error = error_json("destroy", url, "--yes", code=5)
    assert (error["kind"], error["path"]) == ("conflict", "README.md")
    assert bodies_of(url) == [b"a"]


def test_a_pin_stops_it() -> None:
    url = new_log(b"a")
    run(PinStore(url).create("held"))
    assert "held" in error_json("destroy", url, "--yes", code=5)["message"]
    assert bodies_of(url) == [b"a"]


def on_a_terminal(url: str, answer: bytes) -> tuple[int, bytes, bytes]:
    """What a person sees who types this: the exit code, the results and the rest."""
    terminal, inner = pty.openpty()
    try:
        with start("destroy", url, stdin=inner, stderr=inner) as program:
            os.write(terminal, answer)
            out, _ = program.communicate(timeout=TIMEOUT_S)
        shown = os.read(terminal, 100_000)
    finally:
        os.close(inner)
        os.close(terminal)
    return program.returncode, out, shown


@pytest.fixture
def orders(tmp_path: Path) -> str:
    place = str(tmp_path / "orders-log")
    call("init", place)
    call("append", place, input=b"one\ntwo\n")
    return place


def test_the_name_of_the_log_is_a_yes(orders: str) -> None:
    code, out, shown = on_a_terminal(orders, b"orders-log\n")
    assert code == 0
    assert out.startswith(b"destroyed the log at file://")
    assert b"its 2 records will be gone for ever" in shown
    assert b"Type orders-log to destroy it: " in shown
    assert run(everything(orders)) == {}


@pytest.mark.parametrize("answer", [b"yes\n", b"\n", b"orders\n", b"\x04"])
def test_every_other_answer_is_a_no(orders: str, answer: bytes) -> None:
    code, out, shown = on_a_terminal(orders, answer)
    assert code == 5
    assert out == b""
    assert b"nothing was destroyed" in shown
    assert bodies_of(orders) == [b"one", b"two"]


def test_nobody_is_asked_about_nothing(tmp_path: Path) -> None:
    code, _, shown = on_a_terminal(str(tmp_path / "nothing"), b"nothing\n")
    assert code == 3
    assert b"Type" not in shown


def test_what_a_log_has_left_can_be_destroyed(tmp_path: Path) -> None:
    place = str(tmp_path / "orders-log")
    run(litter(place))
    code, out, shown = on_a_terminal(place, b"orders-log\n")
    assert code == 0, shown
    assert b"4 objects" in out
    assert b"what a log has left" in shown
    assert run(everything(place)) == {}
