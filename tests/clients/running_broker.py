"""A broker in a process of its own, which tests may kill and start again at the same address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from signals import Program

PATIENCE_S = 60.0


class RunningBroker:
    """``stratalog serve`` on a data directory."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options: Sequence[str] = options
        self._log = folder / "broker.log"
        self._port = 0
        self._process: Program | None = None
        self.address = ""
        self.http = ""
        self.start()

    def start(self) -> None:
        """Start it, on the same port as before, and wait until it serves."""
        command = [sys.executable, "-m", "stratalog", "serve"]
        command += ["--data", str(self._folder / "data"), "--http", "127.0.0.1:0"]
        command += ["--listen", f"127.0.0.1:{self._port}", *self._options]
        said = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = Program(command, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while not (ready := self._ready(said)):
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, f"not ready: {self.log()}"
            time.sleep(0.02)
        named = dict(part.split("=", 1) for part in ready.split()[1:])
        self.address, self.http = named["kafka"], named["http"]
        self._port = int(self.address.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._running().pid

    def kill(self) -> None:
        """SIGKILL: it gets no chance to finish anything."""
        process = self._running()
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE_S) == -signal.SIGKILL, self.log()

    def stop(self) -> None:
        """SIGTERM: it ends in good order."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, self.log()

    def ends(self) -> None:
        """At the end of a test: stopped in good order if it still runs."""
        if self._running().poll() is None:
            try:
                self.stop()
            except (AssertionError, subprocess.TimeoutExpired):
                self._running().kill()
                self._running().wait()
                raise

    def log(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-4000:]

    def _ready(self, already_said: int) -> str:
        said = self._log.read_bytes()[already_said:].decode(errors="replace")
        lines = [line for line in said.splitlines(keepends=True) if line.startswith("ready ")]
        return lines[-1] if lines and lines[-1].endswith("\n") else ""

    def _running(self) -> Program:
        assert self._process is not None
        return self._process


def answers(address: str) -> bool:
    """Whether something listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1.0).close()
    except OSError:
        return False
    return True


def environment() -> dict[str, str]:
    """For programs of these tests that are started with ``-m clients.…``."""
    tests = Path(__file__).parents[1]
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent / "src")])}
