"""The simulated loop: virtual time, one order of steps for one seed, stuck programs are named."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from random import Random
from typing import Any

import pytest

from stratalog.store.memory import MemoryStore
from stratalog.testing.faults import Crashed, Faults
from stratalog.testing.loop import Deadlock, LimitExceeded, SimulatedLoop, SimulationError
from stratalog.testing.simulation import EPOCH_US, Simulation, simulate


def test_a_day_of_sleep_takes_no_time() -> None:
    async def main(simulation: Simulation) -> float:
        await asyncio.sleep(86_000)
        return simulation.loop.time()

    assert simulate(main, 1) == 86_000


def test_timers_of_one_instant_fire_in_the_order_in_which_they_were_set() -> None:
    async def main(simulation: Simulation) -> list[int]:
        fired: list[int] = []
        for number in range(50):
            simulation.loop.call_at(1.0, fired.append, number)
        await asyncio.sleep(2)
        return fired

    assert simulate(main, 1) == list(range(50))


def test_a_cancelled_timer_neither_fires_nor_moves_the_clock() -> None:
    async def main(simulation: Simulation) -> float:
        simulation.loop.call_later(5, pytest.fail, "fired").cancel()
        async with asyncio.timeout(100):
            await asyncio.sleep(1)
        return simulation.loop.time()

    assert simulate(main, 1) == 1


def test_time_outs_work_in_virtual_time() -> None:
    async def main(simulation: Simulation) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return simulation.loop.time()

    assert simulate(main, 1) == 30


def test_work_for_an_executor_runs_inline_at_a_virtual_time_of_its_own() -> None:
    async def main(simulation: Simulation) -> tuple[int, int, float]:
        loop = simulation.loop
        thread = await loop.run_in_executor(None, threading.get_ident)
        return thread, await asyncio.to_thread(lambda: 7), loop.time()

    thread, seven, elapsed_s = simulate(main, 1)
    assert (thread, seven) == (threading.get_ident(), 7)
    assert elapsed_s > 0


def test_an_error_in_an_executor_reaches_the_caller() -> None:
    def work() -> None:
        raise OSError("disk on fire")

    async def main(simulation: Simulation) -> None:
        with pytest.raises(OSError, match="disk on fire"):
            await simulation.loop.run_in_executor(None, work)

    simulate(main, 1)


def test_giving_up_on_an_executor_does_not_stop_its_work() -> None:
    async def main(simulation: Simulation) -> list[int]:
        done: list[int] = []
        simulation.loop.run_in_executor(None, done.append, 1).cancel()
        await asyncio.sleep(1)
        return done

    assert simulate(main, 1) == [1]


def test_a_deadlock_is_raised_and_names_the_tasks_and_where_they_wait() -> None:
    async def waits_for_nothing() -> None:
        await asyncio.Event().wait()

    async def main(simulation: Simulation) -> None:
        await asyncio.create_task(waits_for_nothing(), name="the stuck one")

    with pytest.raises(Deadlock, match=r"the stuck one waits in .*waits_for_nothing .*Event\.wait"):
        simulate(main, 1)


def test_endless_steps_are_a_livelock() -> None:
    async def main(simulation: Simulation) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LimitExceeded, match="more than 1000 steps"):
        simulate(main, 1, steps_max=1000)


def test_endless_time_is_a_livelock() -> None:
    async def main(simulation: Simulation) -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(LimitExceeded, match="virtual time"):
        simulate(main, 1, time_max_s=60)


def test_tasks_and_generators_that_are_left_over_are_ended() -> None:
    ended: list[str] = []

    async def lingers() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(3)
            ended.append("task")

    async def numbers() -> Any:
        try:
            yield 1
        finally:
            ended.append("generator")

    async def main(simulation: Simulation) -> None:
        simulation.kept = asyncio.create_task(lingers())  # type: ignore[attr-defined]
        simulation.generator = numbers()  # type: ignore[attr-defined]
        await anext(simulation.generator)  # type: ignore[attr-defined]

    simulate(main, 1)
    assert ended == ["task", "generator"]


def test_a_task_that_was_never_started_leaves_no_warning() -> None:
    async def work() -> None:
        await asyncio.sleep(1)

    async def main(simulation: Simulation) -> None:
        for _ in range(2000):
            asyncio.create_task(work())  # noqa: RUF006 - nobody keeps it, on purpose
        await asyncio.sleep(1)

    with pytest.raises(LimitExceeded):
        simulate(main, 1, steps_max=1)


def test_a_task_that_refuses_to_end_is_reported() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def main(simulation: Simulation) -> None:
        simulation.kept = asyncio.create_task(stubborn())  # type: ignore[attr-defined]
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="do not end when cancelled"):
        simulate(main, 1)


def test_an_error_carries_the_seed_and_the_end_of_the_trace() -> None:
    async def main(simulation: Simulation) -> None:
        simulation.trace.note("something odd")
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom") as caught:
        simulate(main, 4711)
    note = caught.value.__notes__[0]
    assert "seed 4711" in note
    assert "something odd" in note


def test_a_thread_may_not_enter() -> None:
    loop = SimulatedLoop(Random(1))
    caught: list[Exception] = []

    def intrude() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except SimulationError as error:
            caught.append(error)

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    loop.close()
    assert len(caught) == 1


def test_sets_of_tasks_and_futures_have_one_order() -> None:
    async def main(simulation: Simulation) -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0)) for _ in range(20)}
        names = [task.get_name() for task in tasks]
        futures = {simulation.loop.create_future() for _ in range(20)}
        return names + [str(future.number) for future in futures]

    padding = []
    first = simulate(main, 1)
    for size in range(1, 40):
        padding.append(bytearray(size * 1000))
        assert simulate(main, 1) == first


def test_clocks_ids_and_randomness_come_from_the_seed() -> None:
    async def main(simulation: Simulation) -> tuple[object, ...]:
        runtime = simulation.node("a", MemoryStore(), skew_us=-5_000_000).runtime
        await asyncio.sleep(2)
        computed = await runtime.compute(lambda: 6 * 7)
        now_us = simulation.runtime.now_us()
        assert now_us - runtime.now_us() == 5_000_000
        assert now_us >= EPOCH_US + 2_000_000
        return now_us, runtime.new_id(), runtime.new_id(7), runtime.random(), computed

    first = simulate(main, 9)
    assert first == simulate(main, 9)
    assert first[1] != simulate(main, 10)[1]
    assert [len(str(first[1])), len(str(first[2]))] == [12, 7]


async def busy(simulation: Simulation) -> str:
    """Nodes that fight over one object, are paused and crash, through every kind of fault."""
    store = MemoryStore()
    await store.put_if_absent("counter", b"0")
    random = simulation.random
    nodes = [simulation.node(f"n{i}", store, Faults.swarm(random)) for i in range(3)]

    async def count(node: Any) -> None:
        for _ in range(20):
            try:
                blob = await node.store.get("counter")
                body = blob.data + node.runtime.new_id(4).encode()
                await node.store.put_if_match("counter", body[-60:], blob.etag)
            except Exception as error:
                simulation.trace.note(f"{node.name} {type(error).__name__}")

    tasks = {node.spawn(count(node)) for node in nodes}
    await asyncio.sleep(0.2)
    nodes[0].pause(3)
    nodes[1].crash_at(random.randrange(1, 30), "after")
    for task in tasks:
        await asyncio.wait([task])
    await simulation.settle()
    simulation.trace.note(repr((await store.get("counter")).data))
    return simulation.trace.digest()


def test_the_same_seed_gives_the_same_trace() -> None:
    digests = [simulate(busy, seed) for seed in range(20)]
    assert digests == [simulate(busy, seed) for seed in range(20)]
    assert len(set(digests)) == 20


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    program = (
        "import runpy, sys; from stratalog.testing.simulation import simulate;"
        "busy = runpy.run_path(sys.argv[1])['busy'];"
        "print(*[simulate(busy, seed) for seed in range(5)])"
    )

    def digests(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program, __file__],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    assert digests("1") == digests("2") == " ".join(simulate(busy, s) for s in range(5)) + "\n"


def test_a_crashed_node_ends_and_the_others_go_on() -> None:
    async def main(simulation: Simulation) -> None:
        store = MemoryStore()
        a, b = simulation.node("a", store), simulation.node("b", store)

        async def parent(name: str, node: Any) -> None:
            await asyncio.gather(*(child(name, node, i) for i in range(3)))

        async def child(name: str, node: Any, number: int) -> None:
            await asyncio.sleep(10)
            await node.store.put_if_absent(f"{name}{number}", b"")

        doomed, fine = a.spawn(parent("a", a)), b.spawn(parent("b", b))
        await asyncio.sleep(5)
        a.crash()
        await asyncio.wait([doomed, fine])
        assert doomed.cancelled()
        assert a.crashed
        assert [row.path async for row in store.list()] == ["b0", "b1", "b2"]
        with pytest.raises(Crashed):
            await a.store.get("b0")

    simulate(main, 1)


def test_a_crashed_node_does_not_get_to_clean_up() -> None:
    cleaned: list[str] = []

    async def main(simulation: Simulation) -> None:
        node = simulation.node("a", MemoryStore())

        async def tidy() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(1)
                cleaned.append("cleaned")

        task = node.spawn(tidy())
        await asyncio.sleep(1)
        node.crash()
        await asyncio.wait([task])

    simulate(main, 1)
    assert cleaned == []


def test_a_paused_node_hears_nothing_until_it_resumes() -> None:
    async def main(simulation: Simulation) -> list[float]:
        store = MemoryStore()
        await store.put_if_absent("x", b"")
        node = simulation.node("a", store, Faults(answer_s=(1.0, 1.0)))
        sent = node.spawn(node.store.get("x"))
        await asyncio.sleep(0.5)
        node.pause(60)
        unsent = node.spawn(node.store.put_if_absent("y", b""))
        await asyncio.sleep(59)
        assert [row.path async for row in store.list()] == ["x"]
        await sent
        heard = simulation.loop.time()
        await unsent
        return [heard, simulation.loop.time()]

    assert simulate(main, 1) == [60.5, 61.5]


def test_two_nodes_of_one_name_are_refused() -> None:
    async def main(simulation: Simulation) -> None:
        simulation.node("a", MemoryStore())
        with pytest.raises(ValueError, match="already"):
            simulation.node("a", MemoryStore())

    simulate(main, 1)
