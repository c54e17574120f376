"""What goes out of a connection, in order, from the memory where it lies.

The transport would join and copy what it is given. So the answers are written to the socket from
here, many pieces in one call; only when the socket is full, one small piece goes to the transport,
which tells when there is room again. A transport without a socket of its own, such as one that
encrypts, gets all pieces.
"""

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol, cast

Buffer = bytes | bytearray | memoryview

PARTS_MAX: Final = 256
"""In one call. The system takes 1,024."""
PIECE_BYTES: Final = 64 * 1024
JOINED_BYTES_MAX: Final = 64 * 1024


class _HasFile(Protocol):
    def fileno(self) -> int:
        """−1 if it is closed."""


class SendQueue:
    """The answers that the client has not taken yet."""

    __slots__ = ("_pieces", "_socket", "_transport", "is_stuck", "unsent")

    def __init__(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        is_plain = transport.get_extra_info("sslcontext") is None
        self._socket = (
            cast(_HasFile | None, transport.get_extra_info("socket")) if is_plain else None
        )
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
        self._pieces.extend(buffers)
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
        """Write until everything is gone or the socket is full."""
        while self._pieces and not self.is_stuck:
            if not self._write_some():
                self._transport.write(self._next_piece())

    def _write_some(self) -> bool:
        """Write from here. False if the transport has to: the socket is full, or none of ours."""
        transport = self._transport
        if self._socket is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        try:
            written = os.writev(self._socket.fileno(), list(islice(self._pieces, PARTS_MAX)))
        except OSError:
            return False  # the transport meets the same, and knows what to do
        self._taken(written)
        return True

    def _taken(self, size: int) -> None:
        self.unsent -= size
        pieces = self._pieces
        while pieces and size >= len(pieces[0]):
            size -= len(pieces.popleft())
        if size:
            pieces[0] = memoryview(pieces[0])[size:]

    def _next_piece(self) -> Buffer:
        piece = memoryview(self._pieces[0])[:PIECE_BYTES]
        self._taken(len(piece))
        return piece
