"""One client's connection: requests come in, answers go out in their order.

    socket → frames → dispatch → a slot for each answer → flushed from the head → socket

It is not read from while too many requests are in flight, while the client leaves answers unread,
or while a partition has no room: the requests that were read already wait in order.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stratalog.broker.wire.frames import SHARED_BYTES, FrameReader
from stratalog.broker.wire.memory import RequestMemory
from stratalog.broker.wire.primitives import Malformed
from stratalog.broker.wire.sending import Buffer, SendQueue
from stratalog.meter import Meter

log = logging.getLogger("stratalog.broker")

PROGRESS_BYTES: int = 1024 * 1024
"""A request that is still arriving after its time may go on if it brought as much since, and if no
other connection waits for its memory."""


class Dispatch(Protocol):
    """What is done with a request."""

    def __call__(self, connection: "Connection", frame: memoryview) -> None: ...


@dataclass(slots=True)
class Shared:
    """What the connections of a broker have in common."""

    dispatch: Dispatch
    memory: RequestMemory
    request_bytes_max: int
    in_flight_max: int
    unsent_bytes_max: int
    connections_max: int
    frame_s_max: float
    idle_s_max: float
    connections: "set[Connection]" = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(SHARED_BYTES)))
    opened: int = 0
    refused: int = 0
    broken: int = 0


class Slot:
    """The place of one answer among those of its connection."""

    __slots__ = ("_connection", "buffers", "deadline", "on_end", "on_late", "size", "started")

    def __init__(self, connection: "Connection", size: int, started: float) -> None:
        self._connection = connection
        self.size = size
        self.started = started
        self.buffers: Sequence[Buffer] | None = None
        self.deadline: float | None = None
        self.on_late: Callable[[], None] | None = None
        """Called once when the deadline has passed and there is no answer."""
        self.on_end: Callable[[], None] | None = None
        """Called when nobody may wait any longer: answer now, if at all."""

    def answer(self, buffers: Sequence[Buffer], meter: Meter, *, failed: bool = False) -> None:
        """The answer, with its length in front. It goes out after those before it."""
        if self.buffers is None:
            self.buffers = buffers
            self.on_late = self.on_end = None
            connection = self._connection
            meter.add(connection.loop.time() - self.started, self.size, failed=failed)
            connection.answered(self)

    def abandon(self, why: str) -> None:
        """There is no answer: the client learns it by the end of its connection."""
        self._connection.break_off(why)


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    __slots__ = (
        "_backlog",
        "_blocked",
        "_flushing",
        "_frames",
        "_going_on",
        "_paused",
        "_quiet",
        "_sending",
        "_slots",
        "_transport",
        "active_at",
        "frame_bytes_then",
        "frame_since",
        "host",
        "is_draining",
        "loop",
        "shared",
    )

    def __init__(self, shared: Shared, loop: asyncio.AbstractEventLoop) -> None:
        self.shared = shared
        self.loop = loop
        self.host = ""
        self.is_draining = False
        self.active_at = loop.time()
        self.frame_since: float | None = None
        self.frame_bytes_then = 0
        self._frames = FrameReader(
            shared.buffer, shared.memory, shared.request_bytes_max, self._arrived, self._room
        )
        self._slots: deque[Slot] = deque()
        self._backlog: deque[memoryview] = deque()
        self._blocked = 0
        """How many things keep requests from being handled."""
        self._flushing = self._going_on = self._paused = False
        self._quiet: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._sending: SendQueue | None = None

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        shared = self.shared
        if len(shared.connections) >= shared.connections_max:
            shared.refused += 1
            if not shared.refused & (shared.refused - 1):  # a storm does not fill the log
                log.warning(
                    "a connection is refused: there are %d; %d were refused until now",
                    len(shared.connections),
                    shared.refused,
                )
            transport.abort()
            return
        self._transport = transport
        self._sending = SendQueue(transport)
        peer = transport.get_extra_info("peername")
        self.host = f"/{peer[0]}" if isinstance(peer, tuple) else "/"
        shared.connections.add(self)
        shared.opened += 1

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._frames.target()

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return
        self.active_at = self.loop.time()
        try:
            self._frames.received(nbytes)
        except Malformed as error:
            self.break_off(str(error))
            return
        if self._frames.is_within:
            if self.frame_since is None:
                self.frame_since, self.frame_bytes_then = self.active_at, 0
        else:
            self.frame_since = None

    def pause_writing(self) -> None:
        if self._sending is not None:
            self._sending.stuck()

    def resume_writing(self) -> None:
        if self._sending is not None:
            self.active_at = self.loop.time()
            self._sending.freed()
            self._go_on()
            self._tell_quiet()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.shared.connections.discard(self)
        self._transport = None
        self._frames.drop()
        if self._sending is not None:
            self._sending.drop()
        release = self.shared.memory.release
        for frame in self._backlog:
            release(len(frame))
        self._backlog.clear()
        slots, self._slots = self._slots, deque()
        for slot in slots:
            release(slot.size)
            if slot.on_end is not None:
                slot.on_end()
        self._tell_quiet()

    # What the handlers call

    def slot(self, frame: memoryview) -> Slot:
        """A place for the answer to this request, after those of the requests before it."""
        slot = Slot(self, len(frame), self.active_at)
        self._slots.append(slot)
        return slot

    def no_answer(self, frame: memoryview) -> None:
        """The client expects none."""
        self.shared.memory.release(len(frame))

    def answered(self, slot: Slot) -> None:
        """One slot has its answer. Those at the head go out, together if there are several."""
        slots = self._slots
        if not slots or slots[0] is not slot or self._flushing:
            return
        if len(slots) == 1:
            self._flush()
        else:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def block(self, waiting: Coroutine[object, object, None]) -> None:
        """Handle no further request until this has ended."""
        self._blocked += 1
        self.spawn(self._unblock_after(waiting))
        self._regulate()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run it to its end, whether or not the client stays."""
        task = self.loop.create_task(work)
        self.shared.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A request whose work failed unexpectedly would never be answered."""
        self.shared.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a request failed", exc_info=error)
            self.break_off("a request failed")

    def break_off(self, why: str) -> None:
        """Close the connection because of what the client did, with one line in the log."""
        transport = self._transport
        if transport is not None:
            self._transport = None
            self.shared.broken += 1
            log.warning("connection of %s closed: %s", self.host, why)
            transport.abort()

    # What the endpoint calls

    def look(self, now: float) -> None:
        """Close it if its client has done nothing for too long; give up on answers that are late.

        What a client may do is to bring a request, and to take its answers."""
        for slot in list(self._slots):
            if slot.deadline is not None and slot.deadline <= now and slot.on_late is not None:
                slot.deadline = None
                slot.on_late()
        if self.frame_since is not None and not self._paused:
            self._look_at_frame(self.frame_since, now)
        elif (
            not self._slots
            and not self._blocked
            and not self._frames.is_waiting
            and now - self.active_at >= self.shared.idle_s_max
        ):
            if self.is_quiet:
                self.close()
            else:
                self.break_off("its client does not take its answers")

    def _look_at_frame(self, since: float, now: float) -> None:
        """A request that is arriving must be whole in time, or at least come on."""
        if now - since >= self.shared.frame_s_max:
            arrived = self._frames.arrived
            if arrived - self.frame_bytes_then < PROGRESS_BYTES or self.shared.memory.is_short:
                self.break_off("a request did not arrive whole in time")
            self.frame_since, self.frame_bytes_then = now, arrived

    def drain(self) -> None:
        """Read no more; answer what waits for something, now."""
        self.is_draining = True
        self._regulate()
        for slot in list(self._slots):
            if slot.on_end is not None:
                slot.on_end()

    @property
    def is_quiet(self) -> bool:
        """Nothing is in flight, and everything is sent."""
        return (
            not self._slots
            and not self._backlog
            and (self._sending is None or self._sending.is_empty)
        )

    @property
    def is_within(self) -> bool:
        """A request has begun to arrive, and is not whole."""
        return self._frames.is_within

    def when_quiet(self) -> "asyncio.Future[None]":
        """Done when it is quiet, or gone."""
        if self._quiet is None:
            self._quiet = self.loop.create_future()
        self._tell_quiet()
        return self._quiet

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Inside

    def _tell_quiet(self) -> None:
        if self._quiet is not None and self.is_quiet and not self._quiet.done():
            self._quiet.set_result(None)

    def _arrived(self, frame: memoryview) -> None:
        if self._transport is None:
            self.shared.memory.release(len(frame))
        elif self._backlog or self._is_full:
            self._backlog.append(frame)
            self._regulate()
        else:
            self._handle(frame)

    @property
    def _is_full(self) -> bool:
        """The next request has to wait."""
        shared, sending = self.shared, self._sending
        return (
            self._blocked > 0
            or len(self._slots) >= shared.in_flight_max
            or (sending is not None and sending.unsent > shared.unsent_bytes_max)
        )

    def _handle(self, frame: memoryview) -> None:
        try:
            self.shared.dispatch(self, frame)
        except Malformed as error:
            self.shared.memory.release(len(frame))
            self.break_off(str(error))

    def _room(self, is_there: bool) -> None:  # noqa: ARG002
        self._regulate()

    async def _unblock_after(self, waiting: Coroutine[object, object, None]) -> None:
        try:
            await waiting
        finally:
            self._blocked -= 1
            self._go_on()

    def _go_on(self) -> None:
        """Handle the requests that wait, as far as they may go. One that is answered at once comes
        back here: it leaves the next to the loop that it came from."""
        if self._going_on:
            return
        self._going_on = True
        try:
            while self._backlog and not self._is_full and self._transport is not None:
                self._handle(self._backlog.popleft())
        finally:
            self._going_on = False
        self._regulate()

    def _flush(self) -> None:
        self._flushing = False
        slots = self._slots
        out: list[Buffer] = []
        release = self.shared.memory.release
        while slots and (buffers := slots[0].buffers) is not None:
            out.extend(buffers)
            release(slots.popleft().size)
        if out and self._sending is not None and self._transport is not None:
            self._sending.send(out)
        if self._backlog or self._paused or self._sending is None or self._sending.unsent:
            self._go_on()
        if self._quiet is not None:
            self._tell_quiet()

    def _regulate(self) -> None:
        """Read or do not read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        must_pause = (
            self._is_full or self.is_draining or bool(self._backlog) or self._frames.is_waiting
        )
        if must_pause != self._paused:
            self._paused = must_pause
            if must_pause:
                transport.pause_reading()
            else:
                if self.frame_since is not None:
                    self.frame_since = self.loop.time()
                    self.frame_bytes_then = self._frames.arrived
                transport.resume_reading()
