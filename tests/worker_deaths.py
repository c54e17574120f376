"""A run with pytest-xdist ends at once when one of its workers dies, and says with which test.

A worker dies when a test takes longer than ``faulthandler_timeout``, when native code crashes, or
when the system runs out of memory. pytest-xdist starts another one then, which with ``--dist
loadgroup`` may be given a group of which no test is left, and waits for ever. It does not with
``--max-worker-restart=0`` (in ``pyproject.toml``), but three things are missing, and are here:

- the other workers are interrupted in what they run, instead of finishing all that they were given;
- a death is seen when the process ends. pytest-xdist sees it when a pipe is closed, and children
  that the worker forked hold that open;
- what the dead worker had started is ended.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from strays import end_strays

PATIENCE_S = 10.0
"""For the other workers to end what they run, with their fixtures."""

_INTERRUPT = signal.SIGUSR1
"""Not SIGINT, which is ignored in a run in the background, and has to be."""


def register(config: pytest.Config, folder: Path, *, owner: bool) -> None:
    """Take part in the run of this folder, as its owner and controller or as one of its workers."""
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is not None:
        config.pluginmanager.register(_Worker(folder, worker_input["workerid"]))
    elif owner and config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Controller(folder))


def _death(folder: Path) -> Path:
    """Where it is told who died."""
    return folder / "death"


def _running(folder: Path, worker: str) -> Path:
    """Where a worker tells which test it runs."""
    return folder / f"running-{worker}"


class _Worker:
    """Tells what it runs, and ends quietly when another one has died."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._running = _running(folder, name)
        signal.signal(_INTERRUPT, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """As Ctrl-C does: every test and every event loop ends with that."""
        raise KeyboardInterrupt

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running.write_text(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """An interruption is not taken for a crash in a test that has nothing to do with it."""
        try:
            return (yield)
        except KeyboardInterrupt:
            if not _death(self._folder).exists():
                raise
            session.shouldstop = _death(self._folder).read_text()
            return True


class _Controller:
    """Waits for the end of each worker's process, and ends the run if that comes too early."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at_work: dict[str, subprocess.Popen[bytes]] = {}
        self._changed = threading.Condition()
        self._over = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        name: str = node.gateway.id
        process: subprocess.Popen[bytes] = node.gateway._io.popen
        with self._changed:
            self._at_work[name] = process
        threading.Thread(target=self._watch, args=(name, process), daemon=True).start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """It has finished, and its process lives until the run is over. Or its pipe was closed."""
        if error is None:
            self._leave(node.gateway.id)
        else:
            self._wait_for(lambda: self._over)  # the process ends, and that is told first

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        with self._changed:
            self._over = True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if _death(self._folder).exists():
            told = _death(self._folder).read_text()
            terminalreporter.write_sep("=", told, red=True, bold=True)

    def _leave(self, name: str) -> None:
        with self._changed:
            self._at_work.pop(name, None)
            self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(condition, PATIENCE_S)

    def _watch(self, name: str, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with self._changed:
            ends_the_run = name in self._at_work and not self._over
            if ends_the_run:
                self._tell(name, status)
                self._over = True
        self._leave(name)
        if ends_the_run:
            self._end_others()

    def _tell(self, name: str, status: int) -> None:
        running = _running(self._folder, name)
        doing = f"running {running.read_text()}" if running.exists() else "being started"
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        _death(self._folder).write_text(f"worker {name} died ({how}) while {doing}")

    def _end_others(self) -> None:
        """Interrupt what they run, then end all processes that hold a pipe of the dead one."""
        with self._changed:
            others = list(self._at_work.values())
        for other in others:
            other.send_signal(_INTERRUPT)
        self._wait_for(lambda: not self._at_work)
        with self._changed:
            stuck = list(self._at_work.values())
        for other in stuck:
            other.kill()
        end_strays(self._folder, spared=[other.pid for other in others])
