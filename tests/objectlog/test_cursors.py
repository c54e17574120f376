"""Behaviour 15: a cursor moves only with a witness of its previous value."""

from __future__ import annotations

import asyncio
import json

import pytest

import stratalog as sl
from objectlog.whole_log import FakeClock, check_whole_log, collect_roots, run
from objectlog.wrapped_stores import PassingStore, Trick, TrickyStore
from stratalog.errors import (
    Conflict,
    Denied,
    Exists,
    Invalid,
    NotFound,
    StratalogError,
    Trimmed,
    Unavailable,
    Unknown,
)
from stratalog.objectlog.holds.cursor import cursor_path
from stratalog.store import MemoryStore
from stratalog.store.closing import open_json
from stratalog.testing import Simulation, simulate


async def make(url: str | sl.Store, appends: int = 8) -> sl.CursorStore:
    async with sl.LogWriter.open(url, create=True) as log:
        for number in range(appends):
            await log.append(b"%d" % number)
    return sl.CursorStore(url, writer="test")


class TestBehaviour15Cursors:
    def test_create_load_move_list_and_delete(self, store_url: str) -> None:
        async def main() -> None:
            cursors = await make(store_url)
            assert await cursors.list() == []
            cursor = await cursors.create("compaction", 3)
            assert (cursor.name, cursor.offset, cursor.writer) == ("compaction", 3, "test")
            assert cursor.epoch_us > 0
            cursor = await cursor.move(5)
            assert cursor.offset == cursor.position.offset == 5
            loaded = await cursors.load("compaction")
            assert (loaded.offset, loaded.epoch_us) == (5, cursor.epoch_us)
            await cursors.create("another_one", 1)
            assert [(each.name, each.offset) for each in await cursors.list()] == [
                ("another_one", 1),
                ("compaction", 5),
            ]
            await loaded.delete()
            assert [each.name for each in await cursors.list()] == ["another_one"]
            with pytest.raises(NotFound):
                await cursors.load("compaction")
            await check_whole_log(store_url)

        run(main())

    def test_a_stale_witness_conflicts_and_changes_nothing(self, store_url: str) -> None:
        async def main() -> None:
            cursors = await make(store_url)
            stale = await cursors.create("c", 1)
            other = await cursors.load("c")
            await other.move(4)
            with pytest.raises(Conflict):
                await stale.move(2)
            with pytest.raises(Conflict):
                await stale.delete()
            with pytest.raises(Conflict):
                await other.move(5)
            assert (await cursors.load("c")).offset == 4

        run(main())

    def test_a_cursor_that_came_back_to_its_value_does_not_fool_an_old_witness(
        self, store_url: str
    ) -> None:
        """No ABA: etags may be hashes of the content, and two versions are never byte-equal."""

        async def main() -> None:
            await make(store_url)
            cursors = sl.CursorStore(store_url, writer="same", runtime=FakeClock(7))
            old = await cursors.create("c", 3)
            back = await (await old.move(6)).move(3)
            assert (back.offset, back.epoch_us) == (old.offset, old.epoch_us)
            with pytest.raises(Conflict):
                await old.move(5)
            assert (await back.move(5)).offset == 5

        run(main())

    def test_of_many_who_move_with_one_witness_exactly_one_does(self, store_url: str) -> None:
        contenders = 4 if store_url.startswith("s3") else 12

        async def main() -> None:
            cursors = await make(store_url)
            await cursors.create("c", 1)
            witnesses = [await cursors.load("c") for _ in range(contenders)]
            outcomes = await asyncio.gather(
                *(each.move(2 + i % 6) for i, each in enumerate(witnesses)),
                return_exceptions=True,
            )
            moved = [each for each in outcomes if isinstance(each, sl.Cursor)]
            assert len(moved) == 1
            assert sum(isinstance(each, Conflict) for each in outcomes) == contenders - 1
            assert (await cursors.load("c")).offset == moved[0].offset

        run(main())

    @pytest.mark.parametrize(
        "name",
        ["", "a-b", "a.b", "a/b", "../x", "ä", "a b", "a\n", "a\0", "x" * 201, "a.json", "*"],
    )
    def test_other_names_are_refused_before_anything_is_asked(
        self, store_url: str, name: str
    ) -> None:
        async def main() -> None:
            cursors = sl.CursorStore(store_url)
            with pytest.raises(Invalid):
                await cursors.create(name, 1)
            with pytest.raises(Invalid):
                await cursors.load(name)
            assert [row async for row in sl.open_store(store_url).list()] == []

        run(main())

    @pytest.mark.parametrize("offset", [0, -1, 2**63, 2**64, 1.0, 1.5, "5", None, True, b"1"])
    def test_other_offsets_are_refused_and_leave_nothing_behind(
        self, store_url: str, offset: object
    ) -> None:
        async def main() -> None:
            cursors = await make(store_url, 2)
            with pytest.raises(Invalid):
                await cursors.create("c", offset)  # type: ignore[arg-type]
            assert await cursors.list() == []
            assert [row async for row in sl.open_store(store_url).list("cursor/")] == []
            cursor = await cursors.create("c", 2)
            with pytest.raises(Invalid):
                await cursor.move(offset)  # type: ignore[arg-type]
            assert (await cursors.load("c")).offset == 2
            assert (await cursor.move(1)).offset == 1

        run(main())

    @pytest.mark.parametrize("name", [None, 5, b"c", ["c"]])
    def test_a_name_that_is_no_text_is_refused(self, name: object) -> None:
        async def main() -> None:
            store = MemoryStore()
            cursors = await make(store, 1)
            with pytest.raises(Invalid):
                await cursors.create(name, 1)  # type: ignore[arg-type]
            with pytest.raises(Invalid):
                await cursors.load(name)  # type: ignore[arg-type]
            assert [row async for row in store.list("cursor/")] == []

        run(main())

    @pytest.mark.parametrize("offset", [4, 5, 2**63 - 1])
    def test_beyond_the_tail_is_refused_and_leaves_nothing_behind(
        self, store_url: str, offset: int
    ) -> None:
        async def main() -> None:
            cursors = await make(store_url, 2)
            with pytest.raises(Invalid, match="the log ends at 3") as caught:
                await cursors.create("c", offset)
            assert (caught.value.expected, caught.value.actual) == (3, offset)
            assert [row async for row in sl.open_store(store_url).list("cursor/")] == []
            cursor = await cursors.create("c", 3)
            with pytest.raises(Invalid, match="the log ends at 3"):
                await cursor.move(offset)
            assert (await cursors.load("c")).offset == 3
            assert (await cursor.move(2)).offset == 2
            await sl.sweep(store_url)

        run(main())

    def test_names_of_letters_digits_and_underscores_are_allowed(self, store_url: str) -> None:
        async def main() -> None:
            cursors = await make(store_url)
            names = ["A", "Zz_09", "_", "0", "x" * 200]
            for name in names:
                await cursors.create(name, 1)
            assert [each.name for each in await cursors.list()] == sorted(names)

        run(main())

    def test_creating_twice_fails_and_creating_after_deletion_does_not(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            cursors = await make(store_url)
            first = await cursors.create("c", 2)
            with pytest.raises(Exists):
                await cursors.create("c", 5)
            assert (await cursors.load("c")).offset == 2
            await first.delete()
            with pytest.raises(Conflict):
                await first.delete()
            second = await cursors.create("c", 4)
            with pytest.raises(Conflict):
                await first.move(3)
            assert (await second.move(6)).offset == 6

        run(main())

    def test_of_many_who_create_it_exactly_one_does_also_over_a_tombstone(
        self, store_url: str
    ) -> None:
        contenders = 4 if store_url.startswith("s3") else 10

        async def main() -> None:
            cursors = await make(store_url)
            for _ in range(2):
                outcomes = await asyncio.gather(
                    *(cursors.create("c", 1 + i % 6) for i in range(contenders)),
                    return_exceptions=True,
                )
                made = [each for each in outcomes if isinstance(each, sl.Cursor)]
                assert len(made) == 1
                assert all(
                    isinstance(each, Exists | Conflict) for each in outcomes if each not in made
                )
                assert (await cursors.load("c")).offset == made[0].offset
                await made[0].delete()

        run(main())

    def test_a_cursor_may_go_back_but_not_to_what_was_collected(self, store_url: str) -> None:
        async def main() -> None:
            cursors = await make(store_url)
            cursor = await cursors.create("c", 7)
            cursor = await cursor.move(5)
            assert await collect_roots(store_url, 4) == 5
            for offset in (0, -3):
                with pytest.raises(Invalid):
                    await cursor.move(offset)
            with pytest.raises(Trimmed) as caught:
                await cursor.move(4)
            assert caught.value.first_offset == 5
            with pytest.raises(Trimmed):
                await cursors.create("d", 1)
            assert [each.name for each in await cursors.list()] == ["c"]
            assert (await cursors.load("c")).offset == 5

        run(main())

    def test_a_cursor_created_behind_a_collector_fails_and_does_not_dangle(
        self, store_url: str
    ) -> None:
        class CollectsMeanwhile(PassingStore):
            async def put_if_absent(self, path: str, data: bytes) -> str:
                if path.startswith("cursor/"):
                    await collect_roots(self.inner, 4)
                return await super().put_if_absent(path, data)

        async def main() -> None:
            await make(store_url)
            cursors = sl.CursorStore(CollectsMeanwhile(sl.open_store(store_url)))
            with pytest.raises(Trimmed) as caught:
                await cursors.create("late", 2)
            assert caught.value.first_offset == 5
            assert await cursors.list() == []
            with pytest.raises(NotFound):
                await cursors.load("late")

        run(main())

    def test_a_cursor_needs_a_log(self, store_url: str) -> None:
        async def main() -> None:
            cursors = sl.CursorStore(store_url)
            with pytest.raises(NotFound):
                await cursors.create("c", 1)
            with pytest.raises(NotFound):
                await cursors.load("c")
            assert await cursors.list() == []
            assert [row async for row in sl.open_store(store_url).list()] == []

        run(main())

    @pytest.mark.parametrize("trick", ["lost", "echoed", "dropped", "refused"])
    def test_answers_that_went_astray_are_settled(self, store_url: str, trick: str) -> None:
        async def main() -> None:
            await make(store_url)
            store = TrickyStore(sl.open_store(store_url), "cursor/")
            cursors = sl.CursorStore(store)
            store.tricks.append(trick)  # type: ignore[arg-type]
            cursor = await cursors.create("c", 2)
            store.tricks.append(trick)  # type: ignore[arg-type]
            cursor = await cursor.move(4)
            assert (await cursors.load("c")).offset == 4
            cursor = await cursor.move(5)
            store.tricks.append(trick)  # type: ignore[arg-type]
            await cursor.delete()
            assert await cursors.list() == []

        run(main())

    def test_a_lost_answer_with_others_on_top_is_unknown_not_a_conflict(self) -> None:
        async def main() -> None:
            honest = MemoryStore()
            await make(honest)
            others = sl.CursorStore(honest)

            async def move_on() -> None:
                await (await others.load("c")).move(6)

            store = TrickyStore(honest, "cursor/", meanwhile=move_on)
            cursor = await sl.CursorStore(store).create("c", 2)
            store.tricks.append("lost")
            with pytest.raises(Unknown):
                await cursor.move(4)
            assert (await others.load("c")).offset == 6

        run(main())

    @pytest.mark.parametrize("refusal", [Denied, Invalid, Unavailable])
    @pytest.mark.parametrize("trick", ["dropped", "late", "lost"])
    def test_a_refusal_after_a_lost_answer_does_not_say_that_it_was_not_created(
        self, refusal: type[StratalogError], trick: Trick
    ) -> None:
        class Refusing(PassingStore):
            puts = 0

            async def put_if_absent(self, path: str, data: bytes) -> str:
                self.puts += 1
                if self.puts > 1:
                    raise refusal("refused on purpose", path=path)
                return await super().put_if_absent(path, data)

        async def main(simulation: Simulation) -> None:
            tricky = TrickyStore(MemoryStore(), "cursor/", [trick])
            await make(tricky.inner)
            cursors = sl.CursorStore(Refusing(tricky), runtime=simulation.runtime)
            if trick == "lost":
                assert (await cursors.create("c", 2)).offset == 2
                return
            with pytest.raises(Unknown):
                await cursors.create("c", 2)
            assert await tricky.land_late() == ([True] if trick == "late" else [])

        simulate(main, seed=1)

    @pytest.mark.parametrize("refusal", [Denied, Invalid, Unavailable])
    def test_a_refusal_of_the_first_attempt_did_not_create_it(
        self, refusal: type[StratalogError]
    ) -> None:
        class Refusing(PassingStore):
            async def put_if_absent(self, path: str, data: bytes) -> str:
                raise refusal("refused on purpose", path=path)

        async def main(simulation: Simulation) -> None:
            store = MemoryStore()
            await make(store)
            cursors = sl.CursorStore(Refusing(store), runtime=simulation.runtime)
            with pytest.raises(refusal):
                await cursors.create("c", 2)
            assert await cursors.list() == []

        simulate(main, seed=1)

    def test_fields_of_others_survive_a_move(self, store_url: str) -> None:
        async def main() -> None:
            cursors = await make(store_url)
            await cursors.create("c", 2)
            store = sl.open_store(store_url)
            blob = await store.get(cursor_path("c"))
            marked = {**json.loads(open_json(blob.data, None)), "mark": {"by": "another program"}}
            await store.put_if_match(cursor_path("c"), json.dumps(marked).encode(), blob.etag)
            await (await cursors.load("c")).move(3)
            stored = json.loads((await store.get(cursor_path("c"))).data)
            assert stored["mark"] == {"by": "another program"}
            assert stored["position"] == {"offset": 3}

        run(main())

    def test_a_cursor_of_wal3_can_be_moved(self, store_url: str) -> None:
        async def main() -> None:
            cursors = await make(store_url)
            await sl.open_store(store_url).put_if_absent(
                cursor_path("compaction"),
                b'{"position":{"offset":4},"epoch_us":1700000000000000,"writer":"wal3"}',
            )
            cursor = await cursors.load("compaction")
            assert (cursor.offset, cursor.writer) == (4, "wal3")
            assert (await cursor.move(5)).offset == 5

        run(main())

    def test_strangers_in_the_folder_are_not_cursors(self, store_url: str) -> None:
        async def main() -> None:
            cursors = await make(store_url)
            await cursors.create("mine", 1)
            for path in ("cursor/a-b.json", "cursor/deep/er.json", "cursor/no_suffix"):
                await sl.open_store(store_url).put_if_absent(path, b"not a cursor")
            assert [each.name for each in await cursors.list()] == ["mine"]

        run(main())
