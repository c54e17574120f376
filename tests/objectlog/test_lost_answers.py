"""Behaviour 6: a conditional put whose answer is lost is settled, never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

import stratalog as sl
from objectlog.whole_log import (
    SMALL_TREE,
    bodies_of,
    check_whole_log,
    collect_roots,
    note_in_manifest,
    run,
)
from objectlog.wrapped_stores import PassingStore, Trick, TrickyStore
from stratalog.errors import (
    Closed,
    Denied,
    Fenced,
    Invalid,
    NotHappened,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.objectlog.stored.manifest import LINKED_MAX, MANIFEST_PATH
from stratalog.store import MemoryStore
from stratalog.testing import (
    Append,
    Faults,
    FaultyStore,
    History,
    Simulation,
    check_appends,
    simulate,
)

REOPEN = sl.WriterOptions(on_fenced="reopen")


async def append_by_another(url: sl.Store | str, *bodies: bytes) -> None:
    async with sl.LogWriter.open(url, options=SMALL_TREE) as other:
        for body in bodies:
            await other.append(body)


class RefusingStore(PassingStore):
    """Refuses every manifest put behind the first ``after`` ones. What it refuses never lands."""

    def __init__(
        self, inner: sl.Store, refusal: type[StratalogError] | None, after: int = 0
    ) -> None:
        super().__init__(inner)
        self.refusal = refusal
        self.after = after

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self.after -= 1
        if self.refusal is not None and self.after < 0:
            raise self.refusal("refused on purpose", path=path)
        return await super().put_if_match(path, data, etag)


class TestBehaviour06LandedButLost:
    @pytest.mark.parametrize("trick", ["lost", "echoed"])
    def test_it_is_recognised_as_ours(self, store_url: str, trick: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = TrickyStore(sl.open_store(store_url), MANIFEST_PATH)
            async with sl.LogWriter.open(store) as log:
                for number in range(5):
                    store.tricks.append(trick)  # type: ignore[arg-type]
                    assert (await log.append(b"%d" % number)).offset == number + 1
                assert store.asked == 5, "it was put again although it had landed"
                assert log.stats["rebases"] == 0
            assert await bodies_of(store_url) == [b"%d" % number for number in range(5)]
            await check_whole_log(store_url)

        run(main())

    def test_also_after_others_changed_the_past_on_top(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            honest = sl.open_store(store_url)
            store = TrickyStore(
                honest, MANIFEST_PATH, meanwhile=lambda: note_in_manifest(honest, "keeper", 1)
            )
            async with sl.LogWriter.open(store) as log:
                store.tricks.extend(["lost", "echoed"])
                assert (await log.append(b"one")).offset == 1
                assert (await log.append(b"two")).offset == 2
                assert (await log.append(b"three")).offset == 3
            assert await bodies_of(store_url) == [b"one", b"two", b"three"]

        run(main())

    @pytest.mark.parametrize("on_fenced", ["raise", "reopen"])
    def test_also_after_another_writer_appended_on_top(
        self, store_url: str, on_fenced: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            honest = sl.open_store(store_url)
            store = TrickyStore(
                honest,
                MANIFEST_PATH,
                ["lost"],
                meanwhile=lambda: append_by_another(honest, b"theirs-1", b"theirs-2"),
            )
            options = sl.WriterOptions(on_fenced=on_fenced)  # type: ignore[arg-type]
            log = await sl.LogWriter.open(store, options=options)
            first = asyncio.ensure_future(log.append(b"ours"))
            assert (await first).offset == 1
            if on_fenced == "reopen":
                assert (await log.append(b"next")).offset == 4
            else:
                with pytest.raises(Fenced):
                    await log.append(b"next")
            await log.close()
            bodies = await bodies_of(store_url)
            assert bodies[:3] == [b"ours", b"theirs-1", b"theirs-2"]
            assert bodies[3:] == ([b"next"] if on_fenced == "reopen" else [])
            await check_whole_log(store_url)

        run(main())

    def test_also_after_more_writers_than_the_table_of_linked_ones_holds(self) -> None:
        """Ours has left ``linked`` and the root by then: the tree tells who owns the offset."""

        async def many(store: sl.Store) -> None:
            for number in range(LINKED_MAX + 3):
                await append_by_another(store, b"theirs-%d" % number)

        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = TrickyStore(honest, MANIFEST_PATH, ["lost"], meanwhile=lambda: many(honest))
            async with sl.LogWriter.open(store) as log:
                mine = log.incarnation
                assert (await log.append_many([b"a", b"b"])).first.offset == 1
                assert mine not in (log.manifest.linked or {})
            bodies = await bodies_of(honest)
            assert bodies[:3] == [b"a", b"b", b"theirs-0"]
            assert len(bodies) == LINKED_MAX + 5
            await check_whole_log(honest)

        run(main())

    def test_what_cannot_be_told_any_more_is_unknown(self) -> None:
        """As above, and ours was collected too: nothing is left that could tell."""

        async def many(store: sl.Store) -> None:
            for number in range(LINKED_MAX + 3):
                await append_by_another(store, b"theirs-%d" % number)
            await collect_roots(store, 1)

        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = TrickyStore(honest, MANIFEST_PATH, ["lost"], meanwhile=lambda: many(honest))
            log = await sl.LogWriter.open(store, options=REOPEN)
            with pytest.raises(Unknown):
                await log.append(b"ours")
            with pytest.raises(Closed):
                await log.append(b"more")
            await log.close()
            await check_whole_log(honest)

        run(main())

    def test_all_units_that_one_manifest_linked_are_acknowledged(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = TrickyStore(sl.open_store(store_url), MANIFEST_PATH, ["lost", "echoed", "lost"])
            options = sl.WriterOptions(fragment_bytes=40)
            async with sl.LogWriter.open(store, options=options) as log:
                bodies = [b"body-%02d" % number * 4 for number in range(30)]
                positions = await asyncio.gather(*(log.append(body) for body in bodies))
            assert [each.offset for each in positions] == list(range(1, 31))
            assert await bodies_of(store_url) == bodies

        run(main())


class TestBehaviour06NotLanded:
    @pytest.mark.parametrize("trick", ["dropped", "refused"])
    def test_it_is_put_again_until_it_lands(self, store_url: str, trick: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = TrickyStore(sl.open_store(store_url), MANIFEST_PATH)
            async with sl.LogWriter.open(store) as log:
                store.tricks.extend([trick, trick])  # type: ignore[list-item]
                assert (await log.append(b"one")).offset == 1
                assert store.asked == 3
            assert await bodies_of(store_url) == [b"one"]

        run(main())

    def test_it_is_not_reported_as_success_when_another_writer_came_first(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            honest = sl.open_store(store_url)
            store = TrickyStore(
                honest,
                MANIFEST_PATH,
                ["dropped"],
                meanwhile=lambda: append_by_another(honest, b"theirs"),
            )
            log = await sl.LogWriter.open(store)
            with pytest.raises(Fenced):
                await log.append(b"ours")
            await log.close()
            assert await bodies_of(store_url) == [b"theirs"]

        run(main())

    def test_it_is_sent_again_once_by_a_writer_that_reopens(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            honest = sl.open_store(store_url)
            store = TrickyStore(
                honest,
                MANIFEST_PATH,
                ["dropped"],
                meanwhile=lambda: append_by_another(honest, b"theirs"),
            )
            async with sl.LogWriter.open(store, options=REOPEN) as log:
                assert (await log.append(b"ours")).offset == 2
            assert await bodies_of(store_url) == [b"theirs", b"ours"]

        run(main())

    def test_when_nothing_is_ever_answered_it_is_unknown_and_the_writer_is_closed(self) -> None:
        async def main(simulation: Simulation) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = TrickyStore(honest, MANIFEST_PATH)
            options = sl.WriterOptions(timeout_s=30.0, fragment_bytes=20)
            log = await sl.LogWriter.open(store, options=options, runtime=simulation.runtime)
            await log.append(b"before")
            store.tricks.extend(["dropped"] * 1_000)
            started_s = simulation.loop.time()
            doubtful = asyncio.ensure_future(log.append(b"doubtful"))
            await asyncio.sleep(1.0)
            behind = [log.submit(b"behind-%d" % number) for number in range(5)]
            with pytest.raises(Unknown):
                await doubtful
            assert 30.0 <= simulation.loop.time() - started_s < 40.0
            for outcome in await asyncio.gather(*behind, return_exceptions=True):
                assert isinstance(outcome, NotHappened), "only the one on its way may be in doubt"
            with pytest.raises(Closed):
                await log.append(b"later")
            with pytest.raises(Closed):
                log.submit(b"later")
            with pytest.raises(Closed):
                await log.drain()
            await log.flush()
            await log.close()
            assert await bodies_of(honest) == [b"before"]

        simulate(main, seed=1)

    def test_a_fragment_that_cannot_be_stored_did_not_happen_and_the_writer_goes_on(self) -> None:
        async def main(simulation: Simulation) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = TrickyStore(honest, "log/")
            options = sl.WriterOptions(timeout_s=5.0)
            async with sl.LogWriter.open(store, options=options, runtime=simulation.runtime) as log:
                store.tricks.extend(["dropped"] * 1_000)
                with pytest.raises(Unavailable):
                    await log.append(b"one")
                store.tricks.clear()
                assert (await log.append(b"two")).offset == 1
            assert await bodies_of(honest) == [b"two"]

        simulate(main, seed=1)

    def test_a_manifest_that_never_lands_did_not_happen_and_the_writer_goes_on(self) -> None:
        """``Unavailable`` says that a put did not land, so there is no doubt."""

        async def main(simulation: Simulation) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = RefusingStore(honest, Unavailable)
            options = sl.WriterOptions(timeout_s=5.0)
            log = await sl.LogWriter.open(store, options=options, runtime=simulation.runtime)
            started_s = simulation.loop.time()
            with pytest.raises(Unavailable):
                await log.append(b"one")
            assert 5.0 <= simulation.loop.time() - started_s < 8.0
            store.refusal = None
            assert (await log.append(b"two")).offset == 1
            await log.close()
            assert await bodies_of(honest) == [b"two"]

        simulate(main, seed=1)

    @pytest.mark.parametrize("refusal", [Denied, Invalid])
    def test_a_refusal_of_the_first_attempt_did_not_happen_and_stops_the_writer(
        self, refusal: type[StratalogError]
    ) -> None:
        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = RefusingStore(honest, refusal)
            log = await sl.LogWriter.open(store)
            with pytest.raises(refusal):
                await log.append(b"one")
            store.refusal = None
            with pytest.raises(refusal):
                await log.append(b"two")
            with pytest.raises(refusal):
                log.submit(b"three")
            await log.close()
            assert await bodies_of(honest) == []

        run(main())

    @pytest.mark.parametrize("refusal", [Denied, Invalid, Unavailable])
    @pytest.mark.parametrize("trick", ["dropped", "late"])
    def test_a_refusal_after_a_lost_answer_is_unknown(
        self, refusal: type[StratalogError], trick: Trick
    ) -> None:
        """The first attempt may still land: the refusal of a second one says nothing about it."""

        async def main(simulation: Simulation) -> None:
            tricky = TrickyStore(MemoryStore(), MANIFEST_PATH)
            await sl.create_log(tricky.inner)
            store = RefusingStore(tricky, refusal, after=1)
            options = sl.WriterOptions(timeout_s=5.0)
            log = await sl.LogWriter.open(store, options=options, runtime=simulation.runtime)
            tricky.tricks.append(trick)
            with pytest.raises(Unknown):
                await log.append(b"doubtful")
            with pytest.raises(Closed):
                await log.append(b"later")
            await log.close()
            assert await tricky.land_late() == ([True] if trick == "late" else [])

        simulate(main, seed=1)

    @pytest.mark.parametrize("refusal", [Denied, Invalid, Unavailable])
    def test_a_refusal_after_an_answer_that_was_lost_on_its_way_back_is_success(
        self, refusal: type[StratalogError]
    ) -> None:
        async def main(simulation: Simulation) -> None:
            tricky = TrickyStore(MemoryStore(), MANIFEST_PATH)
            await sl.create_log(tricky.inner)
            store = RefusingStore(tricky, refusal, after=1)
            log = await sl.LogWriter.open(store, runtime=simulation.runtime)
            tricky.tricks.append("lost")
            assert (await log.append(b"one")).offset == 1
            await log.close()
            assert await bodies_of(tricky.inner) == [b"one"]

        simulate(main, seed=1)


class TestBehaviour06LateLanding:
    def test_one_that_lands_after_the_second_attempt_does_no_harm(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = TrickyStore(sl.open_store(store_url), MANIFEST_PATH, ["late"])
            async with sl.LogWriter.open(store) as log:
                assert (await log.append(b"one")).offset == 1
                assert await store.land_late() == [False]
                assert (await log.append(b"two")).offset == 2
            assert await bodies_of(store_url) == [b"one", b"two"]
            await check_whole_log(store_url)

        run(main())

    def test_one_that_lands_before_the_second_attempt_is_ours(self, store_url: str) -> None:
        class LandsBeforeTheSecond(TrickyStore):
            async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
                landed.extend(await self.land_late())
                return await super().put_if_match(path, data, etag)

        landed: list[bool] = []

        async def main() -> None:
            await sl.create_log(store_url)
            store = LandsBeforeTheSecond(sl.open_store(store_url), MANIFEST_PATH, ["late"])
            async with sl.LogWriter.open(store) as log:
                assert (await log.append(b"one")).offset == 1
                assert (await log.append(b"two")).offset == 2
            assert landed == [True]
            assert await bodies_of(store_url) == [b"one", b"two"]
            await check_whole_log(store_url)

        run(main())

    def test_one_that_lands_after_another_writer_does_no_harm(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            honest = sl.open_store(store_url)
            store = TrickyStore(
                honest,
                MANIFEST_PATH,
                ["late"],
                meanwhile=lambda: append_by_another(honest, b"theirs"),
            )
            async with sl.LogWriter.open(store, options=REOPEN) as log:
                assert (await log.append(b"ours")).offset == 2
                assert await store.land_late() == [False]
            assert await bodies_of(store_url) == [b"theirs", b"ours"]
            await check_whole_log(store_url)

        run(main())

    @pytest.mark.parametrize("first", ["the late put", "the new writer"])
    def test_one_that_lands_after_its_caller_heard_unknown_is_there_once_or_not(
        self, first: str
    ) -> None:
        async def main(simulation: Simulation) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = TrickyStore(honest, MANIFEST_PATH, ["late", *["dropped"] * 1_000])  # type: ignore[list-item]
            options = sl.WriterOptions(timeout_s=5.0)
            log = await sl.LogWriter.open(store, options=options, runtime=simulation.runtime)
            with pytest.raises(Unknown):
                await log.append(b"doubtful")
            await log.close()
            if first == "the late put":
                assert await store.land_late() == [True]
                await append_by_another(honest, b"next")
                assert await bodies_of(honest) == [b"doubtful", b"next"]
            else:
                await append_by_another(honest, b"next")
                assert await store.land_late() == [False]
                assert await bodies_of(honest) == [b"next"]
            await check_whole_log(honest)

        simulate(main, seed=2)


class TestBehaviour06Uploads:
    @pytest.mark.parametrize("trick", ["lost", "echoed", "dropped", "late"])
    def test_a_fragment_whose_answer_went_astray_is_linked_once(
        self, store_url: str, trick: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = TrickyStore(sl.open_store(store_url), "log/")
            async with sl.LogWriter.open(store) as log:
                for number in range(3):
                    store.tricks.append(trick)  # type: ignore[arg-type]
                    assert (await log.append(b"%d" % number)).offset == number + 1
                    await store.land_late()
            assert await bodies_of(store_url) == [b"0", b"1", b"2"]
            await check_whole_log(store_url)

        run(main())

    @pytest.mark.parametrize("trick", ["lost", "echoed", "dropped", "late"])
    def test_a_snapshot_whose_answer_went_astray_is_linked_once(
        self, store_url: str, trick: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = TrickyStore(sl.open_store(store_url), "snapshot/", [trick] * 3)  # type: ignore[list-item]
            async with sl.LogWriter.open(store, options=SMALL_TREE) as log:
                for number in range(20):
                    assert (await log.append(b"%d" % number)).offset == number + 1
                    await store.land_late()
            assert len(await check_whole_log(store_url)) == 20

        run(main())


class TestBehaviour06UnderManyFaults:
    """Everything at once, on real stores and in real time; the simulation goes much further."""

    @pytest.mark.parametrize("seed", range(3))
    def test_a_history_under_faults_is_explained_by_the_log(
        self, store_url: str, seed: int
    ) -> None:
        faults = Faults(
            lost_answer=0.15,
            put_error=0.1,
            echoed_refusal=0.1,
            false_refusal=0.1,
            late_landing=0.05,
            duplicate=0.1,
            read_error=0.1,
            late_s=(0.0, 0.05),
        )

        async def main() -> None:
            await sl.create_log(store_url)
            history = History()
            stores = [
                FaultyStore(sl.open_store(store_url), faults, random=Random(seed * 10 + i))
                for i in range(2)
            ]

            async def process(name: str, store: FaultyStore) -> None:
                log = await retried(lambda: sl.LogWriter.open(store, options=REOPEN))
                for i in range(6):
                    body = f"{name}-{i}".encode()
                    try:
                        await history.observe(name, Append((body,)), log.append(body))
                    except Unknown:
                        await log.close()
                        log = await retried(lambda: sl.LogWriter.open(store, options=REOPEN))
                await log.close()

            await asyncio.gather(*(process(f"p{i}", store) for i, store in enumerate(stores)))
            for store in stores:
                await store.settle()
            check_appends(history, await check_whole_log(store_url))

        run(main())


async def retried(opening: Callable[[], Awaitable[sl.LogWriter]]) -> sl.LogWriter:
    while True:
        try:
            return await opening()
        except Unavailable:
            continue
