"""Frames: four bytes of length, then a request.

What arrives first lands in one buffer that all connections share, so that an idle connection needs
none: the event loop reads into it and hands over what it read before it turns to another. A small
request that is whole is copied out of it. The rest of a request that is not whole goes into memory
of exactly its size, in which the records that it brings are then kept, without a copy.
"""

import struct
from collections.abc import Callable
from typing import Final

import numpy as np

from stratalog.broker.wire.memory import RequestMemory
from stratalog.broker.wire.primitives import Malformed

LENGTH: Final = struct.Struct(">i")
SHARED_BYTES: Final = 64 * 1024


def uninitialized(size: int) -> memoryview:
    """Memory that costs nothing until it is written to."""
    return np.empty(size, np.uint8).data


class FrameReader:
    """What has arrived of the requests of one connection."""

    __slots__ = (
        "_arrived",
        "_held",
        "_length",
        "_memory",
        "_shared",
        "_size_max",
        "_size_wanted",
        "_target",
        "frame",
        "is_waiting",
        "on_frame",
        "on_room",
    )

    def __init__(
        self,
        shared: memoryview,
        memory: RequestMemory,
        size_max: int,
        on_frame: Callable[[memoryview], None],
        on_room: Callable[[bool], None],
    ) -> None:
        self._shared = shared
        self._memory = memory
        self._size_max = size_max
        self.on_frame = on_frame
        self.on_room = on_room
        self.frame: memoryview | None = None
        """The request that is not whole yet."""
        self.is_waiting = False
        """For memory: nothing may be read."""
        self._arrived = 0
        self._length: memoryview | None = None
        self._target: memoryview | None = None
        self._held = b""
        """Of a request that waits for memory: what is there."""
        self._size_wanted = 0

    @property
    def is_within(self) -> bool:
        """Whether a request has begun to arrive and is not whole."""
        return self._target is not None or self.is_waiting

    @property
    def arrived(self) -> int:
        """The bytes that are there of the request that is not whole."""
        return self._arrived

    def target(self) -> memoryview:
        """Where the next bytes go."""
        return self._shared if self._target is None else self._target

    def received(self, count: int) -> None:
        """So many bytes are in the target now. ``Malformed`` if no request is announced by them."""
        target = self._target
        if target is None:
            self._divide(self._shared[:count])
            return
        self._arrived += count
        if count < len(target):
            self._target = target[count:]
            return
        frame, length = self.frame, self._length
        self._target = self.frame = self._length = None
        self._arrived = 0
        if frame is not None:
            self.on_frame(frame)
        elif length is not None:
            self._begin(self._size(length, 0), b"")

    def drop(self) -> None:
        """The connection is gone: give back the memory of the request that will not be whole."""
        if self.is_waiting:
            self._memory.forget(self._granted)
        elif self.frame is not None:
            self._memory.release(len(self.frame))
        self.is_waiting = False
        self._target = self.frame = self._length = None

    def _divide(self, data: memoryview) -> None:
        """Hand over the requests that are whole, and begin the one that is not."""
        at, end = 0, len(data)
        while end - at >= LENGTH.size:
            size = self._size(data, at)
            start = at + LENGTH.size
            at = start + size
            if at > end:
                self._begin(size, data[start:end])
                return
            self._memory.count(size)
            self.on_frame(memoryview(bytearray(data[start:at])))
        if at < end:
            self._length = memoryview(bytearray(LENGTH.size))
            self._length[: end - at] = data[at:end]
            self._target = self._length[end - at :]
            self._arrived = end - at

    def _size(self, data: memoryview, at: int) -> int:
        size: int = LENGTH.unpack_from(data, at)[0]
        if not 0 <= size <= self._size_max:
            raise Malformed(
                f"a request of {size} bytes is announced, and {self._size_max} are allowed",
                hint="Raise request_bytes_max, if a Kafka client sent it.",
            )
        return size

    def _begin(self, size: int, data: memoryview | bytes) -> None:
        """A request of this size, of which so much is there, has memory of its own from now on."""
        if not size:
            self.on_frame(memoryview(bytearray()))
        elif self._memory.take(size, self._granted):
            self._allocate(size, data)
        else:
            self._size_wanted, self._held = size, bytes(data)
            self.is_waiting = True
            self.on_room(False)

    def _granted(self) -> None:
        held, self._held = self._held, b""
        self.is_waiting = False
        self._allocate(self._size_wanted, held)
        self.on_room(True)

    def _allocate(self, size: int, data: memoryview | bytes) -> None:
        self.frame = frame = uninitialized(size)
        self._arrived = held = len(data)
        frame[:held] = data
        self._target = frame[held:]
