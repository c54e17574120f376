"""Behaviour 25 and around it: logs by name, marks beside fragments, back-pressure, budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import stratalog as sl
from objectlog.whole_log import rows_of, run
from objectlog.wrapped_stores import CountingStore, GateStore, PassingStore, TrickyStore
from stratalog.errors import Closed, Exists, Full, Invalid, NotFound, Unavailable
from stratalog.herd import Herd, HerdOptions, Mark
from stratalog.herd.dirty_mark import MARK_BYTES_MAX
from stratalog.herd.names import SIDES, dirty_store
from stratalog.objectlog.collection.sweep_epoch import raise_epoch
from stratalog.objectlog.stored.manifest import load_manifest
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import MemoryStore, StoreLike
from stratalog.store.protocol import Store


async def marks_of(root: StoreLike, server: str, side: str = SIDES[0]) -> list[Mark]:
    try:
        rows = await rows_of(dirty_store(sl.open_store(root), server, side))
    except NotFound:
        return []
    assert all(len(body) <= MARK_BYTES_MAX for _, _, body in rows)
    return [Mark.from_bytes(body) for _, _, body in rows]


async def begin_a_sweep(store: Store) -> None:
    manifest, _ = await load_manifest(store)
    await raise_epoch(store, manifest.sweep_epoch + 1, DEFAULT_RUNTIME, 60.0)


class BrokenStore(PassingStore):
    """Refuses to write where it is told to."""

    def __init__(self, inner: Store, *broken: str) -> None:
        super().__init__(inner)
        self.broken = broken

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self._check(path)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self._check(path)
        return await super().put_if_match(path, data, etag)

    def _check(self, path: str) -> None:
        if path.startswith(self.broken):
            raise sl.errors.Denied(f"{path} is broken", path=path)


class TestNames:
    def test_a_log_is_created_once_and_found_by_name(self, store_url: str) -> None:
        async def main() -> None:
            async with Herd.open(store_url, server="a") as herd:
                log = await herd.create("orders")
                assert (await log.append(b"one")).offset == 1
                with pytest.raises(Exists, match="orders"):
                    await herd.create("orders")
                again = await herd.create("orders", exist_ok=True)
                assert await again.id() == await log.id()
                await herd.create("a.b_C-9")
                assert [name async for name in herd.names()] == ["a.b_C-9", "orders"]
            async with Herd.open(store_url) as herd, herd.log("orders").reader() as reader:
                assert [record.body async for record in reader.records()] == [b"one"]

        run(main())

    def test_many_create_one_log(self, store_url: str) -> None:
        async def main() -> None:
            async with Herd.open(store_url, server="a") as one, Herd.open(store_url) as other:
                made = await asyncio.gather(
                    *(herd.create("orders", exist_ok=True) for herd in (one, other) * 8)
                )
                assert len({await log.id() for log in made}) == 1

        run(main())

    def test_a_log_whose_maker_died_is_completed_by_who_uses_it(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            gate = GateStore(root, "logs/")
            async with Herd.open(gate) as herd:
                making = asyncio.ensure_future(herd.create("orders"))
                await gate.arrived.wait()
                making.cancel()
                await asyncio.gather(making, return_exceptions=True)
            async with Herd.open(root, server="b") as herd:
                assert (await herd.log("orders").append(b"one")).offset == 1

        run(main())

    @pytest.mark.parametrize("name", ["", ".x", "a/b", "a b", "ä", "x" * 129, 7])
    def test_a_name_that_is_none(self, name: str) -> None:
        async def main() -> None:
            async with Herd.open(MemoryStore()) as herd:
                with pytest.raises(Invalid, match="not a name of a log"):
                    await herd.create(name)
                with pytest.raises(Invalid, match="not a name of a log"):
                    herd.log(name)
            with pytest.raises(Invalid, match="not a name of a server"):
                Herd.open(MemoryStore(), server=name)

        run(main())

    def test_a_log_that_is_not_there(self) -> None:
        async def main() -> None:
            async with Herd.open(MemoryStore(), server="a") as herd:
                with pytest.raises(NotFound, match="no log 'orders'"):
                    await herd.log("orders").append(b"one")

        run(main())

    def test_a_dropped_log_frees_its_name(self, store_url: str) -> None:
        async def main() -> None:
            async with Herd.open(store_url, server="a") as herd:
                first = await (await herd.create("orders")).id()
                await herd.log("orders").append(b"one")
                await herd.drop("orders")
                await herd.drop("orders")
                assert [name async for name in herd.names()] == []
                with pytest.raises(NotFound):
                    await herd.log("orders").append(b"two")
                log = await herd.create("orders")
                assert await log.id() != first
                assert (await log.append(b"three")).offset == 1
            rows = [row.path async for row in sl.open_store(store_url).list(f"logs/{first}/")]
            assert rows == []

        run(main())

    def test_a_drop_whose_answer_was_lost_spares_the_next_log_of_the_name(self) -> None:
        """Somebody takes the freed name before the drop has looked what became of its put."""

        async def main() -> None:
            inner = MemoryStore()

            async def take_the_name() -> None:
                async with Herd.open(inner, server="b") as other:
                    log = await other.create("orders")
                    taken.append(await log.id())
                    await log.append(b"new")

            taken: list[str] = []
            async with Herd.open(inner, server="a") as herd:
                first = await (await herd.create("orders")).id()
            tricky = TrickyStore(inner, "catalogue/", ["lost"], take_the_name)
            async with Herd.open(tricky) as herd:
                await herd.drop("orders")
            async with Herd.open(inner) as herd:
                assert [await herd.log("orders").id()] == taken
                async with herd.log("orders").reader() as reader:
                    assert [record.body async for record in reader.records()] == [b"new"]
            assert [row.path async for row in inner.list(f"logs/{first}/")] == []

        run(main())

    def test_without_a_server_nothing_is_written(self) -> None:
        async def main() -> None:
            async with Herd.open(MemoryStore()) as herd:
                log = await herd.create("orders")
                with pytest.raises(Invalid, match="without a server"):
                    await log.append(b"one")
            with pytest.raises(Closed):
                herd.log("orders")

        run(main())


class TestBehaviour25:
    def test_one_small_record_for_each_fragment(self, store_url: str) -> None:
        async def main() -> None:
            async with Herd.open(store_url, server="a") as herd:
                log = await herd.create("orders")
                await log.append(b"one")
                await log.append_many([b"two", b"three"])
                log_id = await log.id()
            marks = await marks_of(store_url, "a")
            assert [(mark.log_id, mark.end) for mark in marks] == [(log_id, 2), (log_id, 4)]
            assert await marks_of(store_url, "a", SIDES[1]) == []

        run(main())

    def test_a_fragment_of_many_appends_has_one_mark(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            async with Herd.open(root, server="a") as herd:
                log = await herd.create("orders")
                await asyncio.gather(*(log.append(b"x" * 100) for _ in range(500)))
                async with log.reader() as reader:
                    fragments = len(await reader.scan())
            assert len(await marks_of(root, "a")) == fragments < 50

        run(main())

    def test_nothing_is_linked_before_its_mark_is_durable(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            gate = GateStore(root, "dirty/a/first/manifest")
            async with Herd.open(root, server="b") as herd:
                await herd.create("orders")
            async with Herd.open(gate, server="a") as herd:
                appending = asyncio.ensure_future(herd.log("orders").append(b"one"))
                await gate.arrived.wait()
                for _ in range(50):
                    await asyncio.sleep(0)
                async with herd.log("orders").reader() as reader:
                    assert reader.tail == 1, "linked, and not marked"
                gate.open()
                assert (await appending).offset == 1

        run(main())

    def test_if_one_dirty_log_does_not_take_it_the_other_does(self, store_url: str) -> None:
        async def main() -> None:
            root = BrokenStore(sl.open_store(store_url), "dirty/a/first/")
            async with Herd.open(root, server="a") as herd:
                log = await herd.create("orders")
                assert (await log.append(b"one")).offset == 1
                root.broken = ("dirty/a/second/",)
                assert (await log.append(b"two")).offset == 2
            assert [mark.end for mark in await marks_of(store_url, "a", SIDES[1])] == [2]
            assert [mark.end for mark in await marks_of(store_url, "a", SIDES[0])] == [3]

        run(main())

    def test_if_no_dirty_log_takes_it_the_append_fails(self, store_url: str) -> None:
        async def main() -> None:
            root = BrokenStore(sl.open_store(store_url), "dirty/")
            async with Herd.open(root, server="a") as herd:
                log = await herd.create("orders")
                with pytest.raises(Unavailable, match="no dirty log"):
                    await log.append(b"one")
                root.broken = ()
                assert (await log.append(b"two")).offset == 1
            async with Herd.open(store_url) as herd, herd.log("orders").reader() as reader:
                assert [record.body async for record in reader.records()] == [b"two"]

        run(main())

    def test_an_upload_that_a_sweep_made_void_is_marked_again(self) -> None:
        async def main() -> None:
            root = MemoryStore()
            async with Herd.open(root, server="a") as herd:
                log = await herd.create("orders")
                await log.append(b"one")
                await begin_a_sweep(await log.store())
                await log.append(b"two")
            marks = await marks_of(root, "a")
            assert [mark.end for mark in marks] == [2, 3, 3]
            assert marks[1].sweep_epoch < marks[2].sweep_epoch

        run(main())


class TestBackPressure:
    def test_too_much_that_is_not_compacted_is_refused_and_says_so(self) -> None:
        async def main() -> None:
            options = HerdOptions(uncompacted_records_max=3, cursor_s=0.0)
            async with Herd.open(MemoryStore(), server="a", options=options) as herd:
                log = await herd.create("orders")
                cursor = await (await log.cursors()).create("compaction", 1)
                for _ in range(3):
                    await log.append(b"x")
                with pytest.raises(Full, match="3 records of 'orders' are not compacted") as error:
                    await log.append(b"x")
                assert error.value.hint is not None
                await cursor.move(3)
                assert (await log.append(b"x")).offset == 4

        run(main())

    def test_a_log_that_nobody_compacts_is_not_limited(self) -> None:
        async def main() -> None:
            options = HerdOptions(uncompacted_records_max=2, cursor_s=0.0)
            async with Herd.open(MemoryStore(), server="a", options=options) as herd:
                log = await herd.create("orders")
                for _ in range(5):
                    await log.append(b"x")

        run(main())

    def test_a_log_that_nobody_compacts_is_not_limited_however_fast_it_grows(self) -> None:
        async def main() -> None:
            options = HerdOptions(uncompacted_records_max=2)
            async with Herd.open(MemoryStore(), server="a", options=options) as herd:
                log = await herd.create("orders")
                for _ in range(9):
                    await log.append(b"x")

        run(main())

    def test_the_cursor_is_not_read_for_each_append(self) -> None:
        async def main() -> None:
            root = CountingStore(MemoryStore())
            options = HerdOptions(uncompacted_records_max=1000)
            async with Herd.open(root, server="a", options=options) as herd:
                log = await herd.create("orders")
                await (await log.cursors()).create("compaction", 1)
                await log.append(b"x")
                root.reset()
                for _ in range(20):
                    await log.append(b"x")
                assert not any("/cursor/" in path for path in root.paths_read)

        run(main())


class TestBudget:
    def test_no_more_than_so_many_are_open(self) -> None:
        async def main() -> None:
            async with Herd.open(
                MemoryStore(), server="a", options=HerdOptions(open_max=3)
            ) as herd:
                names = [f"log{number}" for number in range(10)]
                for name in names:
                    await (await herd.create(name)).append(b"one")
                assert herd.open_writers == 3
                for name in names:
                    assert (await herd.log(name).append(b"two")).offset == 2

        run(main())

    def test_one_that_is_idle_is_closed_and_opens_again(self) -> None:
        async def main() -> None:
            async with Herd.open(
                MemoryStore(), server="a", options=HerdOptions(idle_s=0.05)
            ) as herd:
                log = await herd.create("orders")
                await log.append(b"one")
                assert herd.open_writers == 1
                await asyncio.sleep(0.3)
                assert herd.open_writers == 0
                assert (await log.append(b"two")).offset == 2

        run(main())

    def test_one_that_is_used_again_just_then_is_not_closed(self) -> None:
        """A caller comes between the look at the idle ones and the closing."""

        async def main() -> None:
            async with Herd.open(MemoryStore(), server="a") as herd:
                log = await herd.create("orders")
                await log.append(b"one")
                assert log.is_idle
                async with log._turn:
                    closing = asyncio.ensure_future(log.close_if_idle())
                    appending = asyncio.ensure_future(log.append(b"two"))
                    await asyncio.sleep(0)
                assert (await appending).offset == 2
                await closing
                assert (await log.append(b"three")).offset == 3

        run(main())

    def test_one_failure_does_not_end_the_appends_of_others(self) -> None:
        async def main() -> None:
            root = BrokenStore(MemoryStore(), "dirty/")
            async with Herd.open(root, server="a") as herd:
                log = await herd.create("orders")
                with pytest.raises(Unavailable):
                    await log.append(b"lost")
                assert log.is_open, "its writer goes on"
                root.broken = ()
                assert (await log.append(b"one")).offset == 1

        run(main())

    def test_opening_a_log_is_two_reads(self) -> None:
        """Its entry and its manifest."""

        async def main() -> None:
            root = CountingStore(MemoryStore())
            async with Herd.open(root, server="a") as herd:
                await herd.create("orders")
                await herd.log("orders").append(b"one")
            async with Herd.open(root, server="a") as herd:
                root.reset()
                await herd.log("orders").append(b"two")
                read: Sequence[str] = [
                    path for path in root.paths_read if not path.startswith("dirty/")
                ]
                assert len(read) == 2

        run(main())

    @pytest.mark.parametrize(
        "wrong",
        [{"open_max": 0}, {"idle_s": 0.0}, {"cursor_s": -1.0}, {"uncompacted_records_max": 0}],
    )
    def test_options_that_are_none(self, wrong: dict[str, float]) -> None:
        with pytest.raises(Invalid, match="option of a herd"):
            HerdOptions(**wrong)  # type: ignore[arg-type]
