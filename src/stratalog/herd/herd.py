"""A herd: many logs under one root, by name, as one server uses them.

    async with Herd.open("s3://bucket/herd", server="api-1") as herd:
        await herd.create("orders", exist_ok=True)
        position = await herd.log("orders").append(b"one")

A log is opened when it is first used and closed when it was idle for a while. A server marks each
fragment in its dirty log before it links the fragment. So a roll-up finds the logs that changed
without looking at the others: see ``rollup``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

from stratalog.errors import Closed, Conflict, Full, Invalid, NotFound, StratalogError, Unavailable
from stratalog.herd.catalogue import CATALOGUE_TIMEOUT_S, Catalogue, Entry
from stratalog.herd.dirty_log import Marker, register
from stratalog.herd.dirty_mark import Mark
from stratalog.herd.names import check_name, log_store
from stratalog.herd.options import HerdOptions
from stratalog.objectlog import Opening, ReaderOptions
from stratalog.objectlog.append import Body, LogWriter, create_log
from stratalog.objectlog.branch import destroy
from stratalog.objectlog.holds import CursorStore
from stratalog.objectlog.read import LogReader
from stratalog.objectlog.stored import LogPosition, Span
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import PatientStore, Store, StoreLike, open_store

DEFAULT_OPTIONS = HerdOptions()
DEFAULT_READER = ReaderOptions()
HARMLESS = (Conflict, Full, Invalid, Unavailable)
"""Errors of an append after which its writer goes on, with those of others that are under way."""


class Herd:
    """The logs under one root. Made by ``Herd.open``."""

    def __init__(
        self, root: Store, server: str | None, options: HerdOptions, runtime: Runtime
    ) -> None:
        self._root = root
        self._server = server
        self._options = options
        self._runtime = runtime
        self._catalogue = Catalogue(PatientStore(root, runtime, CATALOGUE_TIMEOUT_S), runtime)
        self._marker = (
            None if server is None else Marker(root, server, options.writer.timeout_s, runtime)
        )
        self._logs: dict[str, HerdLog] = {}
        self._tidying: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        url: StoreLike,
        *,
        server: str | None = None,
        options: HerdOptions = DEFAULT_OPTIONS,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> Opening[Herd]:
        """Open a herd. Without a ``server`` nothing can be appended.

        ``server`` names this process among those that write; its marks are kept under that name.
        """
        if server is not None:
            check_name(server, "server")

        async def start() -> Herd:
            root = open_store(url)
            if server is not None:
                patient = PatientStore(root, runtime, CATALOGUE_TIMEOUT_S)
                await register(patient, server, runtime)
            return cls(root, server, options, runtime)

        return Opening(start)

    @property
    def root(self) -> Store:
        return self._root

    @property
    def server(self) -> str | None:
        return self._server

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    @property
    def open_writers(self) -> int:
        """How many logs are open for appending."""
        return sum(each.is_open for each in self._logs.values())

    async def create(self, name: str, *, exist_ok: bool = False) -> HerdLog:
        """Create a log. ``Exists`` if there is one of this name, unless ``exist_ok``."""
        self._check_open()
        entry = await self._catalogue.add(name, exist_ok=exist_ok)
        await self._complete(entry)
        return self.log(name)

    def log(self, name: str) -> HerdLog:
        """A log by name. Nothing is read before it is used; ``NotFound`` comes then."""
        self._check_open()
        known = self._logs.get(check_name(name, "log"))
        if known is None:
            known = self._logs[name] = HerdLog(self, name)
        return known

    async def names(self) -> AsyncGenerator[str, None]:
        """The names of all logs, in order. Reads the catalogue, and each entry."""
        self._check_open()
        async for name in self._catalogue.names():
            with contextlib.suppress(NotFound):  # dropped
                yield (await self._catalogue.find(name)).name

    def store_of(self, log_id: str) -> Store:
        """The place of a log by its id."""
        return log_store(self._root, log_id)

    async def drop(self, name: str) -> None:
        """Delete a log for ever, and free its name. Idempotent."""
        self._check_open()
        entry = await self._catalogue.drop(name)
        known = self._logs.pop(name, None)
        if known is not None:
            await known.close()
        with contextlib.suppress(NotFound):
            await destroy(log_store(self._root, entry.id), runtime=self._runtime)

    async def mark(self, marks: Iterable[Mark]) -> None:
        """Write marks into this server's dirty log. Returns when they are durable."""
        self._check_open()
        listed = [*marks]
        if self._marker is None:
            raise Invalid(
                "a herd that was opened without a server cannot write",
                hint="Name this process: Herd.open(url, server=...).",
            )
        if listed:
            await self._marker.mark(listed)

    async def close(self) -> None:
        """Close all logs. What was appended is waited for."""
        self._closed = True
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
        for each in [*self._logs.values()]:
            await each.close()
        if self._marker is not None:
            await self._marker.close()

    async def _complete(self, entry: Entry) -> None:
        """The log of an entry, whose maker may have died before it was there."""
        store = log_store(self._root, entry.id)
        await create_log(
            store, exist_ok=True, writer=entry.name, name=entry.name, runtime=self._runtime
        )

    async def _make_room(self) -> None:
        """Before another writer is opened: close those that were idle longest."""
        if self._tidying is None or self._tidying.done():
            self._tidying = asyncio.ensure_future(self._tidy())
        idle = sorted(
            (each for each in self._logs.values() if each.is_idle), key=lambda each: each.used_s
        )
        for each in idle[: max(0, self.open_writers - self._options.open_max + 1)]:
            await each.close_if_idle()

    async def _tidy(self) -> None:
        """Close what nobody uses, until nothing is open."""
        clock = asyncio.get_running_loop().time
        while self.open_writers:
            await asyncio.sleep(self._options.idle_s / 2)
            for each in [*self._logs.values()]:
                if each.is_idle and clock() - each.used_s >= self._options.idle_s:
                    await each.close_if_idle()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this herd is closed")


class HerdLog:
    """One log of a herd, opened when it is used."""

    def __init__(self, herd: Herd, name: str) -> None:
        self._herd = herd
        self._name = name
        self._options = herd._options
        self._entry: Entry | None = None
        self._writer: LogWriter | None = None
        self._turn = asyncio.Lock()
        self._users = 0
        self._compacted_upto: int | None = None
        self._cursor_read_s = float("-inf")
        self.used_s = 0.0

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_open(self) -> bool:
        """Whether it has a writer."""
        return self._writer is not None

    @property
    def is_idle(self) -> bool:
        """Whether it has a writer that nobody is using."""
        return self._writer is not None and self._users == 0

    async def id(self) -> str:
        """The 32 hex digits under which its objects lie."""
        return (await self._found()).id

    async def store(self) -> Store:
        """Its place, for everything that takes one: readers, cursors, collection, forks."""
        return log_store(self._herd.root, await self.id())

    async def append(self, body: Body, *, expected_offset: int | None = None) -> LogPosition:
        """Append one record, as ``LogWriter.append`` does. ``Full`` if too much is uncompacted."""
        async with self._using() as writer:
            return await writer.append(body, expected_offset=expected_offset)

    async def append_many(
        self, bodies: Iterable[Body], *, expected_offset: int | None = None
    ) -> Span:
        """Append several records, all or none, as ``LogWriter.append_many`` does."""
        async with self._using() as writer:
            return await writer.append_many(bodies, expected_offset=expected_offset)

    def reader(self, *, options: ReaderOptions = DEFAULT_READER) -> Opening[LogReader]:
        """A reader of it, to be awaited or entered, as that of ``LogReader.open``."""

        async def start() -> LogReader:
            store, runtime = await self.store(), self._herd.runtime
            return await LogReader.open(store, options=options, runtime=runtime)

        return Opening(start)

    async def cursors(self) -> CursorStore:
        """Its cursors."""
        return CursorStore(await self.store(), writer=self._herd.server, runtime=self._herd.runtime)

    async def close(self) -> None:
        """Close its writer. The next append opens another one."""
        async with self._turn:
            await self._discard()

    async def close_if_idle(self) -> None:
        """Close its writer, unless somebody has come to use it meanwhile."""
        async with self._turn:
            if self.is_idle:
                await self._discard()

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncIterator[LogWriter]:
        self._herd._check_open()
        self._users += 1
        try:
            writer = await self._opened()
            await self._check_room(writer)
            try:
                yield writer
            except HARMLESS:
                raise
            except StratalogError:
                async with self._turn:
                    if self._writer is writer:
                        await self._discard()
                raise
        finally:
            self._users -= 1
            self.used_s = asyncio.get_running_loop().time()

    async def _opened(self) -> LogWriter:
        async with self._turn:
            if self._writer is None:
                await self._herd._make_room()
                self._writer = await self._open()
            return self._writer

    async def _open(self) -> LogWriter:
        herd, entry = self._herd, await self._found()
        if herd.server is None:
            raise Invalid(
                "a herd that was opened without a server cannot write",
                hint="Name this process: Herd.open(url, server=...).",
            )
        first_us = herd.runtime.now_us

        async def mark(end: int, sweep_epoch: int) -> None:
            made = Mark(log_id=entry.id, end=end, sweep_epoch=sweep_epoch, first_us=first_us())
            await herd.mark([made])

        def opening() -> Opening[LogWriter]:
            return LogWriter.open(
                log_store(herd.root, entry.id),
                writer=herd.server,
                before_link=mark,
                options=self._options.writer,
                runtime=herd.runtime,
            )

        try:
            return await opening()
        except NotFound:
            if (await herd._catalogue.find(self._name)).id != entry.id:
                self._entry = None
                raise
            await herd._complete(entry)
            return await opening()

    async def _found(self) -> Entry:
        if self._entry is None:
            self._entry = await self._herd._catalogue.find(self._name)
        return self._entry

    async def _discard(self) -> None:
        writer, self._writer = self._writer, None
        self._entry = None
        if writer is not None:
            with contextlib.suppress(StratalogError):
                await writer.close()

    async def _check_room(self, writer: LogWriter) -> None:
        """Refuse if too many records wait for compaction. A log without the cursor has no limit."""
        limit = self._options.uncompacted_records_max
        if limit is None:
            return
        upto, now_s = self._compacted_upto, asyncio.get_running_loop().time()
        if upto is not None and writer.tail - upto < limit:
            return
        if now_s - self._cursor_read_s >= self._options.cursor_s:
            upto = await offset_of(await self.cursors(), self._options.compaction_cursor)
            self._compacted_upto, self._cursor_read_s = upto, now_s
        waiting = 0 if upto is None else writer.tail - upto
        if waiting >= limit:
            raise Full(
                f"{waiting} records of {self._name!r} are not compacted, and {limit} may be",
                hint="Let the pipeline catch up, then append again.",
                expected=limit,
                actual=waiting,
            )


async def offset_of(cursors: CursorStore, name: str) -> int | None:
    """Where a cursor is. None if there is none."""
    try:
        return (await cursors.load(name)).offset
    except NotFound:
        return None
