"""Copying a partition from one disk to another, over a transport.

    await send_partition(orders, transport)         at the source
    await receive_partition(orders, transport)      at the replica

The source serves as always. If a newer checkpoint drops an entry that it has offered, it makes a
new offer; what has arrived stays. The replica refuses other writes meanwhile. After an
interruption, by either side or by a crash, the copy is started again.

What each side decides is pure and lies in ``copy_rules``; the two drivers are here.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import count
from typing import Any, TypeVar

from stratalog.errors import Conflict, Corrupt, Invalid, StratalogError, Unavailable
from stratalog.indexset import IndexSet
from stratalog.segments.format import HEAD, Checkpoint, Entries, divided, joined
from stratalog.segments.maintenance import HeldState
from stratalog.segments.partition import Exclusive, Partition
from stratalog.segments.transfer.copy_rules import Receiving, ReplicaState, Sending, Window, agree
from stratalog.segments.transfer.messages import (
    Ack,
    End,
    Failed,
    Has,
    Message,
    Offer,
    Put,
    StatePart,
    decode_message,
    encode_message,
)
from stratalog.segments.transfer.transports import Transport

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TransferOptions:
    """Limits of a copy."""

    message_bytes: int = 1 << 20
    """The size of a message. A larger entry is sent alone."""

    window_bytes: int = 8 << 20
    """The bytes in flight before the source waits for an acknowledgement."""

    timeout_s: float = 60.0
    """How long one side waits for the other."""

    restarts_max: int = 8
    """How often the source may make a new offer because a checkpoint dropped entries."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "restarts_max" else 1e-9
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise Invalid(f"{field.name} is a number above 0, not {value!r}", actual=value)


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What was copied. Both sides report the same."""

    entries: int
    payload_bytes: int
    state_bytes: int
    checkpoint: int | None
    """The index of the checkpoint that was copied; ``None`` if the replica did not need one."""
    truncated_after: int | None
    """The index above which the replica cut off its own log."""
    restarts: int
    last: int
    """The end of the replica's log."""


@dataclass(slots=True)
class _Copied:
    """The report of one side as it grows."""

    entries: int = 0
    payload_bytes: int = 0
    state_bytes: int = 0
    checkpoint: int | None = None
    truncated_after: int | None = None

    def add(self, entries: Entries) -> None:
        self.entries += len(entries)
        self.payload_bytes += entries.payload_bytes

    def add_state(self, checkpoint: int, size: int) -> None:
        self.checkpoint = checkpoint
        self.state_bytes += size

    def add_cut(self, after: int | None) -> None:
        cuts = [each for each in (self.truncated_after, after) if each is not None]
        self.truncated_after = min(cuts, default=None)

    def report(self, restarts: int, last: int) -> TransferReport:
        return TransferReport(**asdict(self), restarts=restarts, last=last)


DEFAULT_OPTIONS = TransferOptions()


async def send_partition(
    partition: Partition, transport: Transport, options: TransferOptions = DEFAULT_OPTIONS
) -> TransferReport:
    """Copy a partition to the replica at the other end.

    Also raises errors of the replica. ``Unavailable`` if it is silent, or if checkpoints come
    faster than they can be copied.
    """
    source = _Source(partition, _Channel(transport, options, "the replica"), options)
    return await source.channel.guarded(source.send())


async def receive_partition(
    partition: Partition, transport: Transport, options: TransferOptions = DEFAULT_OPTIONS
) -> TransferReport:
    """Make a partition equal to that of the source at the other end.

    Its log is cut off where it leaves the source's. ``Corrupt`` if that is below its checkpoint.
    Also raises errors of the source. After any error, what has arrived stays, and the copy can be
    started again from this source or another.
    """
    channel = _Channel(transport, options, "the source")

    async def receive() -> TransferReport:
        async with partition.exclusively() as alone:
            return await _Replica(partition, alone, channel).receive()

    return await channel.guarded(receive())


class _Channel:
    """Sends and receives messages. Silence and failure of the other side are raised as errors."""

    def __init__(self, transport: Transport, options: TransferOptions, other: str) -> None:
        self._transport = transport
        self._timeout_s = options.timeout_s
        self._other = other
        self._has_failed = False

    async def send(self, message: Message) -> int:
        data = encode_message(message)
        await self._in_time(self._transport.send(data))
        return len(data)

    async def receive(self) -> Message:
        message = decode_message(await self._in_time(self._transport.receive()))
        if isinstance(message, Failed):
            self._has_failed = True
            raise message.error(self._other)
        return message

    async def guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Report an error of this side to the other one."""
        try:
            return await work
        except StratalogError as error:
            if not self._has_failed:
                with contextlib.suppress(StratalogError):
                    await self.send(Failed.of(error))
            raise

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            raise Unavailable(
                f"{self._other} of a copy has been silent for {self._timeout_s} s",
                hint="Check whether it still runs. Copy again: what has arrived stays.",
            ) from None

    def unexpected(self, message: Message) -> Corrupt:
        return Corrupt(
            f"{self._other} of a copy sent an unexpected {type(message).__name__}",
            hint="Its version is another, or messages were lost on the way. Copy again.",
        )


class _Stale(Exception):
    """Offered entries are not there any more."""


class _Source:
    def __init__(self, partition: Partition, channel: _Channel, options: TransferOptions) -> None:
        self.channel = channel
        self._partition = partition
        self._options = options
        self._window = Window(options.window_bytes)
        self._numbers = count(1)
        self._copied = _Copied()

    async def send(self) -> TransferReport:
        for restarts in range(self._options.restarts_max + 1):
            held = await self._hold()
            try:
                offer = _offer(self._partition)
                await self._copy(offer, held)
            except _Stale:
                while self._window:
                    await self._hear()
                continue
            finally:
                if held is not None:
                    held.close()
            return self._copied.report(restarts, offer.last)
        raise Unavailable(
            f"checkpoints of {self._partition.name!r} come faster than they can be copied",
            hint="Copy again: what has arrived stays. Or take fewer checkpoints meanwhile.",
        )

    async def _hold(self) -> HeldState | None:
        """The state of the current checkpoint, open, so that a newer one does not remove it."""
        while True:
            held = await self._partition.hold_state()
            if (held.checkpoint if held else None) is self._partition.checkpoint_info:
                return held
            if held is not None:
                held.close()

    async def _copy(self, offer: Offer, held: HeldState | None) -> None:
        await self.channel.send(offer)
        has = await self.channel.receive()
        if not isinstance(has, Has):
            raise self.channel.unexpected(has)
        self._copied.add_cut(has.cut_after)
        sending = Sending(offer, has, self._numbers)
        await self._put(sending, sending.live)
        if has.wants_state and held is not None:
            await self._send_state(sending, held)
        await self._put(sending, sending.rest)
        await self._send(sending.end())
        while self._window:
            await self._hear()

    async def _put(self, sending: Sending, wanted: IndexSet) -> None:
        async with contextlib.aclosing(self._read(wanted)) as parts:
            async for entries in parts:
                message = sending.put(wanted, entries)
                if message is None:
                    raise _Stale
                await self._send(message)
                self._copied.add(entries)
        if sending.lacks(wanted):
            raise _Stale

    async def _read(self, wanted: IndexSet) -> AsyncGenerator[Entries]:
        """The entries in parts of about ``message_bytes``, however they were written."""
        size_max = self._options.message_bytes
        gathered: list[Entries] = []
        size = 0
        async with contextlib.aclosing(self._partition.read(wanted)) as batches:
            try:
                async for entries in batches:
                    gathered.append(entries)
                    size += entries.stored_bytes
                    if size < size_max:
                        continue
                    for part in _parts(gathered, size_max):
                        yield part
                    gathered, size = [], 0
            except Conflict as error:
                raise _Stale from error  # it was overwritten while it was read
        for part in _parts(gathered, size_max):
            yield part

    async def _send_state(self, sending: Sending, held: HeldState) -> None:
        total, sent = held.checkpoint.state_bytes, 0
        while True:
            data = await held.part(sent, min(self._options.message_bytes, total - sent))
            if not data and total:
                raise Corrupt(f"the state of the checkpoint ends at byte {sent} of {total}")
            await self._send(sending.state_part(data))
            sent += len(data)
            if sent == total:
                break
        self._copied.add_state(held.checkpoint.index, total)

    async def _send(self, message: Put | StatePart | End) -> None:
        while self._window.is_full():
            await self._hear()
        size = await self.channel.send(message)
        self._window.sent(message.number, size)

    async def _hear(self) -> None:
        ack = await self.channel.receive()
        if not isinstance(ack, Ack):
            raise self.channel.unexpected(ack)
        self._window.acknowledged(ack)


class _Replica:
    def __init__(self, partition: Partition, alone: Exclusive, channel: _Channel) -> None:
        self._partition = partition
        self._alone = alone
        self._channel = channel
        self._number = 0
        self._copied = _Copied()

    async def receive(self) -> TransferReport:
        restarts = -1
        message: Message | None = await self._channel.receive()
        while message is not None:
            if not isinstance(message, Offer):
                raise self._channel.unexpected(message)
            restarts += 1
            message = await self._take(message)
        return self._copied.report(restarts, self._partition.last)

    async def _take(self, offer: Offer) -> Message | None:
        """Take an offer. Returns a message that interrupts it, or ``None`` at the end."""
        partition = self._partition
        own = ReplicaState(partition.checkpoint_index, partition.indexes, partition.lineage)
        has = agree(own, offer)
        if has.cut_after is not None:
            await self._alone.truncate(has.cut_after)
            self._copied.add_cut(has.cut_after)
        await self._channel.send(has)
        receiving = Receiving(offer, has, self._number)
        incoming = self._alone.incoming(_checkpoint_of(offer)) if has.wants_state else None
        try:
            while True:
                message = await self._channel.receive()
                if isinstance(message, Put):
                    entries = receiving.put(message)
                    await self._alone.write(message.previous, entries)
                    self._copied.add(entries)
                elif isinstance(message, StatePart) and incoming is not None:
                    is_last = receiving.state_part(message)
                    await incoming.write(message.body)
                    if is_last:
                        await incoming.commit()
                        self._copied.add_state(offer.checkpoint, offer.state_bytes)
                elif isinstance(message, End):
                    receiving.end(message)
                else:
                    return message
                self._number = receiving.number
                await self._channel.send(Ack(number=message.number))
                if isinstance(message, End):
                    return None
        finally:
            if incoming is not None:
                incoming.discard()


def _offer(partition: Partition) -> Offer:
    """The offer of a partition. ``Conflict`` if its own log is incomplete."""
    if not partition.is_whole:
        raise Conflict(
            f"the log of {partition.name!r} has gaps above its checkpoint: a copy to it is not "
            "complete",
            hint="Complete that one first, or copy from another replica.",
        )
    checkpoint = partition.checkpoint_info
    return Offer(
        checkpoint=partition.checkpoint_index,
        live=partition.live,
        last=partition.last,
        steps=partition.lineage.steps,
        state_bytes=checkpoint.state_bytes if checkpoint else 0,
        state_crc=checkpoint.state_crc if checkpoint else 0,
    )


def _checkpoint_of(offer: Offer) -> Checkpoint:
    return Checkpoint(
        index=offer.checkpoint,
        live=offer.live,
        lineage=offer.lineage.up_to(offer.checkpoint),
        state_bytes=offer.state_bytes,
        state_crc=offer.state_crc,
    )


def _parts(gathered: list[Entries], size_max: int) -> Iterator[Entries]:
    if gathered:
        yield from divided(joined(gathered), size_max // HEAD.itemsize + 1, size_max)
