"""The faulty store: each fault does what it says, and nothing that a store may not do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Literal

import pytest

from stratalog.errors import Conflict, Exists, NotFound, Unavailable, Unknown
from stratalog.store.memory import MemoryStore
from stratalog.store.protocol import Store
from stratalog.testing.delays import DelayedStore, Latency
from stratalog.testing.faults import Crashed, Faults, FaultyStore, StoreCall
from stratalog.testing.simulation import Simulation, simulate


def check(
    faults: Faults, scenario: Callable[[FaultyStore, MemoryStore], Coroutine[Any, Any, None]]
) -> None:
    """Run a scenario with a faulty way to a store, and a faultless one."""

    async def main(simulation: Simulation) -> None:
        store = MemoryStore()
        await scenario(simulation.node("a", store, faults).store, store)

    simulate(main, 1)


async def paths(store: Store) -> list[str]:
    return [row.path async for row in store.list()]


def test_without_faults_it_is_the_store_that_it_wraps() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        etag = await faulty.put_if_absent("a", b"one")
        assert await faulty.put_if_match("a", b"two", etag) == (await store.head("a")).etag
        assert (await faulty.get("a")).data == b"two"
        assert await faulty.get_range("a", 1, 2) == b"wo"
        assert (await faulty.head("a")).size == 3
        assert await paths(faulty) == ["a"]
        with pytest.raises(Exists):
            await faulty.put_if_absent("a", b"")
        with pytest.raises(Conflict):
            await faulty.put_if_match("a", b"", etag)
        await faulty.delete_many(["a"])
        with pytest.raises(NotFound):
            await faulty.get("a")
        assert isinstance(faulty, Store)
        assert faulty.url == store.url

    check(Faults(), scenario)


def test_a_failed_put_has_no_effect() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        with pytest.raises(Unknown):
            await faulty.put_if_absent("a", b"")
        await faulty.settle()
        assert await paths(store) == []

    check(Faults(put_error=1.0), scenario)


def test_a_put_whose_answer_is_lost_has_landed() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        with pytest.raises(Unknown):
            await faulty.put_if_absent("a", b"one")
        assert (await store.get("a")).data == b"one"
        with pytest.raises(Unknown):
            await faulty.put_if_match("a", b"two", "wrong")
        assert (await store.get("a")).data == b"one"

    check(Faults(lost_answer=1.0), scenario)


def test_a_late_put_lands_if_its_condition_holds_when_it_arrives() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        etag = await store.put_if_absent("a", b"one")
        with pytest.raises(Unknown):
            await faulty.put_if_match("a", b"two", etag)
        assert (await store.get("a")).data == b"one"
        await faulty.settle()
        assert (await store.get("a")).data == b"two"

    check(Faults(late_landing=1.0, late_s=(5.0, 5.0)), scenario)


def test_a_late_put_does_not_land_if_its_condition_broke_meanwhile() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        etag = await store.put_if_absent("a", b"one")
        with pytest.raises(Unknown):
            await faulty.put_if_match("a", b"late", etag)
        with pytest.raises(Unknown):
            await faulty.put_if_absent("b", b"late")
        await store.put_if_match("a", b"other", etag)
        await store.put_if_absent("b", b"other")
        await faulty.settle()
        assert (await store.get("a")).data == b"other"
        assert (await store.get("b")).data == b"other"

    check(Faults(late_landing=1.0, late_s=(5.0, 5.0)), scenario)


def test_a_late_put_lands_when_its_condition_comes_true_meanwhile() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        await store.put_if_absent("a", b"in the way")
        with pytest.raises(Unknown):
            await faulty.put_if_absent("a", b"late")
        await store.delete_many(["a"])
        await faulty.settle()
        assert (await store.get("a")).data == b"late"

    check(Faults(late_landing=1.0, late_s=(5.0, 5.0)), scenario)


def test_an_echoed_refusal_has_landed() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        with pytest.raises(Exists):
            await faulty.put_if_absent("a", b"one")
        with pytest.raises(Conflict):
            await faulty.put_if_match("a", b"two", (await store.head("a")).etag)
        assert (await store.get("a")).data == b"two"

    check(Faults(echoed_refusal=1.0), scenario)


def test_a_false_refusal_has_not_landed() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        with pytest.raises(Exists):
            await faulty.put_if_absent("a", b"one")
        etag = await store.put_if_absent("b", b"one")
        with pytest.raises(Conflict):
            await faulty.put_if_match("b", b"two", etag)
        await faulty.settle()
        assert await paths(store) == ["b"]
        assert (await store.get("b")).data == b"one"

    check(Faults(false_refusal=1.0), scenario)


def test_a_duplicate_is_carried_out_twice() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        await faulty.put_if_absent("a", b"")
        await store.delete_many(["a"])
        await faulty.settle()
        assert await paths(store) == ["a"]

    check(Faults(duplicate=1.0), scenario)


def test_a_failed_read_is_unavailable() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        await store.put_if_absent("a", b"")
        for attempt in (faulty.get("a"), faulty.head("a"), faulty.get_range("a", 0, 0)):
            with pytest.raises(Unavailable):
                await attempt
        with pytest.raises(Unavailable):
            await paths(faulty)

    check(Faults(read_error=1.0), scenario)


def test_a_deletion_with_a_lost_answer_may_be_partial_and_is_unavailable() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        left = set()
        for _ in range(50):
            for name in "abc":
                await store.put_if_absent(name, b"")
            with pytest.raises(Unavailable):
                await faulty.delete_many(["a", "b", "c"])
            left.add("".join(await paths(store)))
            await store.delete_many(["a", "b", "c"])
        assert left == {"abc", "bc", "c", ""}

    check(Faults(lost_answer=1.0), scenario)


def test_deletions_are_never_refused() -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        await store.put_if_absent("a", b"")
        await faulty.delete_many(["a"])
        assert await paths(store) == []

    check(Faults(false_refusal=0.5, echoed_refusal=0.5), scenario)


def test_requests_and_answers_take_their_time() -> None:
    async def main(simulation: Simulation) -> None:
        store = MemoryStore()
        faults = Faults(request_s=(1.0, 1.0), answer_s=(2.0, 2.0))
        put = asyncio.create_task(simulation.node("a", store, faults).store.put_if_absent("a", b""))
        await asyncio.sleep(0.9)
        assert await paths(store) == []
        await asyncio.sleep(0.2)
        assert await paths(store) == ["a"]
        await put
        assert simulation.loop.time() == 3.0

    simulate(main, 1)


@pytest.mark.parametrize(("lands", "expected"), [(0.0, []), (1.0, ["a"])])
def test_a_put_whose_caller_is_cancelled_may_land_all_the_same(
    lands: float, expected: list[str]
) -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        put = asyncio.create_task(faulty.put_if_absent("a", b""))
        await asyncio.sleep(0.5)
        put.cancel()
        await asyncio.wait([put])
        assert await paths(store) == []
        await faulty.settle()
        assert await paths(store) == expected

    check(Faults(request_s=(1.0, 1.0), abandoned_lands=lands), scenario)


@pytest.mark.parametrize(("when", "expected"), [("before", ["1"]), ("after", ["1", "2"])])
def test_a_crash_happens_at_the_chosen_operation_and_is_for_good(
    when: Literal["before", "after"], expected: list[str]
) -> None:
    async def scenario(faulty: FaultyStore, store: MemoryStore) -> None:
        faulty.crash_at(2, when)
        await faulty.put_if_absent("1", b"")
        with pytest.raises(Crashed):
            await faulty.put_if_absent("2", b"")
        with pytest.raises(Crashed):
            await faulty.put_if_absent("3", b"")
        with pytest.raises(Crashed):
            await faulty.get("1")
        with pytest.raises(Crashed):
            await paths(faulty)
        assert await paths(store) == expected
        assert faulty.crashed
        assert [call.number for call in faulty.operations] == [1, 2]

    # Not as a node: the crash of a node would also end the task that looks at it.
    async def main() -> None:
        store = MemoryStore()
        await scenario(FaultyStore(store, Faults(lost_answer=0.0), random=Random(1)), store)

    asyncio.run(main())


def test_no_handler_of_exceptions_survives_a_crash() -> None:
    async def main() -> None:
        faulty = FaultyStore(MemoryStore(), random=Random(1))
        faulty.crash()

        async def careless() -> None:
            try:
                await faulty.get("a")
            except Exception:
                pytest.fail("survived")

        with pytest.raises(Crashed):
            await careless()

    asyncio.run(main())


def test_the_crash_of_a_node_ends_its_tasks_but_not_what_it_had_sent() -> None:
    async def main(simulation: Simulation) -> None:
        store = MemoryStore()
        node = simulation.node("a", store, Faults(request_s=(1.0, 1.0), abandoned_lands=1.0))

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(node.store.put_if_absent(name, b""))

        task = node.spawn(work())
        await asyncio.sleep(0.5)
        node.crash()
        await asyncio.wait([task])
        assert await paths(store) == []
        await simulation.settle()
        assert await paths(store) == ["a", "b", "c"]

    simulate(main, 1)


def test_a_crash_matrix_can_enumerate_the_operations_of_a_run() -> None:
    async def work(store: Store) -> None:
        etag = await store.put_if_absent("a", b"one")
        await store.put_if_match("a", b"two", etag)
        await store.get("a")

    def run(crash: tuple[int, Literal["before", "after"]] | None) -> tuple[list[StoreCall], bytes]:
        async def main(simulation: Simulation) -> tuple[list[StoreCall], bytes]:
            store = MemoryStore()
            node = simulation.node("a", store)
            if crash is not None:
                node.crash_at(*crash)
            await asyncio.wait([node.spawn(work(node.store))])
            data = (await store.get("a")).data if await paths(store) else b""
            return node.store.operations, data

        return simulate(main, 1)

    calls, _ = run(None)
    assert calls == [(1, "put_if_absent", "a"), (2, "put_if_match", "a"), (3, "get", "a")]
    left = {(n, when): run((n, when))[1] for n, _, _ in calls for when in ("before", "after")}
    assert left == {
        (1, "before"): b"",
        (1, "after"): b"one",
        (2, "before"): b"one",
        (2, "after"): b"two",
        (3, "before"): b"two",
        (3, "after"): b"two",
    }


def test_it_works_on_an_ordinary_event_loop() -> None:
    async def main() -> None:
        store = MemoryStore()
        faults = Faults(late_landing=1.0, late_s=(0.0, 0.001), request_s=(0.0, 0.001))
        faulty = FaultyStore(store, faults, random=Random(1))
        with pytest.raises(Unknown):
            await faulty.put_if_absent("a", b"")
        await faulty.settle()
        assert await paths(store) == ["a"]

    asyncio.run(main())


def test_impossible_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="together"):
        Faults(put_error=0.6, lost_answer=0.6)
    with pytest.raises(ValueError, match="slow is not a probability"):
        Faults(slow=1.5)
    with pytest.raises(ValueError, match="late_s is not a range"):
        Faults(late_s=(2.0, 1.0))


def test_a_swarm_turns_each_kind_of_fault_on_and_off() -> None:
    swarm = [Faults.swarm(Random(seed)) for seed in range(100)]
    for name in ("slow", "read_error", "put_error", "lost_answer", "late_landing", "duplicate"):
        assert {getattr(faults, name) > 0 for faults in swarm} == {True, False}


def test_injected_latencies_have_the_median_and_the_tail_that_were_asked_for() -> None:
    random = Random(1)
    drawn = sorted(Latency(0.028, 0.075).draw_s(random) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(0.028, rel=0.03)
    assert drawn[19_800] == pytest.approx(0.075, rel=0.05)


def test_a_delayed_store_answers_as_the_one_it_wraps() -> None:
    async def main(simulation: Simulation) -> float:
        store = MemoryStore()
        delayed = DelayedStore(store, seed=1, put=Latency(1.0, 1.5), get=Latency(0.1, 0.15))
        etag = await delayed.put_if_absent("a", b"one")
        assert simulation.loop.time() > 0.3
        await delayed.put_if_match("a", b"two", etag)
        assert (await delayed.get("a")).data == await delayed.get_range("a", 0, 3) == b"two"
        assert await delayed.head("a") == await store.head("a")
        assert await paths(delayed) == ["a"]
        await delayed.delete_many(["a"])
        assert await paths(store) == []
        assert isinstance(delayed, Store)
        assert delayed.url == store.url
        return simulation.loop.time()

    assert simulate(main, 1) > 2
