"""Sweep: what nothing links goes, and nothing that was or will be linked."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from random import Random

import msgspec
import pytest

import stratalog as sl
from objectlog.leftovers import everything, grown, litter, unlinked_data
from objectlog.trees import LEAF, MadeLog, Shape, leaves
from objectlog.whole_log import (
    SMALL_TREE,
    bodies_of,
    check_whole_log,
    ids,
    manifest_field,
    reachable,
    replace_bytes,
    run,
    walk,
)
from objectlog.wrapped_stores import CountingStore, PassingStore
from stratalog.errors import Conflict, Corrupt, Denied, Invalid, NotFound, Unavailable, Unknown
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.collection.sweep_log import SweepProgress, sweep
from stratalog.objectlog.collection.unlinked_objects import UNKNOWN_PATHS_MAX, Survey
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.stored_pin import pin_path
from stratalog.objectlog.holds.upload_guard import UploadGuard
from stratalog.objectlog.options import SweepOptions
from stratalog.objectlog.stored.cache import ByteCache
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest
from stratalog.objectlog.stored.names import UploadNames
from stratalog.objectlog.tree.walk import Tree
from stratalog.store import Blob, Listed, MemoryStore, PrefixedStore, StoreLike
from stratalog.testing import Simulation, simulate

AT_ONCE = sl.CollectorOptions(interval_s=0.0)
PAIR: Shape = (LEAF, LEAF)
WIDE: Shape = ((PAIR, PAIR, PAIR), (PAIR, PAIR), PAIR, PAIR, LEAF, LEAF, LEAF)


async def epoch_of(store: StoreLike) -> int:
    value = await manifest_field(store, "sweep_epoch")
    assert value is None or isinstance(value, int)
    return value or 0


class TestWhatGoes:
    def test_what_nothing_links_goes_and_nothing_else(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            await sl.CursorStore(store).create("keeper", 3)
            left = await litter(store) | await unlinked_data(store)
            if store_url.startswith("memory:"):  # elsewhere the speed of a put decides it
                assert len(left) > 4, "the roll-ups left no nodes"
            before = await everything(store)
            report = await sweep(store)
            assert report.deleted.objects == len(left)
            assert report.deleted.bytes == sum(len(before[path]) for path in left)
            after = await everything(store)
            assert after.keys() == before.keys() - left
            assert {path for path in after if after[path] != before[path]} == {MANIFEST_PATH}
            assert [body for _, _, body in await check_whole_log(store)] == [
                b"%d" % number for number in range(9)
            ]

        run(main())

    def test_the_report_accounts_for_every_object(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            await sl.CursorStore(store).create("keeper", 3)
            await store.put_if_absent("log/notes.txt", b"mine")
            stage = await UploadGuard.register(store, owner="a job")
            await litter(store, stage.names)
            await litter(store)
            left = await unlinked_data(store) - {"log/notes.txt"}
            before = await everything(store)
            report = await sweep(store)
            assert (report.url, report.dry_run, report.rounds) == (store.url, False, 1)
            assert report.epoch_after == report.epoch_before + 1
            assert await epoch_of(store) == report.epoch_after
            assert report.listed.objects == len(before)
            assert report.listed.bytes == sum(map(len, before.values()))
            assert report.reached.objects == len(await reachable(store)) - 1
            assert report.kept.objects == 3
            assert {name: each.objects for name, each in report.spared.items()} == {
                stage.incarnation: 4
            }
            assert report.deleted.objects == len(left) - 4
            assert (report.unknown.objects, report.unknown_paths) == (1, ("log/notes.txt",))
            assert [each.owner for each in report.stages] == ["a job"]
            parts = [report.reached, report.kept, report.deleted, report.unknown]
            parts += report.spared.values()
            assert sum(each.objects for each in parts) == report.listed.objects
            assert sum(each.bytes for each in parts) == report.listed.bytes

        run(main())

    def test_a_second_sweep_finds_nothing_and_leaves_the_epoch_alone(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            await litter(store)
            await sweep(store)
            before = await everything(store)
            report = await sweep(store)
            assert (report.deleted.objects, report.rounds) == (0, 1)
            assert report.epoch_after == report.epoch_before
            assert await everything(store) == before

        run(main())

    def test_a_dry_run_tells_the_same_and_changes_nothing(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            stage = await UploadGuard.register(store)
            await litter(store, stage.names)
            await litter(store)
            before = await everything(store)
            spared = await sweep(store, dry_run=True)
            revoked = await sweep(store, dry_run=True, revoke=[stage.incarnation])
            assert await everything(store) == before
            assert spared.dry_run
            assert spared.epoch_after == spared.epoch_before
            done = await sweep(store)
            assert (spared.deleted, spared.spared) == (done.deleted, done.spared)
            assert revoked.deleted.objects == done.deleted.objects + 4
            assert (revoked.spared, revoked.stages) == ({}, ())

        run(main())

    def test_unknown_files_are_left_alone_and_some_of_them_named(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            mine = [f"snapshot/notes-{number:03}.txt" for number in range(UNKNOWN_PATHS_MAX + 5)]
            mine += ["README.md", "another-log/manifest/MANIFEST", "log/Bucket=0/x.parquet"]
            for path in mine:
                await store.put_if_absent(path, b"mine")
            await litter(store)
            report = await sweep(store, options=SweepOptions(candidates_max=2))
            assert report.unknown.objects == len(mine)
            assert report.unknown_paths == tuple(sorted(mine)[:UNKNOWN_PATHS_MAX])
            assert set(mine) <= (await everything(store)).keys()

        run(main())

    def test_what_a_pin_holds_stays_although_nothing_links_it(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            await sl.CursorStore(store).create("keeper", 7)
            pin = await PinStore(store).create("held", 2, 6)
            await sl.collect(store, options=AT_ONCE)
            left = await litter(store)
            held = await unlinked_data(store) - left
            for _ in range(2):
                report = await sweep(store)
                assert 0 < report.pinned.objects <= len(held)
                assert report.pins == ("held",)
                async with sl.LogReader.open(store, pin="held") as reader:
                    bodies = [record.body async for record in reader.records(2, 6)]
                assert bodies == [b"1", b"2", b"3", b"4"]
            assert not left & await unlinked_data(store)
            epoch = await epoch_of(store)
            await sweep(store)
            assert await epoch_of(store) == epoch, "pins are no reason to raise the epoch"
            await pin.release()
            assert (await sweep(store)).deleted.objects == 0, "not cleared yet"
            await sl.collect(store, options=AT_ONCE)
            await sweep(store)
            assert await unlinked_data(store) == set()
            assert (await check_whole_log(store))[0][0] == 7

        run(main())

    def test_a_pin_that_never_counted_and_points_to_nothing_stops_nobody(self) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            await sl.CursorStore(store).create("keeper", 9)
            await PinStore(store).create("dead", 1, 5)
            pinned = (await store.get(pin_path("dead"))).data
            await (await PinStore(store).load("dead")).release()
            await sl.collect(store, options=AT_ONCE)
            await sl.collect(store, options=AT_ONCE)
            await sweep(store)
            await replace_bytes(store, pin_path("dead"), pinned)
            left = await litter(store)
            report = await sweep(store)
            assert (report.deleted.objects, report.pinned.objects) == (len(left), 0)
            assert (await check_whole_log(store))[0][0] == 9

        run(main())

    def test_a_fork_is_swept_without_a_look_at_its_source(self) -> None:
        async def main() -> None:
            base = MemoryStore.named(uuid.uuid4().hex)
            source, target = PrefixedStore(base, "source"), PrefixedStore(base, "fork")
            await grown(source)
            await fork(source, target, at=7)
            async with sl.LogWriter.open(target, options=SMALL_TREE) as log:
                for number in range(6):
                    await log.append(b"own-%d" % number)
            left = await litter(target)
            counting = CountingStore(base)
            report = await sweep(PrefixedStore(counting, "fork"))
            assert report.deleted.objects >= len(left)
            assert all(path.startswith("fork/") for path in counting.paths_read)
            assert await bodies_of(target) == [
                *(b"%d" % number for number in range(6)),
                *(b"own-%d" % number for number in range(6)),
            ]
            await sweep(source)
            assert len(await bodies_of(target)) == 12

        run(main())

    def test_orphans_of_a_log_without_a_record(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            left = await litter(store_url)
            spared = await sweep(store_url)
            assert (spared.ahead.objects, spared.deleted.objects) == (len(left), 0)
            told = await sweep(store_url, older_manifest=True)
            assert (told.ahead.objects, told.deleted.objects) == (0, len(left))
            async with sl.LogWriter.open(store_url) as log:
                assert (await log.append(b"one")).offset == 1
            await check_whole_log(store_url)

        run(main())


class TestWhatIsRefused:
    def test_no_log(self, store_url: str) -> None:
        with pytest.raises(NotFound):
            run(sweep(store_url))

    def test_while_a_collection_is_under_way(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            await sl.CursorStore(store).create("keeper", 5)
            await sl.Collector(store).compute()
            await litter(store)
            before = await everything(store)
            with pytest.raises(Conflict) as caught:
                await sweep(store)
            assert "stratalog collect" in caught.value.hint
            assert await everything(store) == before
            await sl.collect(store, options=AT_ONCE)
            assert (await sweep(store)).deleted.objects >= 4
            assert (await check_whole_log(store))[0][0] == 5

        run(main())

    def test_a_log_of_another_program(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            made = MadeLog((LEAF, LEAF), encoded=True)
            for path, data in made.data.items():
                await store.put_if_absent(path, data)
            bare = Manifest(
                setsum=made.manifest.setsum,
                collected=made.manifest.collected,
                acc_bytes=made.manifest.acc_bytes,
                writer="wal3",
                snapshots=(),
                fragments=made.manifest.fragments,
            )
            await store.put_if_absent(MANIFEST_PATH, bare.to_json())
            await litter(store)
            before = await everything(store)
            with pytest.raises(Invalid, match="another program"):
                await sweep(store)
            assert await everything(store) == before

        run(main())

    def test_a_missing_node_is_damage_and_stops_it(self, store_url: str) -> None:
        async def main() -> None:
            store = await grown(store_url)
            await litter(store)
            nodes = [each async for each in walk(store) if isinstance(each, sl.SnapshotPointer)]
            lost = nodes[-1].path
            await store.delete_many([lost])
            before = await everything(store)
            with pytest.raises(Corrupt) as caught:
                await sweep(store)
            assert (caught.value.path or "").endswith(lost)
            assert await everything(store) == before

        run(main())

    def test_a_stage_to_revoke_that_does_not_exist(self) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            await litter(store)
            before = await everything(store)
            for dry_run in (True, False):
                with pytest.raises(NotFound, match="no upload guard"):
                    await sweep(store, revoke=["0123456789ab"], dry_run=dry_run)
            with pytest.raises(Invalid):
                await sweep(store, revoke="0123456789ab")
            assert await everything(store) == before

        run(main())

    @pytest.mark.parametrize("wrong", [{"candidates_max": 0}, {"timeout_s": 0}, {"timeout_s": "1"}])
    def test_options_that_are_none(self, wrong: dict[str, int]) -> None:
        with pytest.raises(Invalid):
            SweepOptions(**wrong)

    def test_whoever_may_not_delete_is_told(self) -> None:
        class Forbidding(PassingStore):
            async def delete_many(self, paths: Sequence[str]) -> None:
                raise Denied("not allowed", path=paths[0])

        async def main() -> None:
            store = await grown(MemoryStore())
            await litter(store)
            with pytest.raises(Denied):
                await sweep(Forbidding(store))
            await check_whole_log(store)

        run(main())

    @pytest.mark.parametrize("refusals", [2, 1000])
    def test_a_deletion_that_fails_is_repeated_until_the_time_is_up(self, refusals: int) -> None:
        class Slow(PassingStore):
            refused = 0

            async def delete_many(self, paths: Sequence[str]) -> None:
                if self.refused < refusals:
                    self.refused += 1
                    raise (Unavailable if self.refused % 2 else Unknown)("later", path=paths[0])
                await super().delete_many(paths)

        async def main(simulation: Simulation) -> None:
            store = await grown(MemoryStore())
            await litter(store)
            options = SweepOptions(timeout_s=10.0)
            if refusals > 2:
                with pytest.raises(Unavailable):
                    await sweep(Slow(store), options=options, runtime=simulation.runtime)
                assert simulation.loop.time() >= 10.0
            else:
                await sweep(Slow(store), options=options, runtime=simulation.runtime)
                assert await unlinked_data(store) == set()
            await check_whole_log(store)

        simulate(main, seed=1)


class RoundsStore(PassingStore):
    """Notes how much is deleted between two raisings of the epoch."""

    def __init__(self, inner: sl.Store) -> None:
        super().__init__(inner)
        self.deleted_in_rounds: list[int] = []
        self.largest_request = 0

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        if path == MANIFEST_PATH:
            self.deleted_in_rounds.append(0)
        return await super().put_if_match(path, data, etag)

    async def delete_many(self, paths: Sequence[str]) -> None:
        self.deleted_in_rounds[-1] += len(paths)
        self.largest_request = max(self.largest_request, len(paths))
        await super().delete_many(paths)


class TestBoundedMemory:
    @pytest.mark.parametrize("candidates_max", [1, 2, 5, 8, 1000])
    def test_rounds_of_any_size_end_in_the_same_log(self, candidates_max: int) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            stage = await UploadGuard.register(store)
            await litter(store, stage.names)
            for _ in range(3):
                await litter(store)
            doomed = {p for p in await unlinked_data(store) if stage.incarnation not in p}
            kept = (await everything(store)).keys() - doomed
            watched = RoundsStore(store)
            report = await sweep(watched, options=SweepOptions(candidates_max=candidates_max))
            assert (await everything(store)).keys() == kept
            assert report.deleted.objects == len(doomed)
            assert report.spared[stage.incarnation].objects == 4
            assert report.listed.objects == len(kept) + len(doomed)
            assert max(watched.deleted_in_rounds) <= candidates_max
            found = len(doomed) + 4
            assert found // candidates_max <= report.rounds <= found // candidates_max + 1
            assert report.epoch_after - report.epoch_before == len(watched.deleted_in_rounds)
            assert [body for _, _, body in await check_whole_log(store)] == [
                b"%d" % number for number in range(9)
            ]

        run(main())

    def test_a_request_deletes_at_most_a_thousand_objects(self) -> None:
        async def main() -> None:
            store = await grown(MemoryStore())
            names = UploadNames(ids)
            for _ in range(2500):
                await store.put_if_absent(names.fragment(1), b"")
            seen: list[SweepProgress] = []
            watched = RoundsStore(store)
            report = await sweep(watched, on_progress=seen.append)
            assert (report.rounds, report.deleted.objects >= 2500) == (1, True)
            assert watched.largest_request == 1000
            assert [each.listed for each in seen][:2] == [1000, 2000]
            assert seen[-1].deleted == report.deleted.objects
            assert [each.deleted for each in seen] == sorted(each.deleted for each in seen)

        run(main())

    @pytest.mark.parametrize("candidates_max", [1, 3, 7, 100_000])
    def test_a_tree_over_many_buckets(self, candidates_max: int) -> None:
        """Also where sequence numbers and paths are not in the same order, which nobody writes."""

        async def main() -> None:
            for seed in range(6):
                random = Random(seed)
                store = MemoryStore()
                seq_nos = sorted(random.sample(range(1, 40_000), leaves(WIDE)))
                if seed % 2:
                    random.shuffle(seq_nos)
                log = ScatteredLog(WIDE, seq_nos=seq_nos)
                await log.store(store)
                linked = set(await everything(store))
                names = UploadNames(ids)
                for _ in range(30):
                    await store.put_if_absent(names.fragment(random.randrange(40_000)), b"x")
                options = SweepOptions(candidates_max=candidates_max)
                report = await sweep(store, options=options, older_manifest=True)
                assert report.deleted.objects == 30
                assert set(await everything(store)) == linked

        run(main())


@dataclass
class ScatteredLog(MadeLog):
    """A log whose n-th fragment has the path of the n-th of these numbers."""

    seq_nos: Sequence[int] = ()

    def _fragment(self) -> Fragment:
        made = super()._fragment()
        assert isinstance(made.seq_no, int)
        path = self._names.fragment(self.seq_nos[made.seq_no - 1])
        self.data[path] = b"a fragment"
        return msgspec.structs.replace(made, path=path)


class TestSurvey:
    def survey_of(self, store: sl.Store) -> Survey:
        return Survey(store, Tree(store, ByteCache[sl.Snapshot](0)), 1000)

    def test_a_walk_that_fails_half_way_does_not_count(self) -> None:
        """A node that was met and not read must be read by the next walk."""

        class FailsOnce(PassingStore):
            failures = 1

            async def get(self, path: str) -> Blob:
                if path.startswith("snapshot/") and self.failures:
                    self.failures -= 1
                    raise NotFound("gone for a moment", path=path)
                return await super().get(path)

        async def main() -> None:
            made = MadeLog((PAIR, LEAF), encoded=True)
            store = FailsOnce(MemoryStore())
            await made.store(store)
            survey = self.survey_of(store)
            await survey.take(Manifest.empty("before", "it was linked"), "")
            assert len(survey.candidates) == 4
            with pytest.raises(NotFound):
                await survey.strike_out_linked(made.manifest)
            await survey.strike_out_linked(made.manifest)
            assert survey.candidates == {}
            assert survey.reached.objects == 4

        run(main())

    @pytest.mark.parametrize("depth", [0, 1])
    def test_a_node_that_is_gone_below_a_pin_was_not_walked(self, depth: int) -> None:
        """If the manifest leads to it too, that is damage, and not a reason to delete."""

        async def main() -> None:
            store = MemoryStore()
            made = MadeLog(((PAIR, PAIR), LEAF), encoded=True)
            await made.store(store)
            pin = await PinStore(store).create("held")
            survey = self.survey_of(store)
            await survey.take(Manifest.empty("before", "it was linked"), "")
            gone = [
                made.manifest.snapshots[0],
                *made.nodes[made.manifest.snapshots[0].path].entries,
            ]
            await store.delete_many([gone[depth].path])
            await survey.strike_out_pinned(pin)
            assert len(survey.candidates) >= 2
            with pytest.raises(NotFound):
                await survey.strike_out_linked(made.manifest)

        run(main())

    def test_the_paths_of_one_bucket_are_in_memory_at_a_time(self) -> None:
        class Watched(PassingStore):
            async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
                async for row in super().list(prefix, after):
                    sizes.append(len(survey._linked_in_bucket))
                    yield row

        sizes: list[int] = []
        seq_nos = [4096 * (number // 3) + number for number in range(leaves(WIDE))]
        log = ScatteredLog(WIDE, seq_nos=seq_nos)
        survey = self.survey_of(Watched(MemoryStore()))

        async def main() -> None:
            await log.store(survey.store)
            await survey.take(log.manifest, "")
            assert survey.candidates == {}
            assert 1 <= max(sizes) <= 3

        run(main())
