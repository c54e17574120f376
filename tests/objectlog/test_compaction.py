"""Compaction: what does not live goes, everything else stays where it is, for everybody."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog as sl
from objectlog.crashing import CrashPoint, crash_at_each, run_until_crash, sides_of
from objectlog.trees import LEAF, MadeLog, Shape, drawn_shapes, leaves, shapes
from objectlog.whole_log import check_whole_log, orphans, rows_of, run, sweep
from objectlog.wrapped_stores import Puts
from stratalog import IndexSet, Presence
from stratalog.errors import Conflict, Corrupt, Invalid, NotFound
from stratalog.objectlog.branch.copy_source import CopySource
from stratalog.objectlog.bulk.commit import link_uploaded
from stratalog.objectlog.bulk.upload import BulkUpload
from stratalog.objectlog.check import verify_log as verification
from stratalog.objectlog.compaction import repack as replanting
from stratalog.objectlog.holds.upload_guard import UploadGuard
from stratalog.objectlog.stored.copy_note import CopyNote
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, load_manifest
from stratalog.objectlog.stored.plan import GARBAGE_PATH, load_garbage
from stratalog.objectlog.tree.fold import Fold, apply_fold, make_snapshot
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import MemoryStore, StoreLike
from stratalog.testing import History, Row

AT_ONCE = sl.CompactOptions(interval_s=0.0)
STRICT = sl.CompactOptions(interval_s=0.0, live_share_min=1.0)
COLLECT_AT_ONCE = sl.CollectorOptions(interval_s=0.0)
IN_PROCESS = sl.ScrubOptions(processes=0)
DEEP: Shape = (((LEAF, LEAF, LEAF), (LEAF, LEAF)), (LEAF, LEAF), LEAF, LEAF)


async def made(url: StoreLike, shape: Shape = DEEP, records: int = 1) -> sl.Store:
    store = sl.open_store(url)
    await MadeLog(shape, records=records, encoded=True).store(store)
    return store


async def written(url: StoreLike, fragments: int, records: int = 10) -> sl.Store:
    """A log of a writer, with so many records in each fragment."""
    store = sl.open_store(url)
    async with sl.LogWriter.open(store, create=True) as log:
        for number in range(fragments):
            await log.append_many([b"%d-%d" % (number, each) for each in range(records)])
    return store


async def check_compacted(store: sl.Store, before: list[Row], live: IndexSet, up_to: int) -> None:
    """All that lives is there, bit by bit; nothing else than what was dead below is gone."""
    rows = await check_whole_log(store, compacted=True)
    assert [row for row in before if row in rows] == rows
    gone = [offset for offset, _, _ in before if offset not in {row[0] for row in rows}]
    assert not [offset for offset in gone if offset >= up_to or offset in live]
    report = await sl.scrub(store, options=IN_PROCESS)
    assert report.clean, report.damages
    assert not {path for path in await orphans(store) if path.startswith(("log/", "snapshot/"))}
    plan, _ = await load_garbage(store)
    assert plan is None or plan.is_empty


def drawn(random: Random, limit: int, share: float) -> IndexSet:
    return IndexSet.of([offset for offset in range(1, limit) if random.random() < share])


class TestTrees:
    def test_every_shape_with_any_live_set(self) -> None:
        random = Random(11)

        async def one(shape: Shape, records: int) -> None:
            store, tail = await made(MemoryStore(), shape, records), leaves(shape) * records + 1
            before = await rows_of(store)
            live = drawn(random, tail, random.choice((0.0, 0.2, 0.6, 0.9)))
            up_to = random.randint(1, tail)
            options = random.choice((AT_ONCE, STRICT))
            await sl.compact(store, live, up_to=up_to, options=options)
            await check_compacted(store, before, live, up_to)

        async def main() -> None:
            for fan_out in (2, 3):
                with patch.object(replanting, "NODE_ENTRIES_MAX", fan_out):
                    for fragments in range(1, 8):
                        for shape in shapes(fragments, fan_out):
                            await one(shape, random.choice((1, 3)))

        run(main())

    @settings(max_examples=40, deadline=None)
    @given(drawn_shapes(), st.integers(0, 2**32))
    def test_again_and_again_and_collected(self, shape: Shape, seed: int) -> None:
        random = Random(seed)

        async def main() -> None:
            store, tail = await made(MemoryStore(), shape), leaves(shape) + 1
            for _ in range(3):
                before = await rows_of(store)
                live, up_to = drawn(random, tail, random.random()), random.randint(1, tail)
                await sl.compact(store, live, up_to=up_to, options=random.choice((AT_ONCE, STRICT)))
                await check_compacted(store, before, live, up_to)
            rows = await rows_of(store)
            cut = random.randint(1, tail)
            await sl.CursorStore(store).create("keeper", cut)
            await sl.collect(store, options=COLLECT_AT_ONCE)
            left = await check_whole_log(store, compacted=True)
            assert set(left) >= {row for row in rows if row[0] >= cut}

        with patch.object(replanting, "NODE_ENTRIES_MAX", random.choice((2, 3, 64))):
            run(main())

    def test_collection_at_every_offset_afterwards(self) -> None:
        async def main() -> None:
            for cut in range(1, 20):
                store = await made(MemoryStore(), DEEP, records=2)
                live = IndexSet.of([3, 4, 9, 16])
                await sl.compact(store, live, up_to=17, options=STRICT)
                rows = await rows_of(store)
                await sl.CursorStore(store).create("keeper", cut)
                await sl.collect(store, options=COLLECT_AT_ONCE)
                left = await check_whole_log(store, compacted=True)
                assert set(left) >= {row for row in rows if row[0] >= cut}
                assert (await sl.scrub(store, options=IN_PROCESS)).clean

        run(main())


class TestWhatGoes:
    def test_fragments_without_live_records_and_those_mostly_dead(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(store_url, 8)
            before = await rows_of(store)
            live = IndexSet(range(1, 11)) | IndexSet.of([12, 33, 44]) | IndexSet(range(51, 61))
            done = await sl.compact(store, live, up_to=71, options=AT_ONCE)
            assert (done.up_to, done.records, done.fragments) == (71, 47, 6)
            assert done.bytes_after < done.bytes_before
            await check_compacted(store, before, live, 71)
            manifest, _ = await load_manifest(store)
            spans = [(f.first_seq_no, f.seq_no, f.count) for f in manifest.fragments]
            assert spans == [(1, 1, 10), (2, 5, 3), (6, 7, 10), (8, 8, 10)]
            assert manifest.fragments[1].path.endswith(
                "FragmentSeqNo=0000000000000002-0000000000000005.parquet"
            )
            assert manifest.fragments[2].path.endswith("FragmentSeqNo=0000000000000006.parquet")

        run(main())

    def test_what_leaves_is_hashed_into_collected(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 3, records=4)
            rows = await rows_of(store)
            live = IndexSet.of([2, 7])
            done = await sl.compact(store, live, up_to=9, options=AT_ONCE)
            items = [
                offset.to_bytes(8, "big") + at_us.to_bytes(8, "big") + body
                for offset, at_us, body in rows
                if offset < 9 and offset not in live
            ]
            manifest, _ = await load_manifest(store)
            assert done.setsum == Setsum.of(*items) == manifest.collected
            assert done.dropped == IndexSet(range(1, 9)) - live

        run(main())

    def test_what_presses_goes_whatever_lives_beside_it(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 4)
            before = await rows_of(store)
            live, must_drop = IndexSet(range(1, 31)) - IndexSet.of([3, 4, 15]), IndexSet.of([15])
            done = await sl.compact(store, live, up_to=31, must_drop=must_drop, options=AT_ONCE)
            assert done.dropped == must_drop
            await check_compacted(store, before, live, 31)
            assert [row[0] for row in await rows_of(store)] == [
                offset for offset in range(1, 41) if offset != 15
            ]
            with pytest.raises(Invalid, match="15 lives, and is to go"):
                await sl.compact(store, IndexSet.of([15]), up_to=31, must_drop=must_drop)

        run(main())

    def test_what_presses_in_a_fragment_of_another_program_is_refused(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 3)
            manifest, etag = await load_manifest(store)
            strange = msgspec.structs.replace(
                manifest.fragments[0], unknown={"colour": msgspec.Raw(b'"red"')}
            )
            changed = msgspec.structs.replace(
                manifest, fragments=(strange, *manifest.fragments[1:])
            )
            await store.put_if_match("manifest/MANIFEST", changed.to_json(), etag)
            live = IndexSet(range(2, 31))
            done = await sl.compact(store, live, up_to=21, options=STRICT)
            assert not done.dropped
            with pytest.raises(Invalid, match="newer version"):
                await sl.compact(store, live, up_to=21, must_drop=IndexSet.of([1]))

        run(main())

    def test_the_newest_fragment_and_all_from_up_to_on_stay(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 3)
            for up_to, left in [(5, 30), (11, 20), (15, 20), (31, 10)]:
                await sl.compact(store, IndexSet(), up_to=up_to, options=STRICT)
                assert len(await check_whole_log(store, compacted=True)) == left
            async with sl.LogWriter.open(store) as log:
                assert (await log.append(b"on")).offset == 31

        run(main())

    def test_records_of_a_sink_keep_their_sum(self) -> None:
        """They were hashed before their place was known, and still are."""

        async def main() -> None:
            store = await written(MemoryStore(), 1)
            for _ in range(3):
                task = await BulkUpload.open(store)
                bodies = pa.array([b"s%d" % each for each in range(10)], pa.binary())
                await link_uploaded(store, [await task.upload(bodies)])
            before = await rows_of(store)
            manifest, _ = await load_manifest(store)
            live = IndexSet.of([13, 25])
            await sl.compact(store, live, up_to=31, options=AT_ONCE)
            after, _ = await load_manifest(store)
            assert after.setsum == manifest.setsum
            assert (await rows_of(store)) == [r for r in before if r[0] in live or r[0] > 30]
            assert (await sl.scrub(store, options=IN_PROCESS)).clean
            await sl.compact(store, IndexSet.of([25]), up_to=31, options=STRICT)
            assert (await rows_of(store))[0] == before[24]
            assert (await sl.scrub(store, options=IN_PROCESS)).clean

        run(main())

    def test_a_second_run_with_the_same_set_has_nothing_to_do(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 6)
            live = IndexSet.of([3, 37])
            await sl.compact(store, live, up_to=51, options=STRICT)
            manifest = await load_manifest(store)
            again = await sl.compact(store, live, up_to=51, options=STRICT)
            assert (again.records, again.fragments, again.setsum) == (0, 0, EMPTY)
            assert await load_manifest(store) == manifest

        run(main())

    def test_it_shows_its_progress(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 5)
            seen: list[tuple[int, int]] = []
            await sl.compact(
                store,
                IndexSet.of([1]),
                up_to=41,
                on_progress=lambda done, whole: seen.append((done, whole)),
                options=AT_ONCE,
            )
            assert seen[-1] == (4, 4)

        run(main())


class TestOthers:
    def test_pins_and_forks_read_what_they_read_before(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(f"{store_url}/source", 6)
            before = await rows_of(store)
            pin = await sl.PinStore(store).create("held")
            await sl.fork(f"{store_url}/source", f"{store_url}/fork", at=35)
            live = IndexSet.of([12])
            await sl.compact(store, live, up_to=51, options=STRICT)
            assert len(await check_whole_log(store, compacted=True)) == 11
            async with sl.LogReader.open(store, pin="held") as reader:
                pinned = [(r.offset, r.timestamp_us, r.body) async for r in reader.records()]
            assert pinned == before
            assert await check_whole_log(f"{store_url}/fork") == before[:34]
            await pin.release()
            await sl.Collector(store, options=COLLECT_AT_ONCE).clear_pins()
            assert await check_whole_log(f"{store_url}/fork") == before[:34]

        run(main())

    def test_a_fork_compacts_what_it_shares_and_deletes_none_of_it(self) -> None:
        async def main() -> None:
            top = f"memory://{uuid.uuid4().hex}"
            source = await written(f"{top}/source", 6)
            before = await rows_of(source)
            await sl.fork(f"{top}/source", f"{top}/fork", at=45)
            await sl.compact(f"{top}/fork", IndexSet.of([12]), up_to=41, options=STRICT)
            rows = await check_whole_log(f"{top}/fork", compacted=True)
            assert rows == [before[11], *before[40:44]]
            assert await check_whole_log(source) == before
            await sl.fork(f"{top}/fork", f"{top}/second", at=13)
            assert await rows_of(f"{top}/second") == [before[11]]
            await sl.copy_log(f"{top}/fork", f"{top}/copy")
            assert await check_whole_log(f"{top}/copy", compacted=True) == rows
            assert (await sl.verify(f"{top}/copy")).proven

        run(main())

    def test_readers_from_before_during_and_after(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(store_url, 8)
            before = await rows_of(store)
            live = IndexSet.of(range(1, 80, 7))
            options = sl.ReaderOptions(prefetch_fragments=1, cache_bytes=0)
            async with sl.LogReader.open(store, options=options) as reader:
                seen: list[Row] = []
                async with aclosing(reader.records()) as records:
                    async for record in records:
                        seen.append((record.offset, record.timestamp_us, record.body))
                        if record.offset in (12, 33):
                            up_to = record.offset // 10 * 20 + 21
                            await sl.compact(store, live, up_to=up_to, options=STRICT)
            offsets = [row[0] for row in seen]
            assert offsets == sorted(set(offsets))
            assert [row for row in seen if row[0] in live] == [r for r in before if r[0] in live]
            assert set(seen) <= set(before)

        run(main())

    def test_following_passes_over_what_was_compacted(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 6)
            await sl.compact(store, IndexSet.of([25]), up_to=51, options=STRICT)
            async with sl.LogReader.open(store) as reader:
                seen: list[int] = []
                async with aclosing(reader.follow(1)) as batches:
                    async for batch in batches:
                        seen += batch.column(0).to_pylist()
                        if len(seen) == 11:
                            async with sl.LogWriter.open(store) as log:
                                await log.append(b"more")
                        if len(seen) == 12:
                            break
            assert seen == [25, *range(51, 62)]

        run(main())

    def test_a_reader_can_ask_why_an_offset_is_absent(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 6)
            await sl.compact(store, IndexSet.of([25, 41]), up_to=51, options=STRICT)
            async with sl.LogReader.open(store) as reader:
                found = {at: await reader.presence(at) for at in (1, 41, 42, 51, 60, 61, 999)}
                assert found == {
                    1: Presence.COMPACTED,
                    41: Presence.PRESENT,
                    42: Presence.COMPACTED,
                    51: Presence.PRESENT,
                    60: Presence.PRESENT,
                    61: Presence.UNWRITTEN,
                    999: Presence.UNWRITTEN,
                }
                await sl.CursorStore(store).create("keeper", 51)
                await sl.collect(store, options=COLLECT_AT_ONCE)
                await reader.refresh()
                assert await reader.presence(41) is Presence.TRIMMED
                with pytest.raises(Invalid):
                    await reader.presence(0)

        run(main())

    def test_records_of_several_times_are_found_by_time(self) -> None:
        async def main() -> None:
            store = await made(MemoryStore(), DEEP, records=2)  # times are 1,001, 1,002, …
            before = await rows_of(store)
            live = IndexSet.of([2, 5, 8, 11])
            await sl.compact(store, live, up_to=17, options=STRICT)
            left = [row for row in before if row[0] in live or row[0] > 16]
            async with sl.LogReader.open(store) as reader:
                for from_us in range(1_000, 1_012):
                    for to_us in range(from_us, 1_012):
                        found = reader.records(from_timestamp_us=from_us, to_timestamp_us=to_us)
                        seen = [(r.offset, r.timestamp_us, r.body) async for r in found]
                        assert seen == [row for row in left if from_us <= row[1] < to_us]

        run(main())

    def test_beside_a_writer_and_through_it(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(store_url, 4)
            async with sl.LogWriter.open(store) as log:
                appending = [asyncio.ensure_future(log.append(b"w%d" % n)) for n in range(20)]
                await sl.compact(store, IndexSet.of([3]), up_to=21, options=STRICT)
                await sl.compact(store, IndexSet.of([3]), up_to=31, log_writer=log, options=STRICT)
                offsets = [(await each).offset for each in appending]
            rows = await check_whole_log(store, compacted=True)
            assert sorted(offsets) == list(range(41, 61))
            assert [row[0] for row in rows] == [3, *range(31, 61)]

        run(main())

    def test_two_at_once_end_well(self, store_url: str) -> None:
        async def main() -> None:
            store = await written(store_url, 6)
            before = await rows_of(store)
            live = IndexSet.of([7, 33])
            ended = await asyncio.gather(
                *(sl.compact(store, live, up_to=51, options=STRICT) for _ in range(2)),
                return_exceptions=True,
            )
            assert all(isinstance(each, sl.Compacted | Conflict) for each in ended), ended
            await sl.compact(store, live, up_to=51, options=STRICT)
            await sweep(store)
            await check_compacted(store, before, live, 51)

        run(main())


class TestWhatOthersHavePrepared:
    """Plans that were made before a compaction and meet its result."""

    async def absorbed(self, store: sl.Store) -> None:
        """The third fragment stands for the fourth as well; its path is what it was."""
        await sl.compact(store, IndexSet(range(1, 31)), up_to=41, options=AT_ONCE)
        manifest, _ = await load_manifest(store)
        assert [each.span for each in manifest.fragments[:3]] == [10, 10, 20]

    def test_a_roll_up_that_ends_where_an_entry_grew_is_dropped(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 6)
            manifest, _ = await load_manifest(store)
            moved = manifest.fragments[:3]
            node = make_snapshot(moved, 1, lambda _: "snapshot/SNAPSHOT.x", "writer")
            paths = tuple(each.path for each in moved)
            rollup = Fold(node.pointer(), paths, manifest.sweep_epoch)
            assert apply_fold(manifest, rollup) is not None
            await self.absorbed(store)
            manifest, _ = await load_manifest(store)
            assert tuple(each.path for each in manifest.fragments[:3]) == paths
            assert apply_fold(manifest, rollup) is None

        run(main())

    def test_a_plan_that_ends_where_an_entry_grew_is_dead(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 6)
            plans: list[sl.Garbage] = []

            async def keep(_: sl.Collector, plan: sl.Garbage) -> sl.Removed:
                plans.append(plan)
                raise Conflict("killed")

            once = sl.CompactOptions(interval_s=0.0, attempts_max=1)
            live = IndexSet.of([1, 11, 21])
            with patch.object(sl.Collector, "run", keep), pytest.raises(Conflict):
                await sl.compact(store, live, up_to=31, options=once)
            await self.absorbed(store)
            with pytest.raises(Conflict, match="has changed"):
                await sl.Collector(store, options=COLLECT_AT_ONCE).run(plans[0])
            await sl.compact(store, live, up_to=41, options=STRICT)
            assert [row[0] for row in await rows_of(store)] == [1, 11, 21, *range(41, 61)]
            assert (await sl.scrub(store, options=IN_PROCESS)).clean

        run(main())

    def test_a_copy_whose_source_is_compacted_says_so(self) -> None:
        async def main() -> None:
            top = f"memory://{uuid.uuid4().hex}"
            source = await written(f"{top}/source", 6)

            async def compacted_first(self: CopySource, note: CopyNote, at: int) -> object:
                await sl.compact(source, IndexSet.of([3]), up_to=51, options=STRICT)
                return await hold(self, note, at)

            hold = CopySource.hold
            late = patch.object(CopySource, "hold", compacted_first)
            with late, pytest.raises(Conflict, match="was compacted while it was copied"):
                await sl.copy_log(f"{top}/source", f"{top}/copy")

        run(main())

    def test_verify_beside_a_compaction_alarms_nobody(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 6)
            load = verification._readable_manifest
            calls = 0

            async def then_compacted(at: sl.Store) -> sl.Manifest | None:
                nonlocal calls
                calls += 1
                found = await load(at)
                if calls == 1:
                    await sl.compact(store, IndexSet.of([3]), up_to=51, options=STRICT)
                return found

            with patch.object(verification, "_readable_manifest", then_compacted):
                report = await sl.verify(store)
            assert report.proven, report.checks
            assert report.hashed is None
            assert (await sl.verify(store)).hashed is not None

        run(main())

    def test_following_a_log_that_ends_with_absent_records_waits(self) -> None:
        async def main() -> None:
            top = f"memory://{uuid.uuid4().hex}"
            source = await written(f"{top}/source", 3)
            await sl.compact(source, IndexSet.of([3]), up_to=21, options=STRICT)
            await sl.fork(f"{top}/source", f"{top}/fork", at=15)
            options = sl.ReaderOptions(poll_s_min=0.01, poll_s_max=0.01)
            async with sl.LogReader.open(f"{top}/fork", options=options) as reader:
                seen = []
                async for batch in reader.follow(1, idle_timeout_s=0.1):
                    seen += batch.column(0).to_pylist()
            assert seen == [3]

        run(main())

    def test_survivors_that_are_larger_than_their_share_are_divided(self) -> None:
        async def main() -> None:
            store = sl.open_store(MemoryStore())
            async with sl.LogWriter.open(store, create=True) as log:
                for _ in range(6):
                    await log.append_many([b""] * 50 + [b"x" * 1000])
            before = await rows_of(store)
            live = IndexSet.of(range(51, 307, 51))
            options = sl.CompactOptions(interval_s=0.0, fragment_bytes=2500)
            done = await sl.compact(store, live, up_to=256, options=options)
            assert (done.fragments, done.rewritten) == (5, 3)
            await check_compacted(store, before, live, 256)

        run(main())


class TestCrashes:
    """Before and after every operation; then the next run completes."""

    LIVE = IndexSet.of([2, 5, 6, 12])
    UP_TO = 17

    async def compact(self, store: sl.Store, _: History) -> None:
        await sl.compact(store, self.LIVE, up_to=self.UP_TO, options=STRICT)

    async def finish(self, store: sl.Store, before: list[Row]) -> None:
        await sl.compact(store, self.LIVE, up_to=self.UP_TO, options=STRICT)
        await sweep(store)
        await check_compacted(store, before, self.LIVE, self.UP_TO)
        kept = [row[0] for row in await rows_of(store)]
        assert kept == [*self.LIVE, 17, 18]
        async with sl.LogWriter.open(store) as log:
            assert (await log.append(b"on")).offset == 19

    def crash(self, url: StoreLike, point: CrashPoint) -> None:
        puts = Puts()
        store = run(made(url, DEEP, records=2))
        before = run(rows_of(store))
        run_until_crash(store, self.compact, point, History(), puts)
        rows = run(check_whole_log(store, compacted=True))
        assert [row for row in before if row[0] in self.LIVE or row[0] >= self.UP_TO] == [
            row for row in rows if row[0] in self.LIVE or row[0] >= self.UP_TO
        ]
        run(self.finish(store, before))
        puts.check_names_were_used_once()

    def points(self) -> list[CrashPoint]:
        store = run(made(MemoryStore(), DEEP, records=2))
        return sides_of(run_until_crash(store, self.compact, None, History(), Puts()))

    def test_at_every_operation(self) -> None:
        points = self.points()
        assert len(points) > 40
        crash_at_each(points, lambda point: self.crash(MemoryStore(uuid.uuid4().hex), point))

    def test_at_sampled_operations_on_every_store(self, store_url: str) -> None:
        for index, point in enumerate(Random(store_url[:3]).sample(self.points(), 6)):
            self.crash(f"{store_url}/{index}", point)

    def test_a_collector_finishes_what_a_compactor_has_left(self) -> None:
        async def main() -> None:
            store = await made(MemoryStore(), DEEP, records=2)
            before = await rows_of(store)
            collector = sl.Collector(store, options=COLLECT_AT_ONCE)
            once = sl.CompactOptions(interval_s=0.0, attempts_max=1)
            killed = patch.object(sl.Collector, "publish", side_effect=Conflict("killed"))
            with killed, pytest.raises(Conflict):
                await sl.compact(store, self.LIVE, up_to=self.UP_TO, options=once)
            await collector.finish()
            await sweep(store)
            await check_compacted(store, before, self.LIVE, self.UP_TO)
            manifest, _ = await load_manifest(store)
            assert manifest.compacted is not None

        run(main())


class TestDamage:
    def test_a_damaged_fragment_stops_it_and_nothing_changes(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 4)
            manifest, _ = await load_manifest(store)
            path = manifest.fragments[1].path
            blob = await store.get(path)
            await store.put_if_match(path, blob.data[:-40] + b"?" * 40, blob.etag)
            with pytest.raises(Corrupt) as caught:
                await sl.compact(store, IndexSet.of([3]), up_to=31, options=STRICT)
            assert caught.value.path == path
            assert (await load_manifest(store))[0] == manifest

        run(main())

    def test_a_lost_fragment_is_told_as_damage_also_beside_a_writer(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 4)
            manifest, _ = await load_manifest(store)
            path = manifest.fragments[1].path
            await store.delete_many([path])
            register = UploadGuard.register

            async def beside_a_writer(*args: Any, **options: Any) -> UploadGuard:
                stage = await register(*args, **options)
                async with sl.LogWriter.open(store) as log:
                    await log.append(b"meanwhile")
                return stage

            busy = patch.object(UploadGuard, "register", beside_a_writer)
            with busy, pytest.raises(Corrupt, match="is missing although") as caught:
                await sl.compact(store, IndexSet.of([3]), up_to=31, options=STRICT)
            assert caught.value.path == path

        run(main())

    @pytest.mark.parametrize("field", ["setsum_to_discard", "fragments_for_root"])
    def test_a_plan_that_does_not_balance_is_refused(self, field: str) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 5)
            plans: list[sl.Garbage] = []

            async def keep(_: sl.Collector, plan: sl.Garbage) -> sl.Removed:
                plans.append(plan)
                raise Conflict("killed")

            with patch.object(sl.Collector, "run", keep), pytest.raises(Conflict):
                await sl.compact(
                    store,
                    IndexSet.of([3, 15]),
                    up_to=31,
                    options=sl.CompactOptions(interval_s=0.0, attempts_max=1),
                )
            (plan,) = plans
            changes = {
                "setsum_to_discard": Setsum.of(b"other"),
                "fragments_for_root": tuple(
                    msgspec.structs.replace(each, rows=99) for each in plan.fragments_for_root
                ),
            }
            before = await load_manifest(store)
            tampered = msgspec.structs.replace(plan, **{field: changes[field]})
            collector = sl.Collector(store, options=COLLECT_AT_ONCE)
            with pytest.raises(Corrupt, match="not to be trusted"):
                await collector.run(tampered)
            assert await load_garbage(store) == (None, None)
            await store.put_if_absent(GARBAGE_PATH, tampered.to_json())
            with pytest.raises(Corrupt, match="not to be trusted"):
                await collector.publish()
            assert await load_manifest(store) == before
            await collector.cancel()
            await collector.run(
                msgspec.structs.replace(plan, sweep_epoch=before[0].sweep_epoch + 1)
            )
            assert [row[0] for row in await rows_of(store)] == [3, 15, *range(31, 51)]

        run(main())

    def test_damage_to_a_sparse_fragment_is_named(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 4)
            await sl.compact(store, IndexSet.of([3, 15, 24]), up_to=31, options=STRICT)
            manifest, etag = await load_manifest(store)
            (sparse,) = [each for each in manifest.fragments if each.is_sparse]
            for change, kind in (
                ({"rows": 2}, sl.DamageKind.FRAGMENT_COUNT),
                ({"limit": sl.LogPosition(20, 0)}, sl.DamageKind.MANIFEST_RANGE),
                ({"seq_first": 2}, sl.DamageKind.FRAGMENT_PATH),
            ):
                changed = msgspec.structs.replace(sparse, **change)
                root = (changed, *manifest.fragments[1:])
                damaged = msgspec.structs.replace(manifest, fragments=root)
                etag = await store.put_if_match(MANIFEST_PATH, damaged.to_json(), etag)
                report = await sl.scrub(store, options=IN_PROCESS)
                assert kind in {each.kind for each in report.damages}, report.damages

        run(main())


class TestWrongCalls:
    def test_each_says_what_to_do(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), 2)
            with pytest.raises(Invalid, match=r"IndexSet"):
                await sl.compact(store, [1, 2], up_to=5)  # type: ignore[arg-type]
            for up_to in (0, -3, "5"):
                with pytest.raises(Invalid, match="not an offset"):
                    await sl.compact(store, IndexSet(), up_to=up_to)  # type: ignore[arg-type]
            with pytest.raises(NotFound):
                await sl.compact(MemoryStore(), IndexSet(), up_to=5)
            with pytest.raises(Invalid, match="beyond the tail"):
                await sl.compact(store, IndexSet(), up_to=22)
            assert len(await check_whole_log(store)) == 20

        run(main())

    @pytest.mark.parametrize(
        "options",
        [
            {"live_share_min": 0},
            {"live_share_min": 1.5},
            {"fragment_bytes": 0},
            {"groups_max": 0},
            {"compression": "gzip"},
            {"attempts_max": 0},
            {"interval_s": -1},
            {"timeout_s": 0},
        ],
    )
    def test_options_out_of_bounds(self, options: dict[str, float]) -> None:
        with pytest.raises(Invalid):
            sl.CompactOptions(**options)  # type: ignore[arg-type]
