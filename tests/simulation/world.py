"""What every scenario has: processes that write to a log, stall and die, and the history.

Writers of several processes append singly, in batches, at an expected offset, pipelined and with
cancelled callers. Each process reaches the store through faults of its own, may stall for longer
than any time-out, and may die at any operation and start again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from random import Random
from string import digits
from typing import Any, NamedTuple
from unittest.mock import patch

import stratalog as sl
from simulation.watched_log import WatchedLog
from simulation.watched_store import WatchedBucket, WatchedStore
from stratalog.errors import Conflict, Corrupt, StratalogError, Unknown
from stratalog.objectlog.stored.manifest import LINKED_MAX
from stratalog.objectlog.tree import link_fragments, settle
from stratalog.store.protocol import Store
from stratalog.testing import (
    Append,
    Faults,
    History,
    Node,
    Placed,
    Read,
    Row,
    Seen,
    Simulation,
    check_appends,
    simulate,
)

TIMEOUT_S = 20.0
STALL_S_MAX = 3 * TIMEOUT_S

Work = Callable[[Node, int], Coroutine[Any, Any, None]]
"""What a process does with its operations."""


class Crew(NamedTuple):
    """Processes of one kind: what they do, how much of it together, and how many they may be."""

    kind: str
    work: Work
    operations: int
    many: int | tuple[int, ...]
    calls: int
    """About how many calls an operation takes, so that deaths fall anywhere."""


class World:
    """The world of one seed. A scenario adds who else lives in it."""

    def __init__(self, simulation: Simulation, bucket: WatchedBucket) -> None:
        self.simulation = simulation
        self.random: Random = simulation.random
        self.bucket = bucket
        self.history = History(simulation.loop.time)
        self.bodies = 0
        self.restarts = 0
        self.restart_s_max = 0.0
        self.span_s = 0.0

    async def run(self) -> str:
        try:
            await self.begin()
            await self.live()
            await self.simulation.settle()
            await self.check()
        except (Exception, BaseExceptionGroup) as failure:
            self.bucket.raise_if_broken()  # which came first, and may well be the cause
            raise first_of(failure) from None
        return self.simulation.trace.digest()

    async def begin(self) -> None:
        """What is there before anybody comes."""
        raise NotImplementedError

    async def live(self) -> None:
        """All processes, from their start to their end."""
        raise NotImplementedError

    async def check(self) -> None:
        """The end: no faults any more, and everything must fit."""
        raise NotImplementedError

    def options(self) -> sl.WriterOptions:
        """The options of a writer that is about to be opened."""
        raise NotImplementedError

    def body(self) -> bytes:
        self.bodies += 1
        return b"%d" % self.bodies + b"." * self.random.choice((0, 0, 5, 60, 400))

    # The end

    async def append_the_last(self, store: Store, client: str = "last") -> None:
        """A new writer opens the log with no action, and writes."""
        self.bucket.raise_if_broken()
        runtime = self.simulation.runtime
        async with sl.LogWriter.open(store, writer="last", runtime=runtime) as log:
            body = self.body()
            await self.history.observe(client, Append((body,)), log.append(body))

    async def check_log(self, store: Store, log: WatchedLog, history: History) -> None:
        """The log that is there, after what the store saw being collected, explains all answers."""
        async with sl.LogReader.open(store, runtime=self.simulation.runtime) as reader:
            collected = log.records.before(reader.first_offset)
            rows: list[Row] = [
                (record.offset, record.timestamp_us, record.body)
                async for record in reader.records(reader.first_offset)
            ]
        check_appends(history, [*collected, *rows], first_offset=log.records.first_offset)
        self.bucket.raise_if_broken()

    def check_nothing_was_swallowed(self) -> None:
        """A task of a dead process ends as it may; nobody is left to look at its result."""
        unhandled = [
            each
            for each in self.simulation.unhandled
            if not each.startswith("SimulatedTask exception was never retrieved")
        ]
        assert not unhandled, unhandled

    # Processes

    def way(self, node: Node) -> Store:
        """How a process reaches the store."""
        return node.store

    def node(self, name: str) -> Node:
        faults = Faults.swarm(self.random)
        skew_us = self.random.choice((0, 0, -5_000_000, 30_000_000))
        return self.simulation.node(name, self.bucket, faults, skew_us=skew_us)

    async def process(
        self, name: str, operations: int, work: Work, *, calls_per_operation: int = 4
    ) -> None:
        """One process; in half of its lives it is killed at some call, then started again."""
        while operations > 0:
            node = self.node(f"{name}.{self.restarts}")
            self.restarts += 1
            lifetime = operations
            if self.random.random() < 0.5:
                lifetime = self.random.randint(1, operations)
                node.crash_at(
                    self.random.randint(1, calls_per_operation * lifetime),
                    self.random.choice(("before", "after")),
                )
            operations -= lifetime
            life = node.spawn(work(node, lifetime))
            await asyncio.wait([life])
            if not life.cancelled() and not node.crashed:
                life.result()
            await asyncio.sleep(self.random.uniform(0.0, self.restart_s_max))

    def take_time(self) -> None:
        """Draw how long everybody's work takes, from seconds to most of a minute."""
        self.span_s = 10 ** self.random.uniform(0.5, 1.7)
        self.restart_s_max = self.span_s / 4

    async def rest(self, operations: int) -> None:
        """Wait before one of so many operations, so that all take about as long together."""
        await asyncio.sleep(self.random.uniform(0.0, 2 * self.span_s / operations))

    async def launch(self, *crews: Crew) -> None:
        """All processes, from their start to their end."""
        async with asyncio.TaskGroup() as processes:
            for crew in crews:
                many = crew.many
                count = many if isinstance(many, int) else self.random.choice(many)
                for number in range(count):
                    process = self.process(
                        f"{crew.kind}{number}",
                        ceil(crew.operations / count),
                        crew.work,
                        calls_per_operation=crew.calls,
                    )
                    processes.create_task(process)

    def stall(self, node: Node) -> None:
        """Stop a process, perhaps for longer than any time-out."""
        node.pause(self.random.uniform(0.0, STALL_S_MAX))

    # Writing

    async def write(self, node: Node, operations: int) -> None:
        """One writer shared by a few clients."""
        service = Service(self, node, self.options())
        clients = self.random.choice((1, 2, 4))
        budget = [operations]
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self.client(service, f"{node.name}/{number}", budget))
        await service.close()

    async def client(self, service: Service, name: str, budget: list[int]) -> None:
        while budget[0] > 0:
            budget[0] -= 1
            if self.random.random() < 0.03:
                self.stall(service.node)
            try:
                log = await service.writer()
                await self.operation(service.node, log, name)
            except Conflict:
                continue
            except Corrupt:
                raise
            except StratalogError:
                await service.discard()
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.01, 0.3)))

    async def operation(self, _: Node, log: sl.LogWriter, name: str) -> None:
        drawn = self.random.random()
        history = self.history
        if drawn < 0.45:
            body = self.body()
            await history.observe(name, Append((body,)), log.append(body))
        elif drawn < 0.65:
            await self.append_many(log, name)
        elif drawn < 0.8:
            await self.append_at(log, name)
        elif drawn < 0.9:
            await self.pipeline(log, name)
        else:
            body = self.body()

            async def attempt() -> None:
                await history.observe(name, Append((body,)), log.append(body))

            append = asyncio.ensure_future(attempt())
            await asyncio.sleep(self.random.choice((0.0, 0.001, 0.1)))
            append.cancel()
            await asyncio.gather(append, return_exceptions=True)

    async def append_many(self, log: sl.LogWriter, name: str) -> None:
        bodies = tuple(self.body() for _ in range(self.random.randint(1, 8)))
        number = self.history.call(name, Append(bodies))
        try:
            span = await log.append_many(bodies)
        except Unknown:
            self.history.unknown(number)
            raise
        except StratalogError as error:
            self.history.failed(number, error)
            raise
        self.history.ok(number, Placed(span.first.offset, span.first.timestamp_us))

    async def append_at(self, log: sl.LogWriter, name: str) -> None:
        """A conditional append; its refusal tells the tail, which must be a true one."""
        expected = max(1, log.tail + self.random.choice((0, 0, 0, 1, -1, 3)))
        body = self.body()
        tail = self.history.call(name, Read(1))
        try:
            position = await self.history.observe(
                name, Append((body,), expected), log.append(body, expected_offset=expected)
            )
        except Conflict as conflict:
            self.history.ok(tail, Seen(tail=tail_of(conflict, expected)))
            raise
        assert position.offset == expected

    async def pipeline(self, log: sl.LogWriter, name: str) -> None:
        bodies = [self.body() for _ in range(self.random.randint(2, 6))]
        observed = []
        try:
            for body in bodies:
                await log.drain()
                observed.append(
                    asyncio.ensure_future(
                        self.history.observe(name, Append((body,)), log.submit(body))
                    )
                )
        finally:
            results = await asyncio.gather(*observed, return_exceptions=True)
        placed = [each.offset for each in results if isinstance(each, sl.LogPosition)]
        assert placed == sorted(placed), "submissions keep the order of the calls"
        for result in results:
            if isinstance(result, BaseException):
                raise result


class OneLog(World):
    """A world that has one log, which is the whole store."""

    def __init__(self, simulation: Simulation) -> None:
        self.store = WatchedStore()
        super().__init__(simulation, self.store)

    async def begin(self) -> None:
        await sl.create_log(self.store, runtime=self.simulation.runtime)

    async def check_history(self) -> None:
        await self.check_log(self.store, self.store.log(""), self.history)
        self.check_nothing_was_swallowed()


class Service:
    """The one writer of a process, opened again when it is used up."""

    def __init__(self, world: World, node: Node, options: sl.WriterOptions) -> None:
        self._world = world
        self._options = options
        self._opening = asyncio.Lock()
        self._writer: sl.LogWriter | None = None
        self.node = node

    async def writer(self) -> sl.LogWriter:
        async with self._opening:
            if self._writer is None:
                self._writer = await sl.LogWriter.open(
                    self._world.way(self.node),
                    writer=self.node.name,
                    options=self._options,
                    runtime=self.node.runtime,
                )
            return self._writer

    async def discard(self) -> None:
        """After an error: usually a new writer, sometimes go on with the old one."""
        if self._world.random.random() < 0.8:
            await self.close()

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(StratalogError):  # of a submission whose caller was cancelled
                await writer.close()


def tail_of(conflict: Conflict, expected: int) -> int:
    """The tail that a refused conditional append was told."""
    assert isinstance(conflict.actual, int)
    assert conflict.actual != expected
    return conflict.actual


def first_of(failure: BaseException) -> BaseException:
    """The first failure of a group, however deep; one that is none is itself."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def kind_of(node: Node) -> str:
    """What a process is there for."""
    return node.name.partition(".")[0].rstrip(digits)


@contextmanager
def forgiven() -> Iterator[None]:
    """Errors that any caller must live with. Damage is none of them."""
    try:
        yield
    except Corrupt:
        raise
    except StratalogError:
        return


class Defects(logging.Handler):
    """Failures that the library logs as its own, and turns into a milder error for its caller."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception):  # nothing else is one: the death of a process, say
            self.found.append(error)


@contextmanager
def no_defects() -> Iterator[None]:
    """Raise the first defect that was logged, unless something else was noticed."""
    defects, library = Defects(), logging.getLogger("stratalog")
    library.addHandler(defects)
    try:
        yield
    finally:
        library.removeHandler(defects)
    for defect in defects.found:
        raise defect


def run_world(world: Callable[[Simulation], World], seed: int) -> str:
    """Run one scenario; gives the digest of its trace.

    In every fourth one the table of linked incarnations is so short that writers fall out of it.
    """
    linked_max = 2 if seed % 4 == 0 else LINKED_MAX
    with (
        patch.object(link_fragments, "LINKED_MAX", linked_max),
        patch.object(settle, "LINKED_MAX", linked_max),
        no_defects(),
    ):
        return simulate(lambda simulation: world(simulation).run(), seed)
