"""Behaviour 10: the root stays small and balanced, and the newest fragment stays in it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog as sl
from objectlog.whole_log import (
    SMALL_TREE,
    check_whole_log,
    collect_roots,
    depth_of,
    manifest_field,
    note_in_manifest,
    orphans,
    rewrite_manifest,
    run,
    sweep,
    walk,
)
from objectlog.wrapped_stores import CountingStore, GateStore, InspectingStore, TrickyStore
from stratalog.objectlog.stored.fragment import encode_fragment, fragment_path
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.objectlog.tree.fold import (
    Fold,
    apply_fold,
    children_of,
    make_snapshot,
    plan_fold,
)
from stratalog.objectlog.tree.link_fragments import link
from stratalog.store import MemoryStore
from stratalog.testing import Simulation, simulate


class TestBehaviour10RollUp:
    @pytest.mark.parametrize(
        ("rollup_entries", "snapshot_entries_max"), [(2, 2), (2, 3), (3, 8), (12, 64), (16, 16)]
    )
    def test_every_manifest_on_the_way_is_small_balanced_and_complete(
        self, rollup_entries: int, snapshot_entries_max: int
    ) -> None:
        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = InspectingStore(honest)
            options = sl.WriterOptions(
                rollup_entries=rollup_entries, snapshot_entries_max=snapshot_entries_max
            )
            async with sl.LogWriter.open(store, options=options) as log:
                for number in range(150):
                    await log.append(b"%d" % number)
            assert store.manifests == 150
            assert store.snapshots > 1
            assert len(await check_whole_log(honest)) == 150

        run(main())

    def test_on_every_store_with_many_appenders(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = InspectingStore(sl.open_store(store_url))
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4, fragment_bytes=60)
            async with sl.LogWriter.open(store, options=options) as log:

                async def appender(name: int) -> None:
                    for number in range(10):
                        await log.append(b"%d-%d-" % (name, number) + b"." * 30)

                await asyncio.gather(*(appender(name) for name in range(8)))
            assert store.snapshots > 1
            assert await depth_of(store_url) >= 1
            assert len(await check_whole_log(store_url)) == 80

        run(main())

    def test_the_tree_stays_shallow_and_the_root_narrow(self) -> None:
        """With twelve of a kind and 64 to a node, 400 fragments need one level of snapshots."""

        async def main() -> None:
            store = InspectingStore(MemoryStore())
            async with sl.LogWriter.open(store, create=True) as log:
                kinds: Counter[int] = Counter()
                for number in range(400):
                    await log.append(b"%d" % number)
                    kinds = Counter(pointer.depth for pointer in log.manifest.snapshots)
                    assert max(kinds.values(), default=0) <= 13
                    assert len(log.manifest.fragments) <= 26
                assert kinds.total() >= 1
            assert await depth_of(store) == 1
            assert store.largest < 16_000
            nodes = [e async for e in walk(store) if isinstance(e, sl.SnapshotPointer)]
            assert len(nodes) <= 10, "nodes are filled up before new ones are made"

        run(main())

    def test_long_names_and_full_tables_keep_the_root_within_its_bound(self) -> None:
        """The worst of everything: long labels, 64 incarnations, eight fragments a manifest."""

        async def main() -> None:
            store = InspectingStore(MemoryStore())
            await sl.create_log(store)
            options = sl.WriterOptions(
                fragment_bytes=10, rollup_entries=16, snapshot_entries_max=16, uploads_max=16
            )
            for opening in range(70):
                async with sl.LogWriter.open(store, writer="w" * 200, options=options) as log:
                    await log.append_many([b"%d-%d" % (opening, i) for i in range(8)])
            assert store.largest <= 32_000
            assert len(await check_whole_log(store)) == 70 * 8

        run(main())

    @pytest.mark.parametrize(
        ("rollup_entries", "snapshot_entries_max", "manifest_fragments_max"),
        [(2, 2, 8), (12, 12, 16), (12, 64, 16), (16, 16, 16), (16, 4096, 16), (2, 2, 16)],
    )
    def test_odd_options_keep_the_root_within_its_bound(
        self, rollup_entries: int, snapshot_entries_max: int, manifest_fragments_max: int
    ) -> None:
        """More is linked by each manifest than one roll-up takes away: linking waits for more."""

        async def main() -> None:
            store = InspectingStore(MemoryStore())
            options = sl.WriterOptions(
                fragment_bytes=20,
                compression="none",
                rollup_entries=rollup_entries,
                snapshot_entries_max=snapshot_entries_max,
                manifest_fragments_max=manifest_fragments_max,
            )
            async with sl.LogWriter.open(store, create=True, options=options) as log:
                for _ in range(100):
                    await log.append_many([b"x" * 20] * manifest_fragments_max)
            assert store.largest <= 32_000
            assert len(await check_whole_log(store.inner)) == 100 * manifest_fragments_max

        run(main())

    def test_writers_that_fence_each_other_all_the_time_still_roll_up(self) -> None:
        """A prepared snapshot outlives the incarnation that made it, if its children are there."""

        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = InspectingStore(honest)
            options = sl.WriterOptions(on_fenced="reopen")
            logs = [await sl.LogWriter.open(store, options=options) for _ in range(2)]
            for number in range(200):
                await logs[number % 2].append(b"%d" % number)
                assert len(logs[number % 2].manifest.fragments) <= 26
            for log in logs:
                await log.close()
            assert store.largest < 16_000
            assert store.snapshots < 60, "snapshots are stored in vain"
            assert len(await check_whole_log(honest)) == 200

        run(main())

    def test_roll_up_adds_no_round_trip(self) -> None:
        """While a snapshot is stored appends go on; each costs one fragment and one manifest."""

        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            gate = GateStore(honest, "snapshot/")
            store = CountingStore(gate)
            async with sl.LogWriter.open(store, options=SMALL_TREE) as log:
                for number in range(3):
                    await log.append(b"%d" % number)
                await gate.arrived.wait()
                store.reset()
                for number in range(3, 10):
                    await log.append(b"%d" % number)
                assert store.counts == {"put_if_absent": 7, "put_if_match": 7}
                gate.open()
                while not log.manifest.snapshots:
                    await log.append(b"more")
                assert store.counts["put_if_match"] == len(await check_whole_log(honest)) - 3

        run(main())

    def test_a_snapshot_that_cannot_be_stored_does_not_hold_up_appends(self) -> None:
        async def main(simulation: Simulation) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = TrickyStore(honest, "snapshot/", ["dropped"] * 10_000)
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4, timeout_s=5.0)
            async with sl.LogWriter.open(store, options=options, runtime=simulation.runtime) as log:
                for number in range(40):
                    await log.append(b"%d" % number)
                assert not log.manifest.snapshots
                await asyncio.sleep(10.0)
                store.tricks.clear()
                for number in range(40):
                    await log.append(b"again-%d" % number)
                    await asyncio.sleep(1.0)
                assert log.manifest.snapshots, "it did not try again"
            assert len(await check_whole_log(honest)) == 80

        simulate(main, seed=4)

    def test_a_root_that_strangers_filled_beyond_its_bound_still_takes_appends(self) -> None:
        """A field of another program may be larger than the bound; that must not stop the log."""

        async def main() -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True, options=SMALL_TREE) as log:
                await log.append(b"before")
            await note_in_manifest(store, "stranger", "x" * 40_000)
            async with sl.LogWriter.open(store, options=SMALL_TREE) as log:
                for number in range(20):
                    async with asyncio.timeout(10):
                        await log.append(b"%d" % number)
            assert await manifest_field(store, "stranger") == "x" * 40_000
            assert len(await check_whole_log(store)) == 21

        run(main())


class TestBehaviour10PreparedSnapshots:
    """A snapshot is used only if the manifest still holds exactly its children."""

    def test_it_is_dropped_when_its_children_were_collected(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), "snapshot/")
            log = await sl.LogWriter.open(gate, options=SMALL_TREE)
            for number in range(4):
                await log.append(b"%d" % number)
            await gate.arrived.wait()
            assert await collect_roots(store_url, 1) == 2
            gate.open()
            for number in range(4, 12):
                await log.append(b"%d" % number)
                await asyncio.sleep(0.002)
                assert (await check_whole_log(store_url))[0][0] == 2
            await log.close()
            assert len(await check_whole_log(store_url)) == 11
            async with sl.LogReader.open(store_url) as reader:
                assert reader.manifest.snapshots, "roll-up went on with what was left"

        run(main())

    def test_it_is_dropped_when_a_child_was_replaced(self, store_url: str) -> None:
        """As compaction does it: the same records under another name."""

        async def main() -> None:
            await sl.create_log(store_url)
            store = sl.open_store(store_url)
            gate = GateStore(store, "snapshot/")
            log = await sl.LogWriter.open(gate, options=SMALL_TREE)
            for number in range(4):
                await log.append(b"%d" % number)
            await gate.arrived.wait()
            old = log.manifest.fragments[1]
            new_path = fragment_path(2, "compactor", 1)
            await store.put_if_absent(new_path, (await store.get(old.path)).data)

            def replace(manifest: sl.Manifest) -> sl.Manifest:
                fragments = tuple(
                    msgspec.structs.replace(each, path=new_path) if each.path == old.path else each
                    for each in manifest.fragments
                )
                return msgspec.structs.replace(manifest, fragments=fragments)

            await rewrite_manifest(store, replace)
            await store.delete_many([old.path])
            gate.open()
            for number in range(4, 12):
                await log.append(b"%d" % number)
                await asyncio.sleep(0.002)
            await log.close()
            linked = {entry.path async for entry in walk(store)}
            assert new_path in linked
            assert old.path not in linked
            assert len(await check_whole_log(store_url)) == 12

        run(main())

    def test_it_is_dropped_when_another_writer_rolled_up_the_same(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), "snapshot/")
            reopen = sl.WriterOptions(on_fenced="reopen", rollup_entries=2, snapshot_entries_max=4)
            log = await sl.LogWriter.open(gate, options=reopen)
            for number in range(4):
                await log.append(b"%d" % number)
            await gate.arrived.wait()
            async with sl.LogWriter.open(store_url, options=SMALL_TREE) as other:
                for number in range(4, 10):
                    await other.append(b"%d" % number)
                    await asyncio.sleep(0.002)
            gate.open()
            for number in range(10, 16):
                await log.append(b"%d" % number)
                await asyncio.sleep(0.002)
            await log.close()
            rows = await check_whole_log(store_url)
            assert [body for _, _, body in rows] == [b"%d" % number for number in range(16)]
            assert await orphans(store_url), "the dropped snapshot is left to the sweep"
            await sweep(store_url)
            assert await orphans(store_url) == set()
            assert len(await check_whole_log(store_url)) == 16

        run(main())


class PureLog:
    """A log without records or a store: only the root, and the nodes that were made for it."""

    def __init__(self, rollup_entries: int, entries_max: int) -> None:
        self.rollup_entries = rollup_entries
        self.entries_max = entries_max
        self.manifest = sl.Manifest.empty("me", "0")
        self.nodes: dict[str, sl.Snapshot] = {}

    def link(self, count: int) -> None:
        first = self.manifest.next_seq_no
        fragments = [
            sl.Fragment(
                path=fragment_path(seq_no, "incarnation0", seq_no),
                seq_no=seq_no,
                start=sl.LogPosition(seq_no, 1_000 + seq_no),
                limit=sl.LogPosition(seq_no + 1, 1_000 + seq_no),
                num_bytes=1_000_000,
                setsum=sl.Setsum.of(b"%d" % seq_no),
            )
            for seq_no in range(first, first + count)
        ]
        self.manifest = link(self.manifest, fragments, "incarnation0", "me", str(first))

    def roll_up(self) -> bool:
        """One roll-up, if one is due."""
        plan = plan_fold(self.manifest, self.rollup_entries, self.entries_max)
        if plan is None:
            return False
        host = self.nodes[plan.host.path] if plan.host else None
        children, replaced = children_of(plan, host, self.entries_max)
        path = f"snapshot/SNAPSHOT.{len(self.nodes)}"
        node = make_snapshot(children, plan.depth, lambda _: path, "me")
        node.check(node.pointer())
        rolled = apply_fold(self.manifest, Fold(node.pointer(), replaced, 0))
        assert rolled is not None
        self.nodes[path] = node
        self.manifest = rolled
        return True

    def walk(self) -> list[sl.Fragment]:
        """All fragments, with every node on the way checked."""
        found: list[sl.Fragment] = []
        pending = deque(self.manifest.entries)
        while pending:
            entry = pending.popleft()
            if isinstance(entry, sl.Fragment):
                found.append(entry)
                continue
            node = self.nodes[entry.path]
            node.check(entry)
            assert 2 <= len(node.entries) <= self.entries_max
            assert all(child.depth == node.depth - 1 for child in node.snapshots)
            pending.extendleft(reversed(node.entries))
        return found


class TestBehaviour10Growth:
    """Rolling up as a pure function, far beyond what is practical with a store."""

    @staticmethod
    def check(log: PureLog, total: int) -> None:
        log.manifest.check()
        depths = [pointer.depth for pointer in log.manifest.snapshots]
        assert depths == sorted(depths, reverse=True), "deep ones first"
        assert log.manifest.fragments, "the newest fragment left the root"
        assert [each.seq_no for each in log.walk()] == list(range(1, total + 1))

    def test_20_000_fragments_with_the_default_options(self) -> None:
        log = PureLog(12, 64)
        largest = entries = 0
        for number in range(1, 20_001):
            log.link(1)
            log.roll_up()
            entries = max(entries, len(log.manifest.entries))
            if number % 97 == 0 or len(log.manifest.entries) == entries:
                largest = max(largest, len(log.manifest.to_json()))
            if number in (100, 1_000, 20_000):
                self.check(log, number)
        assert largest <= 16_000
        assert entries <= 3 * 13
        assert max(pointer.depth for pointer in log.manifest.snapshots) == 2

    @settings(deadline=None, max_examples=60)
    @given(
        rollup_entries=st.integers(2, 16),
        more=st.sampled_from([0, 1, 5, 48, 4_080]),
        links=st.lists(st.integers(1, 16), min_size=1, max_size=60),
    )
    def test_any_options_and_any_load(
        self, rollup_entries: int, more: int, links: list[int]
    ) -> None:
        """With as many roll-ups as are due, few of a kind are left in the root."""
        log = PureLog(rollup_entries, rollup_entries + more)
        for count in links:
            log.link(count)
            rounds = 0
            while log.roll_up():
                rounds += 1
                assert rounds < 100, "rolling up does not end"
            kinds = Counter(pointer.depth for pointer in log.manifest.snapshots)
            assert max(kinds.values(), default=0) < rollup_entries
            assert len(log.manifest.fragments) <= rollup_entries
            assert len(log.manifest.to_json()) <= 32_000
        self.check(log, sum(links))

    def test_a_roll_up_whose_sum_does_not_match_is_never_linked(self) -> None:
        log = PureLog(2, 4)
        log.link(4)
        children = log.manifest.fragments[:2]
        paths = tuple(each.path for each in children)
        node = make_snapshot(children, 1, lambda _: "snapshot/SNAPSHOT.x", "me")
        assert apply_fold(log.manifest, Fold(node.pointer(), paths, 0)) is not None
        wrong = msgspec.structs.replace(node.pointer(), setsum=sl.Setsum.of(b"something else"))
        with pytest.raises(AssertionError, match="exactly what it replaces"):
            apply_fold(log.manifest, Fold(wrong, paths, 0))

    def test_a_roll_up_that_no_longer_fits_is_dropped(self) -> None:
        log = PureLog(2, 4)
        log.link(4)
        fragments = log.manifest.fragments
        node = make_snapshot(fragments[:2], 1, lambda _: "snapshot/SNAPSHOT.x", "me").pointer()
        for paths, epoch in (
            ((fragments[0].path, "log/another"), 0),
            (("log/another", fragments[1].path), 0),
            ((fragments[1].path, fragments[0].path), 0),
            (tuple(each.path for each in fragments), 0),
            ((fragments[0].path, fragments[1].path), 1),
        ):
            assert apply_fold(log.manifest, Fold(node, paths, epoch)) is None

    def test_a_roll_up_after_something_shallower_is_dropped(self) -> None:
        """A collection may leave one fragment of a node, in that node's place in the root."""
        log = PureLog(2, 4)
        log.link(5)
        fragments = log.manifest.fragments
        node = make_snapshot(fragments[1:3], 1, lambda _: "snapshot/SNAPSHOT.x", "me").pointer()
        paths = (fragments[1].path, fragments[2].path)
        assert apply_fold(log.manifest, Fold(node, paths, 0)) is None

    def test_a_node_never_has_a_single_child(self) -> None:
        log = PureLog(2, 4)
        log.link(1)
        with pytest.raises(AssertionError, match="single child"):
            make_snapshot(log.manifest.fragments, 1, lambda _: "snapshot/SNAPSHOT.x", "me")


FANOUT = 64
ROOT_POINTERS = 5


class TestBehaviour10HugeLogs:
    """A tree of 1.3 million fragments of which only the walked paths are stored.

    The other nodes are pointers with sums of their own: whoever opens them finds nothing, so the
    test also shows that nobody does.
    """

    async def make(self, store: sl.Store) -> tuple[int, int]:
        """Store the log; gives an offset in its middle and the tail."""
        per_node = {0: 1, 1: FANOUT, 2: FANOUT**2, 3: FANOUT**3}
        total = ROOT_POINTERS * per_node[3]
        middle = total // 2 + 4_321

        def stand_in(first: int, depth: int) -> sl.Setsum:
            return sl.Setsum.of(b"%d-%d" % (depth, first))

        async def fragment(first: int) -> sl.Fragment:
            encoded = encode_fragment(first, 1_000 + first, [b"body-%d" % first])
            path = fragment_path(first, "maker", 1)
            await store.put_if_absent(path, encoded.data)
            return entry(first, path, encoded.setsum, len(encoded.data))

        def entry(first: int, path: str, setsum: sl.Setsum, size: int) -> sl.Fragment:
            return sl.Fragment(
                path=path,
                seq_no=first,
                start=sl.LogPosition(first, 1_000 + first),
                limit=sl.LogPosition(first + 1, 1_000 + first),
                num_bytes=size,
                setsum=setsum,
            )

        def pointer(first: int, depth: int) -> sl.SnapshotPointer:
            return sl.SnapshotPointer(
                setsum=stand_in(first, depth),
                path_to_snapshot=f"snapshot/SNAPSHOT.{stand_in(first, depth).hexdigest()}.maker-1",
                depth=depth,
                start=sl.LogPosition(first, 1_000 + first),
                limit=sl.LogPosition(first + per_node[depth], 999 + first + per_node[depth]),
                num_bytes=500 * per_node[depth],
            )

        async def node(first: int, depth: int) -> sl.SnapshotPointer:
            """A real node if the middle lies below it."""
            if not first <= middle < first + per_node[depth]:
                return pointer(first, depth)
            starts = range(first, first + per_node[depth], per_node[depth - 1])
            fragments: list[sl.Fragment] = []
            snapshots: list[sl.SnapshotPointer] = []
            for start in starts:
                if depth > 1:
                    snapshots.append(await node(start, depth - 1))
                elif start == middle:
                    fragments.append(await fragment(start))
                else:
                    path = fragment_path(start, "maker", 1)
                    fragments.append(entry(start, path, stand_in(start, 0), 500))
            children: list[sl.Fragment | sl.SnapshotPointer] = [*snapshots, *fragments]
            setsum = sl.Setsum.total(child.setsum for child in children)
            made = sl.Snapshot(
                path=f"snapshot/SNAPSHOT.{setsum.hexdigest()}.maker-1",
                depth=depth,
                setsum=setsum,
                writer="maker",
                snapshots=tuple(snapshots),
                fragments=tuple(fragments),
            )
            await store.put_if_absent(made.path, made.to_json())
            return made.pointer()

        roots = [await node(1 + i * per_node[3], 3) for i in range(ROOT_POINTERS)]
        newest = await fragment(total + 1)
        await sl.create_log(store)

        def fill(manifest: sl.Manifest) -> sl.Manifest:
            return msgspec.structs.replace(
                manifest,
                setsum=sl.Setsum.total([newest.setsum, *(each.setsum for each in roots)]),
                snapshots=tuple(roots),
                fragments=(newest,),
            )

        await rewrite_manifest(store, fill)
        return middle, total + 2

    def test_opening_costs_one_read_the_tail_one_more_the_middle_at_most_five(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            honest = sl.open_store(store_url)
            middle, tail = await self.make(honest)
            assert tail > 1_300_000
            store = CountingStore(honest)
            async with sl.LogReader.open(store) as reader:
                assert store.reads == 1
                assert reader.tail == tail
                rows = [row async for row in reader.records(from_offset=tail - 1)]
                assert [row.body for row in rows] == [b"body-%d" % (tail - 1)]
                assert store.reads == 2
                store.reset()
                [found] = await reader.scan(middle, limits=sl.Limits(max_files=1))
                batch = await reader.fetch(found)
                assert batch.column("body").to_pylist() == [b"body-%d" % middle]
                assert store.reads <= 5
                by_time = sl.Limits(max_files=1)
                assert await reader.scan(from_timestamp_us=1_000 + middle, limits=by_time) == [
                    found
                ]
            store.reset()
            async with sl.LogWriter.open(store, writer="next") as log:
                assert (await log.append(b"next")).offset == tail
                assert store.counts == {"get": 1, "put_if_absent": 1, "put_if_match": 1}
            root = await honest.get(MANIFEST_PATH)
            assert len(root.data) <= 32_000

        run(main())
