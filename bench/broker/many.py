"""Many idle connections, and many topics: what they cost the brokers in memory and time."""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.broker.client import RECORD_BYTES, fresh_topics, write_in_turn
from bench.broker.comparison import Comparison
from bench.broker.contenders import Contender, our_broker

CONNECTIONS = 10_000
QUICK_CONNECTIONS = 500
CONNECTION_BYTES_MAX = 20_000
TOPICS = 1_000
QUICK_TOPICS = 50
TURNS = 20
FILES_APART = 200
TIMEOUT_S = 60.0
SETTLE_S = 2.0
API_VERSIONS = 18


def connections(comparison: Comparison) -> None:
    """Each has asked for the versions once, as a client does, and says no more."""
    count = min(comparison.amount(CONNECTIONS, QUICK_CONNECTIONS), _sockets_max())
    for broker, is_ours in _processes(comparison):
        before = broker.process.memory_bytes()
        with _idle(broker.address, count):
            time.sleep(SETTLE_S)
            each = (broker.process.memory_bytes() - before) / count
        comparison.figure(
            "connections",
            f"memory of each of {count:,} idle connections, {_software(broker)}",
            each,
            "bytes",
            CONNECTION_BYTES_MAX if is_ours else None,
        )


def topics(comparison: Comparison) -> None:
    """Topics written in turn, a record each time; then memory and open files of the process."""
    count = comparison.amount(TOPICS, QUICK_TOPICS)
    for broker, is_ours in _processes(comparison):
        files = broker.process.open_files()
        with fresh_topics(broker, count) as names:
            cost = write_in_turn(broker, names, TURNS)
            memory = broker.process.memory_bytes()
            files = broker.process.open_files() - files
        who = _software(broker)
        records = cost.bytes / RECORD_BYTES
        figure = comparison.figure
        figure("topics", f"records to {count:,} topics in turn, {who}", records / cost.took_s, "/s")
        figure("topics", f"memory with {count:,} topics, {who}", memory / 1e6, "MB")
        most = FILES_APART if is_ours else None
        figure("topics", f"files opened for {count:,} topics, {who}", files, "files", most)


def _processes(comparison: Comparison) -> Iterator[tuple[Contender, bool]]:
    """One contender for each process, and whether it is ours: both kinds of Kafka's topics live in
    one. Ours is a fresh one: what another has given back would hide what it takes here."""
    for peer in {each.process: each for each in comparison.kafka}.values():
        yield peer, False
    with our_broker() as ours:
        with fresh_topics(ours):
            pass  # what a first client brings about is not what is measured
        yield ours, True


def _software(broker: Contender) -> str:
    return broker.name.partition(",")[0]


def _sockets_max() -> int:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most - FILES_APART if most != resource.RLIM_INFINITY else CONNECTIONS


@contextmanager
def _idle(address: str, count: int) -> Iterator[None]:
    host, _, port = address.rpartition(":")
    body = struct.pack(">hhih", API_VERSIONS, 0, 1, -1)
    request = struct.pack(">i", len(body)) + body
    with ExitStack() as stack:
        for _ in range(count):
            opened = stack.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S))
            opened.sendall(request)
            (left,) = struct.unpack(">i", opened.recv(4, socket.MSG_WAITALL))
            opened.recv(left, socket.MSG_WAITALL)
        yield
