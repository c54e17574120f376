"""Sinks beside everything that keeps a log: jobs that stage in tasks and link with one manifest.

Two queries write numbered batches, each run by up to three drivers that know nothing of each other
and repeat a batch until they know that it is linked. Other jobs write without numbers. Tasks are
repeated, stages are revoked, and a driver may stall between the upload and the manifest for longer
than any sweep takes. Beside them live the writers, readers, cursors, collectors and sweepers of
``keeping``.

At the end each query is brought to its end by one more driver. Then every batch is in the log once,
whole and in its order, and a sweep leaves nothing that nothing leads to: stages of batches that are
linked need nobody to release them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa

import stratalog as sl
from simulation.hesitation import HesitantStore
from simulation.keeping import WEAK_MOMENTS, Keeping
from simulation.world import TIMEOUT_S, Crew, forgiven, kind_of, run_world
from stratalog.errors import NotFound, StratalogError, Unknown
from stratalog.objectlog.bulk.commit import Linked, link_uploaded
from stratalog.objectlog.bulk.upload import Batch, BulkUpload, UploadedFragment
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.upload_guard import UploadGuard, UploadGuardStore
from stratalog.objectlog.options import SweepOptions
from stratalog.runtime import Runtime
from stratalog.store.protocol import Store
from stratalog.testing import Append, Node, Placed, Simulation

WRITES = 5
BATCHES = 9
JOBS = 4
COLLECTIONS = 6
SWEEPS = 6
QUERIES = ("q", "r")
DRIVER_MOMENTS = ("put manifest", "put manifest", "get stage", "put stage", "put log")

Partition = tuple[bytes, ...]


class Sinking(Keeping):
    """Everybody at once."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.batches: dict[Batch, tuple[Partition, ...]] = {}
        self.calls: dict[Batch, int] = {}
        self.settled: set[Batch] = set()
        self.next = dict.fromkeys(QUERIES, 0)

    async def live(self) -> None:
        await self.write_before()
        await self.launch(
            Crew("writer", self.write, WRITES, (0, 1, 2), 4),
            Crew("driver", self.drive, BATCHES, (2, 3), 14),
            Crew("job", self.work, JOBS, (0, 1, 2), 14),
            Crew("cursor", self.hold, COLLECTIONS, 1, 8),
            Crew("collector", self.collect, COLLECTIONS, 1, 12),
            Crew("sweeper", self.sweep, SWEEPS, (1, 2), 14),
        )

    def way(self, node: Node) -> HesitantStore:
        kind = kind_of(node)
        moment = self.random.choice(WEAK_MOMENTS.get(kind, DRIVER_MOMENTS))
        return HesitantStore(node, moment, self.span_s, self.random)

    # Jobs

    async def drive(self, node: Node, operations: int) -> None:
        """One of the drivers of a query."""
        query = self.random.choice(QUERIES)
        for _ in range(operations):
            await self.rest(operations)
            batch = Batch(query, self.next[query])
            with forgiven():
                await self.sink(self.way(node), node.runtime, batch)

    async def sink(self, store: Store, runtime: Runtime, batch: Batch) -> None:
        if batch not in self.batches:
            self.batches[batch] = self.partitions()
            bodies = tuple(itertools.chain(*self.batches[batch]))
            name = f"{batch.query}{batch.number}"
            self.calls[batch] = self.history.call(name, Append(bodies))
        staged = await self.stage(store, runtime, self.batches[batch], batch)
        linked = await link_uploaded(
            store, staged, batch=batch, timeout_s=TIMEOUT_S, runtime=runtime
        )
        self.next[batch.query] = max(self.next[batch.query], batch.number + 1)
        if batch not in self.settled and linked.span is not None:
            self.settled.add(batch)
            self.history.ok(self.calls[batch], placed_at(linked))
        await UploadGuardStore(store, runtime=runtime).remove(incarnations_of(staged))

    async def work(self, node: Node, operations: int) -> None:
        """Jobs without numbers: each is tried once."""
        for number in range(operations):
            await self.rest(operations)
            with forgiven():
                await self.append_once(self.way(node), node, f"{node.name}job{number}")

    async def append_once(self, store: Store, node: Node, job: str) -> None:
        partitions = self.partitions()
        call = self.history.call(job, Append(tuple(itertools.chain(*partitions))))
        try:
            stage = await UploadGuard.register(store, runtime=node.runtime)
            staged = await self.stage(store, node.runtime, partitions, job=stage.incarnation)
            linked = await link_uploaded(store, staged, timeout_s=TIMEOUT_S, runtime=node.runtime)
        except Unknown:
            self.history.unknown(call)
            raise
        except StratalogError as error:
            self.history.failed(call, error)
            raise
        self.history.ok(call, placed_at(linked))
        await stage.release()
        used = [*incarnations_of(staged), stage.incarnation]
        await UploadGuardStore(store, runtime=node.runtime).remove(used)

    def partitions(self) -> tuple[Partition, ...]:
        return tuple(
            tuple(self.body() for _ in range(self.random.randint(1, 3)))
            for _ in range(self.random.choice((1, 2, 3)))
        )

    async def stage(
        self,
        store: Store,
        runtime: Runtime,
        partitions: tuple[Partition, ...],
        batch: Batch | None = None,
        job: str | None = None,
    ) -> list[UploadedFragment]:
        """The tasks of a job, one after the other; some of them run twice."""
        staged: list[UploadedFragment] = []
        for partition in partitions:
            made: list[UploadedFragment] = []
            for _ in range(self.random.choice((1, 1, 1, 2))):
                task = await BulkUpload.open(
                    store,
                    query=None if batch is None else batch.query,
                    batch=None if batch is None else batch.number,
                    job=job,
                    compression="none",
                    runtime=runtime,
                )
                cut = self.random.randint(0, len(partition))
                parts = [part for part in (partition[:cut], partition[cut:]) if part]
                made = [await task.upload(pa.array(part, pa.binary())) for part in parts]
            staged += made
        return staged

    # Sweeping

    async def sweep(self, node: Node, operations: int) -> None:
        """Now and then a stage is taken for that of a dead job."""
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                await self.sweep_once(self.way(node), node.runtime, self.random.random() < 0.3)

    async def sweep_once(self, store: Store, runtime: Runtime, revoking: bool) -> None:
        revoked: list[str] = []
        if revoking:
            stages = await UploadGuardStore(store, runtime=runtime).list()
            revoked = [each.incarnation for each in stages if each.state == "live"][:1]
        options = SweepOptions(timeout_s=TIMEOUT_S)
        try:
            await sweep(store, revoke=revoked, options=options, runtime=runtime)
        except NotFound:  # its job has released it, and another sweep has removed it
            return

    # The end

    async def check(self) -> None:
        self.bucket.raise_if_broken()
        runtime = self.simulation.runtime
        for batch in sorted(self.batches, key=lambda each: (each.query, each.number)):
            if batch.number == self.next[batch.query]:
                await self.sink(self.store, runtime, batch)
        for batch in self.batches:
            if batch not in self.settled:
                self.history.unknown(self.calls[batch])
        await self.release_jobs(runtime)
        await super().check()
        left = await UploadGuardStore(self.store, runtime=runtime).list()
        assert all(each.state == "revoked" for each in left), f"stages are left: {left}"
        await self.check_batches()

    async def release_jobs(self, runtime: Runtime) -> None:
        """What a person does about jobs that died: nobody repeats them. Their tasks follow them."""
        for stage in await UploadGuardStore(self.store, runtime=runtime).list():
            if stage.batch is None and stage.job is None and stage.state == "live":
                await UploadGuardStore(self.store, runtime=runtime).revoke(stage.incarnation)

    async def check_batches(self) -> None:
        """Each batch once, whole, in its order, after the one before."""
        log = self.store.log("")
        async with sl.LogReader.open(self.store, runtime=self.simulation.runtime) as reader:
            bodies = [body for _, _, body in log.records.before(reader.first_offset)]
            bodies += [record.body async for record in reader.records(reader.first_offset)]
        for query in QUERIES:
            numbers = sorted(each.number for each in self.batches if each.query == query)
            assert numbers == list(range(self.next[query])), "all batches were tried and linked"
            wanted = [
                body
                for number in numbers
                for body in itertools.chain(*self.batches[Batch(query, number)])
            ]
            ours = set(wanted)
            assert [body for body in bodies if body in ours] == wanted, f"{query} is not whole"


def incarnations_of(staged: Sequence[UploadedFragment]) -> list[str]:
    return sorted({each.incarnation for each in staged})


def placed_at(linked: Linked) -> Placed:
    assert linked.span is not None
    return Placed(linked.span.first.offset, linked.span.first.timestamp_us)


def run_seed(seed: int) -> str:
    """Run one scenario; gives the digest of its trace."""
    return run_world(Sinking, seed)
