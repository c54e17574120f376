"""Groups of three under load, while members join, leave and are killed.

Every record is seen, nothing is committed that was not seen, and those who stay go on soon.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from clients.confluent import Confluent
from clients.group_member import HEARTBEAT_MS, KINDS, SESSION_MS
from clients.running_broker import PATIENCE_S, RunningBroker, environment
from signals import Program

PARTITIONS = 6
KCAT = "kcat"
SOME = 200

DROPPED = {KCAT: 2}
"""kcat throws the record away that it is handed just when a signal stops it, but commits it: at
most one for each of the two members that are stopped under load."""

pytestmark = pytest.mark.slow


class Member:
    """A consumer in a process of its own, and what it has seen."""

    def __init__(self, kind: str, address: str, group: str, topic: str, seen: Path) -> None:
        self._seen = seen
        command = [sys.executable, "-m", "clients.group_member", kind, address, group, topic]
        if kind == KCAT:
            settings = {
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "auto.commit.interval.ms": 500,
            }
            command = [KCAT, "-b", address, "-q", "-u", "-f", "%p %o %s\n"]
            command += [
                part for key, value in settings.items() for part in ("-X", f"{key}={value}")
            ]
            command += ["-G", group, topic]
        self._said = seen.with_suffix(".err")
        with seen.open("wb") as output, self._said.open("wb") as said:
            self.process = Program(command, stdout=output, stderr=said, env=environment())

    def seen(self) -> list[tuple[int, int, int]]:
        """Partition, offset and value; a last line may have been cut off by a kill."""
        lines = self._seen.read_bytes().split(b"\n")[:-1]
        return [(int(p), int(o), int(v)) for p, o, v in (line.split() for line in lines)]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self._said.read_text()[-2000:]

    def sees_more(self) -> Callable[[], bool]:
        """Whether it has seen some more records since now."""
        before = len(self.seen())

        def does() -> bool:
            assert self.process.poll() is None, self._said.read_text()[-2000:]
            return len(self.seen()) >= before + SOME

        return does


class Load:
    """Numbers, written round the partitions at a steady pace until it is told to stop."""

    def __init__(self, address: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="load")
        self.written = 0

    def _write(self) -> None:
        for number in itertools.count():
            self._producer.produce(self._topic, b"%d" % number, partition=number % PARTITIONS)
            self._producer.poll(0)
            self.written = number + 1
            if number % 20 == 0 and self._stop.wait(0.005):
                break
        assert self._producer.flush(PATIENCE_S) == 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def topic(address: str) -> str:
    name = f"shared-{uuid.uuid4().hex[:12]}"
    Confluent(address).create_topic(name, PARTITIONS)
    return name


@contextmanager
def _members(start: Callable[[], Member]) -> Iterator[Callable[[], Member]]:
    started: list[Member] = []

    def another() -> Member:
        started.append(start())
        return started[-1]

    try:
        yield another
    finally:
        for member in started:
            if member.process.poll() is None:
                member.kill()


def _until(conditions: list[Callable[[], bool]], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not all(condition() for condition in conditions):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.05)


@pytest.mark.parametrize("kind", [*KINDS, KCAT])
def test_a_group_sees_every_record_while_members_come_go_and_die(
    broker: RunningBroker, topic: str, group: str, kind: str, tmp_path: Path
) -> None:
    if kind == KCAT and shutil.which(KCAT) is None:
        pytest.skip("kcat is not installed (Debian: apt install kcat)")
    address, numbers = broker.address, itertools.count()

    def start() -> Member:
        return Member(kind, address, group, topic, tmp_path / f"seen-{next(numbers)}")

    with _members(start) as another:
        with Load(address, topic) as load:
            first, second, third = another(), another(), another()
            _until([each.sees_more() for each in (first, second, third)], "three members share")
            second.kill()
            _until([each.sees_more() for each in (first, third)], "two go on after a kill")
            fourth = another()
            _until([each.sees_more() for each in (first, third, fourth)], "another joins")
            third.leave()
            _until([each.sees_more() for each in (first, fourth)], "two go on after a leave")
        everyone = [first, second, third, fourth]

        ends = _ends(load.written)
        _until([lambda: _last_seen(first, fourth) == ends], "both have come to the end")
        first.leave()
        fourth.leave()
    lost = _lost(everyone, load.written)
    assert len(lost) <= DROPPED.get(kind, 0), lost[:10]
    client = Confluent(address)
    assert {n: client.committed(group, topic, n) for n in ends} == {
        n: last + 1 for n, last in ends.items()
    }
    assert client.group_state(group) == "Empty"
    client.delete_group(group)
    assert group not in client.groups()


def _ends(written: int) -> dict[int, int]:
    """The last offset of each partition, with so many numbers written."""
    return {number: (written - 1 - number) // PARTITIONS for number in range(PARTITIONS)}


def _last_seen(*members: Member) -> dict[int, int]:
    """The largest offset of each partition that one of them has seen."""
    found: dict[int, int] = {}
    for partition, offset, _ in (row for each in members for row in each.seen()):
        found[partition] = max(offset, found.get(partition, offset))
    return found


def _lost(members: list[Member], written: int) -> list[int]:
    """What nobody has seen, of the numbers. Whatever was seen was where it belongs."""
    seen = set()
    for partition, offset, value in (row for each in members for row in each.seen()):
        assert (partition, offset) == (value % PARTITIONS, value // PARTITIONS)
        seen.add(value)
    assert max(seen) < written
    return sorted(set(range(written)) - seen)


def test_two_groups_do_not_disturb_each_other(
    broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    address, numbers = broker.address, itertools.count()

    def start() -> Member:
        number = next(numbers)
        seen = tmp_path / f"seen-{number}"
        return Member("confluent-kafka", address, f"{topic}-{number}", topic, seen)

    with _members(start) as another, Load(address, topic):
        one, other = another(), another()
        _until([one.sees_more(), other.sees_more()], "both groups read")
        other.kill()
        _until([one.sees_more()], "one goes on")
        everywhere = set(range(PARTITIONS))
        _until([lambda: {each for each, _, _ in one.seen()} == everywhere], "it has them all")


def test_a_static_member_comes_back_to_its_partitions(
    broker: RunningBroker, topic: str, group: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clients.static_members", broker.address, group, topic],
        env=environment(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
