"""Behaviours 26 and 27: work is found through marks, and no mark is lost."""

from __future__ import annotations

import asyncio

import pytest

import stratalog as sl
from herd.test_herd import BrokenStore, begin_a_sweep
from objectlog.crashing import CrashPoint, run_until_crash, sides_of
from objectlog.whole_log import FakeClock, run
from objectlog.wrapped_stores import CountingStore, GateStore, PassingStore, Puts
from stratalog.errors import Invalid, Unavailable
from stratalog.herd import Herd, RolledUp, RollUpOptions, roll_up
from stratalog.herd.names import log_store
from stratalog.store import MemoryStore, StoreLike
from stratalog.store.protocol import Blob, Store
from stratalog.testing import History

NONE_SELECTED = RollUpOptions(age_s=1e9, records=1_000_000)


async def written(root: StoreLike, names: list[str], server: str = "a") -> dict[str, str]:
    """Logs with two records each, in two fragments; gives their ids."""
    ids = {}
    async with Herd.open(root, server=server) as herd:
        for name in names:
            log = await herd.create(name, exist_ok=True)
            await log.append(b"one")
            await log.append(b"two")
            ids[name] = await log.id()
    return ids


async def rolled(
    root: StoreLike, worker: str = "w", options: RollUpOptions = NONE_SELECTED
) -> RolledUp:
    async with Herd.open(root, server=worker) as herd:
        return await roll_up(herd, options=options)


async def compact(root: StoreLike, log_id: str, upto: int) -> None:
    cursors = sl.CursorStore(log_store(sl.open_store(root), log_id))
    try:
        await (await cursors.load("compaction")).move(upto)
    except sl.errors.NotFound:
        await cursors.create("compaction", upto)


def dirty_ids(found: RolledUp) -> set[str]:
    return {each.log_id for each in found.dirty}


class UnreadableStore(PassingStore):
    """Does not answer where it is told not to."""

    def __init__(self, inner: Store, prefix: str) -> None:
        super().__init__(inner)
        self._prefix = prefix

    async def get(self, path: str) -> Blob:
        if path.startswith(self._prefix):
            raise sl.errors.Denied(f"{path} is not for you", path=path)
        return await super().get(path)


class TestBehaviour26:
    def test_a_log_stays_dirty_until_its_cursor_has_passed_the_mark(self, store_url: str) -> None:
        async def main() -> None:
            ids = await written(store_url, ["x", "y"])
            assert dirty_ids(await rolled(store_url)) == {*ids.values()}
            await compact(store_url, ids["x"], 2)
            found = await rolled(store_url)
            assert dirty_ids(found) == {*ids.values()}
            assert {each.log_id: each.records for each in found.dirty} == {
                ids["x"]: 1,
                ids["y"]: 2,
            }
            await compact(store_url, ids["x"], 3)
            found = await rolled(store_url)
            assert (dirty_ids(found), found.clean) == ({ids["y"]}, 1)
            assert dirty_ids(await rolled(store_url)) == {ids["y"]}

        run(main())

    def test_marks_of_one_log_become_one(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            await written(root, ["x"], "a")
            await written(root, ["x"], "b")
            assert (await rolled(root)).marks == 4
            assert (await rolled(root)).marks == 1

        run(main())

    def test_the_count_and_the_first_time_are_kept(self) -> None:
        async def main() -> None:
            root, clock = MemoryStore(), FakeClock()
            async with Herd.open(root, server="a", runtime=clock) as herd:
                await (await herd.create("x")).append(b"one")
                first_us = clock.now_us()
            for count in (1, 2, 3):
                clock.time_us += 10_000_000
                async with Herd.open(root, server="w", runtime=clock) as herd:
                    [dirty] = (await roll_up(herd, options=NONE_SELECTED)).dirty
                assert dirty.reinsertions == count
                assert abs(dirty.first_us - first_us) < 1_000_000

        run(main())

    def test_old_and_big_ones_are_selected_and_others_are_put_back(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            ids = await written(root, ["small"])
            async with Herd.open(root, server="a") as herd:
                big = await herd.create("big")
                await big.append_many([b"x"] * 50)
                ids["big"] = await big.id()
            found = await rolled(root, options=RollUpOptions(age_s=1e9, records=50))
            assert [(each.log_id, each.reason) for each in found.selected] == [(ids["big"], "big")]
            assert dirty_ids(found) == {*ids.values()}
            found = await rolled(root, options=RollUpOptions(age_s=0.0, records=50))
            assert {each.log_id: each.reason for each in found.selected} == {
                ids["big"]: "big",
                ids["small"]: "old",
            }
            often = RollUpOptions(age_s=1e9, records=10_000, reinsertions=2)
            assert {each.reason for each in (await rolled(root, options=often)).selected} == {
                "put back often"
            }

        run(main())

    def test_a_log_that_cannot_be_read_keeps_its_mark(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            ids = await written(root, ["x", "y"])
            found = await rolled(UnreadableStore(root, f"logs/{ids['x']}/"))
            assert dirty_ids(found) == {ids["y"]}
            [trouble] = found.troubles
            assert ids["x"] in trouble
            assert dirty_ids(await rolled(root)) == {*ids.values()}

        run(main())

    @pytest.mark.parametrize("broken", ["dirty/a/first/log/", "dirty/a/first/manifest"])
    def test_a_dirty_log_that_cannot_be_read_loses_no_mark(self, broken: str) -> None:
        async def main() -> None:
            root = MemoryStore()
            ids = await written(root, ["x"], "a") | await written(root, ["y"], "b")
            found = await rolled(UnreadableStore(root, broken))
            assert dirty_ids(found) == {ids["y"]}
            assert len(found.troubles) == 1
            assert dirty_ids(await rolled(root)) == {*ids.values()}

        run(main())

    def test_if_marks_cannot_be_put_back_no_cursor_moves(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            ids = await written(root, ["x"])
            with pytest.raises(Unavailable, match="no dirty log"):
                await rolled(BrokenStore(root, "dirty/w/"))
            assert dirty_ids(await rolled(root, "other")) == {ids["x"]}

        run(main())

    def test_a_log_that_is_gone_loses_its_mark(self, store_url: str) -> None:
        async def main() -> None:
            await written(store_url, ["x"])
            async with Herd.open(store_url, server="a") as herd:
                await herd.drop("x")
            found = await rolled(store_url)
            assert (found.dirty, found.gone) == ((), 1)
            assert (await rolled(store_url)).marks == 0

        run(main())

    def test_a_mark_of_what_was_never_linked_goes_after_a_sweep(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            ids = await written(root, ["x"])
            store = log_store(root, ids["x"])
            broken = BrokenStore(root, f"logs/{ids['x']}/log/")
            async with Herd.open(broken, server="b") as herd:
                with pytest.raises(sl.errors.StratalogError):
                    await herd.log("x").append(b"never stored")
            await compact(root, ids["x"], 3)
            assert dirty_ids(await rolled(root)) == {ids["x"]}, "it may still be linked"
            await begin_a_sweep(store)
            found = await rolled(root)
            assert (found.dirty, found.clean) == ((), 1)

        run(main())

    @pytest.mark.parametrize(("logs", "written_to"), [(1_000, 5), (10_000, 50)])
    def test_it_costs_as_much_as_there_are_marked_logs(self, logs: int, written_to: int) -> None:
        """A herd of many logs costs as many requests as one of few, if as many are dirty."""

        async def cost(logs: int) -> tuple[int, int]:
            root = MemoryStore()
            async with Herd.open(root, server="a") as herd:
                for number in range(logs):
                    await herd.create(f"log-{number:05}")
            async with Herd.open(root, server="a") as herd:
                for number in range(0, logs, logs // written_to):
                    await herd.log(f"log-{number:05}").append(b"one")
            counting = CountingStore(root)
            async with Herd.open(counting, server="w") as herd:
                counting.reset()
                found = await roll_up(herd, options=NONE_SELECTED)
            assert len(found.dirty) == written_to
            return sum(counting.counts.values()), len(counting.paths_read)

        async def main() -> None:
            assert await cost(logs) == await cost(100)

        run(main(), 120.0)

    def test_a_roll_up_needs_a_name(self) -> None:
        async def main() -> None:
            async with Herd.open(MemoryStore()) as herd:
                with pytest.raises(Invalid, match="needs a name"):
                    await roll_up(herd)

        run(main())

    def test_marks_that_are_done_with_are_deleted(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            ids = await written(root, [f"log{number}" for number in range(20)])
            for log_id in ids.values():
                await compact(root, log_id, 3)
            assert (await rolled(root)).clean == 20
            await rolled(root)
            left = [row.path async for row in root.list("dirty/") if "/log/" in row.path]
            assert left == []

        run(main())


class TestBehaviour27:
    def test_workers_divide_the_dirty_logs_and_miss_none(self, store_url: str) -> None:
        async def main() -> None:
            ids: dict[str, str] = {}
            for server in ("a", "b", "c", "d"):
                ids |= await written(store_url, [f"log-{server}"], server)
            workers = ["w1", "w2", "w3"]
            found: set[str] = set()
            for worker in workers:
                async with Herd.open(store_url, server=worker) as herd:
                    found |= dirty_ids(await roll_up(herd, workers=workers, options=NONE_SELECTED))
            assert found == {*ids.values()}
            alone = await rolled(store_url, "w1")
            assert dirty_ids(alone) == {*ids.values()}, "also those of workers that left"

        run(main())

    def test_two_that_do_the_same_lose_nothing(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            ids = await written(root, ["x", "y", "z"])
            both = await asyncio.gather(rolled(root, "w1"), rolled(root, "w2"))
            assert all(dirty_ids(found) == {*ids.values()} for found in both)
            assert dirty_ids(await rolled(root, "w3")) == {*ids.values()}

        run(main())

    def test_one_that_is_slower_finds_the_marks_collected(self) -> None:
        """Between its reading and its moving of the cursor another worker has done it all."""

        async def main() -> None:
            root = MemoryStore()
            ids = await written(root, ["x"])
            gate = GateStore(root, "dirty/w1/")
            slow = asyncio.ensure_future(rolled(gate, "w1"))
            await gate.arrived.wait()
            await written(root, ["x"])
            await rolled(root, "w2")
            gate.open()
            found = await slow
            assert (dirty_ids(found), found.troubles) == ({*ids.values()}, ())
            assert dirty_ids(await rolled(root, "w3")) == {*ids.values()}

        run(main())


class TestCrashes:
    """Before and after every store operation of a roll-up; the next one finds everything."""

    def test_at_every_operation(self) -> None:
        async def roll(store: Store, _: History) -> None:
            async with Herd.open(store, server="w") as herd:
                await roll_up(herd, options=NONE_SELECTED)

        async def made() -> tuple[MemoryStore, dict[str, str]]:
            root = MemoryStore()
            ids = await written(root, ["x", "y"], "a")
            ids |= await written(root, ["z"], "b")
            await compact(root, ids["y"], 3)
            return root, ids

        root, _ = run(made())
        operations = run_until_crash(root, roll, None, History(), Puts())
        assert len(operations) > 20
        for point in [CrashPoint(*each) for each in sides_of(operations)]:
            root, ids = run(made())
            run_until_crash(root, roll, point, History(), Puts())
            found = run(rolled(root, "other"))
            assert dirty_ids(found) == {ids["x"], ids["z"]}, point
            again = run(rolled(root, "w"))
            assert dirty_ids(again) == {ids["x"], ids["z"]}, point
