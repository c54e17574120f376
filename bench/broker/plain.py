"""A straight loop that writes and syncs the same batches: in C, or in Python without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.segments.folders import fresh_folder

SOURCE = Path(__file__).with_name("plain.c")

Loop = Callable[[Path, int, int], float]


@dataclass(frozen=True)
class PlainLoop:
    """Writes ``count`` batches of ``size`` bytes into a file and gives the seconds."""

    name: str
    loop: Loop

    def rate(self, size: int, total: int) -> float:
        """In megabytes a second."""
        count = max(1, total // size)
        with fresh_folder() as folder:
            took_s = self.loop(folder / "plain", size, count)
        return size * count / took_s / 1e6


@contextmanager
def plain_loop() -> Iterator[PlainLoop]:
    """The loop in C if there is a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        yield PlainLoop("a Python loop that syncs (no C compiler here)", _in_python)
        return
    with fresh_folder() as folder:
        program = folder / "plain"
        subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=True)

        def in_c(path: Path, size: int, count: int) -> float:
            command = [str(program), str(path), str(size), str(count)]
            return float(subprocess.run(command, check=True, capture_output=True).stdout)

        yield PlainLoop("a C loop that syncs", in_c)


def _in_python(path: Path, size: int, count: int) -> float:
    batch = os.urandom(size)
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        if sys.platform == "linux":
            os.posix_fallocate(file, 0, size * count)
        began_s = time.perf_counter()
        for number in range(count):
            os.pwrite(file, batch, size * number)
            os.fdatasync(file)
        return time.perf_counter() - began_s
    finally:
        os.close(file)
