"""A herd: servers that write to many logs, workers that roll up, and others that clean up.

About fifty operations a seed. Servers and workers come, stall, die at any call and come again, and
workers disagree about who else works. Compactors move cursors, sweepers sweep. The dirty logs are
logs like all others, so the store watches them as well (``watched_log``).

At the end nobody has forgotten a log: each one with records that its cursor has not passed is found
by a roll-up. When all is compacted and swept, two more roll-ups leave no mark.
"""

from __future__ import annotations

import asyncio
from random import Random

import stratalog as sl
from objectlog.wrapped_stores import PassingStore
from simulation.hesitation import HesitantStore
from simulation.watched_log import WatchedLog
from simulation.watched_store import WatchedBucket
from simulation.world import TIMEOUT_S, Crew, World, forgiven, kind_of, run_world
from stratalog.errors import Denied, NotFound
from stratalog.herd import Herd, HerdOptions, RolledUp, RollUpOptions, roll_up
from stratalog.objectlog.collection.sweep_epoch import raise_epoch
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.options import SweepOptions
from stratalog.runtime import Runtime
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Blob, Store
from stratalog.testing import Append, History, Node, Simulation

LOGS = ("x", "y", "z")
WRITES = 12
ROLL_UPS = 10
COMPACTIONS = 12
SWEEPS = 4
WEAK_MOMENTS = {
    "server": ("put manifest", "put manifest", "put mark manifest"),
    "worker": ("put mark cursor", "put mark manifest", "get manifest", "get cursor"),
    "compactor": ("put cursor",),
    "sweeper": ("put manifest", "delete"),
}
PLACES = {"logs": 2, "dirty": 3}
"""How many parts of a path name a log."""


class HerdBucket(WatchedBucket):
    """The place of a herd: the logs of the catalogue, and those of the marks."""

    def split(self, path: str) -> tuple[str, str]:
        parts = path.split("/")
        depth = PLACES.get(parts[0], 0)
        return "/".join(parts[:depth]), "/".join(parts[depth:])


class RefusingStore(PassingStore):
    """Now and then this process may not touch a part of the store: no permission, say."""

    def __init__(self, inner: Store, broken: str, random: Random) -> None:
        super().__init__(inner)
        self._broken = broken
        self._random = random

    async def get(self, path: str) -> Blob:
        self._refuse(path)
        return await super().get(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self._refuse(path)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self._refuse(path)
        return await super().put_if_match(path, data, etag)

    def _refuse(self, path: str) -> None:
        if path.startswith(self._broken) and self._random.random() < 0.5:
            raise Denied(f"{path} is not for you", path=path)


class Herding(World):
    """Everybody at once."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, HerdBucket())
        self.take_time()
        self.workers = [f"worker{number}" for number in range(self.random.choice((1, 2, 3)))]
        self.ids: dict[str, str] = {}

    def options(self) -> sl.WriterOptions:
        return sl.WriterOptions(
            on_fenced=self.random.choice(("raise", "reopen")),
            fragment_bytes=self.random.choice((64, 256)),
            timeout_s=TIMEOUT_S,
            compression="none",
            rollup_entries=2,
            snapshot_entries_max=3,
        )

    def hesitant(self, node: Node) -> Store:
        moment = self.random.choice(WEAK_MOMENTS[kind_of(node)])

        def part(path: str) -> str:
            log, rest = self.bucket.split(path)
            kind = rest.partition("/")[0]
            return f"mark {kind}" if log.startswith("dirty/") else kind

        store = HesitantStore(node, moment, self.span_s, self.random, part)
        if self.random.random() < 0.6:
            return store
        broken = self.random.choice([f"logs/{each}/" for each in self.ids.values()])
        if kind_of(node) == "server":
            broken = self.random.choice(("dirty/", f"dirty/{node.name.partition('.')[0]}/first/"))
        return RefusingStore(store, broken, self.random)

    async def begin(self) -> None:
        async with Herd.open(self.bucket, runtime=self.simulation.runtime) as herd:
            for name in LOGS:
                self.ids[name] = await (await herd.create(name)).id()

    async def live(self) -> None:
        await self.launch(
            Crew("server", self.serve, WRITES, (1, 2, 3), 8),
            Crew("worker", self.roll_up, ROLL_UPS, len(self.workers), 25),
            Crew("compactor", self.compact, COMPACTIONS, 1, 4),
            Crew("sweeper", self.sweep, SWEEPS, 1, 10),
        )

    async def serve(self, node: Node, operations: int) -> None:
        """A server appends to all logs, some of it at the same time."""
        options = HerdOptions(
            writer=self.options(), open_max=self.random.choice((1, 3)), idle_s=self.span_s
        )
        server = node.name.partition(".")[0]
        store = self.hesitant(node)
        with forgiven():
            async with Herd.open(
                store, server=server, options=options, runtime=node.runtime
            ) as herd:
                for _ in range(operations):
                    await self.rest(WRITES)
                    async with asyncio.TaskGroup() as group:
                        for _ in range(self.random.choice((1, 1, 2, 3))):
                            group.create_task(self.append(node, herd))

    async def append(self, node: Node, herd: Herd) -> None:
        name, body = self.random.choice(LOGS), self.body()
        with forgiven():
            await self.history.observe(
                f"{name}@{node.name}", Append((body,)), herd.log(name).append(body)
            )

    async def roll_up(self, node: Node, operations: int) -> None:
        """A worker that may not know all others."""
        worker = node.name.partition(".")[0]
        with forgiven():
            async with Herd.open(self.hesitant(node), server=worker, runtime=node.runtime) as herd:
                for _ in range(operations):
                    await self.rest(ROLL_UPS)
                    known = [each for each in self.workers if self.random.random() < 0.7]
                    with forgiven():
                        await roll_up(herd, workers={worker, *known}, options=self.rolling())

    def rolling(self) -> RollUpOptions:
        return RollUpOptions(
            records=self.random.choice((1, 5, 1000)),
            age_s=self.random.choice((0.0, self.span_s)),
            marks_at_once=self.random.choice((1, 3, 1000)),
            reads_at_once=self.random.choice((1, 8)),
        )

    async def compact(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                store = self.place(self.random.choice(LOGS), self.hesitant(node))
                async with sl.LogReader.open(store, runtime=node.runtime) as reader:
                    first, tail = reader.first_offset, reader.tail
                    upto = self.random.choice((tail, tail, self.random.randint(first, tail)))
                await self.compacted(store, upto, node.runtime)

    async def compacted(self, store: Store, upto: int, runtime: Runtime) -> None:
        """The cursor only goes on: what was compacted is compacted."""
        cursors = sl.CursorStore(store, runtime=runtime)
        try:
            cursor = await cursors.load("compaction")
        except NotFound:
            await cursors.create("compaction", upto)
            return
        if cursor.offset < upto:
            await cursor.move(upto)

    async def sweep(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                store = self.place(self.random.choice(LOGS), self.hesitant(node))
                options = SweepOptions(timeout_s=TIMEOUT_S)
                await sweep(store, options=options, runtime=node.runtime)

    def place(self, name: str, root: Store) -> Store:
        return PrefixedStore(root, f"logs/{self.ids[name]}")

    # The end

    async def check(self) -> None:
        self.bucket.raise_if_broken()
        runtime = self.simulation.runtime
        found = await self.found()
        dirty = {each.log_id for each in found.dirty}
        for name in LOGS:
            store = self.place(name, self.bucket)
            async with sl.LogReader.open(store, runtime=runtime) as reader:
                tail, waits = reader.tail, reader.tail > reader.first_offset
            try:
                cursor = await sl.CursorStore(store, runtime=runtime).load("compaction")
                waits = cursor.offset < tail
            except NotFound:
                pass
            assert not waits or self.ids[name] in dirty, f"{name} was forgotten"
            await self.check_log(store, self.watched(name), self.history_of(name))
        for name in LOGS:
            store = self.place(name, self.bucket)
            manifest = self.watched(name).manifest
            await self.compacted(store, manifest.tail.offset, runtime)
            await raise_epoch(store, manifest.sweep_epoch + 1, runtime, 60.0)
        await self.found()
        left = await self.found()
        assert left.marks == 0, f"marks are left for good: {left}"
        self.check_nothing_was_swallowed()

    async def found(self) -> RolledUp:
        async with Herd.open(self.bucket, server="last", runtime=self.simulation.runtime) as herd:
            found = await roll_up(herd)
        assert not found.troubles, found.troubles
        self.bucket.raise_if_broken()
        return found

    def watched(self, name: str) -> WatchedLog:
        return self.bucket.log(f"logs/{self.ids[name]}")

    def history_of(self, name: str) -> History:
        history = History(self.simulation.loop.time)
        history.operations.extend(
            each for each in self.history.operations if each.client.startswith(f"{name}@")
        )
        return history


def run_seed(seed: int) -> str:
    """Run one scenario; gives the digest of its trace."""
    return run_world(Herding, seed)
