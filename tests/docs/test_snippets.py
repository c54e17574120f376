"""The documentation is tried: what it shows is run, and what it says is printed is printed.

``python`` blocks of one file share a namespace, in order, and may await. A block ``output`` is
what the Python block before it prints. In ``console`` blocks the lines that begin with ``$`` run
in a shell, ``>`` continues one, and the lines that follow are its output. ``...`` in an output
stands for anything. All of a file happens in one empty directory.

A comment right before a block says ``file: name`` to put it there as a file in place of running
it, or ``no-run: reason`` if it needs an account in a cloud. With ``server: name`` its command runs
on beside what follows, until the page ends; it must have printed what is shown. With
``needs: program`` it is run where that program is installed; a test is skipped where it is not.

The ports of the broker, 9092 and 9644, stand for free ones, so that pages may be tried at once.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from docs.markdown_files import ROOT, Block, blocks_of, executed_files, name_of
from signals import Program

COMMAND_S_MAX = 120
SERVER_S_MAX = 60
BROKER_PORTS = ("9092", "9644")
TRIED = [path for path in executed_files() if blocks_of(path)]
WITH_SPARK = [path for path in TRIED if "stratalog.pipeline" in path.read_text(encoding="utf-8")]
WITHOUT_SPARK = [path for path in TRIED if path not in WITH_SPARK]


class Page:
    """One file's snippets on their way: the namespace, the event loop, the directory."""

    def __init__(self, path: Path, directory: Path, commands: Path, runner: asyncio.Runner) -> None:
        self._path = path
        self._directory = directory
        self._runner = runner
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        self._printed: str | None = None
        self._servers: list[tuple[Program, Path]] = []
        self._ports = {port: str(free_port()) for port in BROKER_PORTS}
        kafka, http = self._ports.values()
        self._environment = {
            **os.environ,
            "STRATALOG_LISTEN": f"127.0.0.1:{kafka}",
            "STRATALOG_HTTP": f"127.0.0.1:{http}",
            "STRATALOG_BOOTSTRAP": f"127.0.0.1:{kafka}",
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONWARNINGS": "error",
            "TERM": "dumb",
        }

    def try_block(self, block: Block) -> None:
        if block.needs is not None and shutil.which(block.needs) is None:
            return
        block = replace(block, text=self._with_ports(block.text))
        if block.server is not None:
            self._start_server(block)
        elif block.file is not None:
            (self._directory / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self._run_python(block)
        elif block.language == "output":
            assert self._printed is not None, f"{self._where(block.line)} follows no Python"
            self._compare(self._printed, block.text, block.line)
        elif block.language == "console":
            self._printed = None
            for line, command, output in commands_of(block):
                self._run_command(line, command, output)

    def end(self) -> None:
        """End the servers of the page, each of which has to end in good order."""
        for server, said in reversed(self._servers):
            server.send_signal(signal.SIGTERM)
            assert server.wait(SERVER_S_MAX) == 0, said.read_text(encoding="utf-8")

    def kill(self) -> None:
        """Leave no server behind, however the page went."""
        for server, _ in self._servers:
            server.kill()
            server.wait()

    def _with_ports(self, text: str) -> str:
        for port, free in self._ports.items():
            text = text.replace(f":{port}", f":{free}")
        return text

    def _start_server(self, block: Block) -> None:
        """Start the block's command, and wait until it has printed what is shown."""
        ((line, command, output),) = commands_of(block)
        said = self._directory / f"{block.server}.log"
        with said.open("wb") as log:
            server = Program(
                ["sh", "-c", f"exec {command}"],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._servers.append((server, said))
        deadline = time.monotonic() + SERVER_S_MAX
        while not matches(printed := said.read_text(encoding="utf-8"), output):
            ended = server.poll() is not None or time.monotonic() > deadline
            assert not ended, f"{self._where(line)} shows\n{output}\nbut it printed\n{printed}"
            time.sleep(0.02)

    def _run_python(self, block: Block) -> None:
        code = compile(
            "\n" * block.line + block.text,
            str(self._path),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if code.co_flags & inspect.CO_COROUTINE:
                self._runner.run(eval(code, self._namespace))
            else:
                exec(code, self._namespace)
        self._printed = printed.getvalue()

    def _run_command(self, line: int, command: str, output: str) -> None:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{self._where(line)}: {command}\n{done.stdout}"
        self._compare(done.stdout, output, line)

    def _compare(self, printed: str, expected: str, line: int) -> None:
        assert matches(printed, expected), (
            f"{self._where(line)} shows\n{expected}\nbut it printed\n{printed}"
        )

    def _where(self, line: int) -> str:
        return f"{name_of(self._path)}:{line}"


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def commands_of(block: Block) -> Iterator[tuple[int, str, str]]:
    """Each command of a console block, the line it is on, and the output that is shown."""
    line, command, output = 0, "", ""
    for number, text in enumerate(block.text.splitlines(), block.line + 1):
        if text.startswith("$ "):
            if command:
                yield line, command, output
            line, command, output = number, text[2:], ""
        elif text.startswith("> ") and command and not output:
            command += "\n" + text[2:]
        else:
            assert command, f"line {number} shows an output before any command"
            output += text + "\n"
    yield line, command, output


def matches(printed: str, expected: str) -> bool:
    """Whether a text is the expected one, where ``...`` stands for anything."""
    parts = (re.escape(part) for part in _tidy(expected).split("..."))
    return re.fullmatch(".*".join(parts), _tidy(printed), re.DOTALL) is not None


def _tidy(text: str) -> str:
    """Without spaces at the ends of lines, which an editor may remove, and of the text."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the commands that a user has: those of the source tree."""
    directory = tmp_path_factory.mktemp("commands")
    for name, arguments in (("python", ""), ("stratalog", " -m stratalog")):
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        script.chmod(0o755)
    return directory


@pytest.mark.parametrize("path", WITHOUT_SPARK, ids=name_of)
def test_what_the_documentation_shows_is_what_happens(
    path: Path, tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_page(path, tmp_path, commands, monkeypatch)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("path", WITH_SPARK, ids=name_of)
def test_what_the_documentation_shows_is_what_happens_on_spark(
    path: Path, tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_page(path, tmp_path, commands, monkeypatch)


def try_page(path: Path, tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with asyncio.Runner() as runner:
        page = Page(path, tmp_path, commands, runner)
        try:
            for block in blocks_of(path):
                if block.no_run is None:
                    page.try_block(block)
            page.end()
        finally:
            page.kill()


@pytest.mark.parametrize("path", TRIED, ids=name_of)
def test_only_what_needs_a_cloud_account_is_not_run(path: Path) -> None:
    skipped = [block for block in blocks_of(path) if block.no_run is not None]
    for block in skipped:
        assert re.search(r"(s3|gs|az)://", block.text), f"{name_of(path)}:{block.line}"


@pytest.mark.parametrize(
    ("path", "needed"),
    sorted({(path, each.needs) for path in TRIED for each in blocks_of(path) if each.needs}),
    ids=str,
)
def test_programs_that_a_page_shows_are_here_to_try_it(path: Path, needed: str) -> None:
    if shutil.which(needed) is None:
        pytest.skip(f"{needed} is not installed: what {name_of(path)} shows of it was not tried")


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\n", False),
        ("a  \nb\n", "a\nb", True),
        ("took 12 ms\n", "took ... ms\n", True),
        ("took 12 s\n", "took ... ms\n", False),
        ("a\nb\nc\n", "a\n...\nc\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_an_output_is_compared_exactly_but_for_what_is_left_out(
    printed: str, expected: str, same: bool
) -> None:
    assert matches(printed, expected) is same


def test_a_console_block_is_cut_into_commands_and_their_outputs() -> None:
    block = Block("console", "$ one\n$ two \\\n> more\nout\nput\n", line=10)
    assert list(commands_of(block)) == [(11, "one", ""), (12, "two \\\nmore", "out\nput\n")]
