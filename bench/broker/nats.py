"""Messages of 1 kB to a running NATS server with JetStream, by its text protocol.

The server syncs as it was configured: ``sync_interval: always`` is what we promise. The
acknowledged publish is the counterpart of a lone produce, and publishes in flight that of a batch.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader

from bench.broker.client import RECORD_BYTES

TIMEOUT_S = 60.0
IN_FLIGHT = 256
STORED = b'"seq"'


@dataclass(frozen=True)
class Nats:
    """A connection whose answers all go to one inbox."""

    socket: socket.socket
    reader: BufferedReader
    inbox: str

    def send(self, subject: str, payload: bytes) -> None:
        head = f"PUB {subject} {self.inbox} {len(payload)}\r\n".encode()
        self.socket.sendall(head + payload + b"\r\n")

    def answer(self) -> bytes:
        """The next message to the inbox."""
        while line := self.reader.readline():
            if line.startswith(b"MSG "):
                return self.reader.read(int(line.split()[-1]) + 2)[:-2]
            if line.startswith(b"PING"):
                self.socket.sendall(b"PONG\r\n")
            if line.startswith(b"-ERR"):
                raise RuntimeError(f"NATS answered {line.decode().strip()}")
        raise RuntimeError("NATS closed the connection")

    def ask(self, subject: str, payload: bytes) -> bytes:
        self.send(subject, payload)
        return self.answer()


def nats_latency_ms(address: str, count: int) -> list[float]:
    with _stream(address) as (nats, subject):
        payload, found = os.urandom(RECORD_BYTES), []
        for number in range(-count // 10, count):
            began_s = time.perf_counter()
            _stored(nats.ask(subject, payload))
            if number >= 0:
                found.append((time.perf_counter() - began_s) * 1e3)
    return found


def nats_p50_ms(address: str, count: int) -> float:
    return statistics.median(nats_latency_ms(address, count))


def nats_rate(address: str, count: int) -> float:
    """Acknowledged messages a second, with many in flight."""
    with _stream(address) as (nats, subject):
        payload = os.urandom(RECORD_BYTES)
        began_s = time.perf_counter()
        for number in range(count + IN_FLIGHT):
            if number < count:
                nats.send(subject, payload)
            if number >= IN_FLIGHT:
                _stored(nats.answer())
        return count / (time.perf_counter() - began_s)


@contextmanager
def _stream(address: str) -> Iterator[tuple[Nats, str]]:
    name = f"bench-{uuid.uuid4().hex[:12]}"
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as opened:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        nats = Nats(opened, opened.makefile("rb"), f"inbox.{name}")
        opened.sendall(f'CONNECT {{"verbose":false}}\r\nSUB {nats.inbox} 1\r\n'.encode())
        settings = {"name": name, "subjects": [name], "storage": "file"}
        created = nats.ask(f"$JS.API.STREAM.CREATE.{name}", json.dumps(settings).encode())
        if b'"error"' in created:
            raise RuntimeError(f"NATS made no stream: {created.decode()}")
        try:
            yield nats, name
        finally:
            nats.ask(f"$JS.API.STREAM.DELETE.{name}", b"")


def _stored(answer: bytes) -> None:
    if STORED not in answer:
        raise RuntimeError(f"NATS did not store a message: {answer.decode()}")
