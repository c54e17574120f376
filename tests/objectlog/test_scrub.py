"""Behaviour 23: a good log scrubs clean, and each kind of damage is found and named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec
import pytest

import stratalog as sl
from objectlog.planted_damage import (
    FRAGMENTS,
    PLANTERS,
    RECORDS,
    SNAPSHOTS,
    Expected,
    Planter,
    Victim,
    a_cursor_that_is_none,
    a_flipped_bit_of_a_body,
    a_fragment_of_zeros,
    a_manifest_with_another_sum,
    a_missing_fragment,
    a_missing_snapshot,
    a_missing_snapshot_below_another,
    a_plan_that_is_none,
    a_truncated_fragment,
    two_exchanged_fragments,
)
from objectlog.trees import LEAF, MadeLog, shapes
from objectlog.whole_log import (
    SMALL_TREE,
    check_whole_log,
    collect_roots,
    reachable,
    replace_bytes,
    rows_of,
    run,
    sweep,
)
from objectlog.wrapped_stores import CountingStore, PassingStore
from stratalog.errors import Corrupt, Denied, Invalid, NotFound, StratalogError, Unavailable
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.check.damage import DamageKind
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.check.scrub_report import ScrubReport
from stratalog.objectlog.collection.collector import collect
from stratalog.objectlog.options import CollectorOptions, ScrubOptions
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.objectlog.stored.snapshot import Entry
from stratalog.setsum import Setsum
from stratalog.store import Blob, Head, MemoryStore
from stratalog.testing import Simulation, simulate

FIXTURES = Path(__file__).parents[1] / "fixtures"
HERE = ScrubOptions(processes=0)
AT_ONCE = CollectorOptions(interval_s=0)
replace = msgspec.structs.replace


def found_by(report: ScrubReport) -> Expected:
    return {(each.kind, each.path) for each in (*report.damages, *report.remarks)}


async def scrub_clean(url: sl.Store | str, options: ScrubOptions = HERE) -> ScrubReport:
    report = await scrub(url, options=options)
    assert found_by(report) == set()
    assert report.clean
    return report


async def make(url: sl.Store | str, appends: int = 40) -> None:
    """A log with a tree of several levels, as a writer makes it."""
    async with sl.LogWriter.open(url, create=True, options=SMALL_TREE) as log:
        for number in range(appends):
            await log.append_many([b"%d.%d" % (number, i) for i in range(3)])


class HookedStore(PassingStore):
    """Lets something happen just before the n-th object is read."""

    def __init__(
        self, inner: sl.Store, turn: int, meanwhile: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(inner)
        self.left = turn
        self.meanwhile = meanwhile

    async def get(self, path: str) -> Blob:
        self.left -= 1
        if self.left == 0:
            await self.meanwhile()
        return await super().get(path)


class RefusingStore(PassingStore):
    """Does not give some of its objects."""

    def __init__(self, inner: sl.Store, refused: str, error: type[StratalogError]) -> None:
        super().__init__(inner)
        self.refused = refused
        self.error = error

    async def get(self, path: str) -> Blob:
        if path.startswith(self.refused):
            raise self.error(f"{path}: refused on purpose", path=path)
        return await super().get(path)

    async def head(self, path: str) -> Head:
        await self.get(path)
        return await super().head(path)


class TestAGoodLog:
    def test_it_is_clean_on_every_store(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url)
            await sl.CursorStore(store_url).create("reader", 5)
            rows = await check_whole_log(store_url)
            report = await scrub_clean(store_url)
            paths = await reachable(store_url)
            assert report.records == len(rows)
            assert report.fragments == sum(path.startswith("log/") for path in paths)
            assert report.snapshots == sum(path.startswith("snapshot/") for path in paths) > 3
            store = sl.open_store(store_url)
            sizes = [row.size async for row in store.list("log/") if row.path in paths]
            assert report.num_bytes == sum(sizes)
            assert (report.first_offset, report.limit_offset) == (1, len(rows) + 1)
            assert report.next_offset == report.limit_offset

        run(main())

    def test_an_empty_log_is_clean(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            report = await scrub_clean(store_url)
            assert (report.records, report.fragments, report.next_offset) == (0, 0, 1)

        run(main())

    def test_a_collected_log_is_clean(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url)
            first = await collect_roots(store_url, 1)
            report = await scrub_clean(store_url)
            assert report.first_offset == first > 1
            assert report.records == report.limit_offset - first

        run(main())

    def test_a_log_collected_at_any_offset_is_clean_whatever_its_tree(self) -> None:
        """Behaviour 17, seen from here: not even a remark is left."""

        async def main() -> None:
            for shape in shapes(5, 3):
                for cut in range(2, 12):
                    store = MemoryStore()
                    await MadeLog(shape, records=2, encoded=True).store(store)
                    await sl.CursorStore(store).create("reader", cut)
                    await collect(store, options=AT_ONCE)
                    report = await scrub_clean(store)
                    assert report.first_offset <= cut < report.first_offset + 2

        run(main())

    def test_a_fork_is_clean(self, store_url: str) -> None:
        async def main() -> None:
            source, target = f"{store_url}/source", f"{store_url}/target"
            await make(source, 12)
            await fork(source, target, at=25)
            await make(target, 3)
            report = await scrub_clean(target)
            assert report.records == 24 + 9

        run(main())

    def test_a_place_without_a_log_is_not_found(self, store_url: str) -> None:
        with pytest.raises(NotFound) as caught:
            run(scrub(store_url))
        assert "stratalog init" in caught.value.hint

    def test_nothing_is_written(self) -> None:
        async def main() -> None:
            store = CountingStore(MemoryStore())
            await make(store, 10)
            store.reset()
            await scrub_clean(store)
            assert store.writes == 0
            assert len(store.paths_read) == len(set(store.paths_read)), "read once each"

        run(main())

    def test_a_log_with_relative_offsets_is_clean_and_bound_to_its_places(self) -> None:
        """Their sum says nothing about their place, so name, number and count must."""

        async def main() -> None:
            store = MemoryStore()
            data = (FIXTURES / "fragment-relative.parquet").read_bytes()
            setsum = Setsum.from_hexdigest(
                "8ab4181e47a93dd5fb9d21f9bae97f6b89a8addc734d3b261fe039d63e90869c"
            )
            made = MadeLog((LEAF, LEAF), records=3)
            at_us = 1234567890123456
            entries = [
                replace(
                    entry,
                    setsum=setsum,
                    num_bytes=len(data),
                    start=sl.LogPosition(entry.start.offset, at_us),
                    limit=sl.LogPosition(entry.limit.offset, at_us),
                )
                for entry in made.manifest.fragments
            ]
            for entry in entries:
                await store.put_if_absent(entry.path, data)

            async def scrub_with(*fragments: sl.Fragment) -> ScrubReport:
                total = Setsum.total(each.setsum for each in fragments)
                size = sum(each.num_bytes for each in fragments)
                manifest = replace(made.manifest, fragments=fragments, setsum=total, acc_bytes=size)
                await replace_bytes(store, MANIFEST_PATH, manifest.to_json())
                return await scrub(store)

            assert (await scrub_with(*entries)).clean
            first, second = entries
            exchanged = await scrub_with(
                replace(first, path=second.path), replace(second, path=first.path)
            )
            assert found_by(exchanged) == {
                (DamageKind.FRAGMENT_PATH, first.path),
                (DamageKind.FRAGMENT_PATH, second.path),
            }
            renumbered = await scrub_with(
                replace(first, path=second.path, seq_no=second.seq_no),
                replace(second, path=first.path, seq_no=first.seq_no),
            )
            assert found_by(renumbered) == {(DamageKind.SEQUENCE_GAP, first.path)}
            shorter = replace(second, limit=sl.LogPosition(second.limit.offset - 1, at_us))
            assert found_by(await scrub_with(first, shorter)) == {
                (DamageKind.FRAGMENT_COUNT, second.path)
            }

        run(main())

    def test_a_log_of_wal3_is_clean(self) -> None:
        """No times, no write id, a node whose name is its sum alone and its child's as well."""

        async def main() -> None:
            store = MemoryStore()
            victim = await Victim.make(store)
            named = f"snapshot/SNAPSHOT.{victim.flat.setsum.hexdigest()}"
            node = replace(victim.node(victim.flat), path=named)
            pointer = replace(victim.flat, path_to_snapshot=named)
            await store.put_if_absent(named, node.to_json())
            await victim.put_manifest(
                snapshots=(victim.deep, replace(pointer, depth=2)),
                write_id=None,
                format=None,
                linked=None,
            )
            await scrub_clean(store)

        run(main())

    def test_what_belongs_to_another_log_is_examined_there(self, store_url: str) -> None:
        async def main() -> None:
            owner = await Victim.make(sl.open_store(f"{store_url}/owner"))
            base = owner.store.url
            manifest = replace(
                owner.manifest,
                snapshots=tuple(replace(each, base=base) for each in owner.manifest.snapshots),
                fragments=tuple(replace(each, base=base) for each in owner.manifest.fragments),
            )
            fork = f"{store_url}/fork"
            await sl.open_store(fork).put_if_absent(MANIFEST_PATH, manifest.to_json())
            report = await scrub_clean(fork)
            assert (report.records, report.snapshots) == (RECORDS, SNAPSHOTS)
            expected = await a_missing_fragment(owner) | await a_missing_snapshot(owner)
            report = await scrub(fork)
            assert found_by(report) == expected
            assert {damage.base for damage in report.damages} == {base}

        run(main())


class TestEachKindOfDamage:
    @pytest.mark.parametrize("name", PLANTERS)
    def test_it_is_found_and_nothing_else_is(self, name: str) -> None:
        async def main() -> None:
            _, planter = PLANTERS[name]
            victim = await Victim.make(MemoryStore())
            await scrub_clean(victim.store)
            expected = await planter(victim)
            report = await scrub(victim.store)
            assert found_by(report) == expected
            remarks_only = all(kind.is_remark for kind, _ in expected)
            assert report.clean == remarks_only
            assert report.finished

        run(main())

    @pytest.mark.parametrize(
        "planter",
        [
            a_missing_fragment,
            a_truncated_fragment,
            two_exchanged_fragments,
            a_flipped_bit_of_a_body,
            a_missing_snapshot,
            a_missing_snapshot_below_another,
            a_manifest_with_another_sum,
            a_cursor_that_is_none,
            a_plan_that_is_none,
        ],
    )
    def test_it_is_found_on_every_store(self, store_url: str, planter: Planter) -> None:
        async def main() -> None:
            victim = await Victim.make(sl.open_store(store_url))
            expected = await planter(victim)
            assert found_by(await scrub(store_url)) == expected

        run(main())

    def test_every_kind_has_a_test(self) -> None:
        planted = {kind for kind, _ in PLANTERS.values()}
        assert planted | {DamageKind.OBJECT_REFUSED} == set(DamageKind)

    def test_every_kind_says_what_it_means_and_what_to_do(self) -> None:
        for kind in DamageKind:
            assert kind.meaning.endswith(".")
            assert kind.remedy.endswith(".")
            assert kind.value == kind.name.lower().replace("_", "-")
            assert msgspec.convert(kind.value, DamageKind) is kind

    def test_a_damage_names_the_offsets_and_what_was_expected(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_flipped_bit_of_a_body(victim)
            (damage,) = (await scrub(victim.store)).damages
            entry = victim.fragments[7]
            assert (damage.start, damage.limit) == (22, 25)
            assert damage.expected == entry.setsum.hexdigest()
            assert isinstance(damage.actual, str)
            assert damage.actual != damage.expected
            assert damage.to_dict()["meaning"] == DamageKind.FRAGMENT_SUM.meaning

        run(main())

    def test_many_damages_are_all_found_in_one_run(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            expected: Expected = set()
            for planter in (
                a_missing_fragment,
                a_truncated_fragment,
                a_fragment_of_zeros,
                a_missing_snapshot,
                a_flipped_bit_of_a_body,
                a_manifest_with_another_sum,
                a_cursor_that_is_none,
                a_plan_that_is_none,
            ):
                expected |= await planter(victim)
            report = await scrub(victim.store)
            assert found_by(report) == expected
            hidden = victim.flat.limit.offset - victim.flat.start.offset
            assert report.records == RECORDS - hidden - 3
            assert report.snapshots == SNAPSHOTS - 1

        run(main())

    def test_everything_missing_is_named_one_by_one(self, store_url: str) -> None:
        async def main() -> None:
            victim = await Victim.make(sl.open_store(store_url))
            paths = [each.path for each in victim.fragments]
            await victim.store.delete_many(paths)
            report = await scrub(store_url)
            assert [each.path for each in report.damages] == paths
            assert {each.kind for each in report.damages} == {DamageKind.FRAGMENT_MISSING}
            assert (report.fragments, report.records, report.num_bytes) == (0, 0, 0)
            await victim.store.delete_many([victim.deep.path, victim.flat.path])
            report = await scrub(store_url)
            assert [each.kind.value for each in report.damages] == [
                "snapshot-missing",
                "snapshot-missing",
                "fragment-missing",
                "fragment-missing",
            ]
            assert "offsets 1 to 15 were not examined" in report.damages[0].detail

        run(main())

    def test_whatever_a_reader_refuses_is_named(self) -> None:
        """Flipped bits all over a fragment, a node and the root."""

        async def main() -> None:
            store = MemoryStore()
            victim = await Victim.make(store)
            rows = await rows_of(store)
            random = Random(5)
            for path in (victim.fragments[0].path, victim.flat.path, MANIFEST_PATH):
                good = (await store.get(path)).data
                for position in random.sample(range(len(good)), 120):
                    bad = bytearray(good)
                    bad[position] ^= 1 << random.randrange(8)
                    await replace_bytes(store, path, bytes(bad))
                    try:
                        refused = await rows_of(store) != rows
                    except Corrupt:
                        refused = True
                    except Invalid:
                        continue  # a newer format
                    report = await scrub(store)
                    assert not refused or not report.clean, f"byte {position} of {path}"
                await replace_bytes(store, path, good)
            await scrub_clean(store)

        run(main())

    @pytest.mark.parametrize("error", [Denied, Unavailable])
    @pytest.mark.parametrize("what", ["fragment", "snapshot"])
    def test_an_object_that_the_store_does_not_give_is_named(
        self, what: str, error: type[StratalogError]
    ) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            entry = victim.fragments[1] if what == "fragment" else victim.flat
            store = RefusingStore(victim.store, entry.path, error)
            report = await scrub(store, options=ScrubOptions(timeout_s=0.01))
            assert found_by(report) == {(DamageKind.OBJECT_REFUSED, entry.path)}

        run(main())

    def test_a_store_that_gives_nothing_is_unavailable_not_damaged(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            store = RefusingStore(victim.store, "log/", Unavailable)
            seen: list[ScrubReport] = []

            async def cut() -> None:
                store.refused = ""

            hooked = HookedStore(store, SNAPSHOTS + 3, cut)
            with pytest.raises(Unavailable):
                await scrub(hooked, options=ScrubOptions(timeout_s=0.01), on_progress=seen.append)
            assert not seen

        run(main())

    def test_a_newer_format_is_refused_not_judged(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await victim.put_manifest(format="2.0")
            with pytest.raises(Invalid, match=r"format 2\.0"):
                await scrub(victim.store)

        run(main())

    def test_without_bodies_objects_are_looked_for_and_none_is_read(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            expected = await a_missing_fragment(victim)
            await a_flipped_bit_of_a_body(victim)
            path = victim.fragments[2].path
            await victim.put(path, b"short")
            store = CountingStore(victim.store)
            report = await scrub(store, options=ScrubOptions(bodies=False))
            assert found_by(report) == expected | {(DamageKind.FRAGMENT_SIZE, path)}
            assert not [read for read in store.paths_read if read.startswith("log/")]

        run(main())


class TestBesideOthers:
    """What writers, sweeps and collectors do is not damage, whenever they do it."""

    def test_a_collection_at_any_moment_is_no_damage(self) -> None:
        async def main() -> None:
            for turn in range(1, 3 + FRAGMENTS + SNAPSHOTS):
                victim = await Victim.make(MemoryStore())

                async def collect(victim: Victim = victim) -> None:
                    await collect_roots(victim.store, 1)

                store = HookedStore(victim.store, turn, collect)
                report = await scrub(store, options=ScrubOptions(fragments_max=1))
                assert store.left <= 0
                assert found_by(report) == set(), f"collected before read {turn}"
                assert report.next_offset == RECORDS + 1

        run(main())

    @pytest.mark.parametrize("cut", [4, 9, 13, 17, 24])
    def test_a_collection_that_replaces_nodes_is_no_damage(self, cut: int) -> None:
        async def main() -> None:
            for turn in range(2, 4 + FRAGMENTS + SNAPSHOTS):
                victim = await Victim.make(MemoryStore())
                await sl.CursorStore(victim.store).create("reader", cut)

                async def cut_off(victim: Victim = victim) -> None:
                    await collect(victim.store, options=AT_ONCE)

                store = HookedStore(victim.store, turn, cut_off)
                report = await scrub(store, options=ScrubOptions(fragments_max=1))
                assert found_by(report) == set(), f"collected before read {turn}"
                assert report.next_offset == RECORDS + 1

        run(main())

    def test_a_damage_is_still_found_beside_a_collection(self) -> None:
        async def main() -> None:
            for turn in range(1, 3 + FRAGMENTS + SNAPSHOTS):
                victim = await Victim.make(MemoryStore())
                kept = (victim.fragments[6].path, victim.fragments[8].path)
                await victim.store.delete_many(kept)

                async def collect(victim: Victim = victim) -> None:
                    deep = victim.deep
                    await victim.put_manifest(
                        snapshots=(victim.flat,),
                        collected=deep.setsum,
                        initial_offset=victim.flat.start,
                    )
                    doomed: list[Entry] = [deep, *victim.node(deep).snapshots, *victim.below(deep)]
                    await victim.store.delete_many([entry.path for entry in doomed])

                store = HookedStore(victim.store, turn, collect)
                report = await scrub(store, options=ScrubOptions(fragments_max=1))
                assert found_by(report) == {(DamageKind.FRAGMENT_MISSING, path) for path in kept}, (
                    f"collected before read {turn}"
                )

        run(main())

    @pytest.mark.parametrize("turn", range(2, 42, 3))
    def test_rollups_and_a_sweep_are_no_damage(self, turn: int) -> None:
        async def main() -> None:
            inner = MemoryStore()
            await make(inner, 14)

            async def rolled_up_and_swept() -> None:
                await make(inner, 9)
                assert await sweep(inner)

            store = HookedStore(inner, turn, rolled_up_and_swept)
            report = await scrub(store, options=ScrubOptions(fragments_max=2))
            assert found_by(report) == set()
            assert report.records == 3 * 14, "it ends where the log ended when it began"

        run(main())

    def test_a_live_writer_and_a_collector_never_cause_an_alarm(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url, 12)
            reports: list[ScrubReport] = []
            ended = False

            async def examine() -> None:
                while not ended:
                    reports.append(await scrub(store_url, options=HERE))

            scrubbing = asyncio.ensure_future(examine())
            async with sl.LogWriter.open(store_url, options=SMALL_TREE) as log:
                for number in range(40):
                    await log.append_many([b"%d" % number] * 3)
                    if number % 8 == 7:
                        await collect_roots(store_url, 1)
            ended = True
            await scrubbing
            assert len(reports) > 1
            for report in reports:
                assert found_by(report) == set()

        run(main())

    def test_a_log_that_is_destroyed_meanwhile_is_told(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())

            async def destroy() -> None:
                await victim.store.delete_many([MANIFEST_PATH, victim.fragments[2].path])

            store = HookedStore(victim.store, 6, destroy)
            report = await scrub(store, options=ScrubOptions(fragments_max=1))
            assert found_by(report) == {
                (DamageKind.MANIFEST_MISSING, MANIFEST_PATH),
                (DamageKind.FRAGMENT_MISSING, victim.fragments[2].path),
            }

        run(main())

    def test_a_scrub_runs_in_simulation(self) -> None:
        async def main(simulation: Simulation) -> ScrubReport:
            store = MemoryStore()
            await make(store, 12)
            return await scrub(store, runtime=simulation.node("a", store).runtime)

        report = simulate(main, seed=1)
        assert report.clean
        assert report == simulate(main, seed=1)


class Interrupt(Exception):
    """Ends a scrub from its progress."""


class TestResume:
    @pytest.mark.parametrize("after", range(1, FRAGMENTS + 1))
    def test_an_interrupted_scrub_goes_on_and_finds_the_same(self, after: int) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_fragment(victim)
            await a_flipped_bit_of_a_body(victim)
            whole = await scrub(victim.store)
            seen: list[ScrubReport] = []

            def stop(report: ScrubReport) -> None:
                seen.append(report)
                if len(seen) == after:
                    raise Interrupt

            options = ScrubOptions(fragments_max=2)
            with pytest.raises(Interrupt):
                await scrub(victim.store, options=options, on_progress=stop)
            stored = seen[-1].to_json()
            report = ScrubReport.from_json(stored)
            assert report == seen[-1]
            assert not report.finished
            store = CountingStore(victim.store)
            resumed = await scrub(store, resume=report)
            assert resumed == whole
            again = [path for path in store.paths_read if path.startswith("log/")]
            assert len(again) == FRAGMENTS - after

        run(main())

    def test_an_offset_is_enough_to_go_on(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            report = await scrub(victim.store, resume=16)
            assert report.clean
            assert (report.first_offset, report.records) == (16, RECORDS - 15)

        run(main())

    def test_a_finished_scrub_is_taken_up_where_the_log_went_on(self, store_url: str) -> None:
        async def main() -> None:
            await make(store_url, 5)
            before = await scrub_clean(store_url)
            await make(store_url, 4)
            report = await scrub(store_url, resume=before)
            assert report.clean
            assert (report.fragments, report.records) == (9, 27)

        run(main())

    def test_a_damage_that_was_collected_since_is_not_carried_on(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_fragment(victim)
            before = await scrub(victim.store)
            assert before.damages
            await collect_roots(victim.store, 1)
            assert (await scrub(victim.store, resume=before)).clean

        run(main())

    def test_the_report_of_another_log_is_refused(self) -> None:
        async def main() -> None:
            stores = [MemoryStore("one"), MemoryStore("two")]
            for store in stores:
                await make(store, 2)
            report = await scrub(stores[0])
            with pytest.raises(Invalid, match="report of memory://one"):
                await scrub(stores[1], resume=report)
            with pytest.raises(Invalid, match="not an offset"):
                await scrub(stores[0], resume=0)

        run(main())

    @pytest.mark.parametrize("data", [b"", b"[]", b'{"url":1}', b"\xff", b"{}", b"[" * 9999])
    def test_bytes_that_are_no_report_are_refused(self, data: bytes) -> None:
        with pytest.raises(Invalid, match="not the report of a scrub"):
            ScrubReport.from_json(data)

    def test_a_scrub_stops_at_too_much_damage_and_can_be_resumed(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            paths = [each.path for each in victim.fragments]
            await victim.store.delete_many(paths)
            options = ScrubOptions(damages_max=2, fragments_max=1)
            reports = [await scrub(victim.store, options=options)]
            while not reports[-1].finished:
                assert len(reports[-1].damages) >= 2 * len(reports)
                reports.append(await scrub(victim.store, options=options, resume=reports[-1]))
            assert [each.path for each in reports[-1].damages] == paths
            assert len(reports) > 2

        run(main())


class Watching(PassingStore):
    """Notes how many fragments are being read at one time."""

    def __init__(self, inner: sl.Store) -> None:
        super().__init__(inner)
        self.now: dict[str, int] = {}
        self.most = 0
        self.most_bytes = 0

    async def get(self, path: str) -> Blob:
        blob = await super().get(path)
        if path.startswith("log/"):
            self.now[path] = len(blob.data)
            self.most = max(self.most, len(self.now))
            self.most_bytes = max(self.most_bytes, sum(self.now.values()))
            for _ in range(5):
                await asyncio.sleep(0)
            del self.now[path]
        return blob


class TestBounds:
    @pytest.mark.parametrize("fragments_max", [1, 3, 8])
    def test_so_many_fragments_are_read_at_one_time(self, fragments_max: int) -> None:
        async def main() -> None:
            store = Watching(MemoryStore())
            await make(store, 30)
            await scrub_clean(store, ScrubOptions(fragments_max=fragments_max))
            assert store.most == fragments_max

        run(main())

    def test_so_many_bytes_are_read_at_one_time(self) -> None:
        async def main() -> None:
            store = Watching(MemoryStore())
            await make(store, 30)
            await scrub_clean(store, ScrubOptions(bytes_max=5_000))
            assert 1_000 < store.most_bytes <= 5_000
            await scrub_clean(store, ScrubOptions(bytes_max=1))
            assert store.most > 1, "from the run before"

        run(main())

    @pytest.mark.parametrize(
        "changes",
        [
            {"processes": -1},
            {"processes": 1000},
            {"processes": "2"},
            {"fragments_max": 0},
            {"bytes_max": 0},
            {"damages_max": 0},
            {"timeout_s": 0},
            {"bodies": 1},
        ],
    )
    def test_illegal_options_are_refused(self, changes: dict[str, object]) -> None:
        with pytest.raises(Invalid):
            ScrubOptions(**changes)  # type: ignore[arg-type]

    def test_a_cancelled_scrub_leaves_no_task_behind(self) -> None:
        async def main() -> None:
            store = Watching(MemoryStore())
            await make(store, 30)
            before = asyncio.all_tasks()
            work = asyncio.ensure_future(scrub(store))
            while not store.now:
                await asyncio.sleep(0)
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            assert asyncio.all_tasks() == before

        run(main())
