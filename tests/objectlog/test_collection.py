"""Behaviours 16 to 19: space before the lowest cursor comes back, and nothing else goes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from random import Random

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, When, crash_at_each, run_until_crash, sides_of
from objectlog.trees import LEAF, MadeLog, Shape, leaves, shapes
from objectlog.whole_log import (
    FakeClock,
    check_whole_log,
    note_in_manifest,
    orphans,
    rewrite_manifest,
    run,
    sweep,
)
from objectlog.wrapped_stores import CountingStore, GateStore, PassingStore, Puts
from stratalog.errors import Conflict, Corrupt, Invalid, NotFound, Trimmed
from stratalog.objectlog.stored import decode_document
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.objectlog.stored.plan import GARBAGE_PATH, load_garbage
from stratalog.store import MemoryStore, StoreLike
from stratalog.store.closing import open_json
from stratalog.store.protocol import Blob
from stratalog.testing import History

AT_ONCE = sl.CollectorOptions(interval_s=0.0)
DEEP: Shape = (((LEAF, LEAF, LEAF), (LEAF, LEAF)), (LEAF, LEAF), LEAF, LEAF)


async def made(url: StoreLike, shape: Shape = DEEP, cursor: int | None = None) -> sl.Store:
    """A log of this shape, one record a fragment, and a cursor."""
    store = sl.open_store(url)
    await MadeLog(shape, encoded=True).store(store)
    if cursor is not None:
        await sl.CursorStore(store).create("keeper", cursor)
    return store


async def garbage_left(store: sl.Store) -> set[str]:
    """Stored parts of the tree that nothing links."""
    return {path for path in await orphans(store) if path.startswith(("log/", "snapshot/"))}


async def check_collected(store: sl.Store, first_offset: int, tail: int) -> None:
    rows = await check_whole_log(store)
    assert [offset for offset, _, _ in rows] == list(range(first_offset, tail))
    assert [body for _, _, body in rows] == [b"%d" % n for n in range(first_offset, tail)]
    assert await garbage_left(store) == set()
    plan, _ = await load_garbage(store)
    assert plan is None or plan.is_empty


class TestBehaviour16WhatIsKept:
    def test_everything_from_the_lowest_cursor_on_is_kept(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=4)
            await sl.CursorStore(store).create("faster", 7)
            collected = await sl.collect(store, options=AT_ONCE)
            assert (collected.first_offset, collected.records, collected.fragments) == (4, 3, 3)
            assert collected.removed.fragments == 3
            await check_collected(store, 4, 10)

        run(main())

    def test_an_explicit_cut_off_may_only_be_lower(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=6)
            assert (await sl.collect(store, cut_off=3, options=AT_ONCE)).first_offset == 3
            assert (await sl.collect(store, cut_off=99, options=AT_ONCE)).first_offset == 6
            await check_collected(store, 6, 10)

        run(main())

    @pytest.mark.parametrize("cut_off", [None, 3])
    def test_a_log_without_a_cursor_is_refused(self, store_url: str, cut_off: int | None) -> None:
        async def main() -> None:
            store = await made(store_url)
            with pytest.raises(Invalid, match="without any cursor"):
                await sl.collect(store, cut_off=cut_off, options=AT_ONCE)
            cursor = await sl.CursorStore(store).create("gone", 5)
            await cursor.delete()
            with pytest.raises(Invalid, match="without any cursor"):
                await sl.collect(store, cut_off=cut_off, options=AT_ONCE)
            await check_collected(store, 1, 10)

        run(main())

    @pytest.mark.parametrize("cut_off", [0, -1, 1.5, "3", True])
    def test_a_cut_off_that_is_no_offset(self, cut_off: int) -> None:
        async def main() -> None:
            store = await made(MemoryStore(), cursor=5)
            with pytest.raises(Invalid):
                await sl.collect(store, cut_off=cut_off, options=AT_ONCE)

        run(main())

    def test_it_never_runs_twice_at_once(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=5)
            first, second = sl.Collector(store), sl.Collector(store)
            assert await first.compute() is not None
            with pytest.raises(Conflict, match="under way"):
                await second.compute()

        run(main())

    def test_of_two_that_begin_together_one_wins_and_both_end_well(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=7)
            ended = await asyncio.gather(
                *(sl.collect(store, options=AT_ONCE) for _ in range(2)), return_exceptions=True
            )
            assert any(isinstance(each, sl.Collected) for each in ended)
            assert all(isinstance(each, sl.Collected | Conflict) for each in ended)
            await check_collected(store, 7, 10)

        run(main())

    def test_nothing_to_collect_leaves_no_plan(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=1)
            assert await sl.Collector(store).compute() is None
            assert await load_garbage(store) == (None, None)

        run(main())

    def test_a_cursor_at_the_tail_lets_everything_go_and_appends_continue(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=10)
            assert (await sl.collect(store, options=AT_ONCE)).first_offset == 10
            await check_collected(store, 10, 10)
            async with sl.LogWriter.open(store) as log:
                position = await log.append(b"10")
                assert position.offset == 10
                assert log.manifest.fragments[0].seq_no == 10
            await check_collected(store, 10, 11)

        run(main())

    def test_a_fragment_that_holds_the_cut_stays_whole(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                for _ in range(3):
                    await log.append_many([b"a", b"b", b"c"])
            await sl.CursorStore(store).create("keeper", 5)
            assert (await sl.collect(store, options=AT_ONCE)).first_offset == 4
            assert len(await check_whole_log(store)) == 6

        run(main())

    def test_a_preview_tells_what_would_go_and_who_holds_the_rest_and_changes_nothing(
        self,
    ) -> None:
        async def main() -> None:
            honest = await made(MemoryStore(), cursor=4)
            store = CountingStore(honest)
            outlook = await sl.Collector(store).preview()
            assert (outlook.first_offset, outlook.cut, outlook.first_to_keep) == (1, 4, 4)
            assert (outlook.held_by, outlook.records, outlook.fragments) == ("keeper", 3, 3)
            assert outlook.fragment_bytes > 0
            assert store.writes == 0
            assert (await sl.Collector(store).preview(2)).held_by == "the cut-off"

        run(main())

    def test_a_log_of_another_program_is_not_collected(self) -> None:
        async def main() -> None:
            store = await made(MemoryStore(), cursor=4)
            blob = await store.get(MANIFEST_PATH)
            theirs = blob.data[: blob.data.index(b',"format"')] + b"}"
            await store.put_if_match(MANIFEST_PATH, theirs, blob.etag)
            with pytest.raises(Invalid, match="only be read"):
                await sl.collect(store, options=AT_ONCE)

        run(main())


class TestBehaviour17AtEveryOffset:
    @pytest.mark.parametrize("fragments", [3, 5, 7, 8])
    def test_every_shape_in_memory(self, fragments: int) -> None:
        async def main() -> None:
            for shape in shapes(fragments, 2):
                for cut in range(1, fragments + 2):
                    store = await made(MemoryStore(), shape, cursor=cut)
                    await sl.collect(store, options=AT_ONCE)
                    await check_collected(store, cut, fragments + 1)

        run(main())

    def test_at_sampled_offsets_on_every_store_one_after_the_other(self, store_url: str) -> None:
        """Each collection trims the tree that the last one left."""

        async def main() -> None:
            store = await made(store_url, (((LEAF, LEAF), (LEAF, LEAF)), (LEAF, LEAF), *DEEP[2:]))
            cursor = await sl.CursorStore(store).create("keeper", 1)
            for offset in (2, 4, 5, 7, 8, 9):
                cursor = await cursor.move(offset)
                assert (await sl.collect(store, options=AT_ONCE)).first_offset == offset
                await check_collected(store, offset, 9)

        run(main())

    def test_a_tree_that_writers_made_collected_as_it_grows(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=3)
            await sl.create_log(store)
            cursor = await sl.CursorStore(store).create("keeper", 1)
            draw = Random(7)
            async with sl.LogWriter.open(store, options=options) as log:
                for number in range(1, 120):
                    await log.append(b"%d" % number)
                    if number % 5 == 0:
                        cursor = await cursor.move(draw.randint(cursor.offset, number + 1))
                        log_writer = log if number % 2 else None
                        await sl.collect(store, log_writer=log_writer, options=AT_ONCE)
                        rows = await check_whole_log(store)
                        expected = list(range(cursor.offset, number + 1))
                        assert [offset for offset, _, _ in rows] == expected

        run(main())


class TestBehaviour18Crashes:
    """Every operation of every phase, on both sides of it, then a run that completes."""

    SHAPE: Shape = (((LEAF, LEAF), (LEAF, LEAF)), ((LEAF, LEAF), (LEAF, LEAF)), LEAF)
    CUT = 4

    async def collect(self, store: sl.Store, _: History) -> None:
        collector = sl.Collector(store, options=AT_ONCE)
        await collector.compute()
        await collector.publish()
        await collector.delete()

    async def cancel(self, store: sl.Store, _: History) -> None:
        collector = sl.Collector(store, options=AT_ONCE)
        await collector.compute()
        await collector.cancel()

    async def prepared(self, url: StoreLike) -> sl.Store:
        return await made(url, self.SHAPE, cursor=self.CUT)

    async def finish(self, store: sl.Store) -> None:
        """Whatever was left, the next run completes, and appends go on."""
        await sl.collect(store, options=AT_ONCE)
        rows = await check_whole_log(store)
        assert [offset for offset, _, _ in rows] == list(range(self.CUT, leaves(self.SHAPE) + 1))
        plan, _ = await load_garbage(store)
        assert plan is None or plan.is_empty
        await sweep(store)
        assert await garbage_left(store) == set()
        async with sl.LogWriter.open(store) as log:
            assert (await log.append(b"on")).offset == leaves(self.SHAPE) + 1
        await check_whole_log(store)

    def crash(self, url: StoreLike, script: str, point: CrashPoint) -> None:
        store = run(self.prepared(url))
        puts = Puts()
        run_until_crash(store, getattr(self, script), point, History(), puts)
        run(check_whole_log(store))
        run(self.finish(store))
        puts.check_names_were_used_once()

    def points(self, script: str) -> list[CrashPoint]:
        store = run(self.prepared(MemoryStore()))
        return sides_of(run_until_crash(store, getattr(self, script), None, History(), Puts()))

    @pytest.mark.parametrize("script", ["collect", "cancel"])
    def test_at_every_operation(self, script: str) -> None:
        points = self.points(script)
        assert len(points) > 20
        crash_at_each(
            points, lambda point: self.crash(MemoryStore(uuid.uuid4().hex), script, point)
        )

    def test_at_sampled_operations_on_every_store(self, store_url: str) -> None:
        last = max(point.number for point in self.points("collect"))
        for index, number in enumerate(Random(store_url[:3]).sample(range(1, last), 6)):
            when: When = "before" if index % 2 else "after"
            self.crash(f"{store_url}/{number}", "collect", CrashPoint(number, when))

    def test_one_that_crashed_again_and_again(self) -> None:
        """Each life dies a little later than the one before; the last one does not."""
        store = run(self.prepared(MemoryStore()))

        async def script(store: sl.Store, _: History) -> None:
            await sl.collect(store, options=AT_ONCE)

        for number in range(1, 40):
            run_until_crash(store, script, CrashPoint(number, "after"), History(), Puts())
            run(check_whole_log(store))
        run(self.finish(store))

    def test_the_phases_may_be_run_by_others(self, store_url: str) -> None:
        async def main() -> None:
            store = await self.prepared(store_url)
            await sl.Collector(store, options=AT_ONCE).compute()
            published = await sl.Collector(store, options=AT_ONCE).publish()
            assert published.first_offset == self.CUT
            assert (await sl.Collector(store).plan())[1] is sl.PlanState.PUBLISHED
            again = await sl.Collector(store, options=AT_ONCE).publish()
            assert again.write_id == published.write_id
            removed = await sl.Collector(store, options=AT_ONCE).delete()
            assert removed.fragments == self.CUT - 1
            assert await sl.Collector(store, options=AT_ONCE).delete() == sl.Removed()
            await check_collected(store, self.CUT, leaves(self.SHAPE) + 1)

        run(main())

    def test_nothing_is_deleted_before_it_is_published(self) -> None:
        async def main() -> None:
            store = await self.prepared(MemoryStore())
            collector = sl.Collector(store, options=AT_ONCE)
            with pytest.raises(NotFound, match="no collection"):
                await collector.publish()
            await collector.compute()
            with pytest.raises(Conflict, match="not published"):
                await collector.delete()
            await collector.cancel()
            await check_collected(store, 1, leaves(self.SHAPE) + 1)

        run(main())

    def test_a_published_plan_cannot_be_cancelled(self) -> None:
        async def main() -> None:
            store = await self.prepared(MemoryStore())
            collector = sl.Collector(store, options=AT_ONCE)
            await collector.compute()
            await collector.publish()
            with pytest.raises(Conflict, match="already published"):
                await collector.cancel()
            await collector.delete()
            await check_collected(store, self.CUT, leaves(self.SHAPE) + 1)

        run(main())

    def test_a_plan_that_was_tampered_with_is_refused_and_nothing_goes(self) -> None:
        async def main() -> None:
            store = await self.prepared(MemoryStore())
            collector = sl.Collector(store, options=AT_ONCE)
            await collector.compute()
            blob = await store.get(GARBAGE_PATH)
            plan = decode_document(sl.Garbage, blob.data)
            kept = plan.snapshots_to_make[0].fragments[0]
            text = plan.to_json().replace(
                kept.path.encode(), kept.path.encode()[:-9] + b"x.parquet"
            )
            await store.put_if_match(GARBAGE_PATH, text, blob.etag)
            with pytest.raises(Corrupt, match="not to be trusted"):
                await collector.publish()
            await collector.cancel()
            await check_collected(store, 1, leaves(self.SHAPE) + 1)

        run(main())

    def test_readers_are_given_the_interval(self) -> None:
        async def main() -> None:
            store = await self.prepared(MemoryStore())
            clock = FakeClock(50_000_000)
            collector = sl.Collector(
                store, options=sl.CollectorOptions(interval_s=0.2), runtime=clock
            )
            await collector.compute()
            await collector.publish()
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await collector.delete()
            assert loop.time() - began_s >= 0.19
            await check_collected(store, self.CUT, leaves(self.SHAPE) + 1)

        run(main())

    def test_who_comes_after_the_interval_does_not_wait(self) -> None:
        async def main() -> None:
            store = await self.prepared(MemoryStore())
            clock = FakeClock(50_000_000)
            options = sl.CollectorOptions(interval_s=3600.0)
            collector = sl.Collector(store, options=options, runtime=clock)
            await collector.compute()
            await collector.publish()
            clock.time_us += 3_600_000_000
            await collector.delete()
            await check_collected(store, self.CUT, leaves(self.SHAPE) + 1)

        run(main())


class TestBehaviour19CursorsAndCollectors:
    def test_a_cursor_behind_the_start_of_the_log_is_refused(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=6)
            await sl.collect(store, options=AT_ONCE)
            with pytest.raises(Trimmed) as refusal:
                await sl.CursorStore(store).create("late", 3)
            assert refusal.value.first_offset == 6
            assert [each.name for each in await sl.CursorStore(store).list()] == ["keeper"]

        run(main())

    def test_a_cursor_that_comes_before_the_second_look_stops_the_collection(
        self, store_url: str
    ) -> None:
        """Written after the plan, before the collector lists the cursors again."""

        async def main() -> None:
            store = await made(store_url, cursor=6)
            collector = sl.Collector(store, options=AT_ONCE)
            await collector.compute()
            gate = GateStore(sl.open_store(store), "cursor/")
            late = asyncio.ensure_future(sl.CursorStore(gate).create("late", 3))
            await gate.arrived.wait()
            gate.open()
            with pytest.raises(Conflict):
                await late
            assert [each.name for each in await sl.CursorStore(store).list()] == ["keeper"]
            await collector.publish()
            await collector.delete()
            await check_collected(store, 6, 10)

        run(main())

    def test_a_written_cursor_that_is_seen_cancels_the_plan(self, store_url: str) -> None:
        """Its writer died between writing it and looking: it may have counted, so it is kept."""

        async def main() -> None:
            store = await made(store_url, cursor=6)
            collector = sl.Collector(store, options=AT_ONCE)
            await collector.compute()
            faster = await sl.CursorStore(store).load("keeper")
            blob = await store.get("cursor/keeper.json")
            await store.put_if_absent(
                "cursor/late.json", open_json(blob.data, None).replace(b'"offset":6', b'"offset":3')
            )
            with pytest.raises(Conflict, match="late"):
                await collector.publish()
            assert faster.offset == 6
            assert (await sl.collect(store, options=AT_ONCE)).first_offset == 3
            await check_collected(store, 3, 10)

        run(main())

    def test_a_collector_that_slept_while_its_plan_was_cancelled_publishes_nothing(
        self, store_url: str
    ) -> None:
        """It has looked at the cursors, and stops just before its put. Then somebody else finds
        a cursor below the cut and cancels, and that cursor counts. Then the sleeper wakes up."""

        async def main() -> None:
            store = await made(store_url, cursor=6)
            gate = GateStore(sl.open_store(store), MANIFEST_PATH)
            sleeper = sl.Collector(gate, options=AT_ONCE)
            await sleeper.compute()
            sleeping = asyncio.ensure_future(sleeper.publish())
            await gate.arrived.wait()
            await sl.Collector(store, options=AT_ONCE).cancel()
            await sl.CursorStore(store).create("late", 3)
            gate.open()
            with pytest.raises(Conflict):
                await sleeping
            rows = await check_whole_log(store)
            assert rows[0][0] == 1, "the cursor still has its data"
            assert (await sl.collect(store, options=AT_ONCE)).first_offset == 3

        run(main())

    def test_a_cursor_that_goes_back_counts_or_is_put_back(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=6)
            cursors = sl.CursorStore(store)
            keeper = await cursors.load("keeper")
            await sl.Collector(store, options=AT_ONCE).compute()
            with pytest.raises(Conflict, match="under way"):
                await keeper.move(2)
            assert (await cursors.load("keeper")).offset == 6
            await sl.collect(store, options=AT_ONCE)
            await check_collected(store, 6, 10)
            back = await (await cursors.load("keeper")).move(8)
            assert (await back.move(7)).offset == 7

        run(main())

    @pytest.mark.parametrize("dies", [True, False])
    def test_a_cursor_whose_way_back_is_cut_off_still_holds_where_it_was(
        self, store_url: str, dies: bool
    ) -> None:
        """It is overtaken between its write and its look at the plan, by two collections. The
        first was about to publish; the second finds it before the start of the log."""

        class Death(Exception):
            pass

        class Overtaken(PassingStore):
            collections: Callable[[], Awaitable[None]] | None = None

            async def get(self, path: str) -> Blob:
                if path == GARBAGE_PATH and self.collections is not None:
                    await self.collections()
                    if dies:
                        raise Death
                return await super().get(path)

        async def main() -> None:
            store = await made(store_url)
            cursors = sl.CursorStore(store)
            await cursors.create("other", 9)
            overtaken = Overtaken(store)
            cursor = await sl.CursorStore(overtaken).create("keeper", 6)
            gate = GateStore(store, MANIFEST_PATH)
            sleeper = sl.Collector(gate, options=AT_ONCE)
            await sleeper.compute()
            sleeping = asyncio.ensure_future(sleeper.publish())
            await gate.arrived.wait()

            async def both() -> None:
                gate.open()
                assert (await sleeping).first_offset == 6
                assert (await sl.collect(store, options=AT_ONCE)).first_offset == 6

            overtaken.collections = both
            with pytest.raises(Death if dies else Trimmed):
                await cursor.move(2)
            assert (await cursors.load("keeper")).offset == (2 if dies else 6)
            assert (await sl.Collector(store).preview()).ignored == ()
            await check_collected(store, 6, 10)
            await (await cursors.load("keeper")).move(8)
            assert (await sl.collect(store, options=AT_ONCE)).first_offset == 8

        run(main())

    def test_a_loaded_cursor_goes_back_only_if_it_counts(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=6)
            before = await store.get("cursor/keeper.json")
            await sl.Collector(store, options=AT_ONCE).compute()
            await store.put_if_absent(
                "cursor/late.json",
                open_json(before.data, None).replace(b'"offset":6', b'"offset":3'),
            )
            written = await store.get("cursor/late.json")
            with pytest.raises(Conflict, match="under way"):
                await (await sl.CursorStore(store).load("late")).move(2)
            assert (await store.get("cursor/late.json")).data == written.data
            await sl.Collector(store).cancel()
            back = await (await sl.CursorStore(store).load("late")).move(2)
            assert (back.holds(1), back.holds(3), back.holds(4)) == (2, 3, None)

        run(main())

    def test_a_loaded_cursor_is_not_believed_when_it_moves_on(self, store_url: str) -> None:
        """It was written behind the collector's back by one who died before looking."""

        async def main() -> None:
            store = await made(store_url, cursor=6)
            gate = GateStore(sl.open_store(store), MANIFEST_PATH)
            sleeper = sl.Collector(gate, options=AT_ONCE)
            await sleeper.compute()
            sleeping = asyncio.ensure_future(sleeper.publish())
            await gate.arrived.wait()
            blob = await store.get("cursor/keeper.json")
            await store.put_if_absent(
                "cursor/late.json", open_json(blob.data, None).replace(b'"offset":6', b'"offset":3')
            )
            late = await sl.CursorStore(store).load("late")
            with pytest.raises(Conflict, match="under way"):
                await late.move(4)
            gate.open()
            assert (await sleeping).first_offset == 6

        run(main())

    def test_a_cursor_that_never_counted_holds_nothing_back(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=4)
            await sl.collect(store, options=AT_ONCE)
            blob = await store.get("cursor/keeper.json")
            await store.put_if_absent(
                "cursor/dead.json", open_json(blob.data, None).replace(b'"offset":4', b'"offset":2')
            )
            keeper = await sl.CursorStore(store).load("keeper")
            await keeper.move(7)
            assert (await sl.Collector(store).preview()).ignored == ("dead",)
            assert (await sl.collect(store, options=AT_ONCE)).first_offset == 7
            keeper = await sl.CursorStore(store).load("keeper")
            await keeper.delete()
            with pytest.raises(Invalid, match="no cursor of this log counts"):
                await sl.collect(store, options=AT_ONCE)

        run(main())


class TestBesideOthers:
    def test_a_live_writer_rebases_and_loses_nothing(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=6)
            async with sl.LogWriter.open(store) as log:
                await log.append(b"10")
                await sl.collect(store, options=AT_ONCE)
                assert (await log.append(b"11")).offset == 11
                assert log.stats["rebases"] == 1
            await check_collected(store, 6, 12)

        run(main())

    def test_published_through_the_live_writer_it_costs_no_lost_put(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=6)
            async with sl.LogWriter.open(store) as log:
                await log.append(b"10")
                await sl.collect(store, log_writer=log, options=AT_ONCE)
                assert log.manifest.first_offset == 6
                assert (await log.append(b"11")).offset == 11
                assert log.stats["rebases"] == 0
                assert log.stats["manifest_conflicts"] == 0
            await check_collected(store, 6, 12)

        run(main())

    def test_a_writer_that_is_behind_lets_the_collector_publish(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=6)
            async with sl.LogWriter.open(store) as log:
                await note_in_manifest(store, "somebody", "was here")
                await sl.collect(store, log_writer=log, options=AT_ONCE)
                assert (await log.append(b"10")).offset == 10
            await check_collected(store, 6, 11)

        run(main())

    def test_appends_while_it_runs(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=8)
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4)
            async with sl.LogWriter.open(store, options=options) as log:
                appending = asyncio.gather(*(log.append(b"more") for _ in range(20)))
                collecting = asyncio.ensure_future(sl.collect(store, options=AT_ONCE))
                for number in range(20):
                    await log.append(b"%d" % number)
                await appending
                await collecting
            rows = await check_whole_log(store)
            assert [offset for offset, _, _ in rows] == list(range(8, 50))

        run(main())

    def test_a_plan_that_a_roll_up_overtook_is_made_again(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, (LEAF, LEAF, LEAF, LEAF), cursor=3)
            collector = sl.Collector(store, options=AT_ONCE)
            await collector.compute()
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4)
            async with sl.LogWriter.open(store, options=options) as log:
                for number in range(5, 12):
                    await log.append(b"%d" % number)
            with pytest.raises(Conflict, match="tree has changed"):
                await collector.publish()
            assert (await collector.collect()).first_offset == 3
            await sweep(store)
            await check_collected(store, 3, 12)

        run(main())

    def test_a_reader_that_was_there_before_goes_on_or_is_told_where_the_log_starts(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=6)
            async with sl.LogReader.open(store, options=sl.ReaderOptions(cache_bytes=0)) as reader:
                fragments = await reader.scan()
                await sl.collect(store, options=AT_ONCE)
                with pytest.raises(Trimmed) as refusal:
                    await reader.fetch(fragments[0])
                assert refusal.value.first_offset == 6
                rows = [record.body async for record in reader.records(from_offset=6)]
                assert rows == [b"6", b"7", b"8", b"9"]

        run(main())

    def test_an_epoch_raised_by_a_sweep_undoes_the_plan(self, store_url: str) -> None:
        """The nodes that the plan made may have been swept: they are made again elsewhere."""

        async def main() -> None:
            store = await made(store_url, cursor=4)
            collector = sl.Collector(store, options=AT_ONCE)
            await collector.compute()
            await rewrite_manifest(
                store, lambda m: sl.Manifest.from_json(_with_epoch(m.to_json(), m.sweep_epoch + 1))
            )
            with pytest.raises(Conflict, match="tree has changed"):
                await collector.publish()
            await sl.collect(store, options=AT_ONCE)
            await check_collected(store, 4, 10)

        run(main())

    def test_followers_see_every_record_once(self) -> None:
        async def main() -> None:
            store = await made(MemoryStore(), cursor=1)
            cursor = await sl.CursorStore(store).load("keeper")
            seen: list[int] = []
            async with sl.LogReader.open(store) as reader, sl.LogWriter.open(store) as log:
                async for batch in reader.follow(1, idle_timeout_s=0.3):
                    seen += batch.column(0).to_pylist()
                    if len(seen) < 15:
                        await log.append(b"more")
                        cursor = await cursor.move(seen[-1])
                        await sl.collect(store, options=AT_ONCE)
            assert seen == list(range(1, seen[-1] + 1))
            assert len(seen) >= 15

        run(main())


def _with_epoch(data: bytes, epoch: int) -> bytes:
    return data[:-1] + b',"sweep_epoch":%d}' % epoch
