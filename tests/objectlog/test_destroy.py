"""Destroy: all that a log owns goes, or nothing, beside writers and across its own death."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, When, let_requests_arrive, run_until_crash
from objectlog.leftovers import InterruptedStore, everything, grown, litter
from objectlog.trees import LEAF, MadeLog
from objectlog.whole_log import SMALL_TREE, bodies_of, check_whole_log, manifest_field, run
from objectlog.wrapped_stores import GateStore, PassingStore, Puts, TrickyStore
from stratalog.errors import Conflict, Exists, Invalid, NotFound, Sealed, Unavailable
from stratalog.objectlog.branch.copy import copy_log
from stratalog.objectlog.branch.destroy_log import NAMED_MAX, PASSES_MAX, destroy
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.branch.seal_log import Sealer
from stratalog.objectlog.collection.unlinked_objects import Amount
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.upload_guard import UploadGuard
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest, load_manifest
from stratalog.objectlog.stored.names import UploadNames
from stratalog.objectlog.stored.seal import Seal, seal_of
from stratalog.runtime import Runtime
from stratalog.store import Listed, MemoryStore, PrefixedStore, StoreLike
from stratalog.testing import History, Simulation, simulate


async def full(url: StoreLike) -> sl.Store:
    """A log that has everything: a tree, cursors, a plan, stages, left-overs of all kinds."""
    store = await grown(url)
    await sl.CursorStore(store).create("keeper", 5)
    await sl.Collector(store).compute()
    await (await UploadGuard.register(store)).release()
    await litter(store, (await UploadGuard.register(store)).names)
    await store.put_if_absent("probe/0123456789ab", b"left by one that was killed")
    return store


class TestWhatGoes:
    def test_everything_and_the_log_is_gone(self, store_url: str) -> None:
        async def main() -> None:
            store = await full(store_url)
            before = await everything(store)
            seen: list[Amount] = []
            report = await destroy(store_url, on_progress=seen.append)
            assert await everything(store) == {}
            assert (report.url, report.deleted.objects) == (store.url, len(before))
            assert report.deleted.bytes >= sum(map(len, before.values()))
            assert seen[-1] == report.deleted
            with pytest.raises(NotFound):
                await destroy(store_url)
            with pytest.raises(NotFound):
                await sl.LogReader.open(store_url)
            async with sl.LogWriter.open(store_url, create=True) as log:
                assert (await log.append(b"a new log")).offset == 1

        run(main())

    def test_only_what_is_below_the_prefix_of_the_log(self, store_url: str) -> None:
        async def main() -> None:
            await full(f"{store_url}/one")
            await full(f"{store_url}/two")
            await full(f"{store_url}/one-more")
            await destroy(f"{store_url}/one")
            for other in ("two", "one-more"):
                assert len(await check_whole_log(f"{store_url}/{other}")) == 9
            assert await everything(f"{store_url}/one") == {}

        run(main())

    def test_an_empty_log(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            assert (await destroy(store_url)).deleted.objects == 1
            assert await everything(store_url) == {}

        run(main())

    def test_a_sealed_log(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            await Sealer(store).seal("done")

            async def look() -> None:
                manifest, _ = await load_manifest(store)
                seals.append(seal_of(manifest))

            seals: list[Seal | None] = []
            await destroy(InterruptedStore(store, dict.fromkeys(range(1, 9), look)))
            before, after = seals[0], seals[-1]
            assert before is not None
            assert after is not None
            assert (before.note, before.destroyed_us) == ("done", None)
            assert (after.note, after.sealed_us) == ("done", before.sealed_us)
            assert after.destroyed_us
            assert await everything(store) == {}

        run(main())

    def test_more_than_fits_into_one_request(self) -> None:
        class Watched(PassingStore):
            async def delete_many(self, paths: Sequence[str]) -> None:
                requests.append(len(paths))
                await super().delete_many(paths)

        requests: list[int] = []

        async def main() -> None:
            store = MemoryStore()
            await sl.create_log(store)
            names = UploadNames(Runtime())
            for number in range(2500):
                await store.put_if_absent(names.fragment(number), b"")
            assert (await destroy(Watched(store))).deleted.objects == 2501
            assert requests == [1000, 1000, 500, 1]

        run(main())


class TestWhatIsRefused:
    def test_no_log_and_no_log_among_files_of_others(self, store_url: str) -> None:
        async def main() -> None:
            with pytest.raises(NotFound, match="no log"):
                await destroy(store_url)
            store = sl.open_store(store_url)
            await store.put_if_absent("notes/README.md", b"mine")
            await store.put_if_absent("cursor/a.json", b"looks like one of a log")
            with pytest.raises(NotFound, match="no log"):
                await destroy(store_url)
            assert len(await everything(store)) == 2

        run(main())

    def test_a_probe_of_somebody_who_creates_a_log_is_left_to_him(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            await store.put_if_absent("probe/0123456789ab", b"")
            with pytest.raises(NotFound):
                await destroy(store)
            await litter(store)
            assert (await destroy(store)).deleted.objects == 4
            assert list(await everything(store)) == ["probe/0123456789ab"]

        run(main())

    @pytest.mark.parametrize(
        "stranger",
        [
            "README.md",
            "log/notes.txt",
            "manifest/MANIFEST.bak",
            "zz/another-log/manifest/MANIFEST",
            "snapshot/SNAPSHOT.x",
        ],
    )
    def test_a_file_of_others_stops_it_before_anything_changed(
        self, store_url: str, stranger: str
    ) -> None:
        async def main() -> None:
            store = await full(store_url)
            await store.put_if_absent(stranger, b"mine")
            before = await everything(store)
            with pytest.raises(Conflict) as caught:
                await destroy(store)
            assert caught.value.path == stranger
            assert stranger in str(caught.value)
            assert await everything(store) == before
            async with sl.LogWriter.open(store) as log:
                assert (await log.append(b"alive")).offset == 10
            await store.delete_many([stranger])
            await destroy(store)
            assert await everything(store) == {}

        run(main())

    def test_of_many_files_a_few_are_named(self) -> None:
        async def main() -> None:
            store = await full(MemoryStore())
            for number in range(50):
                await store.put_if_absent(f"notes/{number:02}", b"mine")
            with pytest.raises(Conflict) as caught:
                await destroy(store)
            assert str(caught.value).count("notes/") == NAMED_MAX

        run(main())

    def test_a_file_that_comes_meanwhile_stays(self) -> None:
        async def one(number: int) -> int:
            store = await full(MemoryStore(uuid.uuid4().hex))

            async def act() -> None:
                await store.put_if_absent("README.md", b"mine")

            watched = InterruptedStore(store, {number: act})
            with contextlib.suppress(Conflict):
                await destroy(watched)
            if number:
                assert (await everything(store))["README.md"] == b"mine"
                await store.delete_many(["README.md"])
            if await everything(store):
                await destroy(store)
            assert await everything(store) == {}
            return len(watched.operations)

        async def main() -> None:
            for number in range(1, await one(0) + 1):
                await one(number)

        run(main())

    def test_a_log_of_another_program(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            made = MadeLog((LEAF, LEAF), encoded=True)
            await made.store(store)
            await store.delete_many([MANIFEST_PATH])
            bare = Manifest(
                setsum=made.manifest.setsum,
                collected=made.manifest.collected,
                acc_bytes=made.manifest.acc_bytes,
                writer="wal3",
                snapshots=(),
                fragments=made.manifest.fragments,
            )
            await store.put_if_absent(MANIFEST_PATH, bare.to_json())
            before = await everything(store)
            with pytest.raises(Invalid, match="another program"):
                await destroy(store)
            assert await everything(store) == before

        run(main())

    def test_others_who_never_stop_writing(self) -> None:
        class Growing(PassingStore):
            async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
                asked.append(prefix)
                if not prefix:
                    await self.inner.put_if_absent(f"cursor/c{len(asked)}.json", b"")
                async for row in super().list(prefix, after):
                    yield row

        asked: list[str] = []

        async def main() -> None:
            store = await full(MemoryStore())
            with pytest.raises(Conflict, match="keep adding"):
                await destroy(Growing(store))
            assert asked.count("") == PASSES_MAX + 1
            await destroy(store)
            assert await everything(store) == {}

        run(main())


class TestPins:
    def test_a_pinned_log_is_refused_until_it_is_let_go(self, store_url: str) -> None:
        async def main() -> None:
            store = await full(store_url)
            pin = await PinStore(store).create("fork", 3, 6)
            before = await everything(store)
            with pytest.raises(Conflict, match="pinned: fork"):
                await destroy(store)
            assert await everything(store) == before
            await pin.release()
            await destroy(store)
            assert await everything(store) == {}

        run(main())

    def test_a_pin_past_its_expiry_does_not_hold(self) -> None:
        async def main() -> None:
            store = await full(MemoryStore())
            await PinStore(store).create("old", expires_us=1)
            await destroy(store)
            assert await everything(store) == {}

        run(main())

    def test_a_pin_at_every_moment_holds_or_is_refused(self) -> None:
        async def one(number: int) -> tuple[int, bool | None]:
            store = await full(MemoryStore(uuid.uuid4().hex))
            counts: list[bool] = []

            async def act() -> None:
                try:
                    await PinStore(store).create("fork")
                except (Conflict, NotFound):
                    counts.append(False)
                else:
                    counts.append(True)

            watched = InterruptedStore(store, {number: act})
            try:
                await destroy(watched)
            except Conflict:
                assert counts == [True], "refused although nobody holds it"
                async with sl.LogReader.open(store, pin="fork") as reader:
                    assert len([record async for record in reader.records()]) == 9
            else:
                assert counts in ([False], []), "it counted, and its data is gone"
            return len(watched.operations), counts[0] if counts else None

        async def main() -> None:
            count, _ = await one(0)
            outcomes = {(await one(number))[1] for number in range(1, count + 1)}
            assert outcomes == {True, False}

        run(main())


class TestForks:
    """A fork owns its own part; what it shares is its source's, and held there by a pin."""

    async def forked(self, url: str) -> tuple[sl.Store, sl.Store]:
        source, target = await grown(f"{url}/source"), sl.open_store(f"{url}/fork")
        await fork(source, target, at=7)
        async with sl.LogWriter.open(target) as log:
            await log.append(b"of its own")
        return source, target

    async def check_source(self, source: sl.Store) -> None:
        assert await PinStore(source).list() == []
        assert len(await check_whole_log(source)) == 9

    def test_a_source_is_refused_until_its_fork_is_destroyed(self, store_url: str) -> None:
        async def main() -> None:
            source, target = await self.forked(store_url)
            with pytest.raises(Conflict, match="pinned: fork_"):
                await destroy(source)
            assert len(await bodies_of(target)) == 7
            await destroy(target)
            assert await everything(target) == {}
            await self.check_source(source)
            await destroy(source)
            assert await everything(source) == {}

        run(main())

    def test_half_a_fork_can_be_destroyed_and_no_sleeper_opens_it(self) -> None:
        async def one(number: int) -> int:
            base = MemoryStore.named(uuid.uuid4().hex)
            source, target = PrefixedStore(base, "source"), PrefixedStore(base, "fork")
            await grown(source)
            destroyed: list[bool] = []

            async def act() -> None:
                with contextlib.suppress(NotFound):
                    await destroy(target)
                    destroyed.append(True)

            watched = InterruptedStore(base, {number: act})
            try:
                await fork(source, PrefixedStore(watched, "fork"), at=7)
            except (Conflict, Exists, NotFound):
                assert destroyed
            else:
                assert await bodies_of(target) == [b"%d" % each for each in range(6)]
                await destroy(target)
            assert await everything(target) == {}
            await self.check_source(source)
            return len(watched.operations)

        async def main() -> None:
            for number in range(1, await one(0) + 1):
                await one(number)

        run(main())

    def test_half_a_copy_can_be_destroyed(self) -> None:
        async def main() -> None:
            source, target = MemoryStore(uuid.uuid4().hex), MemoryStore(uuid.uuid4().hex)
            await full(source)
            gate = GateStore(target, "log/")
            copying = asyncio.ensure_future(copy_log(source, gate))
            await gate.arrived.wait()
            await destroy(target)
            gate.open()
            with pytest.raises(NotFound):
                await copying
            if await everything(target):
                await destroy(target)
            assert await everything(target) == {}
            assert len(await check_whole_log(source)) == 9

        run(main())

    def test_a_crash_leaves_no_pin_in_the_source(self) -> None:
        def crash(point: CrashPoint | None) -> int:
            source, target = run(self.forked(f"memory://{uuid.uuid4().hex}"))

            async def script(store: sl.Store, _: History) -> None:
                await destroy(store)

            async def finish() -> None:
                if await everything(target):
                    await destroy(target)
                await self.check_source(source)

            operations = run_until_crash(target, script, point, History(), Puts())
            run(finish())
            return len(operations)

        sides: tuple[When, When] = ("before", "after")
        for number in range(1, crash(None) + 1):
            for when in sides:
                crash(CrashPoint(number, when))


class TestBesideWriters:
    def test_a_writer_is_told_that_the_log_is_sealed(self, store_url: str) -> None:
        """It had uploaded and not linked; what it was about to append did not happen."""

        async def main() -> None:
            store = await full(store_url)
            gate = GateStore(store, MANIFEST_PATH)
            log = await sl.LogWriter.open(gate)
            append = asyncio.ensure_future(log.append(b"too late"))
            await gate.arrived.wait()

            class WakesWriters(PassingStore):
                async def delete_many(self, paths: Sequence[str]) -> None:
                    gate.open()
                    with pytest.raises(Sealed):
                        await append
                    await super().delete_many(paths)

            await destroy(WakesWriters(store))
            assert append.done()
            await log.close()
            assert await everything(store) == {}

        run(main())

    def test_a_writer_that_slept_through_it_is_told_that_the_log_is_gone(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            store = await full(store_url)
            gate = GateStore(store, MANIFEST_PATH)
            log = await sl.LogWriter.open(gate)
            append = asyncio.ensure_future(log.append(b"too late"))
            await gate.arrived.wait()
            await destroy(store)
            gate.open()
            with pytest.raises(NotFound, match="gone"):
                await append
            await log.close()
            assert await everything(store) == {}

        run(main())

    def test_an_upload_that_lands_afterwards_is_removed_by_another_run(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            store = await full(store_url)
            gate = GateStore(store, "log/")
            log = await sl.LogWriter.open(gate)
            append = asyncio.ensure_future(log.append(b"too late"))
            await gate.arrived.wait()
            await destroy(store)
            gate.open()
            with pytest.raises(NotFound):
                await append
            await log.close()
            (left,) = await everything(store)
            assert left.startswith("log/")
            assert (await destroy(store)).deleted.objects == 1
            with pytest.raises(NotFound):
                await destroy(store)

        run(main())

    def test_appends_while_it_runs(self, store_url: str) -> None:
        async def main() -> None:
            store = await full(store_url)

            async def write() -> None:
                async with sl.LogWriter.open(store, options=SMALL_TREE) as log:
                    while True:
                        await log.append(b"on and on")

            writer = asyncio.ensure_future(write())
            await asyncio.sleep(0)
            await destroy(store)
            with pytest.raises((Sealed, NotFound)):
                await writer
            let_requests_arrive()
            if await everything(store):
                await destroy(store)
            assert await everything(store) == {}

        run(main())

    @pytest.mark.parametrize("tricks", [["lost"], ["late"], ["echoed"], ["refused", "dropped"]])
    def test_a_seal_whose_answer_was_lost_is_settled(self, tricks: list[str]) -> None:
        async def main(simulation: Simulation) -> None:
            store = await full(MemoryStore())
            tricky = TrickyStore(store, MANIFEST_PATH, tricks)  # type: ignore[arg-type]
            await destroy(tricky, runtime=simulation.runtime)
            await tricky.land_late()
            assert await everything(store) == {}

        simulate(main, seed=1)

    @pytest.mark.parametrize("landed", [True, False])
    def test_a_deletion_whose_answer_was_lost_is_repeated(self, landed: bool) -> None:
        class Forgetful(PassingStore):
            answers = 0

            async def delete_many(self, paths: Sequence[str]) -> None:
                self.answers += 1
                if landed or self.answers % 2 == 0:
                    await super().delete_many(paths)
                if self.answers % 2:
                    raise Unavailable("no answer", path=paths[0])

        async def main(simulation: Simulation) -> None:
            store = await full(MemoryStore())
            await destroy(Forgetful(store), runtime=simulation.runtime)
            assert await everything(store) == {}

        simulate(main, seed=1)


class TestALogCreatedMeanwhile:
    def test_loses_nothing_but_in_the_one_gap(self) -> None:
        """Somebody else finishes the destruction at any moment and begins a log there."""

        async def one(number: int) -> tuple[int, bool]:
            store = await full(MemoryStore(uuid.uuid4().hex))

            async def act() -> None:
                await destroy(store)
                async with sl.LogWriter.open(store, create=True) as log:
                    await log.append(b"mine")
                await sl.CursorStore(store).create("mine", 1)

            watched = InterruptedStore(store, {number: act})
            try:
                await destroy(watched)
            except Conflict as error:
                assert "created" in str(error)  # noqa: PT017
            acted = 0 < number <= len(watched.operations)
            is_gap = acted and watched.operations[number - 1] == ("delete 1", MANIFEST_PATH)
            # Until it is sealed, a log is a log: whichever is there is destroyed.
            sealed = any(name == "put_if_match" for name, _ in watched.operations[: number - 1])
            if acted and sealed and not is_gap:
                assert await bodies_of(store) == [b"mine"]
                assert [each.name for each in await sl.CursorStore(store).list()] == ["mine"]
                await check_whole_log(store)
            return len(watched.operations), is_gap

        async def main() -> None:
            count, _ = await one(0)
            assert [(await one(number))[1] for number in range(1, count + 1)].count(True) == 1

        run(main())


class TestCrashes:
    """Every operation, on both sides of it, then a run that completes."""

    def crash(self, url: StoreLike, point: CrashPoint | None) -> int:
        store = run(full(url))

        async def script(store: sl.Store, _: History) -> None:
            await destroy(store)

        operations = run_until_crash(store, script, point, History(), Puts())
        run(self.finish(store))
        return len(operations)

    async def finish(self, store: sl.Store) -> None:
        if await everything(store):
            assert MANIFEST_PATH in await everything(store), "the manifest does not go last"
            if await manifest_field(store, "seal") is None:
                assert len(await check_whole_log(store)) == 9, "deleted before it was sealed"
            await destroy(store)
        assert await everything(store) == {}
        with pytest.raises(NotFound):
            await destroy(store)

    def test_at_every_operation(self) -> None:
        count = self.crash(MemoryStore(), None)
        assert count > 8
        sides: tuple[When, When] = ("before", "after")
        for number in range(1, count + 1):
            for when in sides:
                try:
                    self.crash(MemoryStore(uuid.uuid4().hex), CrashPoint(number, when))
                except BaseException as error:
                    error.add_note(f"crashed {when} operation {number}")
                    raise

    def test_at_sampled_operations_on_every_store(self, store_url: str) -> None:
        count = self.crash(MemoryStore(), None)
        for index, number in enumerate(Random(store_url[:3]).sample(range(1, count + 1), 5)):
            when: When = "before" if index % 2 else "after"
            self.crash(f"{store_url}/{number}", CrashPoint(number, when))
