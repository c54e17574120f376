"""A broker in memory, with clients that are plugged into its connections without a socket.

What is tested is the broker's own ``Connection``; only the transport below it is ours. On a
``SimulatedLoop`` time is virtual, so that waiting costs nothing.
"""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kio.schema.metadata.v4.request import MetadataRequest
from kio.serial import entity_writer
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from broker.in_memory import memory_context
from stratalog.broker.context import BrokerContext
from stratalog.broker.requests import Dispatcher, served
from stratalog.broker.topics import Topics
from stratalog.broker.wire import Connection, Shared, limited, read_payload
from stratalog.partitions import PartitionLog
from stratalog.testing import MemoryPartitionLog, Simulation, simulate

ALL_TOPICS = MetadataRequest(topics=None, allow_auto_topic_creation=False)
"""A request that is answered at once."""
LOOK_S = 0.5
PATIENCE_S = 60.0

Answer = TypeVar("Answer", bound=ResponsePayload)


def framed(body: bytes) -> bytes:
    """A request with its length in front."""
    return struct.pack(">i", len(body)) + body


def request_frame(request: RequestPayload, correlation_id: int = 1) -> bytes:
    """The whole frame of a request, as a client sends it."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(correlation_id),
        client_id="test",
    )
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(type(request))(out, request)
    return framed(out.getvalue())


class Plug(asyncio.Transport):
    """The transport of a connection whose other end is a ``Client``."""

    def __init__(self, protocol: Connection, on_change: Callable[[], None]) -> None:
        super().__init__()
        self.protocol = protocol
        self.is_open = True
        self.is_read_from = True
        self.reads = True
        """Whether the client reads. What it does not read stays in ``unread``."""
        self.sent = bytearray()
        """What the client has got and not looked at."""
        self.unread = bytearray()
        self.waiting = bytearray()
        """What the broker has not read."""
        self._on_change = on_change
        self._is_feeding = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 9) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (0, None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_open:
            return
        if self.reads and not self.unread:
            self.sent += data
            self._on_change()
            return
        is_full = bool(self.unread)
        self.unread += data
        if not is_full:
            self.protocol.pause_writing()

    def read_on(self) -> None:
        """The client reads what it left unread, and goes on reading."""
        self.reads = True
        if not self.unread:
            return
        self.sent += self.unread
        self.unread.clear()
        if self.is_open:
            self.protocol.resume_writing()
        self._on_change()

    def feed(self) -> None:
        """Hand over what waits, as an event loop does: as much as the buffer takes, and again."""
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self.waiting and self.is_open and self.is_read_from:
                buffer = self.protocol.get_buffer(-1)
                taken = min(len(buffer), len(self.waiting))
                buffer[:taken] = self.waiting[:taken]
                del self.waiting[:taken]
                self.protocol.buffer_updated(taken)
        finally:
            self._is_feeding = False

    def pause_reading(self) -> None:
        assert self.is_read_from
        self.is_read_from = False

    def resume_reading(self) -> None:
        assert not self.is_read_from
        self.is_read_from = True
        asyncio.get_running_loop().call_soon(self.feed)

    def is_closing(self) -> bool:
        return not self.is_open

    def close(self) -> None:
        if not self.unread:
            self.abort()

    def abort(self) -> None:
        if self.is_open:
            self.is_open = False
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
            self._on_change()


class Client:
    """One client: it sends bytes or requests, and gets answers in their order."""

    def __init__(self, shared: Shared) -> None:
        self._changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.connection = Connection(shared, loop)
        self.plug = Plug(self.connection, self._changed.set)
        self._numbers = 0
        self.connection.connection_made(self.plug)

    @property
    def is_closed(self) -> bool:
        """By the broker, or by itself."""
        return not self.plug.is_open

    def send(self, data: bytes | bytearray) -> None:
        self.plug.waiting += data
        self.plug.feed()

    def answers(self) -> list[bytes]:
        """Those that are there, without their lengths."""
        found, sent = [], self.plug.sent
        while len(sent) >= 4 and len(sent) >= (end := 4 + int.from_bytes(sent[:4])):
            found.append(bytes(sent[4:end]))
            del sent[:end]
        return found

    async def answer(self, patience_s: float = PATIENCE_S) -> bytes:
        """The next one. ``ConnectionError`` if the broker closes the connection instead."""
        async with asyncio.timeout(patience_s):
            while True:
                sent = self.plug.sent
                if len(sent) >= 4 and len(sent) >= (end := 4 + int.from_bytes(sent[:4])):
                    found = bytes(sent[4:end])
                    del sent[:end]
                    return found
                if self.is_closed:
                    raise ConnectionError("the broker closed the connection")
                self._changed.clear()
                await self._changed.wait()

    async def closed(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until the broker has closed the connection."""
        async with asyncio.timeout(patience_s):
            while not self.is_closed:
                self._changed.clear()
                await self._changed.wait()

    def request(self, request: RequestPayload) -> int:
        """Send a request, and do not wait. Gives the number that its answer will have."""
        self._numbers += 1
        self.send(request_frame(request, self._numbers))
        return self._numbers

    async def ask(self, request: RequestPayload, answer: type[Answer]) -> Answer:
        """The answer to a request, whose version it has."""
        number = self.request(request)
        return decoded(await self.answer(), answer, number)

    def leave(self) -> None:
        """Close the connection, as a client that dies."""
        self.plug.abort()


def decoded(body: bytes, answer: type[Answer], number: int) -> Answer:
    """An answer behind its header, which has the number of the request."""
    assert int.from_bytes(body[:4]) == number
    at = 5 if answer.__header_schema__.__flexible__ else 4
    return read_payload(answer, memoryview(body), at)


@dataclass
class PluggedBroker:
    """What a test sees of it."""

    context: BrokerContext
    shared: Shared
    clients: list[Client] = field(default_factory=list)

    @property
    def topics(self) -> Topics:
        return self.context.topics

    def client(self) -> Client:
        made = Client(self.shared)
        self.clients.append(made)
        return made

    async def create(self, name: str, partitions: int = 1, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        await self.context.topics.create(name, partitions, given)

    def log(self, topic: str, partition: int = 0) -> MemoryPartitionLog:
        found: PartitionLog | None = self.context.topics.partition(topic, partition)
        assert isinstance(found, MemoryPartitionLog)
        return found


@asynccontextmanager
async def plugged_broker(
    simulation: Simulation,
    *,
    look_s: float = LOOK_S,
    log_type: type[MemoryPartitionLog] = MemoryPartitionLog,
    **options: Any,
) -> AsyncIterator[PluggedBroker]:
    """A broker whose clients need no socket. Afterwards all memory of requests is given back."""
    async with memory_context(log_type=log_type, runtime=simulation.runtime, **options) as context:
        shared = limited(context.options, Dispatcher(context, served()))
        context.meters.traffic = shared
        looking = asyncio.ensure_future(_look(shared, look_s))
        broker = PluggedBroker(context, shared)
        try:
            yield broker
            for client in broker.clients:
                client.leave()
            while shared.connections or shared.tasks:
                await asyncio.sleep(0.1)
            assert shared.memory.used == 0
        finally:
            looking.cancel()


def play(test: Callable[[PluggedBroker], Awaitable[None]], **options: Any) -> None:
    """Play a test against a broker, in virtual time. Nothing may fail unseen."""

    async def main(simulation: Simulation) -> None:
        async with plugged_broker(simulation, **options) as broker:
            await test(broker)
        assert not simulation.unhandled, simulation.unhandled

    simulate(main, 0)


async def turns(number: int = 20) -> None:
    """Let the event loop go on, without time."""
    for _ in range(number):
        await asyncio.sleep(0)


async def _look(shared: Shared, look_s: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(look_s)
        for each in list(shared.connections):
            each.look(loop.time())
