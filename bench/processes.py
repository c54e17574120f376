"""Parts of a bench that need a process of their own. They answer with JSON on standard output."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TypeVar

import msgspec

from bench import ROOT

T = TypeVar("T")


async def run_module(module: str, *arguments: str, answer: type[T]) -> T:
    """Run ``python -m module`` from the root of the repository, and decode what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{module} ended with exit code {process.returncode}")
    return msgspec.json.decode(output, type=answer)


def give_answer(value: object) -> None:
    """The other end of ``run_module``."""
    sys.stdout.buffer.write(msgspec.json.encode(value))
