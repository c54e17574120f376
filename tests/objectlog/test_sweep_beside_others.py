"""Sweep beside stalled writers, jobs, collectors and other sweeps, and across its own death."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable
from random import Random

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, When, let_requests_arrive, run_until_crash
from objectlog.leftovers import InterruptedStore, grown, litter, unlinked_data
from objectlog.staging import NO_ROLLUPS, Job, log_of
from objectlog.whole_log import (
    SMALL_TREE,
    bodies_of,
    check_whole_log,
    depth_of,
    reachable,
    run,
)
from objectlog.wrapped_stores import GateStore, Puts, RecordingStore, TrickyStore
from simulation.watched_store import WatchedStore
from stratalog.errors import Conflict, StratalogError
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.upload_guard import UploadGuard, UploadGuardStore
from stratalog.objectlog.options import SweepOptions
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.store import MemoryStore, StoreLike
from stratalog.testing import Append, Faults, History, Node, Simulation, check_appends, simulate

AT_ONCE = sl.CollectorOptions(interval_s=0.0)
FEW = SweepOptions(candidates_max=3)

BODIES = [b"%d" % number for number in range(9)]


async def littered(url: StoreLike) -> sl.Store:
    """A log with a tree, a cursor in it, and left-overs in two buckets."""
    store = await grown(url, len(BODIES))
    await sl.CursorStore(store).create("keeper", 5)
    await litter(store)
    return store


class TestStalledWriters:
    """A writer stops just before its manifest put; a whole sweep passes; it goes on."""

    def test_its_record_is_acknowledged_under_a_new_name(self, store_url: str) -> None:
        async def main() -> None:
            store = await littered(store_url)
            puts = Puts()
            gate = GateStore(RecordingStore(store, puts), MANIFEST_PATH)
            log = await sl.LogWriter.open(gate)
            append = asyncio.ensure_future(log.append(b"late"))
            await gate.arrived.wait()
            (uploaded,) = puts.paths("log/")
            await sweep(store, older_manifest=True)  # otherwise it is spared as an upload ahead
            assert await unlinked_data(store) == set(), "the upload was not swept"
            gate.open()
            assert (await append).offset == len(BODIES) + 1
            assert log.stats["uploads_again"] == 1
            await log.close()
            assert uploaded not in await reachable(store)
            assert await bodies_of(store) == [*BODIES, b"late"]
            await check_whole_log(store)
            puts.check_names_were_used_once()

        run(main())

    def test_its_roll_up_is_made_again_under_a_new_name(self, store_url: str) -> None:
        async def main() -> None:
            store = sl.open_store(store_url)
            await sl.create_log(store)
            puts = Puts()
            recording = RecordingStore(store, puts)
            log = await sl.LogWriter.open(recording, options=SMALL_TREE)
            for body in BODIES[:3]:
                await log.append(body)
            while not [row async for row in store.list("snapshot/")]:
                await asyncio.sleep(0.001)
            gate = GateStore(recording, MANIFEST_PATH)
            log._committer._store = gate
            append = asyncio.ensure_future(log.append(BODIES[3]))
            await gate.arrived.wait()
            (stored,) = puts.paths("snapshot/")
            assert (await sweep(store, older_manifest=True)).deleted.objects == 2
            gate.open()
            assert (await append).offset == 4
            for body in BODIES[4:]:
                await log.append(body)
            await log.close()
            assert await depth_of(store) >= 1, "nothing was rolled up after the sweep"
            assert stored not in await reachable(store)
            assert await bodies_of(store) == BODIES
            await check_whole_log(store)
            puts.check_names_were_used_once()

        run(main())

    def test_a_put_that_lands_before_the_epoch_is_raised_keeps_its_upload(
        self, store_url: str
    ) -> None:
        """The writer has heard nothing; its put is on the way while the sweep lists."""

        async def main() -> None:
            store = await littered(store_url)
            late = TrickyStore(store, MANIFEST_PATH)
            log = await sl.LogWriter.open(late, options=sl.WriterOptions(timeout_s=5))
            gate = asyncio.Event()
            late.tricks.append("late")
            late.meanwhile = gate.wait
            append = asyncio.ensure_future(log.append(b"late"))
            while not late.asked:
                await asyncio.sleep(0.001)

            class LandsAtTheRaising(RecordingStore):
                async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
                    landed.extend(await late.land_late())
                    return await super().put_if_match(path, data, etag)

            landed: list[bool] = []
            await sweep(LandsAtTheRaising(store, Puts()))
            assert landed == [True]
            gate.set()
            assert (await append).offset == len(BODIES) + 1
            assert log.stats["uploads_again"] == 0
            await log.close()
            assert await bodies_of(store) == [*BODIES, b"late"]
            await check_whole_log(store)

        run(main())

    def test_writers_that_link_in_time_are_not_disturbed(self, store_url: str) -> None:
        """What was unlinked when it was listed is linked when it is looked for: no raising."""

        async def main() -> None:
            store = await log_of(store_url)
            gate = GateStore(store, MANIFEST_PATH)
            log = await sl.LogWriter.open(gate)
            append = asyncio.ensure_future(log.append(b"in time"))
            await gate.arrived.wait()

            class LinksAfterTheListing(InterruptedStore):
                async def _note(self, name: str, path: str) -> None:
                    if (name, path) == ("list", "stage/"):
                        gate.open()
                        await append

            report = await sweep(LinksAfterTheListing(store))
            assert (report.deleted.objects, report.epoch_after) == (0, report.epoch_before)
            assert log.stats["uploads_again"] == 0
            await log.close()

        run(main())

    def test_busy_writers_and_sweeps_at_once(self, store_url: str) -> None:
        async def main() -> None:
            store = sl.open_store(store_url)
            await sl.create_log(store)
            options = sl.WriterOptions(
                on_fenced="reopen", rollup_entries=2, snapshot_entries_max=4, fragment_bytes=200
            )

            async def write(name: int) -> None:
                async with sl.LogWriter.open(store, options=options) as log:
                    for number in range(6):
                        await log.append_many([b"%d-%d-%d" % (name, number, i) for i in range(3)])

            writers = [asyncio.ensure_future(write(name)) for name in range(2)]
            while not all(writer.done() for writer in writers):
                await asyncio.gather(sweep(store), sweep(store, options=FEW))
            await asyncio.gather(*writers)
            let_requests_arrive()
            await sweep(store)
            assert await unlinked_data(store) == set()
            rows = await check_whole_log(store)
            assert len({body for _, _, body in rows}) == len(rows) == 36

        run(main())


class Party:
    """Somebody else on the same log, who acts when his moment has come."""

    first_offset = 1

    def __init__(self, store: sl.Store) -> None:
        self.store = store
        self.gate = GateStore(store, MANIFEST_PATH)
        self.acknowledged: list[bytes] = []

    async def prepare(self) -> None:
        """Before the sweep."""

    async def act(self) -> None:
        """At a moment of the sweep."""

    async def finish(self) -> None:
        """After the sweep."""

    async def append(self, log: sl.LogWriter, body: bytes) -> None:
        await log.append(body)
        self.acknowledged.append(body)

    async def stall(self) -> None:
        """Append up to the manifest put, and sleep there."""
        self.log = await sl.LogWriter.open(self.gate, options=SMALL_TREE)
        self.stalled = asyncio.ensure_future(self.append(self.log, b"stalled"))
        await self.gate.arrived.wait()

    async def wake_up(self) -> None:
        self.gate.open()
        await self.stalled
        await self.log.close()


class AppendingWriter(Party):
    async def act(self) -> None:
        async with sl.LogWriter.open(self.store, options=SMALL_TREE) as log:
            for number in range(5):
                await self.append(log, b"more-%d" % number)


class WakingWriter(Party):
    async def prepare(self) -> None:
        await self.stall()

    async def act(self) -> None:
        await self.wake_up()

    async def finish(self) -> None:
        await self.wake_up()


class CollectingParty(Party):
    first_offset = 5

    async def act(self) -> None:
        await sl.collect(self.store, options=AT_ONCE)

    async def finish(self) -> None:
        await self.act()


class SweepingParty(Party):
    async def act(self) -> None:
        await sweep(self.store, options=FEW)


class WriterInTheEpochOfAnotherSweep(Party):
    """Its upload began in the epoch that the other sweep has raised, and is listed by this one."""

    acted = False

    async def act(self) -> None:
        await sweep(self.store)
        await self.stall()
        self.acted = True

    async def finish(self) -> None:
        if self.acted:
            await self.wake_up()


class TestAtEveryMoment:
    """Others act just before one operation of the sweep, for each of its operations."""

    @pytest.mark.parametrize("options", [SweepOptions(), FEW], ids=["one round", "rounds"])
    @pytest.mark.parametrize(
        "kind",
        [
            AppendingWriter,
            WakingWriter,
            CollectingParty,
            SweepingParty,
            WriterInTheEpochOfAnotherSweep,
        ],
    )
    def test_nothing_is_lost(self, kind: type[Party], options: SweepOptions) -> None:
        async def one(number: int) -> int:
            store = await littered(MemoryStore(uuid.uuid4().hex))
            party = kind(store)
            await party.prepare()
            watched = InterruptedStore(store, {number: party.act})
            await sweep(watched, options=options)
            await party.finish()
            rows = await check_whole_log(store)
            assert rows[0][0] == kind.first_offset
            expected = BODIES[kind.first_offset - 1 :] + party.acknowledged
            assert [body for _, _, body in rows] == expected
            await sweep(store)
            assert await unlinked_data(store) == set()
            assert await check_whole_log(store) == rows
            return len(watched.operations)

        async def main() -> None:
            longest = await one(0)
            assert longest > 8
            for number in range(1, longest + 10):
                await one(number)

        run(main())

    def test_a_collection_in_steps(self) -> None:
        """It installs and publishes before one operation and deletes before another."""

        async def one(first: int, second: int) -> int:
            store = await littered(MemoryStore(uuid.uuid4().hex))
            collector = sl.Collector(store, options=AT_ONCE)

            async def begin() -> None:
                await collector.compute()
                await collector.publish()

            watched = InterruptedStore(store, {first: begin, second: collector.delete})
            with contextlib.suppress(Conflict):
                await sweep(watched)
            await sl.collect(store, options=AT_ONCE)
            await sweep(store)
            rows = await check_whole_log(store)
            assert [body for _, _, body in rows] == BODIES[4:]
            assert await unlinked_data(store) == set()
            return len(watched.operations)

        async def main() -> None:
            longest = await one(0, 0)
            assert longest > 8
            for first in range(1, longest + 1):
                for second in range(first + 1, longest + 6):
                    await one(first, second)

        run(main(), limit_s=120)

    def test_an_upload_that_is_linked_then_pinned_and_collected_at_any_two_moments(self) -> None:
        """It was a candidate, and nothing links it in the end; but a pin has counted on it."""

        async def one(first: int, second: int) -> int:
            store = await littered(MemoryStore(uuid.uuid4().hex))
            writer = WakingWriter(store)
            await writer.prepare()

            async def pin_and_collect() -> None:
                await PinStore(store).create("held")
                cursor = await sl.CursorStore(store).load("keeper")
                await cursor.move(len(BODIES) + 2)
                await sl.collect(store, options=AT_ONCE)

            watched = InterruptedStore(store, {first: writer.act, second: pin_and_collect})
            await sweep(watched)
            await writer.finish()
            if second > len(watched.operations) or not second:
                await pin_and_collect()
            await sweep(store)
            async with sl.LogReader.open(store, pin="held") as reader:
                assert [record.body async for record in reader.records()] == [*BODIES, b"stalled"]
            assert await check_whole_log(store) == []
            return len(watched.operations)

        async def main() -> None:
            longest = await one(0, 0)
            for first in range(1, longest + 1):
                for second in range(first + 1, longest + 4):
                    await one(first, second)

        run(main())

    def test_a_job_that_registers_uploads_and_links_at_any_two_moments(self) -> None:
        """A stage that is younger than the sweep spares its uploads as well."""

        async def one(first: int, second: int) -> int:
            store = await log_of(MemoryStore(uuid.uuid4().hex))
            await litter(store)
            jobs: list[Job] = []

            async def begin() -> None:
                jobs.append(await Job.upload(store, await UploadGuard.register(store)))

            async def link() -> None:
                await jobs[0].link()

            watched = InterruptedStore(store, {first: begin, second: link})
            await sweep(watched)
            for job in jobs:
                await job.link()
                await job.stage.release()
                assert job.path in await reachable(store)
            await self.check_the_end(store)
            return len(watched.operations)

        async def main() -> None:
            longest = await one(0, 0)
            for first in range(1, longest + 1):
                for second in range(first + 1, longest + 2):
                    await one(first, second)

        run(main())

    def test_a_revoked_job_has_linked_in_time_or_never(self) -> None:
        async def one(number: int) -> bool | None:
            store = await log_of(MemoryStore(uuid.uuid4().hex))
            await litter(store)
            job = await Job.upload(store, await UploadGuard.register(store))
            linked: list[bool] = []

            async def link() -> None:
                try:
                    await job.link()
                except Conflict:
                    linked.append(False)
                else:
                    linked.append(True)

            watched = InterruptedStore(store, {number: link})
            await sweep(watched, revoke=[job.stage.incarnation])
            await check_whole_log(store)
            if number > len(watched.operations):
                return None
            assert (job.path in await reachable(store)) == linked[0]
            await job.stage.release()
            await self.check_the_end(store)
            return linked[0]

        async def main() -> None:
            number, outcomes = 1, []
            while (outcome := await one(number)) is not None:
                outcomes.append(outcome)
                number += 1
            assert outcomes == sorted(outcomes, reverse=True), "it could link once it was revoked"
            assert set(outcomes) == {True, False}

        run(main())

    async def check_the_end(self, store: sl.Store) -> None:
        await sweep(store)
        assert await unlinked_data(store) == set()
        assert await UploadGuardStore(store).list() == []
        rows = await check_whole_log(store)
        assert [body for _, _, body in rows] == [b"%d" % number for number in range(4)]


class TestCrashes:
    """Every operation, on both sides of it, then a run that completes."""

    async def prepared(self, url: StoreLike) -> tuple[sl.Store, str]:
        """Left-overs, a stage to be revoked, and one that was released."""
        store = await littered(url)
        gone = await UploadGuard.register(store, owner="gone")
        await litter(store, gone.names)
        done = await UploadGuard.register(store, owner="done")
        await done.release()
        return store, gone.incarnation

    async def finish(self, store: sl.Store) -> None:
        assert [body for _, _, body in await check_whole_log(store)] == BODIES
        async with sl.LogWriter.open(store, options=NO_ROLLUPS) as log:
            await log.append(b"after the crash")
        revoke = [
            each.incarnation
            for each in await UploadGuardStore(store).list()
            if each.owner == "gone"
        ]
        await sweep(store, revoke=revoke)
        assert await unlinked_data(store) == set()
        assert [each.state for each in await UploadGuardStore(store).list()] == ["revoked"]
        async with sl.LogWriter.open(store, options=NO_ROLLUPS) as log:
            await log.append(b"after the sweep")
        rows = await check_whole_log(store)
        assert [body for _, _, body in rows] == [*BODIES, b"after the crash", b"after the sweep"]

    def crash(self, url: StoreLike, options: SweepOptions, point: CrashPoint | None) -> int:
        store, gone = run(self.prepared(url))

        async def script(store: sl.Store, _: History) -> None:
            await sweep(store, revoke=[gone], options=options)

        operations = run_until_crash(store, script, point, History(), Puts())
        run(self.finish(store))
        return len(operations)

    @pytest.mark.parametrize("options", [SweepOptions(), FEW], ids=["one round", "rounds"])
    def test_at_every_operation(self, options: SweepOptions) -> None:
        count = self.crash(MemoryStore(), options, None)
        assert count > 15
        for number in range(1, count + 1):
            sides: tuple[When, When] = ("before", "after")
            for when in sides:
                try:
                    self.crash(MemoryStore(uuid.uuid4().hex), options, CrashPoint(number, when))
                except BaseException as error:
                    error.add_note(f"crashed {when} operation {number}")
                    raise

    def test_at_sampled_operations_on_every_store(self, store_url: str) -> None:
        count = self.crash(MemoryStore(), SweepOptions(), None)
        for index, number in enumerate(Random(store_url[:3]).sample(range(1, count), 5)):
            when: When = "before" if index % 2 else "after"
            self.crash(f"{store_url}/{number}", SweepOptions(), CrashPoint(number, when))


class TestSimulated:
    """Writers, sweeps and a job, each through faults of its own, on a store that watches them."""

    @pytest.mark.parametrize("seed", range(25))
    def test_from_seeds(self, seed: int) -> None:
        async def main(simulation: Simulation) -> None:
            store, history = WatchedStore(), History(simulation.loop.time)
            await sl.create_log(store, runtime=simulation.runtime)
            async with asyncio.TaskGroup() as group:
                for name in ("w0", "w1"):
                    node = simulation.node(name, store, Faults.swarm(simulation.random))
                    group.create_task(life(node, write(node, history, name, simulation.random)))
                for name in ("s0", "s1"):
                    node = simulation.node(name, store, Faults.swarm(simulation.random))
                    if simulation.random.random() < 0.3:
                        node.crash_at(simulation.random.randint(1, 30))
                    group.create_task(life(node, sweep_now_and_then(node, simulation.random)))
            await simulation.settle()
            store.raise_if_broken()
            report = await sweep(store, runtime=simulation.runtime)
            assert report.unknown.objects == 0
            assert await unlinked_data(store) == set()
            check_appends(history, await check_whole_log(store))

        simulate(main, seed)


async def life(node: Node, work: Awaitable[None]) -> None:
    """Until it ends, or its process dies."""

    async def run_work() -> None:
        await work

    task = node.spawn(run_work())
    await asyncio.wait([task])
    if not task.cancelled() and not node.crashed:
        task.result()


async def write(node: Node, history: History, name: str, random: Random) -> None:
    options = sl.WriterOptions(
        on_fenced="reopen",
        rollup_entries=2,
        snapshot_entries_max=4,
        fragment_bytes=64,
        timeout_s=20,
        compression="none",
    )
    for turn in range(4):
        try:
            async with sl.LogWriter.open(
                node.store, writer=name, options=options, runtime=node.runtime
            ) as log:
                for number in range(4):
                    body = f"{name}-{turn}-{number}".encode()
                    try:
                        await history.observe(name, Append((body,)), log.append(body))
                    except StratalogError:
                        break
                    if random.random() < 0.2:
                        node.pause(random.uniform(0, 40))
        except StratalogError:
            continue


async def sweep_now_and_then(node: Node, random: Random) -> None:
    for _ in range(5):
        await asyncio.sleep(random.uniform(0, 8))
        options = SweepOptions(candidates_max=random.choice((1, 3, 1000)), timeout_s=20)
        if random.random() < 0.3:
            node.pause(random.uniform(0, 40))
        try:
            await sweep(node.store, options=options, runtime=node.runtime)
        except StratalogError:
            continue
