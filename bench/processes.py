"""Parts of a bench that run in a process of their own. They answer with JSON on standard output."""

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
    """Run ``python -m module`` from the root of the repository, and decode its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{module} ended with exit code {process.returncode}")
    return msgspec.json.decode(output, type=answer)


@dataclass
class Companion(Generic[T]):
    """A process that works beside the caller. It answers once it was stopped."""

    answers: list[T] = field(default_factory=list)


@asynccontextmanager
async def companion(module: str, *arguments: str, answer: type[T]) -> AsyncIterator[Companion[T]]:
    """Run ``python -m module`` until the block ends, from its first line to its last answer.

    The module prints ``ready`` when it has begun, and ends soon after its standard input does.
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
    """The other end of ``companion``: prints ``ready``, and returns when the work is to end."""
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    await asyncio.to_thread(sys.stdin.buffer.read)


def give_answer(value: object) -> None:
    """The other end of ``run_module``, and the last answer of a companion."""
    sys.stdout.buffer.write(msgspec.json.encode(value))
