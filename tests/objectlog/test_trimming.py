"""Behaviour 17, the pure part: a tree of any shape, cut at every offset."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectlog.trees import LEAF, MadeLog, Shape, depth, drawn_shapes, leaves, shapes
from objectlog.whole_log import run
from stratalog.errors import Corrupt
from stratalog.objectlog.collection.collection_plan import plan_collection
from stratalog.objectlog.collection.plan_check import check_plan
from stratalog.objectlog.stored.cache import ByteCache
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.manifest import Manifest
from stratalog.objectlog.stored.plan import GARBAGE_PATH, Garbage, PlanState
from stratalog.objectlog.stored.snapshot import Entry, Snapshot, SnapshotPointer, depth_of
from stratalog.objectlog.stored.stored_json import decode_document
from stratalog.objectlog.tree.walk import Tree
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import MemoryStore

RUNTIME = Runtime()


def plan_of(made: MadeLog, cut: int) -> Garbage | None:
    """The plan as it comes back from the store."""

    async def planned() -> Garbage | None:
        store = MemoryStore()
        for path, node in made.nodes.items():
            await store.put_if_absent(path, node.to_json())
        tree = Tree(store, ByteCache[Snapshot](1 << 20))
        return await plan_collection(tree, made.manifest, cut, "collector", RUNTIME)

    plan = run(planned())
    return None if plan is None else decode_document(Garbage, plan.to_json(), GARBAGE_PATH)


def reached(entries: tuple[Entry, ...], nodes: dict[str, Snapshot]) -> dict[str, Entry]:
    """Every entry at and below these, by path; complains about shapes that are not allowed."""
    depths = [depth_of(entry) for entry in entries]
    assert depths == sorted(depths, reverse=True), "from deep to shallow"
    found: dict[str, Entry] = {}
    for entry in entries:
        found[entry.path] = entry
        if isinstance(entry, SnapshotPointer):
            node = nodes[entry.path]
            node.check(entry)
            assert len(node.entries) > 1, "a node with a single child"
            found |= reached(node.entries, nodes)
    return found


def fragments_of(found: dict[str, Entry]) -> list[Fragment]:
    fragments = [entry for entry in found.values() if isinstance(entry, Fragment)]
    return sorted(fragments, key=lambda each: each.start.offset)


def check_cut(shape: Shape, cut: int, records: int = 1) -> None:
    made = MadeLog(shape, records)
    before = reached(made.manifest.entries, made.nodes)
    kept = [each for each in fragments_of(before) if each.limit.offset > cut]
    gone = [each for each in fragments_of(before) if each.limit.offset <= cut]
    plan = plan_of(made, cut)
    if plan is None:
        assert not gone
        return
    assert plan.state(made.manifest) is PlanState.LIVE
    check_plan(plan, made.manifest, made.nodes)
    after = plan.apply(made.manifest, "another")
    after.check()
    nodes = made.nodes | {node.path: node for node in plan.snapshots_to_make}
    now = reached(after.entries, nodes)
    assert fragments_of(now) == kept
    assert after.tail.offset == made.manifest.tail.offset
    assert after.next_seq_no == made.manifest.next_seq_no
    assert after.setsum == made.manifest.setsum
    assert after.collected == Setsum.total(each.setsum for each in gone)
    assert after.first_offset == (kept[0].start.offset if kept else made.manifest.tail.offset)
    assert plan.state(after) is PlanState.PUBLISHED
    assert plan.fragments == len(gone)
    removed = reached_below(plan.dropped, made.nodes) | {p.path for p in plan.snapshots_to_replace}
    assert removed == set(before) - set(now), "exactly what is out of reach is deleted"
    deepest = max(map(depth, shape))
    assert len(plan.snapshots_to_make) <= 2 * deepest
    assert len(plan.snapshots_to_replace) <= 2 * deepest


def reached_below(entries: tuple[Entry, ...], nodes: dict[str, Snapshot]) -> set[str]:
    found = set()
    for entry in entries:
        found.add(entry.path)
        if isinstance(entry, SnapshotPointer):
            found |= reached_below(nodes[entry.path].entries, nodes)
    return found


@pytest.mark.parametrize("fan_out", [2, 3])
@pytest.mark.parametrize("fragments", range(1, 9))
def test_every_shape_at_every_offset(fragments: int, fan_out: int) -> None:
    for shape in shapes(fragments, fan_out):
        for records in (1, 2):
            for cut in range(1, fragments * records + 3):
                check_cut(shape, cut, records)


@settings(max_examples=60, deadline=None)
@given(drawn_shapes(), st.data())
def test_drawn_shapes_of_up_to_four_levels(shape: Shape, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, leaves(shape) + 1))
    check_cut(shape, cut)


def test_a_plan_lists_pointers_however_much_is_below_them() -> None:
    bottom: Shape = tuple(LEAF for _ in range(8))
    middle: Shape = tuple(bottom for _ in range(8))
    shape: Shape = (*(middle for _ in range(6)), LEAF)
    plan = plan_of(MadeLog(shape), 6 * 64)
    assert plan is not None
    assert len(plan.snapshots_to_drop) + len(plan.fragments_to_drop) <= 5 + 7 + 7
    assert plan.records == 6 * 64 - 1


class TestTheVerifierRefuses:
    """Each plan below is what a faulty collector would write."""

    made = MadeLog((((LEAF, LEAF, LEAF), (LEAF, LEAF)), LEAF, LEAF))

    def plan(self) -> Garbage:
        plan = plan_of(self.made, 3)
        assert plan is not None
        return plan

    def refuse(self, **changes: object) -> str:
        plan = msgspec.structs.replace(self.plan(), **changes)
        with pytest.raises(Corrupt) as refusal:
            check_plan(plan, self.made.manifest, self.made.nodes)
        return str(refusal.value)

    def test_nothing_wrong_is_not_refused(self) -> None:
        check_plan(self.plan(), self.made.manifest, self.made.nodes)

    def test_a_sum_that_is_not_that_of_what_goes(self) -> None:
        assert "add up" in self.refuse(setsum_to_discard=EMPTY)

    def test_a_fragment_that_nobody_keeps_or_drops(self) -> None:
        assert "not what was there" in self.refuse(
            fragments_to_drop=self.plan().fragments_to_drop[1:]
        )

    def test_a_fragment_that_is_dropped_although_it_is_kept(self) -> None:
        assert "not what was there" in self.refuse(
            fragments_to_drop=(*self.plan().fragments_to_drop, self.made.manifest.fragments[0])
        )

    def test_a_made_node_that_forgets_a_child_by_subtraction(self) -> None:
        """The sums balance, because what goes was found by subtracting what stays."""
        plan = self.plan()
        top = plan.snapshots_to_make[-1]
        assert len(top.snapshots) == 0 or len(top.entries) >= 2
        lossy = msgspec.structs.replace(
            plan.snapshots_to_make[0],
            fragments=plan.snapshots_to_make[0].fragments[1:],
            setsum=Setsum.total(f.setsum for f in plan.snapshots_to_make[0].fragments[1:]),
        )
        made = (lossy, *plan.snapshots_to_make[1:])
        discard = plan.setsum_to_discard + plan.snapshots_to_make[0].fragments[0].setsum
        self.refuse(snapshots_to_make=made, setsum_to_discard=discard)

    def test_a_path_outside_of_the_tree(self) -> None:
        first = self.plan().fragments_to_drop[0]
        moved = msgspec.structs.replace(first, path="manifest/MANIFEST")
        assert "not an object of the tree" in self.refuse(
            fragments_to_drop=(moved, *self.plan().fragments_to_drop[1:])
        )

    def test_a_made_node_that_lists_itself(self) -> None:
        node = self.plan().snapshots_to_make[-1]
        pointer = msgspec.structs.replace(node.pointer(), depth=0)
        loop = msgspec.structs.replace(node, snapshots=(pointer, pointer), fragments=(), depth=1)
        self.refuse(snapshots_to_make=(loop,), snapshot_for_root=node.pointer())

    def test_another_root(self) -> None:
        plan = self.plan()
        other = MadeLog(self.made.shape).manifest
        with pytest.raises(Corrupt, match="another root"):
            check_plan(plan, other, self.made.nodes)


class TestWhatHasBecomeOfAPlan:
    made = MadeLog(((LEAF, LEAF), LEAF, LEAF, LEAF))

    def state(self, manifest: Manifest, cut: int = 2) -> PlanState:
        plan = plan_of(self.made, cut)
        assert plan is not None
        return plan.state(manifest)

    def test_an_epoch_that_moved_on_kills_it(self) -> None:
        moved = msgspec.structs.replace(self.made.manifest, sweep_epoch=1)
        assert self.state(moved) is PlanState.DEAD

    def test_entries_that_left_the_root_kill_it(self) -> None:
        other = MadeLog(self.made.shape).manifest
        assert self.state(other) is PlanState.DEAD

    def test_a_lifted_fragment_does_not_go_before_a_snapshot_that_came_meanwhile(self) -> None:
        """The root was [(f f) f f f]; a roll-up has made it [(f f) (f f) f]."""
        rolled = MadeLog(((LEAF, LEAF), (LEAF, LEAF), LEAF)).manifest
        mixed = msgspec.structs.replace(
            rolled,
            snapshots=(self.made.manifest.snapshots[0], *rolled.snapshots[1:]),
        )
        assert self.state(mixed) is PlanState.UNFITTING

    def test_appends_do_not_matter(self) -> None:
        longer = MadeLog((*self.made.shape, LEAF)).manifest
        grown = msgspec.structs.replace(
            self.made.manifest, fragments=(*self.made.manifest.fragments, longer.fragments[-1])
        )
        assert self.state(grown) is PlanState.LIVE
        assert self.state(grown, cut=99) is PlanState.LIVE
