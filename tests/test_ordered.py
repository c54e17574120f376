"""Tasks within bounds: results in order, errors in order, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.ordered import OrderedTasks, gather_bounded, in_order


class Work:
    """Counts what is under way, and what was cut short."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.most = self.most_bytes = 0
        self.cancelled: list[int] = []

    async def do(self, number: int, turns: int = 1, size: int = 1) -> int:
        self.sizes[number] = size
        self.most = max(self.most, len(self.sizes))
        self.most_bytes = max(self.most_bytes, sum(self.sizes.values()))
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # it takes its time to end
            self.cancelled.append(number)
            raise
        finally:
            del self.sizes[number]
        return number

    async def fail(self, turns: int = 1) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        raise ZeroDivisionError


def run(main: Coroutine[object, object, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main

    asyncio.run(limited())


works = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=20)


class TestInOrder:
    @settings(deadline=None)
    @given(works=works, count_max=st.integers(1, 6), bytes_max=st.integers(0, 60))
    def test_results_come_in_order_and_bounds_are_kept(
        self, works: list[tuple[int, int]], count_max: int, bytes_max: int
    ) -> None:
        async def numbers() -> AsyncGenerator[int, None]:
            for number in range(len(works)):
                yield number

        async def main() -> None:
            work = Work()
            results = in_order(
                numbers(),
                lambda number: work.do(number, *works[number]),
                lambda number: works[number][1],
                count_max=count_max,
                bytes_max=bytes_max,
            )
            assert [each async for each in results] == list(range(len(works)))
            assert work.most <= count_max
            largest = max((size for _, size in works), default=0)
            assert work.most_bytes <= max(bytes_max, largest), "one may always run alone"

        run(main())

    def test_an_error_of_the_items_comes_after_the_results_of_those_before(self) -> None:
        async def items() -> AsyncGenerator[int, None]:
            yield 1
            yield 2
            raise ZeroDivisionError

        async def main() -> None:
            results = in_order(items(), Work().do, lambda _: 0, count_max=8, bytes_max=8)
            assert [await anext(results), await anext(results)] == [1, 2]
            with pytest.raises(ZeroDivisionError):
                await anext(results)

        run(main())

    def test_who_stops_early_leaves_nothing_under_way(self) -> None:
        async def items() -> AsyncGenerator[int, None]:
            for number in range(10):
                yield number

        async def main() -> None:
            work = Work()

            def do(number: int) -> Coroutine[object, object, int]:
                return work.do(number, turns=number * 1000)

            async with (
                aclosing(items()) as numbers,
                aclosing(in_order(numbers, do, lambda _: 1, count_max=4, bytes_max=9)) as results,
            ):
                async for _ in results:
                    break
            assert work.sizes == {}
            assert work.cancelled == [1, 2, 3]

        run(main())


class TestOrderedTasks:
    def test_an_error_comes_in_its_turn_and_stops_the_rest(self) -> None:
        async def main() -> None:
            work = Work()

            async def take_all() -> None:
                async with OrderedTasks[int](4) as tasks:
                    tasks.start(work.do(1, turns=5))
                    tasks.start(work.fail())
                    tasks.start(work.do(3, turns=1000))
                    assert await tasks.take() == 1
                    await tasks.take()

            with pytest.raises(ZeroDivisionError):
                await take_all()
            assert work.cancelled == [3]

        run(main())

    def test_waiting_for_room_counts_only_what_still_runs(self) -> None:
        async def main() -> None:
            work = Work()
            async with OrderedTasks[int](2, bytes_max=10) as tasks:
                tasks.start(work.do(1, turns=20), 5)
                tasks.start(work.do(2, turns=2), 5)
                await tasks.wait_for_room(5)
                assert [*work.sizes] == [1]
                assert not tasks.has_room(), "the second result was not taken yet"
                await tasks.wait_for_room(6)
                assert [*work.sizes] == []
                assert [await tasks.take(), await tasks.take()] == [1, 2]

        run(main())

    def test_waiting_for_the_oldest_may_be_cancelled_without_harm(self) -> None:
        async def main() -> None:
            work = Work()
            async with OrderedTasks[int](2) as tasks:
                tasks.start(work.do(1, turns=10))
                waiting = asyncio.ensure_future(tasks.wait())
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                assert await tasks.take() == 1

        run(main())


class TestGatherBounded:
    @settings(deadline=None)
    @given(turns=st.lists(st.integers(0, 5), max_size=20), count_max=st.integers(1, 5))
    def test_results_are_in_order_and_at_most_so_many_are_under_way(
        self, turns: list[int], count_max: int
    ) -> None:
        async def main() -> None:
            work = Work()
            numbers = range(len(turns))
            found = await gather_bounded(numbers, lambda n: work.do(n, turns[n]), count_max)
            assert found == [*numbers]
            assert work.most <= count_max

        run(main())

    def test_the_first_error_stops_the_rest_and_waits_for_its_end(self) -> None:
        async def main() -> None:
            work = Work()

            def do(number: int) -> Coroutine[object, object, int]:
                return work.fail() if number == 1 else work.do(number, turns=1000)

            with pytest.raises(ZeroDivisionError):
                await gather_bounded(range(8), do, 3)
            assert work.sizes == {}
            assert set(work.cancelled) <= {0, 2, 3}

        run(main())
