"""A client of a simulated broker: real frames through a real connection, without a socket."""

from __future__ import annotations

import asyncio
import io
import struct
from typing import Any, TypeVar

from kio.serial import entity_writer
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from stratalog.broker.wire import Connection, Shared, read_payload

Answer = TypeVar("Answer", bound=ResponsePayload)


class Gone(Exception):
    """The connection was closed before the answer came."""


class _Wire(asyncio.Transport):
    """What the connection writes to. Everything arrives, in order, after a moment."""

    def __init__(self, client: WireClient) -> None:
        super().__init__()
        self._client = client
        self._is_closing = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self._client.received(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self._client.pump()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._client.lost()


class WireClient:
    """Sends requests, several at a time if its caller likes, and hands on their answers."""

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport = _Wire(self)
        self._connection = Connection(shared, loop)
        self._connection.connection_made(self._transport)
        self._sent = 0
        self._unsent = bytearray()
        self._arrived = bytearray()
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._is_lost = False

    async def ask(self, request: RequestPayload, answer: type[Answer]) -> Answer:
        """``Gone`` if the broker closes the connection first."""
        if self._is_lost:
            raise Gone
        waiting: asyncio.Future[bytes] = self._loop.create_future()
        self._send(request)
        self._answers[self._sent] = waiting
        body = await waiting
        at = 5 if answer.__header_schema__.__flexible__ else 4
        return read_payload(answer, memoryview(body), at)

    def _send(self, request: RequestPayload) -> None:
        self._sent += 1
        header = request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=i32(self._sent),
            client_id="simulated",
        )
        buffer = io.BytesIO()
        entity_writer(type(header))(buffer, header)
        entity_writer(type(request))(buffer, request)
        self._unsent += struct.pack(">i", buffer.tell()) + buffer.getvalue()
        self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Give the connection what it wants to read."""
        while self._unsent and not self._transport.is_paused and not self._is_lost:
            room = self._connection.get_buffer(len(self._unsent))
            size = min(len(room), len(self._unsent))
            room[:size] = self._unsent[:size]
            del self._unsent[:size]
            self._connection.buffer_updated(size)

    def received(self, data: bytes) -> None:
        """Of the connection."""
        self._arrived += data
        while len(self._arrived) >= 8:
            size, number = struct.unpack_from(">ii", self._arrived)
            if len(self._arrived) < 4 + size:
                return
            body = bytes(self._arrived[4 : 4 + size])
            del self._arrived[: 4 + size]
            waiting = self._answers.pop(number)
            if not waiting.done():
                waiting.set_result(body)

    def lost(self) -> None:
        """The connection is closed."""
        self._is_lost = True
        answers, self._answers = self._answers, {}
        for waiting in answers.values():
            if not waiting.done():
                waiting.set_exception(Gone())
        self._loop.call_soon(self._connection.connection_lost, None)

    def close(self) -> None:
        self._transport.abort()
