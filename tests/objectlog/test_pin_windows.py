"""Behaviour 21: a pin holds its stretch and no more, and what that costs."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

import stratalog as sl
from objectlog.test_collection import AT_ONCE, garbage_left, made
from objectlog.trees import LEAF, MadeLog, Shape
from objectlog.whole_log import check_whole_log, run
from objectlog.wrapped_stores import CountingStore, PassingStore
from stratalog.errors import Corrupt, Exists, Invalid
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.stored_pin import PIN_PREFIX
from stratalog.store import MemoryStore
from stratalog.store.protocol import Blob

FAN_OUT = 6
ROOT: Shape = ((((LEAF,) * FAN_OUT,) * FAN_OUT,) * FAN_OUT, LEAF)
FRAGMENTS = FAN_OUT**3 + 1


async def fragments_in(store: sl.Store) -> list[int]:
    """The sequence numbers of what is stored."""
    return [
        int(row.path.rpartition("=")[2].removesuffix(".parquet"), 16)
        async for row in store.list("log/")
    ]


@pytest.mark.parametrize("sweeping", [False, True])
def test_one_pinned_record_below_a_large_node_holds_one_fragment(sweeping: bool) -> None:
    async def main() -> None:
        store = await made(MemoryStore(), ROOT, cursor=1)
        pin = await PinStore(store).create("one", 100, 101)
        await (await sl.CursorStore(store).load("keeper")).move(FRAGMENTS)
        await sl.collect(store, options=AT_ONCE)
        if sweeping:
            await sweep(store)
        assert await fragments_in(store) == [100, FRAGMENTS]
        async with sl.LogReader.open(store, pin="one") as reader:
            assert (reader.first_offset, reader.tail) == (100, 101)
            assert [r.offset async for r in reader.records(reader.first_offset)] == [100]
            assert [f.start.offset for f in await reader.scan(100)] == [100]
        await pin.release()
        await sl.collect(store, options=AT_ONCE)
        assert await fragments_in(store) == [FRAGMENTS]
        assert await garbage_left(store) == set()
        await check_whole_log(store)

    run(main())


def test_clearing_a_pin_on_what_is_still_linked_costs_no_more_than_the_depth() -> None:
    async def main() -> None:
        costs = []
        for shape in (ROOT, (*ROOT[:1], *ROOT[:1], LEAF)):
            store = MemoryStore()
            await MadeLog(shape).store(store)
            counting = CountingStore(store)
            pin = await PinStore(store).create("all")
            await pin.release()
            await sl.Collector(counting, options=AT_ONCE).clear_pins()
            costs.append(sum(counting.counts.values()))
        assert costs[0] == costs[1] < 12

    run(main())


def test_two_collectors_clear_one_pin() -> None:
    class Slow(PassingStore):
        async def get(self, path: str) -> Blob:
            await asyncio.sleep(0)
            return await super().get(path)

    async def main() -> None:
        store = await made(MemoryStore(), cursor=1)
        pin = await PinStore(store).create("held")
        await pin.release()
        both = [sl.collect(Slow(store), options=AT_ONCE) for _ in range(2)]
        assert {each.records for each in await asyncio.gather(*both)} == {0}

    run(main())


def test_a_lost_node_is_damage_and_not_a_change() -> None:
    async def main() -> None:
        log = MadeLog(((LEAF, LEAF), (LEAF, LEAF), LEAF), encoded=True)
        store = MemoryStore()
        await log.store(store)
        async with sl.LogWriter.open(
            store, options=sl.WriterOptions(rollup_entries=2, snapshot_entries_max=2)
        ) as writer:
            pin = await PinStore(store).create("held", 1, 5)
            for _ in range(8):
                await writer.append(b"x")
        await pin.release()
        async with sl.LogReader.open(store) as reader:
            top = reader.manifest.snapshots[0]
        await store.delete_many([top.path])
        with pytest.raises(Corrupt, match="missing"):
            await sl.Collector(store, options=AT_ONCE).clear_pins()

    run(main())


@pytest.mark.parametrize("expires_us", [2**63, 2**64 - 1, 10**30])
def test_an_expiry_that_cannot_be_stored_is_refused(expires_us: int) -> None:
    async def main() -> None:
        store = await made(MemoryStore())
        with pytest.raises(Invalid, match="expiry"):
            await PinStore(store).create("for_ever", expires_us=expires_us)
        latest = await PinStore(store).create("latest", expires_us=2**63 - 1)
        with pytest.raises(Invalid, match="expiry"):
            await latest.renew(expires_us)
        assert [pin.name for pin in await PinStore(store).list()] == ["latest"]

    run(main())


def test_many_pins_are_read_side_by_side() -> None:
    class Watched(PassingStore):
        now = most = 0

        async def get(self, path: str) -> Blob:
            if path.startswith(PIN_PREFIX):
                self.now += 1
                self.most = max(self.most, self.now)
                await asyncio.sleep(0)
                self.now -= 1
            return await super().get(path)

    async def main() -> None:
        store = await made(MemoryStore())
        for number in range(40):
            await PinStore(store).create(f"pin_{number}")
        watched = Watched(store)
        assert len(await PinStore(watched).list()) == 40
        assert watched.most > 8

    run(main())


def test_a_pin_that_was_cleared_before_its_maker_knew_of_it_is_made_as_a_new_version() -> None:
    """The put landed and was answered with a refusal; a collection was faster than the look."""

    class Echoing(PassingStore):
        versions: ClassVar[list[bytes]] = []

        async def put_if_absent(self, path: str, data: bytes) -> str:
            await super().put_if_absent(path, data)
            self.versions.append(data)
            pin = await PinStore(self.inner).load("held")
            await pin.release()
            await sl.Collector(self.inner, options=AT_ONCE).clear_pins()
            raise Exists("an echo", path=path)

        async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
            self.versions.append(data)
            return await super().put_if_match(path, data, etag)

    async def main() -> None:
        store = await made(MemoryStore())
        pin = await PinStore(Echoing(store)).create("held", 2, 4)
        assert (pin.from_offset, pin.to_offset) == (2, 4)
        assert len({*Echoing.versions}) == len(Echoing.versions) == 2

    run(main())
