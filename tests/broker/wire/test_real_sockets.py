"""Hostile clients on real sockets: what a transport without a socket cannot show."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from kio.schema.produce.v8.response import ProduceResponse

from broker.in_memory import MemoryBroker, memory_broker
from broker.plugged import ALL_TOPICS, framed, request_frame
from broker.record_requests import fetch_request, produce_request
from stratalog.broker.admin.connection import connect
from stratalog.broker.wire import Connection
from stratalog.partitions import NewRecord, encode_batch

REQUEST = request_frame(ALL_TOPICS)
PATIENCE_S = 60.0
STORM = 200
MIB = 2**20


class Peer:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def is_served(self) -> bool:
        """Whether a request is answered, and not the connection closed."""
        try:
            self.writer.write(REQUEST)
            size = int.from_bytes(await self.reader.readexactly(4))
            await self.reader.readexactly(size)
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        return True

    async def ends(self) -> None:
        """Wait until the broker has closed it."""
        with suppress(ConnectionError):
            while await self.reader.read(MIB):
                pass

    async def close(self) -> None:
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()


def unsent_bytes(connection: Connection) -> int:
    return connection._sending.unsent if connection._sending is not None else 0


class Broker:
    """A broker, and those who connect to it."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.memory = broker
        self.shared = broker.shared
        self._peers: list[Peer] = []

    async def peer(self) -> Peer:
        address = self.memory.address
        peer = Peer(*await asyncio.open_connection(address.host, address.port))
        self._peers.append(peer)
        return peer

    async def close(self) -> None:
        for each in self._peers:
            await each.close()


def play(test: Callable[[Broker], Awaitable[None]], **options: Any) -> None:
    """Play a test. Afterwards the broker serves, as before."""

    async def main() -> None:
        async with memory_broker(**options) as memory:
            broker = Broker(memory)
            try:
                await test(broker)
                assert await (await broker.peer()).is_served()
            finally:
                await broker.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_half_a_frame_and_then_silence_is_closed() -> None:
    async def test(broker: Broker) -> None:
        peers = [await broker.peer() for _ in range(3)]
        for peer, half in zip(
            peers, (b"\0", b"\0\0\0\x10", framed(bytes(10**6))[:900]), strict=True
        ):
            peer.writer.write(half)
        for peer in peers:
            await peer.ends()
        assert broker.shared.broken == 3
        assert broker.shared.memory.used == 0

    play(test, frame_ms_max=300)


def test_a_byte_now_and_then_is_closed() -> None:
    async def test(broker: Broker) -> None:
        peer = await broker.peer()
        loop = asyncio.get_running_loop()
        peer.writer.write(framed(bytes(10**6))[:100])

        def drip() -> None:
            if not peer.writer.is_closing():
                peer.writer.write(b"x")
                loop.call_later(0.05, drip)

        drip()
        await peer.ends()
        peer.writer.close()

    play(test, frame_ms_max=300)


def test_impossible_lengths_are_closed_at_once() -> None:
    async def test(broker: Broker) -> None:
        for length in (2**31 - 1, -1, -(2**31)):
            peer = await broker.peer()
            peer.writer.write(struct.pack(">i", length) + bytes(100))
            await asyncio.wait_for(peer.ends(), 5)
        assert broker.shared.broken == 3

    play(test)


def test_a_client_that_never_reads_costs_little_and_is_closed() -> None:
    async def test(broker: Broker) -> None:
        await broker.memory.topics.create("t", 1)
        async with connect(str(broker.memory.address)) as producer:
            batch = bytes(encode_batch([NewRecord(None, bytes(MIB // 2))]))
            for _ in range(4):
                await producer.ask(produce_request(8, "t", batch), ProduceResponse)
        peer = await broker.peer()
        fetch = request_frame(fetch_request(11, [("t", 0, 0)], partition_bytes_max=4 * MIB))
        peer.writer.write(fetch * 500)  # a gigabyte of answers
        while not broker.shared.broken:
            assert sum(map(unsent_bytes, broker.shared.connections)) <= 8 * MIB
            await asyncio.sleep(0.05)
        assert broker.shared.broken == 1

    play(test, idle_ms_max=1500)


def test_a_storm_of_connections_disturbs_none_that_is_there() -> None:
    async def test(broker: Broker) -> None:
        first = [await broker.peer() for _ in range(10)]
        assert all([await each.is_served() for each in first])
        storm = await asyncio.gather(*(broker.peer() for _ in range(STORM)))
        served = sum(await asyncio.gather(*(each.is_served() for each in storm)))
        assert served == 10
        assert broker.shared.refused == STORM - 10
        assert all([await each.is_served() for each in first])
        for each in storm:
            await each.close()
        while len(broker.shared.connections) > len(first):
            await asyncio.sleep(0.01)

    play(test, connections_max=20)
