"""The writers of a soak: they append due records, are killed at random, and are opened again.

A few callers share a writer, each with one append under way, as requests share a server. The
function that opens the writers decides what they are: here objects of this process, in the tests
real processes. A killed writer is abandoned: its appends under way may happen or not, and its
callers get no answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from stratalog.errors import StratalogError, Unknown
from stratalog.meter import Meter
from stratalog.objectlog import KIB, MIB, LogPosition, LogWriter, WriterOptions
from stratalog.objectlog.stored import HEADER_BYTES, SelfDescribed, encode_described
from stratalog.runtime import Runtime
from stratalog.soak.history import History
from stratalog.soak.ledger import Ledger
from stratalog.soak.options import SoakOptions
from stratalog.soak.pace import Pace
from stratalog.store import Store

BATCH_RECORDS_MAX = 512
TICK_S = 0.01
BACKLOG_S_MAX = 2.0
REOPEN_S = 1.0
LARGE_ONE_IN = 500
LARGE_TIMES = 100
LENGTH_MAX = 1 * MIB


class SoakWriter(Protocol):
    """Appends all of the bodies side by side, or none. Returns the first position."""

    async def append(self, bodies: Sequence[bytes]) -> LogPosition: ...

    async def close(self) -> None:
        """End it in order: every call is answered."""

    async def kill(self) -> None:
        """End it at once, whatever it is doing."""


OpenWriter = Callable[[str, WriterOptions], Awaitable[SoakWriter]]
"""Opens a writer under a name, with its own options."""


@dataclass
class LocalWriter:
    """A writer of this process. A killed one is never looked at again."""

    log: LogWriter
    abandoned: set[asyncio.Task[None]]

    async def append(self, bodies: Sequence[bytes]) -> LogPosition:
        if len(bodies) == 1:
            return await self.log.append(bodies[0])
        return (await self.log.append_many(bodies)).first

    async def close(self) -> None:
        await self.log.close()

    async def kill(self) -> None:
        # Its tasks go on until they have nothing left to do.
        burial = asyncio.ensure_future(self._bury())
        self.abandoned.add(burial)
        burial.add_done_callback(self.abandoned.discard)

    async def _bury(self) -> None:
        with suppress(StratalogError):
            await self.log.close()


def open_locally(store: Store, runtime: Runtime, abandoned: set[asyncio.Task[None]]) -> OpenWriter:
    """Opens writers of this process; ``abandoned`` holds the last tasks of killed ones."""

    async def open_writer(name: str, options: WriterOptions) -> SoakWriter:
        log = await LogWriter.open(store, writer=name, options=options, runtime=runtime)
        return LocalWriter(log, abandoned)

    return open_writer


@dataclass
class Supply:
    """The records that are due and not yet taken by a caller."""

    options: SoakOptions
    ledger: Ledger
    runtime: Runtime
    waiting: int = 0

    async def fill(self, stopping: asyncio.Event) -> None:
        """Make records due, at a wandering pace, while the reader keeps up."""
        pace = Pace(self.options.rate, self.runtime.random)
        clock = asyncio.get_running_loop().time
        started_s, given = clock(), 0
        backlog_max = max(1, int(BACKLOG_S_MAX * self.options.rate))
        while not stopping.is_set():
            due = pace.due(clock() - started_s)
            if self.ledger.lag < self.options.lag_max:
                self.waiting = min(self.waiting + due - given, backlog_max)
            given = due
            await asyncio.sleep(TICK_S)

    def take(self) -> int:
        """How many records a caller is to append now; it may be none."""
        most = min(self.waiting, BATCH_RECORDS_MAX)
        count = min(most, 1 + int(self.runtime.random() * most))
        self.waiting -= count
        return count


@dataclass
class Writers:
    """All writers of a soak, with counts of their fates."""

    run: str
    options: SoakOptions
    ledger: Ledger
    history: History
    runtime: Runtime
    open_writer: OpenWriter

    def __post_init__(self) -> None:
        self.supply = Supply(self.options, self.ledger, self.runtime)
        self.appends = Meter()
        self.opened = self.killed = self.troubles = 0

    async def keep_one(self, name: str, stopping: asyncio.Event) -> None:
        """Keep one writer open until the soak ends, each for a while."""
        while not stopping.is_set():
            try:
                writer = await self.open_writer(name, self._draw_options())
            except StratalogError:
                self.troubles += 1
                await pause(stopping, REOPEN_S)
                continue
            self.opened += 1
            try:
                await self._let_live(writer, stopping)
            except BaseException:
                await writer.kill()
                raise

    async def _let_live(self, writer: SoakWriter, stopping: asyncio.Event) -> None:
        ending = asyncio.Event()
        callers = [
            asyncio.ensure_future(self._call(writer, ending)) for _ in range(self.options.callers)
        ]
        whole_life = asyncio.ensure_future(pause(stopping, self._draw_life_s()))
        try:
            await asyncio.wait([*callers, whole_life], return_when=asyncio.FIRST_COMPLETED)
            if self.runtime.random() < 0.5 and whole_life.done() and not stopping.is_set():
                self.killed += 1
                await writer.kill()
            else:
                ending.set()
                await asyncio.gather(*callers)
                with suppress(StratalogError):
                    await writer.close()
        finally:
            for task in (*callers, whole_life):
                task.cancel()
            await asyncio.gather(*callers, whole_life, return_exceptions=True)

    async def _call(self, writer: SoakWriter, ending: asyncio.Event) -> None:
        """Append until ``ending``, or until an append is not acknowledged."""
        number = self.ledger.open_writer()
        try:
            while not ending.is_set():
                count = self.supply.take()
                if count == 0:
                    await asyncio.sleep(TICK_S * (0.5 + self.runtime.random()))
                elif not await self._append(writer, number, count):
                    return
        finally:
            self.ledger.retire(number)

    async def _append(self, writer: SoakWriter, number: int, count: int) -> bool:
        clock = asyncio.get_running_loop().time
        call = self.ledger.call(number, count)
        bodies = [
            encode_described(SelfDescribed(self.run, number, each, self._draw_length()))
            for each in range(call.first, call.first + count)
        ]
        noted = self.history.call(f"{number}", "append", bodies, [(number, call.first, count)])
        started_s = clock()
        try:
            position = await writer.append(bodies)
        except (Unknown, asyncio.CancelledError) as error:
            self.ledger.doubt(call)
            self.history.unknown(noted)
            if isinstance(error, asyncio.CancelledError):
                raise
            return False
        except StratalogError:
            self.troubles += 1
            self.ledger.fail(call)
            self.history.failed(noted)
            return False
        self.appends.add(clock() - started_s)
        self.ledger.acknowledge(call, position.offset, position.timestamp_us)
        self.history.ok(noted, position.offset)
        return True

    def _draw_life_s(self) -> float:
        return self.options.life_s * (0.2 + 1.6 * self.runtime.random())

    def _draw_length(self) -> int:
        mean = self.options.record_bytes - HEADER_BYTES
        if self.runtime.random() * LARGE_ONE_IN < 1:
            mean *= LARGE_TIMES
        return min(LENGTH_MAX, HEADER_BYTES + int(2 * mean * self.runtime.random()))

    def _draw_options(self) -> WriterOptions:
        """Draw another shape of fragments and of the tree for each opening."""
        draw = self.runtime.random
        rollup = 2 + int(11 * draw())
        return WriterOptions(
            on_fenced="reopen",
            fragment_bytes=int(4 * KIB * (MIB / 4 / KIB) ** draw()),
            rollup_entries=rollup,
            snapshot_entries_max=rollup + int(52 * draw()),
        )


async def pause(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait, unless the soak ends. True if it does."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
    return stopping.is_set()
