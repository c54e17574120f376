"""Chores beside the writers and the follower: collections, sweeps, pins, forks, side reads.

Each runs at random moments, concurrently with all the others. The sum of a stretch that a chore
reads must equal the follower's sum of it (``prefix_sums``). A chore that meets another one may be
refused (``Conflict``, ``Trimmed``): it gives up and tries again later. A broken hold is a
violation, and so is any other unexplained error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from stratalog.errors import (
    Conflict,
    Corrupt,
    Denied,
    NotFound,
    StratalogError,
    Trimmed,
    Unavailable,
    Unknown,
)
from stratalog.objectlog import (
    Collector,
    CollectorOptions,
    Cursor,
    CursorStore,
    Limits,
    LogReader,
    LogWriter,
    WriterOptions,
)
from stratalog.objectlog.branch import destroy, fork
from stratalog.objectlog.check import stretches_of
from stratalog.objectlog.collection import sweep
from stratalog.objectlog.holds import Pin, PinStore, abort_fork, note_of
from stratalog.objectlog.stored import (
    HEADER_BYTES,
    SelfDescribed,
    body_views,
    encode_described,
    load_any_manifest,
)
from stratalog.runtime import Runtime, run_blocking
from stratalog.setsum import EMPTY, Setsum
from stratalog.soak.history import History, described
from stratalog.soak.ledger import Ledger, Rule
from stratalog.soak.options import SoakOptions
from stratalog.soak.places import place_beside, remove_empty_folders
from stratalog.soak.prefix_sums import PrefixSums, sum_of_batch
from stratalog.soak.writers import pause
from stratalog.store import Store

COURTESY_S_MAX = 0.5
FORK_IS_RARER = 4.0
FORK_APPENDS_MAX = 20


@dataclass
class Chores:
    """The chores of one soak, with a count of each."""

    store: Store
    run: str
    options: SoakOptions
    ledger: Ledger
    sums: PrefixSums
    history: History
    runtime: Runtime

    def __post_init__(self) -> None:
        self._cursor: Cursor | None = None
        self._pins = PinStore(self.store, owner=f"soak {self.run}", runtime=self.runtime)
        self._made = 0
        self.collections = self.collected = self.sweeps = self.swept = 0
        self.pins = self.forks = self.side_reads = self.refused = self.troubles = 0

    async def hold(self, first_offset: int) -> None:
        """Keep collections from unread records, by a cursor."""
        cursors = CursorStore(self.store, writer=f"soak {self.run}", runtime=self.runtime)
        self._cursor = await cursors.create(f"soak_{self.run}", first_offset)

    async def release(self, *, tidy: bool) -> None:
        """Delete the cursor; if ``tidy``, also clear released pins and sweep."""
        if self._cursor is not None:
            cursor, self._cursor = self._cursor, None
            try:
                await cursor.delete()
                if tidy:
                    await Collector(self.store, runtime=self.runtime).clear_pins()
                    await sweep(self.store, runtime=self.runtime)
            except StratalogError:
                self.troubles += 1

    def all(
        self, stopping: asyncio.Event, *, collecting: bool
    ) -> list[Coroutine[None, None, None]]:
        """One loop for each chore, until the soak ends."""
        mean_s = self.options.chore_s
        return [
            *([self._repeat(self._collect, mean_s, stopping)] if collecting else []),
            self._repeat(self._sweep, mean_s, stopping),
            self._repeat(self._pin, mean_s, stopping),
            self._repeat(self._read_aside, mean_s, stopping),
            self._repeat(self._fork, FORK_IS_RARER * mean_s, stopping),
        ]

    async def _repeat(
        self,
        chore: Callable[[asyncio.Event], Awaitable[None]],
        mean_s: float,
        stopping: asyncio.Event,
    ) -> None:
        while not await pause(stopping, 2 * mean_s * self.runtime.random()):
            try:
                await chore(stopping)
            except (Conflict, Trimmed):
                self.refused += 1
            except (Unavailable, Unknown):
                self.troubles += 1
            except Denied:
                raise
            except StratalogError as error:
                self.ledger.violate("chore", f"{chore.__name__.strip('_')}: {error!r}")

    # Freeing space

    async def _collect(self, _: asyncio.Event) -> None:
        assert self._cursor is not None, "a collecting soak holds a cursor"
        offsets = self.sums.offsets()
        kept = int(self.runtime.random() ** 2 * (offsets[-1] - offsets[0]))
        position = max(self._cursor.offset, self.ledger.next_offset - kept)
        self._cursor = await self._cursor.move(position)
        options = CollectorOptions(interval_s=COURTESY_S_MAX * self.runtime.random())
        collector = Collector(self.store, options=options, runtime=self.runtime)
        done = await collector.collect()
        self.collections += 1
        self.collected += done.records
        if done.first_offset > position:
            self.ledger.violate(
                "held", f"the log begins at {done.first_offset}, the cursor is at {position}"
            )

    async def _sweep(self, _: asyncio.Event) -> None:
        done = await sweep(self.store, runtime=self.runtime)
        self.sweeps += 1
        self.swept += done.deleted.objects

    # Reading in other ways

    async def _read_aside(self, _: asyncio.Event) -> None:
        """Open a reader: its tail covers every known record, and a stretch reads as before."""
        name = self._name("read")
        taken, noted = self.ledger.taken, self.history.call(name, "tail")
        async with LogReader.open(self.store, runtime=self.runtime) as reader:
            self.history.ok(noted, reader.tail)
            if reader.tail < taken:
                self.ledger.violate("tail", f"{name} saw the end at {reader.tail}, not {taken}")
            stretch = self.sums.draw(self.runtime.random, reader.first_offset, reader.tail)
            if stretch is None:
                return
            try:
                if self.runtime.random() < 0.5:
                    await self._compare("read", name, reader, *stretch)
                else:
                    await self._compare_fragments(name, reader, *stretch)
            except (NotFound, Trimmed):
                self.refused += 1
                return
        self.side_reads += 1

    async def _pin(self, stopping: asyncio.Event) -> None:
        """Pin a stretch, and read it through the pin: at once, and after the log was cut above."""
        stretch = self.sums.draw(self.runtime.random, self._lowest())
        if stretch is None:
            return
        name = f"soak_{self.run}_{self._name('pin').removeprefix('pin-')}"
        pin = await self._pins.create(name, *stretch, note="made by a soak, which releases it soon")
        try:
            await self._read_through(pin, *stretch)
            await pause(stopping, 2 * self.options.chore_s * self.runtime.random())
            await self._read_through(pin, *stretch)
            self.pins += 1
        finally:
            await pin.release()

    async def _read_through(self, pin: Pin, first: int, limit: int) -> None:
        process = f"pin-{pin.name}"
        try:
            async with LogReader.open(self.store, pin=pin.name, runtime=self.runtime) as reader:
                await self._compare("pin", process, reader, first, limit)
        except (NotFound, Trimmed, Corrupt) as error:
            self.ledger.violate("pin", f"{process}, offsets {first} to {limit}: {error}")

    async def _fork(self, stopping: asyncio.Event) -> None:
        """Fork the log, read the fork, write to it, read it again, and destroy it."""
        place = place_beside(self.store, f"soak-fork-{self.runtime.new_id(8)}")
        offsets = self.sums.offsets(self._lowest())
        if place is None or not offsets:
            return
        at = offsets[int(len(offsets) * self.runtime.random())]
        try:
            await fork(self.store, place, at=at, runtime=self.runtime)
            await self._try_fork(place, at, stopping)
            self.forks += 1
        finally:
            await self._remove_fork(place)

    async def _try_fork(self, place: Store, at: int, stopping: asyncio.Event) -> None:
        process = self._name("fork")
        try:
            async with LogReader.open(place, runtime=self.runtime) as reader:
                if reader.tail != at:
                    self.ledger.violate("fork", f"{process} ends at {reader.tail}, not at {at}")
                await self._compare_shared(process, reader, at)
            bodies = await self._append_to_fork(process, place, at)
            await pause(stopping, 2 * self.options.chore_s * self.runtime.random())
            async with LogReader.open(place, runtime=self.runtime) as reader:
                await self._compare_shared(process, reader, at)
                found = [record.body async for record in reader.records(at)]
                if found != bodies:
                    self.ledger.violate(
                        "fork",
                        f"{process} has {len(found)} own records, {len(bodies)} were appended",
                    )
        except (NotFound, Trimmed, Corrupt) as error:
            self.ledger.violate("fork", f"{process} at {at}: {error}")

    async def _compare_shared(self, process: str, reader: LogReader, at: int) -> None:
        """Compare what a fork shares with the log, as far back as the sums are known."""
        begin = next((o for o in self.sums.offsets(reader.first_offset) if o < at), None)
        if begin is not None:
            await self._compare("fork", process, reader, begin, at)

    async def _append_to_fork(self, process: str, place: Store, at: int) -> list[bytes]:
        run = self.runtime.new_id(16)
        count = 1 + int(FORK_APPENDS_MAX * self.runtime.random())
        bodies = [
            encode_described(SelfDescribed(run, 1, number, HEADER_BYTES + 8))
            for number in range(count)
        ]
        options = WriterOptions(on_fenced="reopen", rollup_entries=2, snapshot_entries_max=4)
        async with LogWriter.open(place, options=options, runtime=self.runtime) as log:
            for number, body in enumerate(bodies):
                position = await log.append(body)
                if position.offset != at + number:
                    self.ledger.violate(
                        "fork", f"{process} appended at {position.offset}, not at {at + number}"
                    )
        return bodies

    async def _remove_fork(self, place: Store) -> None:
        """Destroy a fork in any state, and release its pin on the log."""
        try:
            manifest, _ = await load_any_manifest(place)
            note = note_of(manifest)
            if note is not None and note.state == "forking":
                await abort_fork(place, runtime=self.runtime)
            else:
                await destroy(place, runtime=self.runtime)
                await run_blocking(partial(remove_empty_folders, place))
            if note is not None:
                await (await self._pins.load(note.pin)).release()
        except NotFound:
            pass
        except StratalogError:
            self.troubles += 1

    # Comparing

    async def _compare(
        self, rule: Rule, process: str, reader: LogReader, first: int, limit: int
    ) -> None:
        """Read a stretch in order, batch by batch."""
        total, next_offset = EMPTY, first
        noted = self.history.call(process, "read")
        try:
            async with aclosing(reader.batches(first, limit)) as batches:
                async for batch in batches:
                    offset = batch.column(0)[0].as_py()
                    noted.records = described(stretches_of(batch)[0])
                    self.history.read(noted, offset, body_views(batch.column(2)))
                    if offset != next_offset:
                        break
                    next_offset += batch.num_rows
                    total += sum_of_batch(batch)
                    noted = self.history.call(process, "read")
        finally:
            self.history.drop(noted)
        if next_offset != limit:
            self.ledger.violate(rule, f"{process}: offset {next_offset} of {limit} is not there")
        else:
            self._check_sum(rule, process, first, limit, total)

    async def _compare_fragments(
        self, process: str, reader: LogReader, first: int, limit: int
    ) -> None:
        """Read a stretch fragment by fragment, as distributed readers do."""
        total = EMPTY
        for fragment in await reader.scan(first, limits=Limits(to_offset=limit)):
            start, end = fragment.start.offset, fragment.limit.offset
            batch = await reader.fetch(fragment)
            low, high = max(first, start), min(limit, end)
            total += sum_of_batch(batch.slice(low - start, high - low))
        self._check_sum("read", process, first, limit, total)

    def _check_sum(self, rule: Rule, process: str, first: int, limit: int, total: Setsum) -> None:
        expected = self.sums.between(first, limit)
        if expected is not None and total != expected:
            self.ledger.violate(
                rule, f"{process}: offsets {first} to {limit} are not what was read there before"
            )

    def _lowest(self) -> int:
        return 0 if self._cursor is None else self._cursor.offset

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"
