"""A run whose worker dies ends, with a failure that names the test. A run of its own shows it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from processes.inner_run import run_pytest
from strays import PROCESSES

SESSION = """
import os, subprocess, sys, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent

@pytest.fixture
def fixture():
    yield
    (HERE / "torn down").touch()

@pytest.mark.xdist_group("goes on")
def test_that_goes_on(fixture):
    (HERE / "goes on").touch()
    time.sleep(1000)

@pytest.mark.xdist_group("goes on")
def test_that_is_given_to_the_other_worker():
    (HERE / "went on").touch()

@pytest.mark.xdist_group("dies")
def test_before():
    while not (HERE / "goes on").exists():
        time.sleep(0.01)

@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # a fork beside threads
@pytest.mark.xdist_group("dies")
def test_that_dies():
    program = [sys.executable, "-c", "import time; time.sleep(1000)", str(HERE)]
    subprocess.Popen(program, start_new_session=True)
    if os.fork() == 0:  # it holds the pipes of the worker
        time.sleep(1000)
    {death}
"""


def run_session(folder: Path, death: str) -> subprocess.CompletedProcess[str]:
    return run_pytest(folder, SESSION.replace("{death}", death))


def assert_ended(done: subprocess.CompletedProcess[str], folder: Path, how: str) -> None:
    assert done.returncode in (1, 2), done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if f" died ({how}) while running " in line]
    assert told, done.stdout
    assert all("test_session.py::test_that_dies" in line for line in told)
    assert "1 failed, 1 passed" in done.stdout
    assert (folder / "torn down").exists()
    assert not (folder / "went on").exists()
    assert not list(folder.glob("stratalog-*"))
    assert not programs_told(folder)


def programs_told(folder: Path) -> list[str]:
    """The processes that know of this folder, by their arguments."""
    if not PROCESSES.exists():
        return []
    told = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return [line for line in told.stdout.splitlines() if str(folder) in line]


def test_a_killed_worker_ends_the_run_at_once_and_names_its_test(tmp_path: Path) -> None:
    done = run_session(tmp_path, "os.kill(os.getpid(), 9)")
    assert_ended(done, tmp_path, "SIGKILL")


def test_a_test_that_takes_too_long_ends_the_run_and_is_named(tmp_path: Path) -> None:
    hang = (
        "import faulthandler; faulthandler.dump_traceback_later(0.1, exit=True); time.sleep(1000)"
    )
    done = run_session(tmp_path, hang)
    assert_ended(done, tmp_path, "exit code 1")
