"""Repair: a snapshot is rebuilt where its fragments prove it, and nothing else is ever changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, run_until_crash, sides_of
from objectlog.planted_damage import (
    PLANTERS,
    Victim,
    a_child_that_was_dropped,
    a_flipped_bit_of_a_body,
    a_missing_fragment,
    a_missing_snapshot,
    a_missing_snapshot_below_another,
    a_snapshot_of_another_depth,
    a_snapshot_that_states_another_sum,
    a_snapshot_without_children,
    a_truncated_snapshot,
    children_with_a_gap,
)
from objectlog.trees import LEAF, MadeLog
from objectlog.whole_log import (
    SMALL_TREE,
    check_whole_log,
    collect_roots,
    raise_sweep_epoch,
    rows_of,
    run,
    sweep,
)
from objectlog.wrapped_stores import PassingStore, Puts, TrickyStore
from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.check.damage import DamageKind
from stratalog.objectlog.check.rebuild_nodes import RepairReport, repair
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.stored.fragment import encode_fragment, fragment_path
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, load_manifest
from stratalog.setsum import Setsum
from stratalog.store import Blob, MemoryStore
from stratalog.testing import History, Row

replace = msgspec.structs.replace


async def repaired(url: sl.Store | str) -> RepairReport:
    return await repair(url, await scrub(url))


async def contents(store: sl.Store) -> dict[str, bytes]:
    return {row.path: (await store.get(row.path)).data async for row in store.list()}


async def expect_unchanged(victim: Victim, reason: str) -> None:
    """A repair that refuses, says why, and changes nothing."""
    before = await contents(victim.store)
    outcome = await repaired(victim.store)
    assert outcome.repaired == ()
    assert not outcome.complete
    assert any(reason in left.reason for left in outcome.not_repaired), outcome
    assert await contents(victim.store) == before


class TestWhatCanBeProven:
    @pytest.mark.parametrize(
        "planter",
        [
            a_missing_snapshot,
            a_missing_snapshot_below_another,
            a_truncated_snapshot,
            a_snapshot_without_children,
            a_snapshot_that_states_another_sum,
            a_snapshot_of_another_depth,
            a_child_that_was_dropped,
        ],
    )
    def test_a_damaged_snapshot_is_rebuilt_on_every_store(
        self, store_url: str, planter: Callable[[Victim], Awaitable[set[tuple[DamageKind, str]]]]
    ) -> None:
        async def main() -> None:
            victim = await Victim.make(sl.open_store(store_url))
            rows = await check_whole_log(store_url)
            damaged = {path for _, path in await planter(victim)}
            outcome = await repaired(store_url)
            assert outcome.complete
            assert {each.path for each in outcome.repaired} == damaged
            assert (await scrub(store_url)).clean
            assert await check_whole_log(store_url) == rows
            manifest, _ = await load_manifest(sl.open_store(store_url))
            assert manifest.setsum == victim.manifest.setsum
            assert manifest.acc_bytes == victim.manifest.acc_bytes
            assert manifest.write_id != victim.manifest.write_id

        run(main())

    def test_several_snapshots_are_rebuilt_one_after_the_other(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            rows = await rows_of(victim.store)
            for pointer in (victim.deep, victim.flat, *victim.node(victim.deep).snapshots):
                await victim.store.delete_many([pointer.path])
            outcome = await repaired(victim.store)
            assert [each.path for each in outcome.repaired] == [
                victim.flat.path,
                victim.deep.path,
            ], "first the one that has a neighbour, and what is below a node along with it"
            assert outcome.complete
            assert await check_whole_log(victim.store) == rows

        run(main())

    @pytest.mark.parametrize("fragments", [4, 5, 8, 130, 300])
    def test_a_rebuilt_tree_is_as_deep_as_before(self, fragments: int) -> None:
        async def main() -> None:
            half = fragments // 2
            deep = ((LEAF,) * half, (LEAF,) * (fragments - half))
            made = MadeLog((deep, LEAF), encoded=True)
            store = MemoryStore()
            await made.store(store)
            rows = await rows_of(store)
            await store.delete_many([*made.nodes])
            assert (await repaired(store)).complete
            assert await check_whole_log(store) == rows
            manifest, _ = await load_manifest(store)
            assert [each.depth for each in manifest.snapshots] == [2]

        run(main())

    def test_the_log_of_a_writer_is_rebuilt_after_collection(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True, options=SMALL_TREE) as log:
                for number in range(40):
                    await log.append_many([b"%d.%d" % (number, i) for i in range(3)])
            await collect_roots(store_url, 1)
            rows = await check_whole_log(store_url)
            store = sl.open_store(store_url)
            manifest, _ = await load_manifest(store)
            await store.delete_many([each.path for each in manifest.snapshots])
            assert (await repaired(store_url)).complete
            assert await check_whole_log(store_url) == rows
            async with sl.LogWriter.open(store_url, options=SMALL_TREE) as log:
                for number in range(20):
                    await log.append(b"after %d" % number)
            assert len(await check_whole_log(store_url)) == len(rows) + 20

        run(main())

    def test_fragments_that_were_never_linked_do_not_get_in(self) -> None:
        """A fenced writer left other records for the same places, some of them equal in size."""

        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            rows = await rows_of(victim.store)
            for entry in victim.below(victim.flat):
                assert isinstance(entry.seq_no, int)
                bodies = [b"x" * len(b"%d" % offset) for offset in range(16, 19)]
                orphan = encode_fragment(
                    entry.start.offset, entry.start.timestamp_us, bodies, "none"
                )
                for upload, data in enumerate((orphan.data, b"not Parquet"), 1):
                    path = fragment_path(entry.seq_no, "000000000000", upload)
                    await victim.store.put_if_absent(path, data)
            await a_missing_snapshot(victim)
            assert (await repaired(victim.store)).complete
            assert await check_whole_log(victim.store) == rows

        run(main())

    def test_a_snapshot_that_was_restored_meanwhile_is_left_alone(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_snapshot(victim)
            report = await scrub(victim.store)
            await victim.store.put_if_absent(victim.flat.path, victim.node(victim.flat).to_json())
            before = await contents(victim.store)
            outcome = await repair(victim.store, report)
            assert outcome == RepairReport()
            assert await contents(victim.store) == before

        run(main())

    def test_a_snapshot_that_was_collected_meanwhile_is_left_alone(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            pointer = victim.node(victim.deep).snapshots[0]
            report = await scrub(RefusingGet(victim.store, pointer.path))
            assert report.damages
            await collect_roots(victim.store, 1)
            assert await repair(victim.store, report) == RepairReport()
            assert (await scrub(victim.store)).clean

        run(main())


class RefusingGet(PassingStore):
    """One object reads as if its bytes were lost."""

    def __init__(self, inner: sl.Store, path: str) -> None:
        super().__init__(inner)
        self.path = path

    async def get(self, path: str) -> Blob:
        blob = await super().get(path)
        return Blob(b"") if path == self.path else blob


class TestWhatCannotBeProven:
    def test_a_snapshot_with_a_missing_fragment_is_left_as_it_is(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_snapshot(victim)
            await victim.store.delete_many([victim.below(victim.flat)[0].path])
            await expect_unchanged(victim, "not all of its fragments can be read")

        run(main())

    def test_a_snapshot_with_a_changed_record_is_left_as_it_is(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_snapshot(victim)
            entry = victim.below(victim.flat)[0]
            bad = bytearray(victim.made.data[entry.path])
            bad[bad.index(b"%d" % entry.start.offset)] ^= 1
            await victim.put(entry.path, bytes(bad))
            await expect_unchanged(victim, "do not add up to what it held")

        run(main())

    def test_a_snapshot_whose_pointer_is_wrong_is_left_as_it_is(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_snapshot(victim)
            larger = replace(victim.flat, num_bytes=victim.flat.num_bytes + 1)
            await victim.put_manifest(
                snapshots=(victim.deep, larger), acc_bytes=victim.manifest.acc_bytes + 1
            )
            await expect_unchanged(victim, "do not add up to what it held")

        run(main())

    @pytest.mark.parametrize("planter", [a_missing_fragment, a_flipped_bit_of_a_body])
    def test_a_lost_record_is_never_made_up(
        self, planter: Callable[[Victim], Awaitable[object]]
    ) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await planter(victim)
            await expect_unchanged(victim, "from a copy of the bucket")

        run(main())

    def test_fragments_with_relative_offsets_do_not_prove_their_place(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_snapshot(victim)
            entry = victim.below(victim.flat)[1]
            relative = replace_first_column(victim.made.data[entry.path])
            await victim.put(entry.path, relative)
            await expect_unchanged(victim, "not all of its fragments can be read")

        run(main())

    def test_a_damaged_manifest_stops_it(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_snapshot(victim)
            await victim.put_manifest(setsum=Setsum.of(b"other"))
            report = await scrub(victim.store)
            before = await contents(victim.store)
            with pytest.raises(Corrupt):
                await repair(victim.store, report)
            assert await contents(victim.store) == before

        run(main())

    def test_a_log_of_another_program_is_not_touched(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            await a_missing_snapshot(victim)
            await victim.put_manifest(write_id=None)
            report = await scrub(victim.store)
            with pytest.raises(Invalid, match="made by another program"):
                await repair(victim.store, report)

        run(main())

    @pytest.mark.parametrize("name", PLANTERS)
    def test_whatever_was_planted_no_repair_makes_it_worse(self, name: str) -> None:
        """Every record that could be read before can be read after, and is the same."""

        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            rows = await rows_of(victim.store)
            await PLANTERS[name][1](victim)
            report = await scrub(victim.store)
            before = await readable(victim.store)
            try:
                outcome = await repair(victim.store, report)
            except (Corrupt, Invalid, sl.errors.NotFound):
                assert await readable(victim.store) == before
                return
            after = await readable(victim.store)
            assert set(before) <= set(after) <= {*before, *rows}
            if outcome.complete:
                assert (await scrub(victim.store)).clean

        run(main())


async def readable(store: sl.Store) -> list[Row]:
    """All records that a reader gives, one by one."""
    rows: list[Row] = []
    for offset in range(1, 28):
        try:
            async with sl.LogReader.open(store) as reader:
                found = [each async for each in reader.records(offset, offset + 1)]
                rows += [(each.offset, each.timestamp_us, each.body) for each in found]
        except sl.StratalogError:
            continue
    return rows


def replace_first_column(data: bytes) -> bytes:
    """The same records with relative offsets."""
    table = pq.read_table(pa.BufferReader(data))
    relative = pa.array(range(len(table)), pa.uint64())
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(0, "relative_offset", relative), sink)
    return bytes(sink.getvalue())


class Meanwhile(PassingStore):
    """Lets something happen just before the manifest is put for the first time."""

    def __init__(self, inner: sl.Store, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().put_if_match(path, data, etag)


class TestBesideOthers:
    @pytest.mark.parametrize("other", ["append", "roll-up", "epoch", "sweep", "collection"])
    def test_what_others_do_meanwhile_is_kept(self, other: str) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            rows = await rows_of(victim.store)
            await a_missing_snapshot(victim)
            report = await scrub(victim.store)

            async def append(count: int) -> None:
                async with sl.LogWriter.open(victim.store, options=SMALL_TREE) as log:
                    for number in range(count):
                        await log.append(b"%d" % number)

            others: dict[str, Callable[[], Awaitable[object]]] = {
                "append": lambda: append(1),
                "roll-up": lambda: append(9),
                "epoch": lambda: raise_sweep_epoch(victim.store),
                "sweep": lambda: self._sweep_of_the_new_nodes(victim.store),
                "collection": lambda: self._collect_deep(victim),
            }
            outcome = await repair(Meanwhile(victim.store, others[other]), report)
            assert outcome.complete
            after = await check_whole_log(victim.store)
            added = {"append": 1, "roll-up": 9}.get(other, 0)
            kept = rows[15:] if other == "collection" else rows
            assert after[: len(kept)] == kept
            assert len(after) == len(kept) + added
            assert (await scrub(victim.store)).clean

        run(main())

    async def _sweep_of_the_new_nodes(self, store: sl.Store) -> None:
        """What a sweep does that listed the uploads: it raises the epoch and deletes them."""
        manifest, _ = await load_manifest(store)
        linked = {pointer.path for pointer in manifest.snapshots}
        await raise_sweep_epoch(store)
        doomed = [row.path async for row in store.list("snapshot/") if "000000" not in row.path]
        await store.delete_many(
            [path for path in doomed if path not in linked and await self._is_new(store, path)]
        )

    async def _is_new(self, store: sl.Store, path: str) -> bool:
        node = sl.Snapshot.from_json((await store.get(path)).data, path)
        return node.writer != "made"

    async def _collect_deep(self, victim: Victim) -> None:
        deep = victim.deep
        await victim.put_manifest(
            snapshots=(victim.flat,),
            collected=deep.setsum,
            initial_offset=victim.flat.start,
            write_id="collected",
        )
        doomed = [deep.path, *(each.path for each in victim.below(deep))]
        await victim.store.delete_many(doomed)

    @pytest.mark.parametrize("trick", ["lost", "echoed", "dropped", "refused"])
    def test_a_lost_answer_is_settled(self, trick: str) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            rows = await rows_of(victim.store)
            await a_missing_snapshot_below_another(victim)
            report = await scrub(victim.store)
            tricky = TrickyStore(victim.store, MANIFEST_PATH, [trick])  # type: ignore[list-item]
            outcome = await repair(tricky, report)
            assert outcome.complete
            assert await check_whole_log(victim.store) == rows

        run(main())

    def test_what_was_replaced_is_left_to_the_sweep(self) -> None:
        async def main() -> None:
            victim = await Victim.make(MemoryStore())
            rows = await rows_of(victim.store)
            await children_with_a_gap(victim)
            (rebuilt,) = (await repaired(victim.store)).repaired
            assert (await victim.store.get(victim.flat.path)).data, "still there"
            assert victim.flat.path in await sweep(victim.store)
            assert await check_whole_log(victim.store) == rows
            assert rebuilt.path == victim.flat.path

        run(main())


class TestCrashes:
    def test_a_crash_at_any_step_leaves_a_log_that_can_be_repaired(self) -> None:
        async def prepared() -> tuple[MemoryStore, list[Row]]:
            victim = await Victim.make(MemoryStore())
            rows = await rows_of(victim.store)
            await a_missing_snapshot_below_another(victim)
            await a_missing_snapshot(victim)
            return victim.store, rows  # type: ignore[return-value]

        async def script(store: sl.Store, history: History) -> None:
            await repair(store, await scrub(store))

        def life(point: CrashPoint | None) -> list[CrashPoint]:
            store, rows = run(prepared())
            history = History(Random(1).random)
            operations = run_until_crash(store, script, point, history, Puts())

            async def check() -> None:
                assert (await repaired(store)).complete
                assert await check_whole_log(store) == rows
                assert (await scrub(store)).clean

            run(check())
            return sides_of(operations)

        points = life(None)
        assert len(points) > 20
        for point in points:
            life(point)
