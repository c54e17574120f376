"""Ending what a test run left running, however it was started.

All processes of a run have the run's folder in their environment, also those in a session of their
own, those whose parent is dead, and those that were forked without ``exec``. Process groups, closed
pipes and signals at a parent's death each miss some of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

ROUNDS_MAX = 100
PROCESSES = Path("/proc")


def end_strays(folder: Path, spared: Collection[int] = ()) -> None:
    """Kill the processes of the run with this folder, and return when they are gone.

    This process and those that are spared stay. More than one round, since what is not dead yet may
    start another; and a bound, since a process may be stuck in the kernel.
    """
    for _ in range(ROUNDS_MAX):
        strays = _processes_of(folder) - {os.getpid(), *spared}
        if not strays:
            return
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _processes_of(folder: Path) -> set[int]:
    mark = os.fsencode(folder)
    if (PROCESSES / "self" / "environ").exists():
        return _with_mark(mark)
    told = subprocess.run(  # macOS
        ["ps", "-A", "-E", "-ww", "-o", "pid=,command="], capture_output=True, check=False
    )
    return {int(line.split(None, 1)[0]) for line in told.stdout.splitlines() if mark in line}


def _with_mark(mark: bytes) -> set[int]:
    found = set()
    for process in PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if mark in (process / "environ").read_bytes():
                found.add(int(process.name))
    return found
