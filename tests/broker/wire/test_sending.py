"""Answers go out whole and in order, however the socket takes them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket

import pytest

from own_loop import in_own_loop
from stratalog.broker.wire.sending import PARTS_MAX, Buffer, SendQueue

SMALL_SOCKET_BYTES = 8 * 1024


class _Sender(asyncio.Protocol):
    def __init__(self) -> None:
        self.queue: SendQueue | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.queue = SendQueue(transport)

    def pause_writing(self) -> None:
        assert self.queue is not None
        self.queue.stuck()

    def resume_writing(self) -> None:
        assert self.queue is not None
        self.queue.freed()

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.queue is not None
        self.queue.drop()


async def connected() -> tuple[SendQueue, asyncio.Transport, socket.socket]:
    """A queue whose socket is soon full, and the other end."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_SOCKET_BYTES)
    ours.setblocking(False)
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, sender = await loop.create_connection(_Sender, sock=ours)
    assert sender.queue is not None
    return sender.queue, transport, theirs


async def taken(theirs: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    while (left := size - sum(map(len, parts))) > 0:
        parts.append(await loop.sock_recv(theirs, left))
    return b"".join(parts)


def answer(draw: random.Random) -> list[Buffer]:
    """Many small pieces, a few large ones, some empty."""
    sizes = [draw.choice((0, 1, 8, 300, 70_000)) for _ in range(draw.choice((1, 7, PARTS_MAX)))]
    made = [draw.randbytes(size) for size in sizes]
    return [draw.choice((bytes, bytearray, memoryview))(each) for each in made]


@pytest.mark.parametrize("seed", range(5))
@in_own_loop
async def test_everything_arrives_in_order_at_a_slow_client(seed: int) -> None:
    draw = random.Random(seed)
    queue, transport, theirs = await connected()
    with theirs:
        answers = [answer(draw) for _ in range(6)]
        for each in answers:
            queue.send(each)
        expected = b"".join(bytes(piece) for each in answers for piece in each)
        assert await taken(theirs, len(expected)) == expected
        assert queue.unsent == 0
        transport.abort()


@in_own_loop
async def test_a_client_that_reads_nothing_costs_one_piece_beside_what_is_shared() -> None:
    queue, transport, theirs = await connected()
    with theirs:
        large = bytes(4_000_000)
        queue.send([large])
        assert queue.is_stuck
        assert not queue.is_empty
        assert queue.unsent > 3_500_000
        assert transport.get_write_buffer_size() <= 64 * 1024
        assert len(await taken(theirs, len(large))) == len(large)
        assert queue.unsent == 0
        transport.abort()


@in_own_loop
async def test_nothing_is_written_to_a_socket_that_was_closed() -> None:
    queue, transport, theirs = await connected()
    with theirs:
        transport.abort()
        queue.send([bytes(100_000)])
        await asyncio.sleep(0)
        assert queue.unsent == 0
        with contextlib.suppress(ConnectionError):
            assert not await asyncio.get_running_loop().sock_recv(theirs, 1)
