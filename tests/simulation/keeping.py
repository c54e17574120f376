"""The log under its keepers: cursors, collectors and sweepers, beside writers and readers.

About fifty operations a seed, on trees so narrow that they get deep. Cursors are created, loaded,
moved forth and back, and deleted. Collectors run whole collections and single phases, finish or
cancel what others have left, some of them through a writer of their process. Sweepers sweep. Every
process may stall at the worst moment, just before it decides something, for longer than any
interval; what it sent may land late, and it may die at any call and start again.

The store objects to whatever breaks a promise (``watched_store``). At the end a new collector
finishes what is left and a sweep runs: then nothing is stored that nothing leads to, and the log
that is there, together with what was collected, explains the history. In copies of the store an
older manifest is put back and swept with, which may delete nothing that the newest one leads to.
"""

from __future__ import annotations

from contextlib import aclosing, suppress

import stratalog as sl
from simulation.hesitation import HesitantStore
from simulation.world import TIMEOUT_S, Crew, OneLog, forgiven, kind_of, run_world
from stratalog.errors import Conflict, Corrupt, Invalid, NotFound, Trimmed
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.options import SweepOptions
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.objectlog.stored.plan import PlanState
from stratalog.testing import Append, Node, Read, Row, Seen, Simulation

WRITES_BEFORE = 8
WRITES = 9
READS = 2
CURSOR_STEPS = 14
COLLECTIONS = 14
SWEEPS = 2
OLDER_MANIFESTS = 3
CURSOR_NAMES = ("a", "b")
WEAK_MOMENTS = {
    "writer": ("put manifest", ""),
    "reader": ("get log", "get snapshot"),
    "cursor": ("put cursor", "get gc", "get gc"),
    "collector": ("put manifest", "put manifest", "put gc", "delete"),
    "sweeper": ("put manifest", "delete"),
}
"""Before which calls a process of this kind may stall."""


class Keeping(OneLog):
    """Everybody at once."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.take_time()

    def options(self) -> sl.WriterOptions:
        random = self.random
        rollup_entries = random.choice((2, 2, 3))
        return sl.WriterOptions(
            on_fenced=random.choice(("raise", "reopen")),
            fragment_bytes=random.choice((64, 256)),
            uploads_max=4,
            manifest_fragments_max=random.choice((1, 4)),
            timeout_s=TIMEOUT_S,
            compression="none",
            rollup_entries=rollup_entries,
            snapshot_entries_max=random.randint(rollup_entries, 4),
        )

    async def live(self) -> None:
        await self.write_before()
        await self.launch(
            Crew("writer", self.write, WRITES, (1, 1, 2, 3), 4),
            Crew("reader", self.read, READS, (1, 2), 10),
            Crew("cursor", self.hold, CURSOR_STEPS, (1, 2), 8),
            Crew("collector", self.collect, COLLECTIONS, (1, 2, 3, 3), 12),
            Crew("sweeper", self.sweep, SWEEPS, (1, 2), 12),
        )

    async def check(self) -> None:
        await self.append_the_last(self.store)
        await self.finish()
        assert not self.store.left, f"left for good: {sorted(self.store.left)}"
        await self.check_history()

    async def finish(self) -> None:
        """A new collector and a sweep put everything in order, whatever was left."""
        store, runtime = self.store, self.simulation.runtime
        options = sl.CollectorOptions(interval_s=0.0)
        collector = sl.Collector(store, writer="last", options=options, runtime=runtime)
        try:
            await collector.collect()
        except Invalid:  # nobody holds anything, so nobody has said what may go
            cursors = sl.CursorStore(store, writer="last", runtime=runtime)
            self.store.acknowledged(await cursors.create("last", store.manifest.first_offset))
            await collector.collect()
        assert await collector.compute() is None, "something is left before the lowest cursor"
        await sweep(store, runtime=runtime)
        await self.put_older_manifests_back()
        await sweep(store, older_manifest=True, runtime=runtime)  # also uploads beyond the tail

    async def put_older_manifests_back(self) -> None:
        """Somebody does, in copies of the store, and sweeps there: nothing is lost by that."""
        for older in self.store.older_manifests(OLDER_MANIFESTS, self.random):
            copy = self.store.copied({MANIFEST_PATH: older})
            with suppress(Corrupt, Conflict):
                await sweep(copy, runtime=self.simulation.runtime)
            self.store.check_nothing_lost(copy)

    def way(self, node: Node) -> HesitantStore:
        moment = self.random.choice(WEAK_MOMENTS[kind_of(node)])
        return HesitantStore(node, moment, self.span_s, self.random)

    # Writing and reading

    async def write_before(self) -> None:
        """A log that is worth collecting, and somebody who says what may go."""
        runtime = self.simulation.runtime
        async with sl.LogWriter.open(
            self.store, writer="first", options=self.options(), runtime=runtime
        ) as log:
            for _ in range(WRITES_BEFORE):
                body = self.body()
                await self.history.observe("first", Append((body,)), log.append(body))
        cursors = sl.CursorStore(self.store, writer="first", runtime=runtime)
        offset = self.random.randint(1, log.tail)
        self.store.acknowledged(await cursors.create(CURSOR_NAMES[0], offset))

    async def operation(self, node: Node, log: sl.LogWriter, name: str) -> None:
        """As everywhere, and now and then a collection through the writer of the process."""
        if self.random.random() < 0.08:
            with forgiven():
                await self.collector(node, log_writer=log).collect()
        else:
            await super().operation(node, log, name)
        await self.rest(WRITES)

    async def read(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                await self.read_once(node)

    async def read_once(self, node: Node) -> None:
        """All records from the first on. ``Trimmed`` is an answer, if the log was trimmed."""
        number = self.history.call(node.name, Read(1))
        options = sl.ReaderOptions(
            prefetch_fragments=self.random.choice((1, 4)), timeout_s=TIMEOUT_S
        )
        async with sl.LogReader.open(self.way(node), runtime=node.runtime, options=options) as log:
            first, tail = log.first_offset, log.tail
            self.history.ok(number, Seen(tail=tail))
            number = self.history.call(node.name, Read(first))
            rows: list[Row] = []
            try:
                async with aclosing(log.records(first)) as records:
                    async for record in records:
                        rows.append((record.offset, record.timestamp_us, record.body))
                        if self.random.random() < 0.05:
                            self.stall(node)
            except Trimmed as trimmed:
                self.check_trimmed(trimmed, first + len(rows))
            else:
                assert len(rows) == tail - first
            self.history.ok(number, Seen(tuple(rows)))

    def check_trimmed(self, trimmed: Trimmed, offset: int) -> None:
        """The records from this offset on were indeed trimmed."""
        assert offset < trimmed.first_offset <= self.store.manifest.first_offset, trimmed

    # Cursors

    async def hold(self, node: Node, operations: int) -> None:
        """Create cursors, move them forth and back, delete them; insist on what was refused."""
        cursors = sl.CursorStore(self.way(node), writer=node.name, runtime=node.runtime)
        known: dict[str, sl.Cursor] = {}
        refused: dict[str, int] = {}
        for _ in range(operations):
            await self.rest(operations)
            name = self.random.choice(CURSOR_NAMES)
            offset = refused.pop(name, None) or self.any_offset()
            with forgiven():
                try:
                    moved = await self.move(cursors, name, known.pop(name, None), offset)
                except Trimmed as trimmed:
                    self.check_trimmed(trimmed, offset)
                    raise
                except Conflict:  # perhaps a collection is in the way
                    refused[name] = offset
                    await self.collector(node).cancel()
                    continue
                if moved is not None and self.random.random() < 0.7:
                    known[name] = moved

    async def move(
        self, cursors: sl.CursorStore, name: str, cursor: sl.Cursor | None, offset: int
    ) -> sl.Cursor | None:
        """The cursor at this offset, made if need be; None if it was deleted."""
        try:
            cursor = cursor or await cursors.load(name)
        except NotFound:
            moved = await cursors.create(name, offset)
        else:
            if self.random.random() < 0.15:
                await cursor.delete()
                return None
            moved = await cursor.move(offset)
        self.store.acknowledged(moved)
        return moved

    def any_offset(self) -> int:
        first, tail = self.store.manifest.first_offset, self.store.manifest.tail.offset
        return self.random.choice((first, self.random.randint(first, tail), tail, tail))

    # Collecting and sweeping

    def collector(self, node: Node, log_writer: sl.LogWriter | None = None) -> sl.Collector:
        interval_s = self.random.choice((0.0, 0.0, 0.0, 3.0))
        return sl.Collector(
            self.way(node),
            writer=node.name,
            log_writer=log_writer,
            options=sl.CollectorOptions(interval_s=interval_s, timeout_s=TIMEOUT_S),
            runtime=node.runtime,
        )

    async def collect(self, node: Node, operations: int) -> None:
        """Whole collections; or phases of those that anybody may have begun; or undoing them."""
        collector = self.collector(node)
        step = self.random.choice((self.whole, self.whole, self.phase, self.phase, self.undoing))
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                await step(collector)

    async def whole(self, collector: sl.Collector) -> None:
        await collector.collect()

    async def phase(self, collector: sl.Collector) -> None:
        plan = self.store.plan
        if plan is None:
            await collector.compute()
        elif plan.state(self.store.manifest) is PlanState.PUBLISHED:
            await collector.delete()
        else:
            await collector.publish()

    async def undoing(self, collector: sl.Collector) -> None:
        await collector.cancel()

    async def sweep(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                options = SweepOptions(timeout_s=TIMEOUT_S)
                await sweep(self.way(node), options=options, runtime=node.runtime)


def run_seed(seed: int) -> str:
    """Run one scenario; gives the digest of its trace."""
    return run_world(Keeping, seed)
