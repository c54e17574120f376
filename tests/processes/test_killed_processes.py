"""Behaviours 4 and 5 with real processes: some are killed with SIGKILL, nothing told is lost."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from processes.fleet import fleet

pytestmark = pytest.mark.slow


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.s3)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A log that several processes can reach."""
    if request.param == "directory":
        return str(tmp_path / "log")
    found = request.getfixturevalue("s3_url")
    assert isinstance(found, str)
    return found


def test_behaviour_04_processes_killed_at_random_lose_nothing_that_was_acknowledged(
    url: str, tmp_path: Path
) -> None:
    random = Random(20)
    together, kills = (2, 3) if url.startswith("s3") else (3, 6)
    with fleet(url, tmp_path) as processes:
        alive = [processes.start() for _ in range(together)]
        alive[0].wait_for(3)
        for _ in range(kills):
            victim = alive.pop(random.randrange(len(alive)))
            victim.wait_for(random.randrange(1, 4))
            time.sleep(random.uniform(0.0, 0.1))
            victim.kill()
            alive.append(processes.start())
        for member in alive:
            member.wait_for(2)
        for member in alive:
            assert member.stop() == 0
        assert processes.check() > 10 * together


def test_behaviour_05_processes_that_append_side_by_side_all_make_progress(
    url: str, tmp_path: Path
) -> None:
    together, each = (2, 10) if url.startswith("s3") else (3, 30)
    with fleet(url, tmp_path) as processes:
        members = [processes.start() for _ in range(together)]
        for member in members:
            member.wait_for(each)
        for member in members:
            assert member.stop() == 0
        assert processes.check() > each * together


def test_behaviour_04_all_processes_killed_at_once_leave_a_log_that_opens(
    url: str, tmp_path: Path
) -> None:
    with fleet(url, tmp_path) as processes:
        members = [processes.start() for _ in range(2)]
        for member in members:
            member.wait_for(3)
        for member in members:
            member.kill()
        assert processes.check() > 6
