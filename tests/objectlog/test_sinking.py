"""Sinks: what many tasks have staged is linked at once, and each batch once."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Sequence

import msgspec
import pyarrow as pa
import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, run_until_crash, sides_of
from objectlog.leftovers import unlinked_data
from objectlog.whole_log import FakeClock, bodies_of, rows_of, run
from objectlog.wrapped_stores import GateStore, PassingStore, Puts, Trick, TrickyStore
from stratalog.errors import Conflict, Full, Invalid, NotFound, Sealed
from stratalog.objectlog.bulk.commit import (
    SINKS_MAX,
    Linked,
    forget_query,
    link_uploaded,
)
from stratalog.objectlog.bulk.upload import Batch, BulkUpload, UploadedFragment
from stratalog.objectlog.collection.sweep_epoch import raise_epoch
from stratalog.objectlog.holds.upload_guard import UploadGuard, UploadGuardStore, upload_guard_path
from stratalog.objectlog.stored.fragment import is_relative
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, load_manifest
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import MemoryStore, StoreLike
from stratalog.store.protocol import Listed, Store
from stratalog.testing import History

TRICKS: list[Trick] = ["lost", "dropped", "echoed", "refused", "late"]


def column(*bodies: bytes) -> pa.Array:
    return pa.array(bodies, pa.binary())


async def staged_by(
    url: StoreLike, *tasks: Sequence[bytes], query: str | None = None, batch: int | None = None
) -> list[UploadedFragment]:
    """What these tasks have uploaded, a fragment each."""
    staged = []
    for bodies in tasks:
        task = await BulkUpload.open(url, query=query, batch=batch)
        staged.append(await task.upload(column(*bodies)))
    return staged


async def sink(url: StoreLike, batch: Batch, *tasks: Sequence[bytes]) -> Linked:
    staged = await staged_by(url, *tasks, query=batch.query, batch=batch.number)
    return await link_uploaded(url, staged, batch=batch)


class MissingFromListings(PassingStore):
    """Does not list one object: it was stored while the listing was under way."""

    def __init__(self, inner: Store, path: str) -> None:
        super().__init__(inner)
        self._path = path

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        async for row in super().list(prefix, after):
            if row.path != self._path:
                yield row


class TestLinking:
    def test_tasks_follow_each_other_in_the_order_of_the_list(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                await log.append(b"before")
            staged = await staged_by(store_url, [b"a", b"b"], [b""], [b"c" * 1000])
            linked = await link_uploaded(store_url, pickle.loads(pickle.dumps(staged)))
            assert linked.span is not None
            assert (linked.span.first.offset, linked.span.limit) == (2, 6)
            rows = await rows_of(store_url)
            assert [body for _, _, body in rows] == [b"before", b"a", b"b", b"", b"c" * 1000]
            assert [offset for offset, _, _ in rows] == [1, 2, 3, 4, 5]
            assert {time for offset, time, _ in rows if offset > 1} == {
                linked.span.first.timestamp_us
            }
            async with sl.LogWriter.open(store_url) as log:
                assert (await log.append(b"after")).offset == 6
            assert (await sl.scrub(store_url)).clean

        run(main())

    def test_the_time_is_that_of_the_append_and_never_goes_back(self) -> None:
        async def main() -> None:
            store, clock = MemoryStore(), FakeClock(10**12)
            async with sl.LogWriter.open(store, create=True, runtime=clock) as log:
                await log.append(b"x")
            task = await BulkUpload.open(store, runtime=clock)
            staged = [await task.upload(column(b"y"))]
            clock.time_us -= 10**9
            await link_uploaded(store, staged, runtime=clock)
            clock.time_us += 5 * 10**9
            task = await BulkUpload.open(store, runtime=clock)
            staged = [await task.upload(column(b"z"))]
            clock.time_us += 10**8
            await link_uploaded(store, staged, runtime=clock)
            times = [time for _, time, _ in await rows_of(store)]
            assert times[0] == times[1]
            assert times[2] == clock.now_us()
            async with sl.LogReader.open(store) as reader:
                found = await reader.scan(from_timestamp_us=times[2])
                assert [each.start.offset for each in found] == [3]

        run(main())

    def test_nothing_was_staged(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            before = await store.get(MANIFEST_PATH)
            assert await link_uploaded(store, [], batch=Batch("q", 0)) == Linked(None)
            assert (await store.get(MANIFEST_PATH)).etag == before.etag

        run(main())

    @pytest.mark.parametrize("count", [1, 11, 12, 13, 63, 64, 65, 66, 200, 1000])
    @pytest.mark.parametrize("before", [0, 1, 5, 40])
    def test_many_fragments_become_nodes(self, count: int, before: int) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                for number in range(before):
                    await log.append(b"%d" % number)
            task = await BulkUpload.open(store)
            staged = [await task.upload(column(b"s%d" % number)) for number in range(count)]
            await link_uploaded(store, staged)
            manifest, _ = await load_manifest(store)
            assert len(manifest.to_json()) <= 32_000
            assert len(manifest.fragments) <= 12
            assert len(manifest.snapshots) <= 24
            wanted = [b"%d" % number for number in range(before)]
            assert await bodies_of(store) == wanted + [b"s%d" % number for number in range(count)]
            report = await sl.scrub(store)
            assert report.clean, report.damages
            if before < 12:  # otherwise a node may have taken the place of another one
                assert not await unlinked_data(store)

        run(main())

    def test_batch_after_batch_keeps_the_root_small(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            for number in range(150):
                await sink(store, Batch("q", number), [b"%d" % number], [b"and"])
            manifest, _ = await load_manifest(store)
            assert len(manifest.to_json()) <= 32_000
            assert max(pointer.depth for pointer in manifest.snapshots) <= 2
            assert len(await bodies_of(store)) == 300
            assert (await sl.scrub(store)).clean

        run(main())


class TestOnce:
    def test_a_repeated_batch_is_recognised(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            first = await sink(store_url, Batch("q", 0), [b"a"], [b"b"])
            assert not first.repeated
            again = await sink(store_url, Batch("q", 0), [b"a"], [b"b"])
            assert again == Linked(None, repeated=True)
            await sink(store_url, Batch("q", 3), [b"c"])
            assert (await sink(store_url, Batch("q", 2), [b"late"])).repeated
            await sink(store_url, Batch("other", 0), [b"d"])
            assert await bodies_of(store_url) == [b"a", b"b", b"c", b"d"]
            manifest, _ = await load_manifest(sl.open_store(store_url))
            assert manifest.sinks == {"q": 3, "other": 0}

        run(main())

    @pytest.mark.parametrize("trick", TRICKS)
    @pytest.mark.parametrize("batch", [Batch("q", 1), None])
    def test_a_lost_answer_does_not_double(self, trick: Trick, batch: Batch | None) -> None:
        async def main() -> None:
            inner = MemoryStore()
            await sl.create_log(inner)
            store = TrickyStore(inner, MANIFEST_PATH, [trick])
            staged = await staged_by(store, [b"a"], [b"b"], query="q", batch=1)
            linked = await link_uploaded(store, staged, batch=batch)
            assert linked.span is not None or linked.repeated
            await store.land_late()
            if batch is not None:
                assert (await link_uploaded(inner, staged, batch=batch)).repeated
            assert await bodies_of(inner) == [b"a", b"b"]

        run(main())

    def test_two_drivers_of_one_query_link_one_batch(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            outcomes = await asyncio.gather(
                *(sink(store, Batch("q", 0), [b"a"], [b"b"]) for _ in range(8))
            )
            assert sum(each.span is not None for each in outcomes) == 1
            assert await bodies_of(store) == [b"a", b"b"]

        run(main())

    def test_a_full_table_refuses_a_new_query_and_says_how_to_go_on(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            manifest, etag = await load_manifest(store)
            full = {f"q{number}": number for number in range(SINKS_MAX)}
            changed = msgspec.structs.replace(manifest, sinks=full, write_id="x")
            await store.put_if_match(MANIFEST_PATH, changed.to_json(), etag)
            with pytest.raises(Full) as caught:
                await sink(store, Batch("new", 0), [b"a"])
            assert "forget" in caught.value.hint
            await sink(store, Batch("q7", 8), [b"a"])
            assert await forget_query(store, "q9")
            assert not await forget_query(store, "q9")
            await sink(store, Batch("new", 0), [b"b"])
            assert await bodies_of(store) == [b"a", b"b"]

        run(main())

    def test_a_successor_knows_the_batches(self) -> None:
        async def main() -> None:
            first, second = MemoryStore("first"), MemoryStore("second")
            await sl.create_log(first)
            await sink(first, Batch("q", 4), [b"a"])
            await sl.Sealer(first).migrate(second)
            with pytest.raises(Sealed):
                await sink(first, Batch("q", 5), [b"b"])
            assert (await sink(second, Batch("q", 4), [b"a"])).repeated
            assert not (await sink(second, Batch("q", 5), [b"b"])).repeated

        run(main())

    @pytest.mark.parametrize(("query", "number"), [("", 0), ("x" * 129, 0), ("a\nb", 0), ("q", -1)])
    def test_a_batch_that_is_none(self, query: str, number: int) -> None:
        with pytest.raises(Invalid):
            Batch(query, number)


class TestBesideOthers:
    def test_a_sink_and_a_writer_both_go_on(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            stopped = asyncio.Event()
            appended: list[bytes] = []

            async def append() -> None:
                options = sl.WriterOptions(on_fenced="reopen")
                async with sl.LogWriter.open(store_url, options=options) as log:
                    while not stopped.is_set():
                        body = b"w%d" % len(appended)
                        await log.append(body)
                        appended.append(body)

            writing = asyncio.ensure_future(append())
            for number in range(10):
                await sink(store_url, Batch("q", number), [b"s%d" % number])
            stopped.set()
            await writing
            bodies = await bodies_of(store_url)
            assert [each for each in bodies if each[:1] == b"s"] == [
                b"s%d" % number for number in range(10)
            ]
            assert [each for each in bodies if each[:1] == b"w"] == appended
            assert appended

        run(main())

    def test_uploads_outlive_a_sweep_under_their_stage(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            staged = await staged_by(store_url, [b"a"], query="q", batch=0)
            await (await BulkUpload.open(store_url)).abandon()
            litter = await staged_by(store_url, [b"litter"], query="gone")
            await UploadGuardStore(store_url).revoke(litter[0].incarnation)
            report = await sl.sweep(store_url)
            assert report.deleted.objects == 1
            await link_uploaded(store_url, staged, batch=Batch("q", 0))
            assert await bodies_of(store_url) == [b"a"]

        run(main())

    def test_a_revoked_stage_links_nothing_once_a_sweep_ran(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            staged = await staged_by(store, [b"a"], query="q", batch=0)
            await UploadGuardStore(store).revoke(staged[0].incarnation)
            await sl.sweep(store)
            with pytest.raises(Conflict) as caught:
                await link_uploaded(store, staged, batch=Batch("q", 0))
            assert "again" in caught.value.hint
            assert await bodies_of(store) == []

        run(main())

    def test_a_sweep_that_begins_while_a_batch_is_linked_wins_or_loses(self) -> None:
        async def main() -> None:
            inner = MemoryStore()
            await sl.create_log(inner)
            staged = await staged_by(inner, [b"a"], query="q", batch=0)
            gate = GateStore(inner, MANIFEST_PATH)
            linking = asyncio.ensure_future(link_uploaded(gate, staged, batch=Batch("q", 0)))
            await gate.arrived.wait()
            await UploadGuardStore(inner).revoke(staged[0].incarnation)
            await sl.sweep(inner)
            gate.open()
            with pytest.raises(Conflict):
                await linking
            assert await bodies_of(inner) == []

        run(main())

    def test_the_sweep_releases_what_belongs_to_linked_batches(self, store_url: str) -> None:
        """Also the stages of attempts that died: nobody is left to release them."""

        async def main() -> None:
            await sl.create_log(store_url)
            await staged_by(store_url, [b"a"], query="q", batch=0)
            await sink(store_url, Batch("q", 0), [b"a"], [b"b"])
            report = await sl.sweep(store_url, dry_run=True)
            assert report.deleted.objects == 1, "as the sweep will"
            await sl.sweep(store_url)
            assert await UploadGuardStore(store_url).list() == []
            assert not await unlinked_data(sl.open_store(store_url))
            assert await bodies_of(store_url) == [b"a", b"b"]

        run(main())

    def test_tasks_of_a_job_that_has_ended_are_over_also_late_ones(self, store_url: str) -> None:
        """One that begins just when its job is given up has nobody to release its stage."""

        async def main() -> None:
            await sl.create_log(store_url)
            job, other = [await UploadGuard.register(store_url) for _ in range(2)]
            early = await BulkUpload.open(store_url, job=job.incarnation)
            await early.upload(column(b"early"))
            kept = await BulkUpload.open(store_url, job=other.incarnation)
            staged = [await kept.upload(column(b"kept"))]
            assert (await sl.sweep(store_url)).deleted.objects == 0
            await job.release()
            late = await BulkUpload.open(store_url, job=job.incarnation)
            await late.upload(column(b"late"))
            swept = await sl.sweep(store_url)
            assert (swept.deleted.objects, swept.ahead.objects) == (0, 2)  # nothing came after
            live = {each.incarnation for each in await UploadGuardStore(store_url).list()}
            assert live == {other.incarnation, kept.guard.incarnation}
            await link_uploaded(store_url, staged)
            assert await bodies_of(store_url) == [b"kept"]
            assert (await sl.sweep(store_url)).deleted.objects == 2

        run(main())

    def test_a_job_that_a_listing_missed_is_looked_for(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            job = await UploadGuard.register(store)
            task = await BulkUpload.open(store, job=job.incarnation)
            staged = [await task.upload(column(b"a"))]
            await raise_epoch(store, 2**50, DEFAULT_RUNTIME, 10.0)
            await sl.sweep(MissingFromListings(store, upload_guard_path(job.incarnation)))
            await link_uploaded(store, staged)
            assert await bodies_of(store) == [b"a"]

        run(main())

    def test_forks_copies_and_collection_of_staged_records(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(f"{store_url}/log")
            source = f"{store_url}/log"
            await sink(source, Batch("q", 0), [b"a", b"b", b"c"], [b"d", b"e"])
            async with sl.LogWriter.open(source) as log:
                await log.append(b"f")
            rows = await rows_of(source)
            for at in range(1, 8):
                if at > 1:
                    await sl.fork(source, f"{store_url}/fork{at}", at=at)
                    assert await rows_of(f"{store_url}/fork{at}") == rows[: at - 1]
                if at < 7:
                    await sl.copy_log(source, f"{store_url}/copy{at}", from_offset=at)
                    assert await rows_of(f"{store_url}/copy{at}") == rows[at - 1 :]
                    report = await sl.scrub(f"{store_url}/copy{at}")
                    assert report.clean, report.damages
            async with sl.LogReader.open(f"{store_url}/copy1") as reader:
                variants = [is_relative(each.path) for each in await reader.scan()]
                assert variants == [True, True, False]
            await sl.CursorStore(source).create("c", 4)
            await sl.collect(source, options=sl.CollectorOptions(interval_s=0.0))
            assert await rows_of(source) == rows[3:]
            assert (await sl.scrub(source)).clean

        run(main())


class TestBadInput:
    @pytest.mark.parametrize(
        "bodies",
        [pa.array([1, 2]), pa.array([b"a", None], pa.binary()), pa.array([], pa.binary())],
    )
    def test_no_column_of_bodies(self, bodies: pa.Array) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            task = await BulkUpload.open(store)
            with pytest.raises(Invalid):
                await task.upload(bodies)

        run(main())

    def test_no_log(self) -> None:
        with pytest.raises(NotFound):
            run(staged_by(MemoryStore(), [b"a"]))

    def test_a_slice_of_a_column(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            task = await BulkUpload.open(store)
            staged = [await task.upload(column(b"a", b"bb", b"ccc", b"d").slice(1, 2))]
            await link_uploaded(store, staged)
            assert await bodies_of(store) == [b"bb", b"ccc"]

        run(main())


class TestCrashes:
    """Before and after every store operation of a job; the next attempt completes it."""

    def test_at_every_operation(self) -> None:
        tasks = ([b"a", b"b"], [b"c"])

        async def job(store: Store, _: History) -> None:
            await sink(store, Batch("q", 7), *tasks)

        async def made() -> MemoryStore:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                for number in range(11):
                    await log.append(b"%d" % number)
            return store

        wanted = [b"%d" % number for number in range(11)] + [b"a", b"b", b"c"]
        operations = run_until_crash(run(made()), job, None, History(), Puts())
        assert len(operations) >= 8
        for point in [CrashPoint(*each) for each in sides_of(operations)]:
            store = run(made())
            run_until_crash(store, job, point, History(), Puts())
            run(sink(store, Batch("q", 7), *tasks))
            assert run(bodies_of(store)) == wanted, point
            run(sl.sweep(store))
            assert not run(unlinked_data(store)), point
            assert run(UploadGuardStore(store).list()) == [], point
            assert run(sl.scrub(store)).clean, point

    def test_an_epoch_that_moved_at_every_operation(self) -> None:
        """A sweep begins after each of them: what is live is linked all the same."""

        async def main() -> None:
            for number in range(3):
                store = MemoryStore()
                await sl.create_log(store)
                staged = []
                for task in range(3):
                    if task == number:
                        manifest, _ = await load_manifest(store)
                        epoch = manifest.sweep_epoch + 1
                        await raise_epoch(store, epoch, DEFAULT_RUNTIME, 10.0)
                    staged += await staged_by(store, [b"%d" % task], query="q", batch=0)
                await link_uploaded(store, staged, batch=Batch("q", 0))
                assert await bodies_of(store) == [b"0", b"1", b"2"]

        run(main())
