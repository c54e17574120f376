"""A crew: every caller gets its own result, however many results travel together."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from operator import add
from typing import Any, TypeVar

import pytest

from stratalog.store import crew as crew_module
from stratalog.store.crew import BUNCH, Crew, crew

T = TypeVar("T")

LIMIT_S = 60.0


def run(work: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S):
            return await work

    return asyncio.run(limited())


def fresh(name: str, threads_max: int = 2) -> Crew:
    return Crew(f"test-{name}", threads_max)


class Wakings:
    """How often the loop was woken by a thread, and with how many results."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        settle = crew_module._settle

        def counting(results: tuple[Any, ...]) -> None:
            self.sizes.append(len(results))
            settle(results)

        monkeypatch.setattr(crew_module, "_settle", counting)


def test_each_gets_its_own_result_and_its_own_error() -> None:
    def work(number: int) -> Callable[[], int]:
        def doing() -> int:
            if number % 7 == 3:
                raise KeyError(number)
            return number * number

        return doing

    async def main() -> None:
        ours = fresh("results")
        answers = await asyncio.gather(
            *(ours.run(work(number)) for number in range(500)), return_exceptions=True
        )
        for number, answer in enumerate(answers):
            if number % 7 == 3:
                assert isinstance(answer, KeyError)
                assert answer.args == (number,)
            else:
                assert answer == number * number

    run(main())


def test_quick_results_travel_together(monkeypatch: pytest.MonkeyPatch) -> None:
    wakings = Wakings(monkeypatch)
    monkeypatch.setattr(crew_module, "QUICK_S", 60.0)  # whatever this machine is doing
    started = threading.Event()

    async def main() -> None:
        ours = fresh("together", threads_max=1)
        first = asyncio.ensure_future(ours.run(lambda: started.wait(30)))
        rest = [asyncio.ensure_future(ours.run(lambda: 1)) for _ in range(40)]
        await asyncio.sleep(0)  # all of them are in the queue
        started.set()
        assert await first
        assert sum(await asyncio.gather(*rest)) == 40

    run(main())
    assert sum(wakings.sizes) == 41
    assert wakings.sizes == [BUNCH] * (41 // BUNCH) + [41 % BUNCH]


def test_a_slow_piece_is_handed_over_before_the_next_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crew_module, "QUICK_S", 0.0)
    let = threading.Event()

    async def main() -> None:
        ours = fresh("slow", threads_max=1)
        first = asyncio.ensure_future(ours.run(lambda: time.sleep(0.002)))
        second = asyncio.ensure_future(ours.run(lambda: let.wait(30)))
        await first
        assert not second.done()
        let.set()
        assert await second

    run(main())


def test_no_more_threads_than_it_has_and_as_many_as_there_is_work_for() -> None:
    together = threading.Barrier(3)
    names: set[str] = set()

    def work() -> None:
        together.wait(30)  # only three threads at once can pass
        names.add(threading.current_thread().name)

    async def main() -> None:
        ours = fresh("threads", threads_max=3)
        await asyncio.gather(*(ours.run(work) for _ in range(3)))
        await asyncio.gather(*(ours.run(lambda: None) for _ in range(100)))

    run(main())
    assert len(names) == 3


def test_who_is_cancelled_before_it_begins_is_left_out() -> None:
    let, done = threading.Event(), []

    async def main() -> None:
        ours = fresh("cancelled", threads_max=1)
        first = asyncio.ensure_future(ours.run(lambda: let.wait(30)))
        second = asyncio.ensure_future(ours.run(lambda: done.append("second")))
        third = asyncio.ensure_future(ours.run(lambda: done.append("third")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        let.set()
        await asyncio.gather(first, third)
        assert second.cancelled()
        assert done == ["third"]

    run(main())


def test_who_is_cancelled_meanwhile_does_not_disturb_the_others() -> None:
    begun, let = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        let.wait(30)
        return 1

    async def main() -> None:
        ours = fresh("meanwhile", threads_max=1)
        first = asyncio.ensure_future(ours.run(work))
        second = asyncio.ensure_future(ours.run(lambda: 2))
        await asyncio.to_thread(begun.wait, 30)
        first.cancel()
        let.set()
        assert await second == 2
        assert first.cancelled()

    run(main())


def test_loops_of_several_threads_share_it() -> None:
    ours = fresh("loops")
    answers: dict[int, list[int]] = {}

    def in_a_thread(number: int) -> None:
        async def main() -> list[int]:
            sums = (ours.run(partial(add, n, number)) for n in range(200))
            return list(await asyncio.gather(*sums))

        answers[number] = run(main())

    threads = [threading.Thread(target=in_a_thread, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert answers == {number: [n + number for n in range(200)] for number in range(4)}


def test_a_loop_that_is_gone_does_not_keep_the_crew_from_others() -> None:
    ours = fresh("gone", threads_max=1)
    begun, let = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        let.wait(30)

    async def leaving() -> None:
        task = asyncio.ensure_future(ours.run(work))
        await asyncio.to_thread(begun.wait, 30)
        assert not task.done()

    run(leaving())  # cancels the task, and closes the loop while the thread is at work
    let.set()

    async def staying() -> int:
        return await ours.run(lambda: 7)

    assert run(staying()) == 7


def test_a_thread_that_cannot_be_started_is_told_to_all_who_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        ours = fresh("none")

        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(ours._pool, "submit", refuse)
            for _ in range(3):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    await ours.run(lambda: 1)
        assert await ours.run(lambda: 1) == 1

    run(main())


def test_work_that_ends_an_iteration_is_an_error_like_others() -> None:
    def work() -> None:
        raise StopIteration(5)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await fresh("stop").run(work)

    run(main())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_its_own() -> None:
    async def main() -> int:
        return await crew("test-forked", 1).run(os.getpid)

    assert run(main()) == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if run(main()) == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
