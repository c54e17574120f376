"""Logs that end, are held still and branch: seals, successors, pins, forks and destruction.

About forty operations a seed on a handful of logs in one store, beside their writers, readers,
collectors and sweepers. Logs are sealed and migrated, pinned with and without an expiry, forked at
any offset, forks of forks included, given up, completed by others, and destroyed. Every process may
stall just before it decides something, for longer than any interval; what it sent may land late,
and it may die at any call and start again.

The store objects to whatever breaks a promise (``watched_store``, ``watched_log``). At the end what
was begun is completed or given up, everything is collected and swept: then nothing is stored that
nothing leads to, each log explains its history, and a fork begins as its source did.
"""

from __future__ import annotations

from contextlib import aclosing

import stratalog as sl
from simulation.hesitation import HesitantStore
from simulation.watched_log import WatchedLog
from simulation.watched_store import WatchedBucket
from simulation.world import TIMEOUT_S, Crew, World, forgiven, kind_of, run_world
from stratalog.errors import Conflict, Corrupt, NotFound, Sealed, Trimmed
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.branch.seal_log import Sealer
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.fork_note import abort_fork
from stratalog.objectlog.holds.pin import Pin, PinStore
from stratalog.objectlog.options import SweepOptions
from stratalog.objectlog.stored.seal import seal_of
from stratalog.runtime import Runtime
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Store
from stratalog.testing import Append, History, Node, Operation, Placed, Read, Row, Seen, Simulation

MAIN = "main"
CURSOR = "keeper"
WRITES_BEFORE = 8
LOGS_MAX = 6
WRITES = 8
READS = 2
PIN_STEPS = 8
FORK_STEPS = 5
SEALS = 2
KEEPING_STEPS = 8
DESTRUCTIONS = 2
WEAK_MOMENTS = {
    "writer": ("put manifest",),
    "reader": ("get log", "get snapshot"),
    "pinner": ("put pin", "get manifest"),
    "forker": ("put pin", "put manifest", "put manifest", "get manifest"),
    "sealer": ("put manifest", "get manifest"),
    "keeper": ("put manifest", "put gc", "delete", "delete"),
    "destroyer": ("put manifest", "delete", "put pin"),
}
"""Before which calls a process of this kind may stall."""


class Branching(World):
    """Everybody at once, on several logs."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, WatchedBucket())
        self.take_time()
        self.made = 0
        self.log_of_process: dict[str, str] = {}

    def options(self) -> sl.WriterOptions:
        random = self.random
        rollup_entries = random.choice((2, 2, 3))
        return sl.WriterOptions(
            on_fenced=random.choice(("raise", "reopen")),
            fragment_bytes=random.choice((64, 256)),
            manifest_fragments_max=random.choice((1, 4)),
            timeout_s=TIMEOUT_S,
            compression="none",
            rollup_entries=rollup_entries,
            snapshot_entries_max=random.randint(rollup_entries, 4),
        )

    # Places

    def place(self, log: str, node: Node | None = None) -> Store:
        """A log, as a process reaches it. Without a process: surely."""
        return PrefixedStore(self.bucket if node is None else self.hesitant(node), log)

    def hesitant(self, node: Node) -> HesitantStore:
        moment = self.random.choice(WEAK_MOMENTS[kind_of(node)])
        return HesitantStore(node, moment, self.span_s, self.random, lambda p: p.split("/")[1])

    def way(self, node: Node) -> Store:
        """The log that this process works on all its life."""
        name = self.log_of_process.setdefault(node.name, self.any_log())
        return self.place(name, node)

    def any_log(self) -> str:
        """One that can be read now, if there is any."""
        is_open = [name for name, log in self.bucket.logs.items() if log.is_open]
        return self.random.choice(is_open or [MAIN])

    def new_log(self) -> str:
        self.made += 1
        return f"{MAIN}{self.made}"

    def any_offset(self, log: WatchedLog) -> int:
        first, tail = log.manifest.first_offset, log.manifest.tail.offset
        return self.random.choice((first, self.random.randint(first, tail), tail))

    # Life

    async def begin(self) -> None:
        """A log that is worth holding, and somebody who says what may go."""
        runtime, store = self.simulation.runtime, self.place(MAIN)
        await sl.create_log(store, runtime=runtime)
        self.log_of_process["first"] = MAIN
        options = self.options()
        async with sl.LogWriter.open(store, options=options, runtime=runtime) as log:
            for _ in range(WRITES_BEFORE):
                body = self.body()
                await self.history.observe("first", Append((body,)), log.append(body))
        await self.hold_from(store, MAIN, runtime)

    async def live(self) -> None:
        await self.launch(
            Crew("writer", self.write, WRITES, (1, 2), 4),
            Crew("reader", self.read, READS, (1, 2), 10),
            Crew("pinner", self.pin, PIN_STEPS, (1, 2), 5),
            Crew("forker", self.fork, FORK_STEPS, (1, 2, 3), 12),
            Crew("sealer", self.seal, SEALS, (0, 0, 1, 2), 6),
            Crew("keeper", self.keep, KEEPING_STEPS, (2, 3), 14),
            Crew("destroyer", self.destroy, DESTRUCTIONS, (0, 1, 2), 12),
        )

    async def operation(self, node: Node, log: sl.LogWriter, name: str) -> None:
        await super().operation(node, log, name)
        await self.rest(WRITES)

    async def read(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                await self.read_once(node)

    async def read_once(self, node: Node) -> None:
        """All records from the first on, and perhaps those of the successor."""
        store, log = self.way(node), self.bucket.log(self.log_of_process[node.name])
        number = self.history.call(node.name, Read(1))
        options = sl.ReaderOptions(timeout_s=TIMEOUT_S)
        try:
            async with sl.LogReader.open(store, runtime=node.runtime, options=options) as reader:
                first, tail = reader.first_offset, reader.tail
                self.history.ok(number, Seen(tail=tail))
                number = self.history.call(node.name, Read(first))
                if self.random.random() < 0.5:
                    rows = await rows_of(reader, first)
                    assert len(rows) == tail - first
                else:
                    rows = await followed(reader, first)
                    rows = [row for row in rows if row[0] < reader.tail]
                self.history.ok(number, Seen(tuple(rows)))
        except Trimmed as trimmed:
            if trimmed.first_offset > log.records.tail and not self.has_successor(log):
                raise AssertionError("trimmed beyond its end") from trimmed
        except Corrupt:
            if not log.is_doomed:  # what is being destroyed may well look damaged
                raise

    def has_successor(self, log: WatchedLog) -> bool:
        """Whether a follower may have gone on elsewhere."""
        seal = seal_of(log.manifest) if log.exists else None
        return seal is None or seal.successor is not None

    # Pins

    async def pin(self, node: Node, operations: int) -> None:
        """Make pins, renew them, read through them, and release them."""
        held: list[tuple[WatchedLog, Pin]] = []
        for step in range(operations):
            await self.rest(operations)
            with forgiven():
                if not held or self.random.random() < 0.4:
                    log = self.bucket.log(self.any_log())
                    if log.exists:
                        held.append((log, await self.new_pin(node, log, f"{node.name}_{step}")))
                    continue
                log, pin = held.pop(self.random.randrange(len(held)))
                drawn = self.random.random()
                if drawn < 0.3:
                    await pin.release()
                elif drawn < 0.6:
                    expires_us = self.expiry_us(node)
                    renewed = await pin.renew(expires_us)
                    held.append((log, renewed))
                else:
                    held.append((log, pin))
                    await self.read_pinned(self.place(log.name, node), node, log, pin)

    async def new_pin(self, node: Node, log: WatchedLog, name: str) -> Pin:
        pins = PinStore(self.place(log.name, node), owner=node.name, runtime=node.runtime)
        begin, tail = log.manifest.first_offset, log.manifest.tail.offset
        first = self.random.choice((begin, self.random.randint(begin, max(begin, tail - 1))))
        pin = await pins.create(
            name.replace(".", "_"),
            first,
            self.random.choice((None, None, self.random.randint(first + 1, max(first + 1, tail)))),
            expires_us=self.expiry_us(node),
        )
        self.bucket.watch(lambda: log.acknowledged(pin))
        return pin

    def expiry_us(self, node: Node) -> int | None:
        """Often none, else a moment of the process's clock that is soon past."""
        if self.random.random() < 0.5:
            return None
        return node.runtime.now_us() + int(self.random.uniform(0.0, self.span_s / 2) * 1e6)

    async def read_pinned(self, store: Store, node: Node | None, log: WatchedLog, pin: Pin) -> None:
        """Whoever holds a pin that counts reads all that it holds."""
        runtime = self.simulation.runtime if node is None else node.runtime
        counted = log.pins.counts(pin.name)
        try:
            async with sl.LogReader.open(store, pin=pin.name, runtime=runtime) as reader:
                first, limit = pin.from_offset, pin.to_offset
                rows = await rows_of(reader, first, limit)
        except (Trimmed, NotFound, Corrupt) as error:
            if counted and log.pins.counts(pin.name):
                raise AssertionError("a pin that counts could not be read") from error
            return
        expected = log.records.between(pin.from_offset, pin.to_offset)
        assert rows == expected, "a pin shows something else than it holds"

    # Forks

    async def fork(self, node: Node, operations: int) -> None:
        """Make forks; complete or give up those that others have begun."""
        for _ in range(operations):
            await self.rest(operations)
            begun = [
                (log, log.note)
                for log in self.bucket.logs.values()
                if log.exists and log.note is not None and log.note.state == "forking"
            ]
            with forgiven():
                if begun and self.random.random() < 0.6:
                    log, note = self.random.choice(begun)
                    target = self.place(log.name, node)
                    if self.random.random() < 0.5:
                        await abort_fork(target, runtime=node.runtime)
                    else:
                        source = self.place(note.source.rpartition("/")[2], node)
                        await fork(source, target, writer=node.name, runtime=node.runtime)
                elif self.made < LOGS_MAX:
                    await self.new_fork(node)

    async def new_fork(self, node: Node) -> None:
        source = self.bucket.log(self.any_log())
        if not source.exists:
            return
        first, tail = source.manifest.first_offset, source.manifest.tail.offset
        at = self.random.choice((None, self.random.randint(min(first + 1, tail), tail)))
        await fork(
            self.place(source.name, node),
            self.place(self.new_log(), node),
            at=at,
            writer=node.name,
            runtime=node.runtime,
        )

    # Ends

    async def seal(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            log = self.any_log()
            sealer = Sealer(self.place(log, node), writer=node.name, runtime=node.runtime)
            with forgiven():
                if self.random.random() < 0.3:
                    await sealer.seal()
                else:
                    await sealer.migrate(self.place(self.new_log(), node))

    async def destroy(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                await destroy(self.place(self.any_log(), node), runtime=node.runtime)

    # Keeping

    async def keep(self, node: Node, operations: int) -> None:
        """Move the cursor and collect; now and then sweep."""
        for _ in range(operations):
            await self.rest(operations)
            name = self.any_log()
            store = self.place(name, node)
            try:
                with forgiven():
                    if self.random.random() < 0.2:
                        options = SweepOptions(timeout_s=TIMEOUT_S)
                        await sweep(store, options=options, runtime=node.runtime)
                        continue
                    await self.hold_from(store, name, node.runtime)
                    await self.collector(store, node).collect()
            except Corrupt:
                if not self.bucket.log(name).is_doomed:
                    raise

    async def hold_from(self, store: Store, name: str, runtime: Runtime) -> None:
        """One cursor for each log, at any offset from its first on."""
        log = self.bucket.log(name)
        if not log.exists:
            return
        cursors = sl.CursorStore(store, runtime=runtime)
        offset = self.any_offset(log)
        try:
            cursor = await (await cursors.load(CURSOR)).move(offset)
        except NotFound:
            cursor = await cursors.create(CURSOR, offset)
        self.bucket.watch(lambda: log.acknowledged(cursor))

    def collector(self, store: Store, node: Node) -> sl.Collector:
        interval_s = self.random.choice((0.0, 0.0, 0.0, 3.0))
        options = sl.CollectorOptions(interval_s=interval_s, timeout_s=TIMEOUT_S)
        return sl.Collector(store, writer=node.name, options=options, runtime=node.runtime)

    # The end

    async def check(self) -> None:
        self.bucket.raise_if_broken()
        for name in self.youngest_first():
            await self.complete(name)
        for name in self.youngest_first():
            await self.end_of(name)
        for name in self.youngest_first():
            await self.tidy(name)
        for name in self.youngest_first():
            self.check_beginning(name)
            await self.check_log(self.place(name), self.bucket.log(name), self.history_of(name))
        self.check_nothing_was_swallowed()

    def youngest_first(self) -> list[str]:
        """The logs that are there. Where one was destroyed, a late request may make another."""
        logs = reversed([*self.bucket.logs.items()])
        return [name for name, log in logs if log.exists and not log.was_destroyed]

    async def complete(self, name: str) -> None:
        """What was begun with a log is done, or given up."""
        log, store, runtime = self.bucket.log(name), self.place(name), self.simulation.runtime
        note = log.note
        if note is not None and note.state == "forking":
            source = self.place(note.source.rpartition("/")[2])
            try:
                await fork(source, store, runtime=runtime)
            except (NotFound, Conflict, Sealed):  # the source is gone, or about to go
                await abort_fork(store, runtime=runtime)
        if log.is_doomed:
            await self.release_all(log)
            try:
                await destroy(store, runtime=runtime)
            except Conflict:
                if not self.forks_of(log):
                    raise
            return
        seal = seal_of(log.manifest)
        if seal is not None and seal.successor is not None:
            successor = seal.successor.url.rpartition("/")[2]
            if not self.bucket.log(successor).was_destroyed:
                await Sealer(store, runtime=runtime).migrate(self.place(successor))

    def forks_of(self, log: WatchedLog) -> list[str]:
        url = self.place(log.name).url
        return [
            each.name
            for each in self.bucket.logs.values()
            if each.exists and each.note is not None and each.note.source == url
        ]

    async def release_all(self, log: WatchedLog) -> None:
        """Those who hold pins by hand have read what they wanted."""
        pins = PinStore(self.place(log.name), runtime=self.simulation.runtime)
        for pin in await pins.list():
            if not pin.name.startswith("fork_"):
                await self.read_pinned(self.place(log.name), None, log, pin)
                await pin.release()

    async def end_of(self, name: str) -> None:
        """A log takes records, unless it is sealed."""
        log, store = self.bucket.log(name), self.place(name)
        client = f"last-{name}"
        self.log_of_process[client] = name
        if log.is_doomed:
            return
        if log.manifest.seal is None:
            await self.append_the_last(store, client)
            return
        try:
            await self.append_the_last(store, client)
        except Sealed:
            return
        raise AssertionError(f"{name} is sealed and took a record")

    async def tidy(self, name: str) -> None:
        """After a collection and a sweep all that is stored is reached, or held by a pin."""
        log, store, runtime = self.bucket.log(name), self.place(name), self.simulation.runtime
        if log.is_doomed:
            return
        await self.release_all(log)
        options = sl.CollectorOptions(interval_s=0.0)
        collector = sl.Collector(store, options=options, runtime=runtime)
        try:
            await collector.collect()
        except sl.errors.Invalid:
            await self.hold_from(store, name, runtime)
            await collector.collect()
        await sweep(store, runtime=runtime)
        await sweep(store, older_manifest=True, runtime=runtime)  # also uploads beyond the tail
        left = self.bucket.unreached(name) - log.pins.kept
        assert not left, f"left for good: {sorted(left)}"
        named = {each.note.pin for each in self.bucket.logs.values() if each.exists and each.note}
        assert log.pins.names <= named, f"held for nobody: {log.pins.names - named}"

    def check_beginning(self, name: str) -> None:
        """A fork begins as its source did."""
        log = self.bucket.log(name)
        if log.note is not None and not log.is_doomed:
            source = self.bucket.log(log.note.source.rpartition("/")[2])
            first, at = log.records.first_offset, log.note.at
            assert log.records.between(first, at) == source.records.between(first, at)

    def history_of(self, name: str) -> History:
        """What was asked of one log; what a fork shares counts as written before everything."""
        log = self.bucket.log(name)
        history = History(self.simulation.loop.time)
        if log.note is not None:
            shared = log.records.before(log.note.at)
            for place, (offset, timestamp_us, body) in enumerate(shared, -len(shared)):
                history.operations.append(
                    Operation(
                        "source",
                        Append((body,)),
                        place,
                        place + 0.5,
                        "ok",
                        Placed(offset, timestamp_us),
                    )
                )
        history.operations.extend(
            operation
            for operation in self.history.operations
            if self.log_of_process.get(operation.client.partition("/")[0]) == name
        )
        return history


async def rows_of(reader: sl.LogReader, first: int, limit: int | None = None) -> list[Row]:
    async with aclosing(reader.records(first, limit)) as records:
        return [(record.offset, record.timestamp_us, record.body) async for record in records]


async def followed(reader: sl.LogReader, first: int) -> list[Row]:
    """What following gives until nothing comes, across to the successor."""
    rows: list[Row] = []
    async with aclosing(reader.follow(first, idle_timeout_s=1.0)) as batches:
        async for batch in batches:
            rows.extend(zip(*(c.to_pylist() for c in batch.columns), strict=True))
    offsets = [offset for offset, _, _ in rows]
    assert offsets == list(range(first, first + len(rows))), "a follower skipped or repeated"
    return rows


def run_seed(seed: int) -> str:
    """Run one scenario; gives the digest of its trace."""
    return run_world(Branching, seed)
