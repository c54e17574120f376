"""Behaviour 21: a pin keeps its objects readable, whatever happens to the log meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Literal

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, crash_at_each, run_until_crash, sides_of
from objectlog.test_collection import AT_ONCE, DEEP, garbage_left, made
from objectlog.trees import LEAF, Shape, leaves, shapes
from objectlog.whole_log import FakeClock, check_whole_log, run
from objectlog.wrapped_stores import GateStore, PassingStore, Puts, TrickyStore
from stratalog.errors import Exists, Invalid, NotFound, Trimmed
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.pin import Pin, PinStore
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.store import MemoryStore, StoreLike
from stratalog.store.protocol import Blob, Listed
from stratalog.testing import History


async def pinned_bodies(store: sl.Store, name: str, first: int, limit: int) -> list[bytes]:
    async with sl.LogReader.open(store, pin=name) as reader:
        return [record.body async for record in reader.records(first, limit)]


def bodies(first: int, limit: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, limit)]


class ListingStore(PassingStore):
    """Lets others act once, after a listing of ``prefix`` and before its caller goes on."""

    def __init__(self, inner: sl.Store, prefix: str, act: Callable[[], Awaitable[None]]) -> None:
        super().__init__(inner)
        self._prefix = prefix
        self._act: Callable[[], Awaitable[None]] | None = act

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        async for row in self.inner.list(prefix, after):
            yield row
        if prefix == self._prefix and self._act is not None:
            act, self._act = self._act, None
            await act()


class BusyStore(PassingStore):
    """Lets others act once, just before a read or listing of this number."""

    def __init__(self, inner: sl.Store, moment: int, act: Callable[[], Awaitable[None]]) -> None:
        super().__init__(inner)
        self._moment = moment
        self._act = act
        self.asked = 0

    async def get(self, path: str) -> Blob:
        await self._pass()
        return await super().get(path)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        await self._pass()
        async for row in self.inner.list(prefix, after):
            yield row

    async def _pass(self) -> None:
        number, self.asked = self.asked, self.asked + 1
        if number == self._moment:
            await self._act()


async def collect(store: sl.Store) -> None:
    await sl.collect(store, options=AT_ONCE)


class TestBehaviour21:
    def test_it_keeps_its_objects_while_the_log_is_cut_above_them(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=8)
            pin = await PinStore(store, owner="training").create("run_7", 2, 5, note="epoch 1")
            await collect(store)
            await check_whole_log(store)
            assert await pinned_bodies(store, "run_7", 2, 5) == bodies(2, 5)
            await pin.release()
            await collect(store)
            assert await garbage_left(store) == set()
            with pytest.raises(Trimmed):
                await pinned_bodies(store, "run_7", 2, 5)
            assert await PinStore(store).list() == []

        run(main())

    def test_a_pin_does_not_hold_back_the_cut(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=8)
            await PinStore(store).create("run", 1)
            collected = await sl.collect(store, options=AT_ONCE)
            assert collected.first_offset == 8
            assert (await check_whole_log(store))[0][0] == 8

        run(main())

    @pytest.mark.parametrize("fragments", [5, 8])
    def test_every_stretch_of_every_shape_cut_at_every_offset(self, fragments: int) -> None:
        """After the release, what only the pin held is gone, and nothing else."""

        async def main() -> None:
            draw = Random(fragments)
            for shape in shapes(fragments, 2):
                for cut in range(2, fragments + 2):
                    first = draw.randint(1, fragments)
                    limit = draw.randint(first + 1, fragments + 1)
                    store = await made(MemoryStore(), shape, cursor=cut)
                    pin = await PinStore(store).create("held", first, limit)
                    await collect(store)
                    rows = await check_whole_log(store)
                    assert [row[0] for row in rows] == list(range(cut, fragments + 1))
                    assert await pinned_bodies(store, "held", first, limit) == bodies(first, limit)
                    await pin.release()
                    await collect(store)
                    await check_whole_log(store)
                    assert await garbage_left(store) == set()

        run(main())

    def test_pins_that_share_objects_are_released_in_any_order(self) -> None:
        async def main() -> None:
            for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0)):
                store = await made(MemoryStore(), DEEP, cursor=9)
                stretches = [(1, 4), (2, 8), (3, 6)]
                pins = [
                    await PinStore(store).create(f"p{number}", *stretch)
                    for number, stretch in enumerate(stretches)
                ]
                await collect(store)
                left = dict(enumerate(stretches))
                for number in order:
                    await pins[number].release()
                    del left[number]
                    await collect(store)
                    for other, (first, limit) in left.items():
                        held = await pinned_bodies(store, f"p{other}", first, limit)
                        assert held == bodies(first, limit)
                assert await garbage_left(store) == set()

        run(main())

    def test_a_pin_that_a_cut_overtook_does_not_count(self, store_url: str) -> None:
        """Its pointers were copied, then the log was cut, then it was written."""

        async def main() -> None:
            store = await made(store_url, cursor=6)
            gate = GateStore(sl.open_store(store), "pin/")
            pinning = asyncio.ensure_future(PinStore(gate).create("late", 2, 4))
            await gate.arrived.wait()
            await collect(store)
            gate.open()
            with pytest.raises(Trimmed):
                await pinning
            assert await PinStore(store).list() == []
            await collect(store)
            assert await garbage_left(store) == set()

        run(main())

    def test_a_pin_written_before_the_deletions_is_honoured(self, store_url: str) -> None:
        """The collector has published nothing yet when the pin is written and counts."""

        async def main() -> None:
            store = await made(store_url, cursor=6)
            gate = GateStore(sl.open_store(store), MANIFEST_PATH)
            collecting = asyncio.ensure_future(sl.collect(gate, options=AT_ONCE))
            await gate.arrived.wait()
            await PinStore(store).create("just", 2, 4)
            gate.open()
            assert (await collecting).first_offset == 6
            assert await pinned_bodies(store, "just", 2, 4) == bodies(2, 4)

        run(main())

    def test_roll_ups_while_it_is_made_give_it_the_newer_pointers(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, (LEAF, LEAF, LEAF, LEAF))
            gate = GateStore(sl.open_store(store), "pin/")
            pinning = asyncio.ensure_future(PinStore(gate).create("late", 1))
            await gate.arrived.wait()
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4)
            async with sl.LogWriter.open(store, options=options) as log:
                for number in range(5, 12):
                    await log.append(b"%d" % number)
            gate.open()
            pin = await pinning
            assert (pin.from_offset, pin.to_offset) == (1, 5)
            await sl.CursorStore(store).create("keeper", 11)
            await collect(store)
            await sweep(store)
            assert await pinned_bodies(store, "late", 1, 5) == bodies(1, 5)

        run(main())

    def test_a_sweep_spares_what_only_a_pin_holds(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=8)
            await PinStore(store).create("held", 2, 5)
            await collect(store)
            await sweep(store)
            assert await pinned_bodies(store, "held", 2, 5) == bodies(2, 5)
            await check_whole_log(store)

        run(main())

    def test_a_pin_made_while_another_is_cleared_keeps_what_both_hold(self) -> None:
        """It comes after the pins were listed, and before the log is cut above its objects."""

        async def main() -> None:
            store = await made(MemoryStore(), DEEP, cursor=1)
            first = await PinStore(store).create("first", 2, 5)
            await first.release()

            async def meanwhile() -> None:
                await PinStore(store).create("second", 2, 5)
                cursor = await sl.CursorStore(store).load("keeper")
                await cursor.move(8)
                collector = sl.Collector(store, options=AT_ONCE)
                await collector.compute()
                await collector.publish()
                await collector.delete()

            await sl.Collector(ListingStore(store, "pin/", meanwhile)).clear_pins()
            assert await pinned_bodies(store, "second", 2, 5) == bodies(2, 5)

        run(main())

    @pytest.mark.parametrize("moment", range(8))
    def test_a_pin_made_on_a_newer_tree_is_cleared_against_that_tree(self, moment: int) -> None:
        """Between any two requests the log rolls up, and that is pinned and released."""

        async def main() -> None:
            store = await made(MemoryStore(), (LEAF, LEAF, LEAF), cursor=1)
            first = await PinStore(store).create("first", 2, 3)
            await first.release()

            async def meanwhile() -> None:
                options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=3)
                async with sl.LogWriter.open(store, options=options) as log:
                    for number in range(4, 9):
                        await log.append(b"%d" % number)
                second = await PinStore(store).create("second", 1, 8)
                await second.release()

            busy = BusyStore(store, moment, meanwhile)
            await sl.Collector(busy, options=AT_ONCE).clear_pins()
            assert [body for _, _, body in await check_whole_log(store)] == bodies(
                1, 9 if busy.asked > moment else 4
            )

        run(main())


class TestExpiry:
    def test_a_pin_that_is_past_is_released_by_the_collection(self) -> None:
        async def main() -> None:
            store = await made(MemoryStore(), cursor=8)
            clock = FakeClock(1_000)
            pins = PinStore(store, runtime=clock)
            pin = await pins.create("brief", 2, 5, expires_us=2_000)
            await sl.collect(store, options=AT_ONCE, runtime=clock)
            assert await pinned_bodies(store, "brief", 2, 5) == bodies(2, 5)
            clock.time_us = 2_000
            await sl.collect(store, options=AT_ONCE, runtime=clock)
            assert await garbage_left(store) == set()
            with pytest.raises(Trimmed) as refusal:
                await pin.renew(9_000)
            assert refusal.value.first_offset == 8

        run(main())

    def test_renewing_wins_or_loses_but_never_both(self) -> None:
        """The collector has found it past, and then its owner renews it first."""

        async def main() -> None:
            store = await made(MemoryStore(), cursor=8)
            clock = FakeClock(5_000)
            pin = await PinStore(store, runtime=clock).create("brief", 2, 5, expires_us=2_000)
            gate = GateStore(sl.open_store(store), "pin/")
            collecting = asyncio.ensure_future(sl.collect(gate, options=AT_ONCE, runtime=clock))
            await gate.arrived.wait()
            renewed = await pin.renew(9_000)
            assert renewed.expires_us == 9_000
            gate.open()
            assert (await collecting).first_offset == 8
            assert await pinned_bodies(store, "brief", 2, 5) == bodies(2, 5)

        run(main())

    def test_a_pin_without_an_expiry_stays(self) -> None:
        async def main() -> None:
            store = await made(MemoryStore(), cursor=8)
            await PinStore(store).create("long", 2, 5)
            late = FakeClock(2**60)
            await sl.collect(store, options=AT_ONCE, runtime=late)
            assert await pinned_bodies(store, "long", 2, 5) == bodies(2, 5)

        run(main())


class TestNames:
    def test_a_name_is_used_once_at_a_time(self, store_url: str) -> None:
        async def main() -> None:
            store = await made(store_url, cursor=1)
            pins = PinStore(store)
            pin = await pins.create("one", 1, 3)
            with pytest.raises(Exists):
                await pins.create("one", 1, 3)
            assert [each.name for each in await pins.list()] == ["one"]
            await pin.release()
            await pin.release()
            with pytest.raises(NotFound):
                await pins.load("one")
            with pytest.raises(Exists, match="not collected yet"):
                await pins.create("one", 1, 3)
            await collect(store)
            again = await pins.create("one", 2)
            assert (again.from_offset, again.to_offset) == (2, 10)
            assert again.fragment_bytes > 0

        run(main())

    @pytest.mark.parametrize("name", ["", "a b", "../x", "ä", 5])
    def test_a_name_that_is_none(self, name: str) -> None:
        with pytest.raises(Invalid):
            run(PinStore(MemoryStore()).create(name))

    def test_a_stretch_that_is_none(self, store_url: str) -> None:
        async def main() -> None:
            pins = PinStore(await made(store_url))
            with pytest.raises(Invalid):
                await pins.create("x", 0)
            with pytest.raises(Invalid):
                await pins.create("x", 10)
            with pytest.raises(Invalid):
                await pins.create("x", 5, 5)
            with pytest.raises(Invalid):
                await pins.create("x", 1, expires_us=-5)
            with pytest.raises(NotFound):
                await pins.load("x")

        run(main())


class TestReleases:
    @pytest.mark.parametrize("answer", ["lost", "echoed"])
    def test_a_release_spares_the_next_pin_of_the_name(
        self, answer: Literal["lost", "echoed"]
    ) -> None:
        """The name is cleared and taken before the release has looked what became of its put."""

        async def main() -> None:
            inner = await made(MemoryStore(), cursor=8)

            async def take_the_name() -> None:
                await collect(inner)
                await PinStore(inner, owner="other").create("run", 9)

            await PinStore(inner, owner="mine").create("run", 2, 5)
            tricky = TrickyStore(inner, "pin/", [answer], take_the_name)
            await (await PinStore(tricky, owner="mine").load("run")).release()
            assert (await PinStore(inner).load("run")).owner == "other"

        run(main())

    def test_a_pin_that_was_released_and_collected_is_not_the_next_one_of_its_name(self) -> None:
        async def main() -> None:
            store = await made(MemoryStore(), cursor=8)
            pins = PinStore(store)
            first = await pins.create("run", 2, 5)
            await (await pins.load("run")).release()
            await collect(store)
            await pins.create("run", 9)
            await first.release()
            assert (await pins.load("run")).from_offset == 9

        run(main())

    def test_a_release_holds_although_the_pin_had_to_be_written_again(self) -> None:
        """Somebody releases a pin that its owner is still confirming."""

        async def main() -> None:
            inner = await made(MemoryStore(), cursor=8)
            seen: list[Pin] = []

            async def load_and_collect() -> None:
                seen.append(await PinStore(inner).load("run"))
                async with sl.LogWriter.open(inner) as log:
                    for number in range(40):
                        await log.append(b"%d" % number)

            tricky = TrickyStore(inner, "pin/", ["lost"], load_and_collect)
            await PinStore(tricky).create("run", 9)
            await seen[0].release()
            with pytest.raises(NotFound):
                await PinStore(inner).load("run")

        run(main())


class TestCrashes:
    """Pin, cut, release, clear: killed before and after every operation, then run again."""

    SHAPE: Shape = (((LEAF, LEAF), (LEAF, LEAF)), (LEAF, LEAF), LEAF)

    async def live(self, store: sl.Store, _: History) -> None:
        pin = await PinStore(store).create("held", 2, 5)
        await collect(store)
        await pin.release()
        await collect(store)

    async def finish(self, store: sl.Store) -> None:
        for pin in await PinStore(store).list():
            first, limit = pin.from_offset, pin.to_offset
            if (await check_whole_log(store))[0][0] > 1:
                async with sl.LogReader.open(store, pin=pin.name) as reader:
                    read = [each.body async for each in reader.records(first, limit)]
                assert read == bodies(first, limit)
            await pin.release()
        await collect(store)
        rows = await check_whole_log(store)
        assert [row[0] for row in rows] == list(range(6, leaves(self.SHAPE) + 1))
        await sweep(store)
        assert await garbage_left(store) == set()

    def crash(self, url: StoreLike, point: CrashPoint) -> None:
        store = run(made(url, self.SHAPE, cursor=6))
        run_until_crash(store, self.live, point, History(), Puts())
        run(self.finish(store))

    def points(self) -> list[CrashPoint]:
        store = run(made(MemoryStore(), self.SHAPE, cursor=6))
        return sides_of(run_until_crash(store, self.live, None, History(), Puts()))

    def test_at_every_operation(self) -> None:
        points = self.points()
        assert len(points) > 60
        crash_at_each(points, lambda point: self.crash(MemoryStore(uuid.uuid4().hex), point))

    def test_at_sampled_operations_on_every_store(self, store_url: str) -> None:
        for index, point in enumerate(Random(store_url[:3]).sample(self.points(), 5)):
            self.crash(f"{store_url}/{index}", point)
