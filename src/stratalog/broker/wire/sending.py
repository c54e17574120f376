"""What goes out of a connection, in order, without holding large buffers twice.

The transport copies what the socket does not take at once. So it gets one piece at a time, and the
next when that has gone; what waits here are references to memory that is there anyway.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

Buffer = bytes | bytearray | memoryview

PIECE_BYTES: Final = 256 * 1024
JOINED_BYTES_MAX: Final = 64 * 1024


class SendQueue:
    """The answers that the client has not taken yet."""

    __slots__ = ("_pieces", "_transport", "is_stuck", "unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        self._pieces: deque[Buffer] = deque()
        self.unsent = 0
        """Bytes that wait here. The transport has one piece more."""
        self.is_stuck = False
        """The socket takes nothing now."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        size = sum(map(len, buffers))
        if not self.is_stuck and not self._pieces and size <= JOINED_BYTES_MAX:
            self._transport.write(buffers[0] if len(buffers) == 1 else b"".join(buffers))
            return
        self._pieces.extend(_gathered(buffers))
        self.unsent += size
        if not self.is_stuck:
            self._pump()

    def stuck(self) -> None:
        self.is_stuck = True

    def freed(self) -> None:
        self.is_stuck = False
        self._pump()

    @property
    def is_empty(self) -> bool:
        return not self._pieces and not self.is_stuck

    def drop(self) -> None:
        self._pieces.clear()
        self.unsent = 0

    def _pump(self) -> None:
        while self._pieces and not self.is_stuck:
            piece = self._pieces.popleft()
            if len(piece) > PIECE_BYTES:
                view = memoryview(piece)
                self._pieces.appendleft(view[PIECE_BYTES:])
                piece = view[:PIECE_BYTES]
            self.unsent -= len(piece)
            self._transport.write(piece)


def _gathered(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Neighbours that are short are joined: one call of the system for each would cost more."""
    pieces: list[Buffer] = []
    short: list[Buffer] = []
    size = 0
    for each in buffers:
        if size + len(each) > JOINED_BYTES_MAX and short:
            pieces.append(b"".join(short))
            short, size = [], 0
        if len(each) > JOINED_BYTES_MAX:
            pieces.append(each)
        else:
            short.append(each)
            size += len(each)
    if short:
        pieces.append(b"".join(short))
    return pieces
