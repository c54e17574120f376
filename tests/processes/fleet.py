"""Real processes that append to one log, and what they were told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import stratalog as sl
from objectlog.whole_log import check_whole_log

APPENDER = Path(__file__).with_name("appender.py")
PATIENCE_S = 60.0


@dataclass
class Appender:
    """One process and its notes."""

    name: str
    process: subprocess.Popen[bytes]
    notes_path: Path

    def notes(self) -> list[dict[str, object]]:
        """All complete lines; the last one may have been cut off by a kill."""
        if not self.notes_path.exists():
            return []
        lines = self.notes_path.read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def acknowledged(self) -> int:
        return sum("offset" in note for note in self.notes())

    def wait_for(self, count: int) -> None:
        """Until it has heard so many acknowledgements, or has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while self.acknowledged() < count:
            assert time.monotonic() < deadline, f"{self.name} makes no progress"
            assert self.process.poll() is None, f"{self.name} ended: {self.process.returncode}"
            time.sleep(0.01)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(PATIENCE_S) == -signal.SIGKILL

    def stop(self) -> int:
        """Ask it to end; gives its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)


class Fleet:
    """Starts processes, and ends those that are left, each by its id."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.members: list[Appender] = []

    def start(self, on_fenced: str = "reopen") -> Appender:
        name = f"p{len(self.members)}"
        notes_path = self.folder / f"{name}.notes"
        with (self.folder / f"{name}.stderr").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, str(APPENDER), name, self.url, str(notes_path), on_fenced],
                stdin=subprocess.PIPE,
                stderr=errors,
                env=os.environ,
            )
        member = Appender(name, process, notes_path)
        self.members.append(member)
        return member

    def end(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGKILL)
            member.process.wait(PATIENCE_S)
            if member.process.stdin is not None:
                member.process.stdin.close()

    def check(self) -> int:
        """The log holds what the processes were told, and no more; gives how many records."""
        for member in self.members:
            text = (self.folder / f"{member.name}.stderr").read_text()
            assert text == "", f"{member.name} said: {text}"
        return asyncio.run(self._check())

    async def _check(self) -> int:
        async with sl.LogWriter.open(self.url) as log:
            last = await log.append(b"a new writer opens with no action")
        rows = await check_whole_log(self.url)
        assert rows[-1][0] == last.offset
        at = {body.decode(): (offset, at_us) for offset, at_us, body in rows}
        assert len(at) == len(rows), "a record is there twice"
        told: set[str] = set()
        for member in self.members:
            for note in member.notes():
                bodies = note["bodies"]
                assert isinstance(bodies, list)
                told.update(bodies)
                if "offset" in note:
                    first = note["offset"]
                    assert isinstance(first, int)
                    expected = [(first + i, note["timestamp_us"]) for i in range(len(bodies))]
                    assert [at.get(body) for body in bodies] == expected, "acknowledged, but lost"
                elif "failed" in note:
                    assert not any(body in at for body in bodies), "failed, yet it is there"
        self._check_the_rest([body.decode() for _, _, body in rows[:-1]], told)
        return len(rows)

    def _check_the_rest(self, bodies: list[str], told: set[str]) -> None:
        """What nobody was told about: each appender's order holds, and no batch is torn."""
        ours = tuple(f"{member.name}." for member in self.members)
        numbers: dict[str, int] = {}
        in_doubt: dict[str, int] = {}
        batch: tuple[str, int, int] | None = None
        for body in bodies:
            name, number, index = body.split("/")
            if index == "0":
                assert int(number) > numbers.get(name, -1), f"{body} is out of order"
                numbers[name] = int(number)
            else:
                assert batch == (name, int(number), int(index) - 1), f"{body} was torn off"
            batch = (name, int(number), int(index))
            if body not in told and name.startswith(ours):
                in_doubt[name] = in_doubt.get(name, 0) + (index == "0")
        assert all(count <= 1 for count in in_doubt.values()), "more than one append in flight"


@contextmanager
def fleet(url: str, folder: Path) -> Iterator[Fleet]:
    made = Fleet(url, folder)
    try:
        yield made
    finally:
        made.end()
