"""The dirty logs of a server: where its marks go before what they mark is linked.

Two ordinary logs. A mark goes to the log that took the last one; if that fails, to the other; if
both fail, so does the append. A server registers before its first mark, so that a roll-up finds its
logs without listing anything else. Marks are idempotent.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from stratalog.errors import Exists, StratalogError, Unavailable
from stratalog.herd.dirty_mark import Mark
from stratalog.herd.names import SERVERS_PREFIX, SIDES, dirty_store, names_below, server_path
from stratalog.objectlog import WriterOptions
from stratalog.objectlog.append import LogWriter
from stratalog.objectlog.stored import FORMAT, Natural, StoredObject
from stratalog.runtime import Runtime
from stratalog.store import Patience, Store, create

log = logging.getLogger(__name__)

REGISTER_TIMEOUT_S = 60.0


class Server(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """That a server may have marks. Never changed."""

    what: ClassVar[str] = "entry of a server"

    server: str
    created_us: Natural = 0
    format: str | None = None
    write_id: str | None = None


async def register(root: Store, server: str, runtime: Runtime) -> None:
    """Let roll-ups know of a server. Idempotent."""
    entry = Server(
        server=server, created_us=runtime.now_us(), format=FORMAT, write_id=runtime.new_id()
    )
    with contextlib.suppress(Exists):
        patience = Patience(runtime, REGISTER_TIMEOUT_S)
        await create(root, server_path(server), entry.to_json(), patience)


def servers(root: Store) -> AsyncIterator[str]:
    """All that ever registered, by name."""
    return names_below(root, SERVERS_PREFIX)


class Marker:
    def __init__(self, root: Store, server: str, timeout_s: float, runtime: Runtime) -> None:
        options = WriterOptions(on_fenced="reopen", timeout_s=timeout_s)
        self._sides = [
            _Side(dirty_store(root, server, side), server, options, runtime) for side in SIDES
        ]

    async def mark(self, marks: Sequence[Mark]) -> None:
        """Returns when the marks are durable. ``Unavailable`` if neither log takes them."""
        bodies = [mark.to_bytes() for mark in marks]
        first, second = self._sides
        try:
            await first.append(bodies)
        except StratalogError as error:
            log.warning("a dirty log did not take a mark, the other one is asked: %s", error)
            try:
                await second.append(bodies)
            except StratalogError as last:
                raise Unavailable(
                    f"no dirty log takes marks: {last}",
                    hint="The append did not happen. Look after the store, then try again.",
                ) from last
            if self._sides[0] is first:
                self._sides.reverse()

    async def close(self) -> None:
        for side in self._sides:
            await side.discard()


class _Side:
    """One of the two logs. Its writer is opened when it is needed, and again when it is used up."""

    def __init__(self, store: Store, server: str, options: WriterOptions, runtime: Runtime) -> None:
        self._store = store
        self._server = server
        self._options = options
        self._runtime = runtime
        self._opening = asyncio.Lock()
        self._writer: LogWriter | None = None

    async def append(self, bodies: Sequence[bytes]) -> None:
        writer = await self._open()
        try:
            if len(bodies) == 1:
                await writer.append(bodies[0])
            else:
                await writer.append_many(bodies)
        except StratalogError:
            if self._writer is writer:
                await self.discard()
            raise

    async def discard(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(StratalogError):
                await writer.close()

    async def _open(self) -> LogWriter:
        async with self._opening:
            if self._writer is None:
                self._writer = await LogWriter.open(
                    self._store,
                    writer=self._server,
                    create=True,
                    options=self._options,
                    runtime=self._runtime,
                )
            return self._writer
