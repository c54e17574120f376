"""Behaviour 22 in every order: forks three deep, collected, swept and destroyed.

    source ──► child ──► grandchild
                    └──► sibling

After every step each log that lives reads exactly its records, and its tree is whole. A log that a
living fork still needs is not destroyed, and the attempt changes nothing; any other one is, and
leaves nothing. A collection leaves nothing that nothing links, unless a fork holds it. At the end
the forks go, one more collection takes what they held, and then everything can go.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stratalog as sl
from objectlog.leftovers import everything
from objectlog.test_collection import AT_ONCE, garbage_left
from objectlog.trees import LEAF, MadeLog, Shape, leaves, shapes
from objectlog.whole_log import check_whole_log, run
from stratalog.errors import Conflict, NotFound
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.fork_note import note_of
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.stored_pin import PIN_PREFIX, decode_pin
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, decode_manifest
from stratalog.objectlog.stored.snapshot import Entry

Name: TypeAlias = Literal["source", "child", "grandchild", "sibling"]
Kind: TypeAlias = Literal["collect", "sweep", "destroy", "advance"]
Step: TypeAlias = tuple[Kind, Name]

PARENTS: Mapping[Name, Name | None] = {
    "source": None,
    "child": "source",
    "grandchild": "child",
    "sibling": "child",
}
NAMES = tuple(PARENTS)
FORKS = NAMES[1:]
KINDS: tuple[Kind, ...] = ("collect", "sweep", "destroy")
STEPS: tuple[Step, ...] = tuple((kind, name) for kind in KINDS for name in NAMES)
ADVANCES: tuple[Step, ...] = tuple(("advance", name) for name in NAMES)
SHAPES = tuple(shapes(7, 3))
NO_ROLL_UP = sl.WriterOptions(rollup_entries=16)
"""A roll-up that the end of its writer cuts off leaves a node, for a sweep and no collection."""


@dataclass(frozen=True)
class Family:
    """What is built. What lies outside of a log is moved to its nearest end."""

    shape: Shape
    records: int
    """Of each fragment of the source."""

    early: tuple[int, int]
    """Where source and child are cut before they are forked."""

    points: tuple[int, int, int]
    """Where the forks leave."""

    added: tuple[int, int, int]
    """How many records each fork appends."""

    cursors: tuple[int, int, int, int]
    """What each log needs, and so where its collection cuts."""


SMALL = Family(
    shape=((LEAF, LEAF), (LEAF, LEAF), LEAF),
    records=1,
    early=(1, 1),
    points=(5, 6, 3),
    added=(2, 1, 1),
    cursors=(3, 6, 7, 3),
)


@dataclass
class Known:
    """What a log must be, by all that was done to it."""

    name: Name
    bodies: list[bytes]
    """Of all records from offset 1 on, also of those that were collected."""

    starts: list[int]
    """The first offset of each fragment."""

    cursor: int = 1
    first: int = 1
    at: int = 0
    held_from: int | None = None
    """What its pin in the log that it was forked from begins with. None once it has no pin."""

    lives: bool = True

    @property
    def tail(self) -> int:
        return len(self.bodies) + 1

    def move(self, cursor: int) -> None:
        self.cursor = min(max(self.cursor, self.first, cursor), self.tail)

    def cut(self) -> None:
        """A fragment that holds the cut stays whole."""
        self.first = max(self.first, *(s for s in (*self.starts, self.tail) if s <= self.cursor))


class Branches:
    """Four logs on one store, and what is known about them."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.logs: dict[Name, Known] = {}

    def url(self, name: Name) -> str:
        return f"{self.base}/{name}"

    async def build(self, family: Family) -> None:
        made = MadeLog(family.shape, family.records, encoded=True)
        await made.store(sl.open_store(self.url("source")))
        count = leaves(family.shape) * family.records
        bodies = [b"%d" % offset for offset in range(1, count + 1)]
        await self._begin(Known("source", bodies, [*range(1, count + 1, family.records)]))
        await self._collect_to("source", family.early[0])
        for name, at, added in zip(FORKS, family.points, family.added, strict=True):
            await self._fork(name, at, added)
            if name == "child":
                await self._collect_to("child", family.early[1])
        for name, cursor in zip(NAMES, family.cursors, strict=True):
            await self._move(self.logs[name], cursor)
        await self.check()

    async def _begin(self, known: Known) -> None:
        self.logs[known.name] = known
        known.move(known.first)
        await sl.CursorStore(self.url(known.name)).create("keeper", known.cursor)

    async def _fork(self, name: Name, at: int, added: int) -> None:
        parent = PARENTS[name]
        assert parent is not None
        source = self.logs[parent]
        at = min(max(at, source.first), source.tail)
        await fork(self.url(parent), self.url(name), at=at)
        own = [b"%d of %s" % (number, name.encode()) for number in range(added)]
        async with sl.LogWriter.open(self.url(name), options=NO_ROLL_UP) as log:
            for body in own:
                await log.append(body)
        starts = [*(s for s in source.starts if s < at), *range(at, at + added)]
        known = Known(name, source.bodies[: at - 1] + own, starts, first=source.first, at=at)
        known.held_from = source.first if source.first < at else None
        await self._begin(known)

    async def _collect_to(self, name: Name, cut: int) -> None:
        await self._move(self.logs[name], cut)
        await self._collect(self.logs[name])

    # Steps

    async def take(self, step: Step) -> None:
        """One step, and a look at all that must be true after it."""
        kind, name = step
        refusal: type[sl.StratalogError] | None = None
        if not self.logs[name].lives:
            refusal = NotFound
        elif kind == "destroy" and self._holders(name):
            refusal = Conflict
        if refusal is None:
            await self._do(step)
        else:
            before = await everything(self.base)
            with pytest.raises(refusal):
                await self._do(step)
            assert await everything(self.base) == before, "refused, but something has changed"
        await self.check()

    async def _do(self, step: Step) -> None:
        kind, name = step
        known = self.logs[name]
        if kind == "collect":
            await self._collect(known)
        elif kind == "sweep":
            await sweep(self.url(name))
        elif kind == "advance":
            await self._move(known, known.cursor + 2)
        else:
            await destroy(self.url(name))
            known.lives, known.held_from = False, None

    def _holders(self, name: Name) -> list[Known]:
        """The forks of a log that have a pin in it."""
        forks = (each for each in self.logs.values() if PARENTS[each.name] == name)
        return [each for each in forks if each.held_from is not None]

    async def _move(self, known: Known, cursor: int) -> None:
        known.move(cursor)
        await (await sl.CursorStore(self.url(known.name)).load("keeper")).move(known.cursor)

    async def _collect(self, known: Known) -> None:
        collected = await sl.collect(self.url(known.name), options=AT_ONCE)
        known.cut()
        assert collected.first_offset == known.first
        holders = self._holders(known.name)
        if known.first >= known.at and all((each.held_from or 0) >= known.at for each in holders):
            known.held_from = None
        if not holders:
            assert await garbage_left(sl.open_store(self.url(known.name))) == set()

    async def check(self) -> None:
        for name, known in self.logs.items():
            if not known.lives:
                assert await everything(self.url(name)) == {}, "destroyed, but something is there"
                continue
            rows = await check_whole_log(self.url(name))
            assert [offset for offset, _, _ in rows] == [*range(known.first, known.tail)]
            assert [body for _, _, body in rows] == known.bodies[known.first - 1 :]
            pins = await PinStore(self.url(name)).list()
            assert len(pins) == len(self._holders(name))

    async def end(self) -> None:
        """The forks go, the youngest first; what they held goes with one collection."""
        for name in reversed(FORKS):
            await self.take(("destroy", name))
        await self.take(("collect", "source"))
        await self.take(("destroy", "source"))
        assert await everything(self.base) == {}


async def take_all(base: str, family: Family, steps: Sequence[Step]) -> None:
    tree = Branches(base)
    await tree.build(family)
    for number, step in enumerate(steps):
        try:
            await tree.take(step)
        except BaseException as error:
            error.add_note(f"{family}, after {steps[:number]}, at {step}")
            raise
    await tree.end()


def outline(objects: Mapping[str, bytes]) -> frozenset[object]:
    """All that is stored, but for what differs each time: names of new nodes, ids, epochs."""

    def told(path: str, data: bytes) -> object:
        log, _, rest = path.partition("/")
        if rest == MANIFEST_PATH:
            manifest = decode_manifest(data)
            note = note_of(manifest)
            return log, manifest.first_offset, ends(manifest.entries), note and note.state
        if rest.startswith("snapshot/"):
            return log, ends(sl.Snapshot.from_json(data, path).entries)
        if rest.startswith(PIN_PREFIX):
            pin = decode_pin(data, path)
            return path, pin.released, pin.is_cleared
        return path

    def ends(entries: Sequence[Entry]) -> object:
        return tuple((each.start, each.limit, each.base) for each in entries)

    return frozenset(told(*each) for each in objects.items())


async def put_back(base: str, objects: Mapping[str, bytes]) -> None:
    store = sl.open_store(base)
    await store.delete_many([row.path async for row in store.list()])
    for path, data in objects.items():
        await store.put_if_absent(path, data)


class TestEveryOrder:
    @pytest.mark.parametrize(
        "family",
        [
            pytest.param(replace(SMALL, cursors=cursors), id=words)
            for words, cursors in (
                ("all forks leave their source behind", (3, 6, 7, 3)),
                ("one fork still needs its source", (4, 2, 6, 2)),
            )
        ],
    )
    def test_from_every_state_that_any_order_leads_to(self, family: Family) -> None:
        """Each state is left by every step. So this is every order of any number of steps."""

        async def main() -> None:
            tree = Branches(f"memory://{uuid.uuid4().hex}")
            await tree.build(family)
            objects = await everything(tree.base)
            seen = {outline(objects)}
            states: list[tuple[dict[str, bytes], dict[Name, Known], tuple[Step, ...]]]
            states = [(objects, tree.logs, ())]
            for before, logs, way in states:
                for step in STEPS:
                    if not logs[step[1]].lives:
                        continue
                    tree.logs = {name: replace(known) for name, known in logs.items()}
                    await put_back(tree.base, before)
                    try:
                        await tree.take(step)
                    except BaseException as error:
                        error.add_note(f"after {way}, at {step}")
                        raise
                    objects = await everything(tree.base)
                    state = outline(objects)
                    if state not in seen:
                        seen.add(state)
                        states.append((objects, tree.logs, (*way, step)))
            assert len(states) > 50
            assert frozenset() in seen, "everything can be destroyed"

        run(main(), limit_s=180.0)


class TestDrawnOrders:
    """With earlier cuts, forks that divide a fragment, and cursors that move on meanwhile."""

    @settings(max_examples=50, deadline=None, derandomize=True)
    @given(data=st.data())
    def test_of_drawn_families(self, data: st.DataObject) -> None:
        offset = st.integers(1, 18)
        family = data.draw(
            st.builds(
                Family,
                shape=st.sampled_from(SHAPES),
                records=st.integers(1, 2),
                early=st.tuples(st.integers(1, 6), st.integers(1, 12)),
                points=st.tuples(offset, offset, offset),
                added=st.tuples(*[st.integers(0, 3)] * 3),
                cursors=st.tuples(offset, offset, offset, offset),
            )
        )
        steps = data.draw(st.lists(st.sampled_from(STEPS + ADVANCES), max_size=10))
        run(take_all(f"memory://{uuid.uuid4().hex}", family, steps))


class TestOnEveryStore:
    @pytest.mark.parametrize("number", range(2))
    def test_in_a_sampled_order(self, store_url: str, number: int) -> None:
        random = Random(store_url[:3] + str(number))
        run(take_all(store_url, SMALL, random.sample(STEPS, len(STEPS))))
