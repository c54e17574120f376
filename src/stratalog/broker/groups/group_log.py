"""The log of the groups: what survives a crash, and what of it is known to be durable.

If it fails, what members were told may not be there after a restart. So it stays down from then on,
and the coordinator with it: nobody is promised anything any more, until the broker starts again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from stratalog.broker.groups.offsets import Offsets
from stratalog.broker.groups.stored import (
    GroupKey,
    OffsetKey,
    StoredGroup,
    StoredOffset,
    decode_group,
    decode_key,
    decode_offset,
    encode_key,
    encode_value,
)
from stratalog.errors import Invalid, NotHappened, StratalogError

Changes = Mapping[GroupKey | OffsetKey, StoredGroup | StoredOffset | None]
"""What is new, and ``None`` for what goes."""

FULL_PAUSE_S: Final = 0.25
"""Between two tries to write on a disk that is full."""

log = logging.getLogger(__name__)


class DurableMap(Protocol):
    """What is needed of a keyed log."""

    def put(self, changes: Mapping[bytes, bytes | None]) -> asyncio.Future[None]:
        """All or nothing, in the order of the calls; done when durable. All errors come from the
        future; with ``Full`` it is done at once."""

    async def room(self) -> None:
        """Wait until ``put`` would find room."""

    def items(self, prefix: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        """What is in it."""


class GroupLog:
    """See the module's docstring."""

    def __init__(self, durable: DurableMap, on_failure: Callable[[], None]) -> None:
        self.offsets = Offsets()
        """Those that are durable."""
        self.is_down = False
        self._stopped = asyncio.Event()
        self._map = durable
        self._on_failure = on_failure

    def load(self) -> dict[str, StoredGroup]:
        """The groups as they were stored last; the offsets are there from now on."""
        groups = {}
        for stored_key, value in self._map.items():
            key = decode_key(stored_key)
            if isinstance(key, OffsetKey):
                self.offsets.put(key, decode_offset(value))
            else:
                groups[key.group] = decode_group(value)
        return groups

    def submit(self, changes: Changes) -> asyncio.Future[None]:
        """Write at once, together, after all that was written before.

        Offsets are visible when they are durable. ``Full`` comes at once, from the future as all
        other errors do, and nothing was written. Wait for it with ``durable``.
        """
        stored = self._map.put(
            {
                encode_key(key): None if value is None else encode_value(value)
                for key, value in changes.items()
            }
        )
        stored.add_done_callback(lambda done: self._apply(changes, done))
        return stored

    def _apply(self, changes: Changes, done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, NotHappened | Invalid):
            return
        if error is not None:
            self._fail(error)
            return
        for key, value in changes.items():
            if isinstance(key, OffsetKey):
                if isinstance(value, StoredOffset):
                    self.offsets.put(key, value)
                else:
                    self.offsets.remove(key)

    async def durable(self, stored: asyncio.Future[None]) -> ErrorCode:
        """Wait for it. Who gives up waiting does not take the write back."""
        try:
            await asyncio.shield(stored)
        except Invalid:
            return ErrorCode.message_too_large
        except StratalogError:
            return ErrorCode.coordinator_not_available
        return ErrorCode.none

    async def store(self, changes: Changes, previous: asyncio.Task[ErrorCode] | None) -> ErrorCode:
        """Write what must not be refused: after the write before it, and when there is room."""
        if previous is not None and await previous is not ErrorCode.none:
            return ErrorCode.coordinator_not_available
        while not self.is_down:
            try:
                await asyncio.shield(self.submit(changes))
            except NotHappened:  # no room, or a write before it has failed
                await self._map.room()
                if await self._is_stopped_in_a_while():
                    break
            except StratalogError as error:
                self._fail(error)
            else:
                return ErrorCode.none
        return ErrorCode.coordinator_not_available

    def stop(self) -> None:
        """Try nothing again that found no room: its members come again after the next start."""
        self._stopped.set()

    async def _is_stopped_in_a_while(self) -> bool:
        """The queue may have room at once, and the disk none: so the next try takes its time."""
        try:
            await asyncio.wait_for(self._stopped.wait(), FULL_PAUSE_S)
        except TimeoutError:
            return False
        return True

    def _fail(self, error: BaseException) -> None:
        if not self.is_down:
            self.is_down = True
            log.error("the log of the groups failed; start the broker again: %s", error)
            self._on_failure()
