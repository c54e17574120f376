"""Transports for the messages of a copy.

A transport delivers whole messages in order: over two queues in one process, over a TCP connection,
or over a channel that a node has already.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from stratalog.errors import Invalid, Unavailable

MESSAGE_BYTES_MAX = 128 << 20
_SIZE_BYTES = 4


class Transport(Protocol):
    """One end of a connection. ``Unavailable`` when the other end is gone."""

    async def send(self, message: bytes) -> None:
        """Send a message. May wait until there is room."""

    async def receive(self) -> bytes:
        """The next message from the other side."""


class MemoryTransport:
    """One end of a connection within a process. ``pair`` makes both ends."""

    def __init__(
        self, outgoing: asyncio.Queue[bytes | None], incoming: asyncio.Queue[bytes | None]
    ) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._is_closed = False

    @classmethod
    def pair(cls) -> tuple[MemoryTransport, MemoryTransport]:
        there: asyncio.Queue[bytes | None] = asyncio.Queue()
        back: asyncio.Queue[bytes | None] = asyncio.Queue()
        return cls(there, back), cls(back, there)

    async def send(self, message: bytes) -> None:
        if self._is_closed:
            raise _gone()
        self._outgoing.put_nowait(message)

    async def receive(self) -> bytes:
        message = None if self._is_closed else await self._incoming.get()
        if message is None:
            self._is_closed = True
            raise _gone()
        return message

    def close(self) -> None:
        """Both ends find it closed, after the messages that were sent before."""
        self._is_closed = True
        self._outgoing.put_nowait(None)


class StreamTransport:
    """Over an asyncio stream, such as a TCP connection: the size (u32), then the message."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._message_bytes_max = message_bytes_max

    async def send(self, message: bytes) -> None:
        if len(message) > self._message_bytes_max:
            raise _too_large(len(message), self._message_bytes_max)
        try:
            self._writer.write(len(message).to_bytes(_SIZE_BYTES, "little"))
            self._writer.write(message)
            await self._writer.drain()
        except OSError as error:
            raise _gone() from error

    async def receive(self) -> bytes:
        try:
            size = int.from_bytes(await self._reader.readexactly(_SIZE_BYTES), "little")
            if size > self._message_bytes_max:
                raise _too_large(size, self._message_bytes_max)
            return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise _gone() from error


def _gone() -> Unavailable:
    return Unavailable(
        "the other side of the copy is gone",
        hint="Copy again: what has arrived stays, and only the rest is sent.",
    )


def _too_large(size: int, most: int) -> Invalid:
    return Invalid(
        f"a message of {size} bytes is larger than {most}",
        hint="The other side is no stratalog, or set message_bytes_max on both sides.",
        expected=most,
        actual=size,
    )
