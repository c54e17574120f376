"""Tests do not depend on how the run was started: what they inherit is not what they rely on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes.inner_run import run_pytest
from signals import SENT, Program

TOLD = (
    "import signal\n"
    "for number in (signal.SIGINT, signal.SIGTERM):\n"
    "    print(signal.getsignal(number) is not signal.SIG_IGN)\n"
)


@pytest.fixture
def ignored() -> Iterator[None]:
    """As in a run that a script started in the background."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SENT}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("ignored")
def test_a_program_heeds_signals_that_the_run_ignores() -> None:
    with Program([sys.executable, "-c", TOLD], stdout=subprocess.PIPE) as program:
        out, _ = program.communicate(timeout=60)
    assert out.split() == [b"True", b"True"]


@pytest.mark.usefixtures("ignored")
def test_the_run_goes_on_ignoring_them() -> None:
    with Program([sys.executable, "-c", ""]):
        assert all(signal.getsignal(number) is signal.SIG_IGN for number in SENT)


def test_a_test_that_fails_does_not_wait_for_its_program() -> None:
    with (
        pytest.raises(AssertionError),
        Program([sys.executable, "-c", "import time; time.sleep(1000)"]) as program,
    ):
        raise AssertionError
    assert program.returncode == -signal.SIGKILL


def test_programs_do_not_see_the_terminal_and_the_settings_of_who_started_the_run(
    tmp_path: Path,
) -> None:
    session = (
        "import os\n"
        "def test_that_looks():\n"
        "    assert not {'COLUMNS', 'FORCE_COLOR', 'SPARK_REMOTE'} & set(os.environ)\n"
        "    assert os.environ['TERM'] == 'xterm'\n"
        "    assert os.environ['NO_PROXY'].split(',') == ['mine', '127.0.0.1', 'localhost']\n"
    )
    given = {"COLUMNS": "9", "FORCE_COLOR": "1", "SPARK_REMOTE": "sc://a", "TERM": "dumb"}
    done = run_pytest(tmp_path, session, **given, NO_PROXY="mine")
    assert done.returncode == 0, done.stdout + done.stderr
