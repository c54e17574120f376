"""Calling the command line: in this process, where memory stores live on, or as a real process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from typer.testing import CliRunner, Result

import signals
import stratalog as sl
from stratalog.cli.app import app

T = TypeVar("T")

PROGRAM = (sys.executable, "-m", "stratalog")
TIMEOUT_S = 120


def call(*args: str, input: bytes | None = None, code: int = 0) -> Result:
    """Run a command in this process; checks its exit code."""
    result = CliRunner().invoke(app, list(args), input=input, prog_name="stratalog")
    assert result.exit_code == code, f"{args}: {result.exit_code}\n{result.output}"
    return result


def call_json(*args: str, input: bytes | None = None) -> Any:
    """The one JSON document that a command prints."""
    return json.loads(call(*args, "--json", input=input).stdout_bytes)


def error_json(*args: str, code: int, input: bytes | None = None) -> Any:
    """The error that a command reports to a program."""
    return json.loads(call(*args, "--json", code=code, input=input).stderr)


def start(*args: str, **options: Any) -> signals.Program:
    """Start the program as a process of its own, which heeds Ctrl-C however the run was started."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return signals.Program([*PROGRAM, *args], **{**pipes, **options})


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, TIMEOUT_S))


def new_url() -> str:
    """A place in this process's memory that nobody has used."""
    return f"memory://{uuid.uuid4().hex}"


def new_log(*bodies: bytes) -> str:
    """A new log in memory with these records."""
    url = new_url()

    async def fill() -> None:
        async with sl.LogWriter.open(url, create=True) as log:
            if bodies:
                await log.append_many(bodies)

    run(fill())
    return url


def bodies_of(url: str) -> list[bytes]:
    async def read() -> list[bytes]:
        async with sl.LogReader.open(url) as log:
            return [record.body async for record in log.records()]

    return run(read())


def wait_for(url: str, records: int) -> None:
    """Return when the log holds so many records."""

    async def watch() -> None:
        async with sl.LogReader.open(url) as log:
            async for batch in log.follow(1):
                if batch.column(0)[-1].as_py() >= records:
                    return

    run(watch())
