"""The reader: finding, fetching and following records with nothing but the store.

A reader holds one manifest: what it shows does not change until ``refresh``. Readers never write,
never block a writer, and any number may be open. Data that was collected meanwhile is noticed:
the reader loads the manifest again and goes on, or says ``Trimmed``. Data that is missing although
the newest manifest links it is ``Corrupt``.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import NoReturn

import msgspec
import numpy as np
import pyarrow as pa

from stratalog.errors import Closed, Corrupt, Invalid, NotFound, Trimmed
from stratalog.meter import Timing
from stratalog.objectlog.holds import load_pinned
from stratalog.objectlog.options import KIB, Limits, ReaderOptions
from stratalog.objectlog.pickling import unsendable
from stratalog.objectlog.stats import ReaderCounters, summarise
from stratalog.objectlog.stored import (
    FIRST_OFFSET,
    MANIFEST_PATH,
    RECORD_SCHEMA,
    ByteCache,
    Fragment,
    Manifest,
    Snapshot,
    bytes_of_records,
    check_begun,
    check_offset,
    decode_fragment,
    load_manifest,
    predecessor_of,
    seal_of,
)
from stratalog.objectlog.tree import Reloads, Tree, Window, cut, key_of, missing
from stratalog.opening import Opening
from stratalog.ordered import in_order
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import (
    CountedStore,
    PatientStore,
    Store,
    StoreLike,
    Usage,
    get_then,
    open_store,
    sibling,
)

DEFAULT_OPTIONS = ReaderOptions()
NO_LIMITS = Limits()
DECODE_INLINE_BYTES_MAX = 32 * KIB

_bytes_of = attrgetter("num_bytes")


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of the log."""

    offset: int
    timestamp_us: int
    body: bytes


class Presence(enum.Enum):
    """Why a record is there, or is not. There is no other reason: anything else is ``Corrupt``."""

    PRESENT = "present"

    COMPACTED = "compacted"
    """It was given up by the owner of the state, and dropped."""

    TRIMMED = "trimmed"
    """It lies before the first offset: the log was collected, or begins later."""

    UNWRITTEN = "unwritten"
    """It lies at the tail that the reader knows, or beyond it."""


@dataclass(slots=True)
class _Course:
    """What an iteration has still to read, from which manifest, and what it has missed."""

    window: Window
    etag: str
    reloads: Reloads

    def leave_behind(self, fragment: Fragment) -> None:
        """Go on behind a fragment. Once a time is reached, from there on the offset counts."""
        limit, from_us = fragment.limit, self.window.from_timestamp_us
        if from_us is not None and limit.timestamp_us >= from_us:
            from_us = None
        self.window = replace(self.window, from_offset=limit.offset, from_timestamp_us=from_us)


class LogReader:
    """Reads one log. Made by ``LogReader.open``."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        etag: str,
        options: ReaderOptions,
        runtime: Runtime,
        usage: Usage,
        load: Callable[[Store], Awaitable[tuple[Manifest, str]]] = load_manifest,
    ) -> None:
        self._store = store
        self._load = load
        self._manifest = manifest
        self._etag = etag
        self._options = options
        self._runtime = runtime
        self._counters = ReaderCounters()
        self._usage = usage
        self._loop = asyncio.get_running_loop()
        self._opened_s = self._loop.time()
        self._batches: ByteCache[pa.RecordBatch] = ByteCache(options.cache_bytes // 2)
        self._snapshots: ByteCache[Snapshot] = ByteCache(options.cache_bytes // 2)
        self._tree = Tree(store, self._snapshots, self._counters.snapshots)
        self._closed = False

    @classmethod
    def open(
        cls,
        url: StoreLike,
        *,
        pin: str | None = None,
        options: ReaderOptions = DEFAULT_OPTIONS,
        runtime: Runtime = DEFAULT_RUNTIME,
    ) -> Opening[LogReader]:
        """Open a log for reading, with one read. ``NotFound`` if there is none.

        With ``pin`` it shows what the pin of this name holds, and that alone, whatever the log has
        come to.
        """

        async def start() -> LogReader:
            counted = CountedStore(open_store(url))
            store = PatientStore(counted, runtime, options.timeout_s)
            load = load_manifest if pin is None else partial(load_pinned, name=pin)
            manifest, etag = await load(store)
            return cls(store, manifest, etag, options, runtime, counted.usage, load)

        return Opening(start)

    def __reduce__(self) -> NoReturn:
        raise unsendable(self, "Pickle a stratalog.sync.LogReader, or send the URL.")

    @property
    def manifest(self) -> Manifest:
        """The manifest that this reader shows."""
        return self._manifest

    @property
    def first_offset(self) -> int:
        """The oldest offset that can be read."""
        return self._manifest.first_offset

    @property
    def tail(self) -> int:
        """The offset after the newest record."""
        return self._manifest.tail.offset

    @property
    def stats(self) -> Mapping[str, int | Timing]:
        """Counters and latencies since the reader was opened, and its requests by class."""
        self._counters.cache_hits = self._batches.hits + self._snapshots.hits
        self._counters.cache_misses = self._batches.misses + self._snapshots.misses
        return summarise(self._counters, self._usage, self._loop.time() - self._opened_s)

    async def refresh(self) -> Manifest:
        """Load the newest manifest."""
        self._check_open()
        started_s = asyncio.get_running_loop().time()
        self._manifest, self._etag = await self._load(self._store)
        self._counters.manifests.add(asyncio.get_running_loop().time() - started_s)
        return self._manifest

    async def scan(
        self,
        from_offset: int = FIRST_OFFSET,
        *,
        limits: Limits = NO_LIMITS,
        from_timestamp_us: int | None = None,
    ) -> list[Fragment]:
        """The fragments from an offset on, oldest first, within the limits.

        None of them lies wholly before ``from_offset``; at least one is given if there is data.
        """
        course = self._begin(
            from_offset, limits.to_offset, from_timestamp_us, limits.to_timestamp_us
        )
        found: list[Fragment] = []
        size = records = 0
        while True:
            try:
                async with aclosing(self._tree.walk(self._manifest, course.window)) as fragments:
                    async for fragment in fragments:
                        size += fragment.num_bytes
                        records += fragment.count
                        if found and (
                            _beyond(size, limits.max_bytes) or _beyond(records, limits.max_records)
                        ):
                            return found
                        found.append(fragment)
                        if len(found) == limits.max_files:
                            return found
                        course.leave_behind(fragment)
                return found
            except NotFound as error:
                await self._go_on(course, error)

    async def fetch(self, fragment: Fragment) -> pa.RecordBatch:
        """The records of one fragment: ``offset``, ``timestamp_us``, ``body``."""
        self._check_open()
        known = self._batches.get(key_of(fragment))
        if known is not None:
            return known
        try:
            batch = await self._read(fragment)
        except NotFound:
            await self.refresh()
            self._check_trimmed(self._manifest, Window(fragment.start.offset))
            if await self._is_linked(fragment):
                raise missing(fragment.path) from None
            raise NotFound(
                f"{fragment.path} was replaced", path=fragment.path, hint="Scan again."
            ) from None
        self._batches.put(key_of(fragment), batch, bytes_of_records(batch))
        return batch

    async def batches(
        self,
        from_offset: int = FIRST_OFFSET,
        to_offset: int | None = None,
        from_timestamp_us: int | None = None,
        to_timestamp_us: int | None = None,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """All records of a part of the log as Arrow batches, read ahead, oldest first.

        ``to_offset`` and ``to_timestamp_us`` are exclusive. Ends at the tail that the reader
        knew when the iteration began.
        """
        course = self._begin(from_offset, to_offset, from_timestamp_us, to_timestamp_us)
        while True:
            try:
                async with (
                    aclosing(self._tree.walk(self._manifest, course.window)) as fragments,
                    aclosing(self._read_ahead(fragments)) as batches,
                ):
                    async for fragment, batch in batches:
                        # What replaced a fragment may span more, so it is cut to what is left.
                        part = cut(batch, fragment, course.window)
                        course.leave_behind(fragment)
                        if part.num_rows:
                            self._counters.records += part.num_rows
                            self._counters.record_bytes += bytes_of_records(part)
                            yield part
                return
            except NotFound as error:
                await self._go_on(course, error)

    async def records(
        self,
        from_offset: int = FIRST_OFFSET,
        to_offset: int | None = None,
        from_timestamp_us: int | None = None,
        to_timestamp_us: int | None = None,
    ) -> AsyncGenerator[Record, None]:
        """The same, record by record."""
        async with aclosing(
            self.batches(from_offset, to_offset, from_timestamp_us, to_timestamp_us)
        ) as batches:
            async for batch in batches:
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield Record(*row)

    async def follow(
        self, from_offset: int | None = None, *, idle_timeout_s: float | None = None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Records as they come, from an offset on (default: only what is new), for ever.

        Polls the manifest: soon after news, then ever more rarely (``poll_s_min`` to
        ``poll_s_max``). With ``idle_timeout_s`` it ends when nothing came for that long. At the
        end of a sealed log it goes on with the successor, if there is one.
        """
        loop = asyncio.get_running_loop()
        reader = self
        next_offset = self.tail if from_offset is None else from_offset
        pause_s = self._options.poll_s_min
        news_s = loop.time()
        while True:
            self._check_open()
            seen = reader.tail
            async with aclosing(reader.batches(next_offset)) as batches:
                async for batch in batches:
                    next_offset = batch.column(0)[-1].as_py() + 1
                    yield batch
                    pause_s, news_s = self._options.poll_s_min, loop.time()
            next_offset = max(next_offset, seen)  # what comes last may have been compacted
            if next_offset >= reader.tail:
                await reader.refresh()
            if next_offset < reader.tail:
                continue
            successor = await reader._open_successor()
            if successor is not None:
                reader, pause_s, news_s = successor, self._options.poll_s_min, loop.time()
                continue
            if idle_timeout_s is not None:
                left_s = news_s + idle_timeout_s - loop.time()
                if left_s <= 0:
                    return
                pause_s = min(pause_s, left_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, self._options.poll_s_max)

    async def _open_successor(self) -> LogReader | None:
        """A reader of the log that continues this one. None if there is none yet."""
        seal = seal_of(self._manifest)
        if seal is None or seal.successor is None:
            return None
        try:
            store = sibling(self._store, seal.successor.url)
            manifest, etag = await load_manifest(store)
        except NotFound:
            return None
        back = predecessor_of(manifest)
        if back is None or back.id != seal.successor.id:
            raise Corrupt(
                f"the log at {seal.successor.url} is not the successor that the seal names",
                path=MANIFEST_PATH,
            )
        return LogReader(store, manifest, etag, self._options, self._runtime, self._usage)

    async def to_arrow(
        self, from_offset: int = FIRST_OFFSET, to_offset: int | None = None
    ) -> pa.Table:
        """A part of the log as one table in memory."""
        batches = [batch async for batch in self.batches(from_offset, to_offset)]
        return pa.Table.from_batches(batches, schema=RECORD_SCHEMA)

    async def presence(self, offset: int) -> Presence:
        """Whether the record at an offset is there, and if not, why. Reads at most its fragment."""
        self._check_open()
        check_offset(offset)
        while offset >= self.first_offset:
            if offset >= self.tail:
                return Presence.UNWRITTEN
            found = await self.scan(offset, limits=Limits(max_files=1, to_offset=offset + 1))
            if not found:
                raise Corrupt(f"nothing in the log spans offset {offset}", path=MANIFEST_PATH)
            if not found[0].is_sparse:
                return Presence.PRESENT
            try:
                offsets = (await self.fetch(found[0])).column(0).to_numpy()
            except NotFound:  # it was compacted further; the reader has the newer manifest now
                continue
            is_there = bool((offsets == np.uint64(offset)).any())
            return Presence.PRESENT if is_there else Presence.COMPACTED
        return Presence.TRIMMED

    async def close(self) -> None:
        """Forget everything. Further calls raise ``Closed``."""
        self._closed = True
        self._batches.clear()
        self._snapshots.clear()

    def _read_ahead(
        self, fragments: AsyncGenerator[Fragment, None]
    ) -> AsyncGenerator[tuple[Fragment, pa.RecordBatch], None]:
        return in_order(
            fragments,
            self._fetched,
            _bytes_of,
            count_max=self._options.prefetch_fragments,
            bytes_max=self._options.prefetch_bytes,
        )

    async def _fetched(self, fragment: Fragment) -> tuple[Fragment, pa.RecordBatch]:
        """Like ``fetch``, but a long iteration does not flush the cache."""
        known = self._batches.get(key_of(fragment))
        return fragment, known if known is not None else await self._read(fragment)

    async def _read(self, fragment: Fragment) -> pa.RecordBatch:
        loop = asyncio.get_running_loop()
        store = self._tree.store_of(fragment)
        started_s = loop.time()
        arrived: list[tuple[float, int]] = []

        def decode(data: bytes) -> pa.RecordBatch:
            arrived.append((loop.time() - started_s, len(data)))
            return decode_fragment(data, fragment, verify=self._options.verify)

        try:
            if fragment.num_bytes <= DECODE_INLINE_BYTES_MAX:
                return decode((await store.get(fragment.path)).data)
            return await get_then(store, fragment.path, decode, self._runtime)
        finally:
            for took_s, size in arrived:
                self._counters.fragments.add(took_s, size)

    def _begin(
        self,
        from_offset: int,
        to_offset: int | None,
        from_timestamp_us: int | None,
        to_timestamp_us: int | None,
    ) -> _Course:
        _check_bounds(to_offset, from_timestamp_us, to_timestamp_us)
        self._check_open()
        check_offset(from_offset)
        if from_timestamp_us is None:
            check_begun(self._manifest, from_offset)
        limit = self.tail if to_offset is None else min(to_offset, self.tail)
        window = Window(from_offset, limit, from_timestamp_us, to_timestamp_us)
        return _Course(window, self._etag, Reloads(self._store, self._refreshed))

    async def _refreshed(self, _: Store) -> tuple[Manifest, str]:
        return await self.refresh(), self._etag

    async def _go_on(self, course: _Course, gone: NotFound) -> None:
        """Begin again from the newest manifest. ``Trimmed`` if the log begins later now."""

        def check(manifest: Manifest) -> bool:
            self._check_trimmed(manifest, course.window)
            return False

        await course.reloads.after(gone, course.etag, check)
        course.etag = self._etag

    def _check_trimmed(self, manifest: Manifest, window: Window) -> None:
        first_offset = manifest.first_offset
        if window.from_timestamp_us is None and first_offset > window.from_offset:
            raise Trimmed(
                f"the log starts at {first_offset} now; what lay before it was collected",
                first_offset=first_offset,
            )

    async def _is_linked(self, fragment: Fragment) -> bool:
        """Whether the newest manifest leads to this fragment, or to nothing that is there."""
        window = Window(fragment.start.offset, fragment.start.offset + 1)
        try:
            found = [each.path async for each in self._tree.walk(self._manifest, window)]
        except NotFound as error:
            raise missing(error.path or fragment.path) from None
        return fragment.path in found

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this reader is closed")


def _check_bounds(*bounds: int | None) -> None:
    """Refuse text and the like before it is compared with a number."""
    for bound in bounds:
        if type(bound) not in (int, type(None)):
            raise Invalid(
                f"an offset or a time is a whole number, not {bound!r}",
                hint="Convert another kind of number with int().",
            )


def _beyond(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit
