"""`KeyedLog`: a map from keys to values that is a function of a partition log and its snapshots.

Several keys are put at once by one batch. What a key has is what the newest durable batch says; a
record without a value removes its key. When the log has grown well beyond the map, a snapshot of
the map takes the place of what it was made from.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, Self

import msgspec

from stratalog.errors import Closed, Corrupt, StratalogError
from stratalog.partitions.batch import Batch, batches_in
from stratalog.partitions.protocol import Appended, PartitionLog
from stratalog.partitions.records import NewRecord, decode_records, encode_batch

FETCH_BYTES: Final = 1 << 20
SNAPSHOT_BYTES_MIN: Final = 1 << 20
"""A log that is smaller is not worth a snapshot."""
GROWTH: Final = 2
"""A snapshot is taken when the log is so many times larger than the map."""
VERSION: Final = 1

Change = Mapping[bytes, bytes | None]
OnApply = Callable[[Change], None]

log_of_module = logging.getLogger(__name__)


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """The state of a snapshot. Persisted: keep stable."""

    version: int
    values: dict[bytes, bytes]


class KeyedLog:
    """Use ``open``. It is the only writer of its log."""

    def __init__(self, log: PartitionLog, values: dict[bytes, bytes], on_apply: OnApply | None):
        self._log = log
        self._values = values
        self._on_apply = on_apply
        self._applied = log.high_watermark
        """The map is that of all records below this offset."""
        self._map_bytes = sum(len(key) + len(value) for key, value in values.items())
        self._log_bytes = 0
        """What was written since the last snapshot."""
        self._in_flight: set[asyncio.Future[Appended]] = set()
        self._snapshot: asyncio.Task[None] | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, log: PartitionLog, *, on_apply: OnApply | None = None) -> Self:
        """Load the map. ``on_apply`` is called with each later change when it is durable."""
        held = await log.state()
        offset, values = (held[0], _decoded(held[1])) if held else (log.log_start, {})
        size = 0
        while offset < log.high_watermark:
            fetched = log.fetch(offset, FETCH_BYTES)
            if fetched is None:
                fetched = await log.fetch_stored(offset, FETCH_BYTES)
            for batch in batches_in(fetched.parts):
                for record in decode_records(batch, batch.base_offset):
                    if record.offset >= offset:
                        _apply(values, {record.key or b"": record.value})
            size += fetched.size
            offset = fetched.next_offset
        opened = cls(log, values, on_apply)
        opened._log_bytes = size
        return opened

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: bytes) -> bytes | None:
        """The durable value of a key."""
        return self._values.get(key)

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """The durable keys that begin so, sorted, with their values."""
        chosen = [key for key in self._values if key.startswith(prefix)]
        return iter([(key, self._values[key]) for key in sorted(chosen)])

    def put(self, changes: Change) -> asyncio.Future[None]:
        """Set the values of keys, all or none; ``None`` removes a key. Done when it is durable.

        Then the map has changed, in the order of the calls. Any error comes from the future:
        ``Full``, wait with ``room`` and try again.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not changes:
            answer.set_result(None)
            return answer
        kept = dict(changes)
        try:
            if self._is_closed:
                raise Closed("this keyed log was closed")
            data = encode_batch([NewRecord(key, value) for key, value in kept.items()])
            appended = self._log.append(Batch.over(data))
        except StratalogError as error:
            _refuse(answer, error)
            return answer
        self._in_flight.add(appended)
        appended.add_done_callback(partial(self._durable, kept, len(data), answer))
        return answer

    async def room(self) -> None:
        """Wait until a put is worth a try. If something is wrong with the log, the put tells."""
        with contextlib.suppress(StratalogError):
            await self._log.room()

    def _durable(
        self,
        changes: Change,
        size: int,
        answer: asyncio.Future[None],
        appended: asyncio.Future[Appended],
    ) -> None:
        self._in_flight.discard(appended)
        if appended.cancelled():
            answer.cancel()
            return
        error = appended.exception()
        if error is not None:
            _refuse(answer, error)
            return
        self._map_bytes += _apply(self._values, changes)
        self._applied = appended.result().base_offset + len(changes)
        self._log_bytes += size
        if self._on_apply is not None:
            self._on_apply(changes)
        if not answer.done():
            answer.set_result(None)
        if self._is_worth_a_snapshot() and self._snapshot is None and not self._is_closed:
            self._snapshot = asyncio.ensure_future(self._take_snapshot())

    def _is_worth_a_snapshot(self) -> bool:
        return self._log_bytes > max(SNAPSHOT_BYTES_MIN, GROWTH * self._map_bytes)

    async def _take_snapshot(self) -> None:
        offset, size = self._applied, self._log_bytes
        try:
            await self._log.snapshot(offset, _encoded(self._values))
        except StratalogError as error:
            log_of_module.warning("no snapshot of a keyed log, which goes on growing: %s", error)
        finally:
            self._log_bytes -= size
            self._snapshot = None

    async def close(self) -> None:
        """Wait for what was put. The log itself stays open."""
        self._is_closed = True
        if self._in_flight:
            await asyncio.wait(self._in_flight)
        if self._snapshot is not None:
            await asyncio.wait([self._snapshot])


def _refuse(answer: asyncio.Future[None], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # the caller may be gone: retrieve it


def _apply(values: dict[bytes, bytes], changes: Change) -> int:
    """Returns by how many bytes the map has grown."""
    grown = 0
    for key, value in changes.items():
        before = values.pop(key, None)
        if before is not None:
            grown -= len(key) + len(before)
        if value is not None:
            values[key] = value
            grown += len(key) + len(value)
    return grown


def _encoded(values: dict[bytes, bytes]) -> bytes:
    return msgspec.msgpack.encode(Stored(VERSION, values))


def _decoded(state: bytes) -> dict[bytes, bytes]:
    try:
        stored = msgspec.msgpack.decode(state, type=Stored)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"this is no snapshot of a keyed log: {error}") from None
    if stored.version != VERSION:
        raise Corrupt(
            "this snapshot of a keyed log is of another version",
            expected=VERSION,
            actual=stored.version,
        )
    return stored.values
