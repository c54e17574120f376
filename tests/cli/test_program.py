"""The program as a whole: exit codes, errors, secrets, help, version, terminals, weight."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import stratalog
from cli.calls import PROGRAM, TIMEOUT_S, call, error_json, new_url, start
from stratalog import errors, objectlog
from stratalog.cli.app import app
from stratalog.cli.exits import EXITS, exit_code

CODES = {
    "not-happened": 5,
    "conflict": 5,
    "fenced": 6,
    "sealed": 7,
    "full": 8,
    "unknown": 9,
    "trimmed": 10,
    "unavailable": 11,
    "not-found": 3,
    "exists": 4,
    "denied": 12,
    "closed": 14,
    "corrupt": 13,
    "invalid": 2,
}


def _all_errors() -> list[errors.StratalogError]:
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.StratalogError)
    ]
    return [
        errors.Trimmed("it failed", first_offset=7) if cls is errors.Trimmed else cls("it failed")
        for cls in classes
        if cls is not errors.StratalogError
    ]


def _failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(objectlog, "create_log", fail)


def test_every_kind_of_error_has_its_exit_code() -> None:
    assert {error.kind: exit_code(error) for error in _all_errors()} == CODES
    assert len({each.code for each in EXITS}) == len(EXITS)


@pytest.mark.parametrize("error", _all_errors(), ids=lambda error: str(error.kind))
def test_an_error_is_told_to_people_and_to_programs(
    error: errors.StratalogError, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, error)
    code = CODES[error.kind]
    for_people = call("init", new_url(), code=code)
    assert for_people.stdout == ""
    assert for_people.stderr.startswith("error: it failed\nnext: ")
    for_programs = call("init", new_url(), "--json", code=code)
    assert for_programs.stdout == ""
    told = json.loads(for_programs.stderr)
    assert (told["kind"], told["message"], told["exit_code"]) == (error.kind, "it failed", code)
    assert told["hint"] in for_people.stderr


def test_a_defect_shows_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, ZeroDivisionError("oops, token=hunter2"))
    result = call("init", new_url(), code=1)
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError: oops" in result.stderr
    assert "Please report it" in result.stderr
    told = json.loads(call("init", new_url(), "--json", code=1).stderr)
    assert told["kind"] == "defect"
    assert "Traceback" in told["traceback"]
    assert "hunter2" not in result.output + str(told)


@pytest.mark.parametrize(
    "args",
    [
        ["no-such-command"],
        ["init"],
        ["init", "x", "y"],
        ["read", "x", "--nonsense"],
        ["--nonsense"],
    ],
)
def test_a_wrong_call_is_told_with_where_to_look(args: list[str]) -> None:
    result = call(*args, code=2)
    assert result.stderr.startswith("error: ")
    assert "--help`" in result.stderr
    told = json.loads(call(*args, "--json", code=2).stderr)
    assert (told["kind"], told["exit_code"]) == ("invalid", 2)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAABCDEFGHIJKLMNOP:hunter2@bucket/log",
        "ftp://me:hunter2@host/log",
        "s3://bucket/log?secret_access_key=hunter2",
        "nonsense://host/log?sig=hunter2",
    ],
)
@pytest.mark.parametrize("command", [["init"], ["info"], ["doctor"], ["cursor", "list"]])
def test_secrets_are_never_shown(command: list[str], url: str) -> None:
    for extra in ([], ["--json"], ["-v"]):
        assert "hunter2" not in call(*command, url, *extra, code=2).output


def test_what_is_logged_goes_to_standard_error_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def create(*_: object, **__: object) -> None:
        logging.getLogger("stratalog.test").debug("asked with password=%s", "hunter2")

    monkeypatch.setattr(objectlog, "create_log", create)
    assert call("init", new_url()).stderr == ""
    loud = call("init", new_url(), "-v")
    assert "DEBUG stratalog.test: asked with password=***" in loud.stderr
    assert "asked" not in loud.stdout
    assert logging.getLogger("stratalog").level == logging.NOTSET


def test_a_warning_is_one_line_on_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(*_: object, **__: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the locks may not hold", UserWarning, stacklevel=1)

    monkeypatch.setattr(objectlog, "create_log", create)
    assert call("init", new_url()).stderr == "warning: the locks may not hold\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_what_was_done_is_told_before_the_error(
    tmp_path: Path, extra: list[str], unbuffered: str
) -> None:
    url = str(tmp_path / "log")
    call("init", url)
    done = subprocess.run(
        [*PROGRAM, "append", url, "--expected-offset", "7", *extra],
        input=b"x\n",
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 5
    outcome, error = done.stdout.splitlines()[:2]
    if extra:
        assert json.loads(outcome)["records"] == 0
        assert json.loads(error)["kind"] == "conflict"
    else:
        assert outcome == b"nothing of the input was appended"
        assert error == b"error: the log ends at 1, not at 7"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_keeps_its_exit_code_when_the_output_cannot_be_written(
    tmp_path: Path, unbuffered: str
) -> None:
    url = str(tmp_path / "log")
    call("init", url)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, "append", url, "--expected-offset", "7"],
            input=b"x\n",
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 5
    assert done.stderr.startswith(b"error: the log ends at 1, not at 7\nnext: ")
    assert done.stderr.count(b"\n") == 2


def _in_a_shell(command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of a shell, in which ``stratalog`` is the program."""
    function = f'stratalog() {{ {shlex.join(PROGRAM)} "$@"; }}'
    return subprocess.run(
        ["bash", "-c", f"{function}; {command}"], capture_output=True, check=False
    )


@pytest.mark.parametrize("command", ["read LOG --limit 1", "info LOG", "--help", "--version"])
@pytest.mark.parametrize("streams", [">&-", ">/dev/full"])
def test_results_that_cannot_be_written_are_a_failure(
    tmp_path: Path, command: str, streams: str
) -> None:
    url = tmp_path / "log"
    call("init", str(url))
    call("append", str(url), input=b"one\n")
    command = command.replace("LOG", shlex.quote(str(url)))
    done = _in_a_shell(f"stratalog {command} {streams}")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 2
    if streams == ">&-":
        assert b"the output is closed" in done.stderr


@pytest.mark.parametrize("command", ["--help", "read --help", "pin --help"])
def test_a_reader_of_the_help_may_go_away(command: str) -> None:
    done = _in_a_shell(f"stratalog {command} | true; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) == (b"141\n", b"")


@pytest.mark.parametrize(
    "args",
    [
        ["init", "memory://x"],
        ["info", "MEMORY://x/y"],
        ["pin", "list", "memory://x"],
        ["fork", "memory://x", "elsewhere"],
        ["migrate", "elsewhere", "memory://x"],
    ],
)
def test_a_log_in_memory_is_refused_where_it_would_be_gone_at_once(args: list[str]) -> None:
    done = subprocess.run([*PROGRAM, *args], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: a log in memory is gone when the command ends\nnext: ")


def test_a_log_that_is_not_there_is_told_to_people_of_the_shell(tmp_path: Path) -> None:
    hint = "Check the spelling, or create it with `stratalog init`."
    for command in (["read"], ["info"], ["scrub"], ["verify"], ["cost"], ["sweep"], ["collect"]):
        told = call(*command, str(tmp_path / "none"), code=3)
        assert f"\nnext: {hint}\n" in told.stderr
    assert error_json("read", str(tmp_path / "none"), code=3)["hint"] == hint


def test_a_file_is_no_place_for_a_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = error_json("init", str(tmp_path / "file"), code=2)
    assert told["message"] == f"{tmp_path / 'file'} is a file, not a directory"
    assert told["hint"] != errors.Invalid.default_hint


def test_a_misspelt_url_makes_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "s3://bucket/x" in error_json("init", "s3:/bucket/x", code=2)["hint"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_does_not_change_the_exit_code(tmp_path: Path, streams: str) -> None:
    command = f"{shlex.join(PROGRAM)} read {shlex.quote(str(tmp_path / 'none'))} {streams}"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 3


def test_help_teaches() -> None:
    top = call("--help").stdout
    for each in EXITS:
        assert each.meaning in top
    commands = ["init", "append", "read", "follow", "info", "doctor"]
    commands += ["collect", "compact", "sweep", "scrub", "destroy", "verify", "cost", "soak"]
    commands += [f"cursor {name}" for name in ("list", "create", "move", "delete")]
    commands += [f"topics {name}" for name in ("list", "create", "describe", "alter", "delete")]
    commands += [f"groups {name}" for name in ("list", "describe", "reset-offsets", "delete")]
    for command in commands:
        text = call(*command.split(), "--help").stdout
        assert f"stratalog {command} " in text.split("Example")[1], command
        assert "--json" in text
        assert "--verbose" in text


def test_the_help_of_a_server_says_what_it_prints_and_how_it_ends() -> None:
    text = call("serve", "--help").stdout
    for words in (
        "ready kafka=HOST:PORT http=HOST:PORT",
        "SIGTERM",
        "STRATALOG_LISTEN",
        "--config",
    ):
        assert words in text
    assert "stratalog serve --data data" in text.split("Examples")[1]


def _commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(each, *path, name)


def test_what_stands_in_brackets_is_shown_in_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is escaped, it is taken for markup and left out."""
    monkeypatch.setenv("COLUMNS", "400")
    shown = 0
    for path, command in _commands(get_command(app)):
        texts = [command.help, *(getattr(each, "help", None) for each in command.params)]
        meant = re.findall(r"\[.*?\]", " ".join(filter(None, texts)))
        text = call(*path, "--help").stdout if meant else ""
        for each in meant:
            assert each in text, (path, each)
        shown += len(meant)
    assert shown


def test_each_help_page_shows_its_examples_indented_and_no_type_of_python() -> None:
    for path, command in _commands(get_command(app)):
        text = call(*path, "--help").stdout
        for word in ("<bool>", "<int range>", "<float range>", "<str>", "<path>"):
            assert word not in text, path
        for example in re.findall(r"^ +stratalog .*$", text, re.MULTILINE):
            assert example.startswith("   stratalog "), path
        assert not path or "commands" in vars(command) or "   stratalog " in text, path


def test_without_a_command_the_help_is_shown() -> None:
    assert "Usage: stratalog" in call(code=2).output
    assert "Usage: stratalog cursor" in call("cursor", code=2).output


def test_the_shell_completes_commands() -> None:
    environment = {
        "_STRATALOG_COMPLETE": "complete_bash",
        "COMP_WORDS": "stratalog ap",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        PROGRAM, env={**os.environ, **environment}, capture_output=True, check=False
    )
    assert done.stdout.split() == [b"append"]
    assert "--install-completion" in call("--help").stdout


def test_progress_is_shown_on_a_terminal_and_never_on_standard_output(tmp_path: Path) -> None:
    url = str(tmp_path / "log")
    (tmp_path / "input").write_bytes(b"x\n" * 100_000)
    call("init", url)
    terminal, inner = pty.openpty()
    try:
        with start("append", url, str(tmp_path / "input"), stderr=inner) as program:
            out, _ = program.communicate(timeout=TIMEOUT_S)
        shown = os.read(terminal, 100_000)
        assert (program.returncode, out.count(b"\n")) == (0, 1)
        assert out.startswith(b"appended 100,000 records")
        assert b"appending" in shown
    finally:
        os.close(inner)
        os.close(terminal)


def _python(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_the_library_stays_light() -> None:
    heavy = ("typer", "rich", "obstore", "pyspark", "hypothesis", "pytest")
    code = f"import sys, stratalog; print(*[name for name in {heavy} if name in sys.modules])"
    assert _python(code) == []


def test_the_commands_load_what_they_need_when_they_run() -> None:
    heavy = ("rich", "obstore")
    code = f"import sys, stratalog.cli.app; print(*[n for n in {heavy} if n in sys.modules])"
    assert _python(code) == []


def test_the_version_is_told_by_the_installed_program() -> None:
    done = subprocess.run([*PROGRAM, "--version"], capture_output=True, check=True)
    assert done.stdout.decode() == f"stratalog {stratalog.__version__}\n"


def test_the_demo_shows_a_tree_and_what_it_cost_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo_log", "--records", "2000", "--proof", "2"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "offsets 1 to 2000" in done.stdout
    assert "2000/2000" in done.stdout
    for row in ("put_if_match requests", "bytes written", "records/s"):
        assert row in done.stdout
    looked_after = done.stdout.split("Looking after it")[1]
    for word in ("collect", "sweep", "scrub", "deleted", "examined", "objects", "requests"):
        assert word in looked_after
    branched, proof = looked_after.split("The proof")
    for word in ("records and copies none", "self-description", "held"):
        assert word in branched
    assert "proven: " in proof
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_one_command_is_seen_by_the_next_on_every_store(store_url: str) -> None:
    call("init", store_url)
    call("append", store_url, input=b"hello\n")
    assert call("read", store_url).stdout == "hello\n"
    assert "fragment 1 " in call("info", store_url, "--tree").stdout
