"""An idle connection costs little memory, measured in a process of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.plugged import ALL_TOPICS, request_frame
from clients.running_broker import RunningBroker

CONNECTIONS = 1000
WARM = 100
BYTES_EACH_MAX = 20_000
REQUEST = request_frame(ALL_TOPICS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path)
    yield running
    running.ends()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="it reads /proc")
def test_a_thousand_idle_connections_cost_at_most_20_kb_each(broker: RunningBroker) -> None:
    with ExitStack() as stack:
        for _ in range(WARM):
            speak_once(stack, broker.address)
        before = resident_bytes(broker.pid)
        for _ in range(CONNECTIONS):
            speak_once(stack, broker.address)
        each = (resident_bytes(broker.pid) - before) / CONNECTIONS
    assert 0 < each <= BYTES_EACH_MAX, f"{each:,.0f} bytes"


def speak_once(stack: ExitStack, address: str) -> None:
    """A connection that asked something, and is idle from now on."""
    host, _, port = address.rpartition(":")
    peer = stack.enter_context(socket.create_connection((host, int(port)), 10))
    peer.sendall(REQUEST)
    left = int.from_bytes(peer.recv(4, socket.MSG_WAITALL))
    assert len(peer.recv(left, socket.MSG_WAITALL)) == left


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
