"""Behaviours 5 and 8 with real processes: one is stopped for longer than the others' progress."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

import stratalog as sl
from objectlog.whole_log import sweep
from processes.fleet import PATIENCE_S, Appender, fleet
from processes.test_killed_processes import url

__all__ = ["url"]

pytestmark = pytest.mark.slow


def stop_in_the_middle(member: Appender) -> None:
    """Stop it anywhere but under the lock of a directory, which would stop all the others too."""
    member.wait_for(5)
    member.process.send_signal(signal.SIGSTOP)
    while holds_a_lock(member.process.pid):
        member.process.send_signal(signal.SIGCONT)
        time.sleep(0.003)
        member.process.send_signal(signal.SIGSTOP)


def holds_a_lock(pid: int) -> bool:
    """Whether a process that is being stopped holds a lock once all its threads stand still."""
    threads = Path(f"/proc/{pid}/task")
    if not threads.exists():
        return False
    while any(state_of(thread) != "T" for thread in threads.iterdir()):
        time.sleep(0.001)
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(str(pid) in fields for fields in locks)


def state_of(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


async def others_go_on(url: str, name: str = "other") -> None:
    """Another writer takes over, and a sweep removes what the stopped one had uploaded."""
    async with sl.LogWriter.open(url, options=sl.WriterOptions(on_fenced="reopen")) as log:
        for number in range(20):
            await log.append(f"{name}/{number}/0".encode())
        await sweep(url)
        for number in range(20, 25):
            await log.append(f"{name}/{number}/0".encode())


def test_behaviour_08_a_stopped_process_that_reopens_goes_on_and_doubles_nothing(
    url: str, tmp_path: Path
) -> None:
    with fleet(url, tmp_path) as processes:
        member = processes.start("reopen")
        for turn in range(3):
            stop_in_the_middle(member)
            before = member.acknowledged()
            asyncio.run(others_go_on(url, f"other-{turn}"))
            member.process.send_signal(signal.SIGCONT)
            member.wait_for(before + 5)
        assert member.stop() == 0
        assert processes.check() > 3 * 25


def test_behaviour_05_a_stopped_process_learns_that_it_was_fenced(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as processes:
        member = processes.start("raise")
        stop_in_the_middle(member)
        asyncio.run(others_go_on(url))
        member.process.send_signal(signal.SIGCONT)
        assert member.process.wait(PATIENCE_S) == 3
        last = [note.get("failed") for note in member.notes() if "offset" not in note]
        assert last
        assert set(last) == {"fenced"}
        processes.check()


def test_behaviour_05_a_stopped_process_does_not_hold_up_the_others(
    url: str, tmp_path: Path
) -> None:
    with fleet(url, tmp_path) as processes:
        stopped, other = processes.start(), processes.start()
        stop_in_the_middle(stopped)
        other.wait_for(other.acknowledged() + 20)
        stopped.process.send_signal(signal.SIGCONT)
        started_s = time.monotonic()
        stopped.wait_for(stopped.acknowledged() + 3)
        assert time.monotonic() - started_s < PATIENCE_S
        for member in (stopped, other):
            assert member.stop() == 0
        processes.check()
