"""kcat as Debian ships it. Skipped where it is not installed."""

from __future__ import annotations

import shutil
import subprocess
import uuid

import pytest

from clients.confluent import Confluent
from clients.published_client import CODECS, Sent
from clients.running_broker import RunningBroker

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (Debian: apt install kcat)"
)


@pytest.fixture
def topic(address: str) -> str:
    name = f"kcat-{uuid.uuid4().hex[:12]}"
    Confluent(address).create_topic(name, 3)
    return name


def _kcat(address: str, *arguments: str, said: bytes = b"") -> str:
    command = ["kcat", "-b", address, *arguments]
    done = subprocess.run(command, input=said, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("codec", CODECS)
def test_lines_come_back(address: str, topic: str, codec: str) -> None:
    lines = "".join(f"key{number}:value {number}\n" for number in range(1000))
    arguments = ("-P", "-t", topic, "-p", "1", "-K", ":", "-z", codec, "-X", "acks=all")
    _kcat(address, *arguments, said=lines.encode())
    assert _kcat(address, "-C", "-t", topic, "-p", "1", "-e", "-q", "-K", ":") == lines


def test_headers_times_and_nulls_are_shown(address: str, topic: str) -> None:
    client = Confluent(address)
    client.produce(topic, [Sent(None, b"k", (("h", b"v"),), 1_700_000_000_123)])
    shown = _kcat(address, "-C", "-t", topic, "-p", "0", "-e", "-q", "-f", "%o %T %k %S %h\n")
    assert shown == "0 1700000000123 k -1 h=v\n"


def test_the_topics_are_listed(address: str, topic: str) -> None:
    listed = _kcat(address, "-L", "-t", topic)
    assert f'topic "{topic}" with 3 partitions' in listed


def test_a_time_is_found(address: str, topic: str) -> None:
    client = Confluent(address)
    client.produce(topic, [Sent(b"x", time_ms=1_700_000_000_000 + n) for n in range(10)])
    assert "offset 4" in _kcat(address, "-Q", "-t", f"{topic}:0:1700000000004")
    read = _kcat(address, *f"-C -t {topic} -p 0 -o s@1700000000004 -e -q -f %o,".split())
    assert read == "4,5,6,7,8,9,"


def test_a_group_goes_on_where_it_stopped(address: str, topic: str) -> None:
    group = f"kcat-{uuid.uuid4().hex[:8]}"
    arguments = ("-X", "auto.offset.reset=earliest", "-q", "-G", group, topic)
    first, second = ("".join(f"{n}\n" for n in some) for some in (range(50), range(50, 80)))
    _kcat(address, "-P", "-t", topic, "-p", "2", said=first.encode())
    assert _kcat(address, "-c", "50", *arguments) == first
    _kcat(address, "-P", "-t", topic, "-p", "2", said=second.encode())
    assert _kcat(address, "-c", "30", *arguments) == second


def test_the_broker_is_there_throughout(broker: RunningBroker) -> None:
    assert broker.address in _kcat(broker.address, "-L")
