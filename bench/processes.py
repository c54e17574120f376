"""Parts of a bench that need a process of their own. They answer with JSON on standard output."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from bench import ROOT

T = TypeVar("T")

READY = b"ready\n"


async def run_module(module: str, *arguments: str, answer: type[T]) -> T:
    """Run ``python -m module`` from the root of the repository, and decode what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{module} ended with exit code {process.returncode}")
    return msgspec.json.decode(output, type=answer)


@dataclass
class Companion(Generic[T]):
    """A process that works beside the caller. Its answers are there once it was stopped."""

    answers: list[T] = field(default_factory=list)


@asynccontextmanager
async def companion(module: str, *arguments: str, answer: type[T]) -> AsyncIterator[Companion[T]]:
    """Run ``python -m module`` until the block ends: from its first line on, to its last answer.

    It says ``ready`` when it has begun, and ends soon after its standard input does.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    if await process.stdout.readline() != READY:
        raise RuntimeError(f"{module} did not begin")
    beside = Companion[T]()
    try:
        yield beside
    finally:
        output, _ = await process.communicate(b"")  # which ends its standard input
    if process.returncode != 0:
        raise RuntimeError(f"{module} ended with exit code {process.returncode}")
    beside.answers.append(msgspec.json.decode(output, type=answer))


async def until_stopped() -> None:
    """The other end of ``companion``: says that the work has begun, and returns when it is over."""
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    await asyncio.to_thread(sys.stdin.buffer.read)


def give_answer(value: object) -> None:
    """The other end of ``run_module``, and what a companion says in the end."""
    sys.stdout.buffer.write(msgspec.json.encode(value))
