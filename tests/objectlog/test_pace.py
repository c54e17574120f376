"""Behaviour 4: callers that move in step, on stores that are slow and on those that are not."""

from __future__ import annotations

import asyncio
import threading
from unittest.mock import patch

import pytest

import stratalog as sl
from objectlog.whole_log import check_whole_log, run
from objectlog.wrapped_stores import PassingStore
from stratalog.errors import Invalid
from stratalog.objectlog.options import RECORD_OVERHEAD_BYTES
from stratalog.objectlog.pace import Pace
from stratalog.store import MemoryStore
from stratalog.testing import Simulation, simulate

CALLERS, ROUNDS, RECORD_BYTES = 40, 12, 100
OPTIONS = sl.WriterOptions(fragment_bytes=CALLERS * (RECORD_BYTES + RECORD_OVERHEAD_BYTES))
PUT_S, MANIFEST_S = 0.03, 0.01


class SlowStore(PassingStore):
    """Takes its time for puts, and knows how many fragments were on their way at once."""

    def __init__(self, inner: sl.Store) -> None:
        super().__init__(inner)
        self.uploading = 0
        self.together: list[int] = []

    async def put_if_absent(self, path: str, data: bytes) -> str:
        if not path.startswith("log/"):
            return await super().put_if_absent(path, data)
        self.uploading += 1
        self.together.append(self.uploading)
        try:
            await asyncio.sleep(PUT_S)
            return await super().put_if_absent(path, data)
        finally:
            self.uploading -= 1

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await asyncio.sleep(MANIFEST_S)
        return await super().put_if_match(path, data, etag)


async def in_step(log: sl.LogWriter) -> None:
    async def caller(name: int) -> None:
        for number in range(ROUNDS):
            await log.append(b"%0*d" % (RECORD_BYTES, name * ROUNDS + number))

    async with asyncio.TaskGroup() as group:
        for name in range(CALLERS):
            group.create_task(caller(name))


async def sizes_of_fragments(store: sl.Store) -> list[int]:
    async with sl.LogReader.open(store) as reader:
        return [fragment.count for fragment in await reader.scan(1)]


class TestBehaviour04CallersInStep:
    def test_on_a_slow_store_one_half_is_uploaded_while_the_other_is_answered(self) -> None:
        async def main(simulation: Simulation) -> None:
            store = SlowStore(MemoryStore())
            await sl.create_log(store)
            began_s = simulation.loop.time()
            async with sl.LogWriter.open(store, options=OPTIONS) as log:
                await in_step(log)
            took_s = simulation.loop.time() - began_s
            assert await sizes_of_fragments(store) == [CALLERS // 2] * (2 * ROUNDS)
            assert set(store.together) == {1, 2}, "side by side, though never more than two"
            one_by_one_s = ROUNDS * 2 * PUT_S
            assert took_s < 0.8 * one_by_one_s
            assert len(await check_whole_log(store)) == CALLERS * ROUNDS

        simulate(main, seed=1)

    def test_the_second_half_waits_until_the_first_is_uploaded(self) -> None:
        """Otherwise both would be answered together, and would never get out of step."""

        async def main() -> None:
            store = SlowStore(MemoryStore())
            await sl.create_log(store)
            async with sl.LogWriter.open(store, options=OPTIONS) as log:
                futures = [log.submit(bytes(RECORD_BYTES)) for _ in range(CALLERS)]
                await asyncio.gather(*futures)
            assert store.together == [1, 1]
            assert await sizes_of_fragments(store) == [CALLERS // 2] * 2

        simulate(lambda _simulation: main(), seed=1)

    def test_on_a_fast_store_all_are_served_at_once(self) -> None:
        async def main() -> None:
            store = MemoryStore()
            with patch.object(Pace, "store_is_slow", lambda _pace, _callers: False):
                async with sl.LogWriter.open(store, create=True, options=OPTIONS) as log:
                    await in_step(log)
            assert await sizes_of_fragments(store) == [CALLERS] * ROUNDS

        simulate(lambda _simulation: main(), seed=1)

    def test_halves_come_together_again_when_the_store_turns_out_to_be_fast(self) -> None:
        async def main() -> None:
            store, known = SlowStore(MemoryStore()), iter([True] * 8)
            with patch.object(Pace, "store_is_slow", lambda *_: next(known, False)):
                async with sl.LogWriter.open(store, create=True, options=OPTIONS) as log:
                    await in_step(log)
            sizes = await sizes_of_fragments(store)
            assert sizes[:2] == [CALLERS // 2] * 2
            assert sizes[-1] == CALLERS
            assert len(await check_whole_log(store)) == CALLERS * ROUNDS

        simulate(lambda _simulation: main(), seed=1)

    @pytest.mark.parametrize("slow", [False, True])
    def test_few_callers_are_never_divided(self, slow: bool) -> None:
        async def main() -> None:
            store = MemoryStore()
            options = sl.WriterOptions(fragment_bytes=3 * OPTIONS.fragment_bytes)
            with patch.object(Pace, "store_is_slow", lambda _pace, _callers: slow):
                async with sl.LogWriter.open(store, create=True, options=options) as log:
                    await in_step(log)
            assert await sizes_of_fragments(store) == [CALLERS] * ROUNDS

        simulate(lambda _simulation: main(), seed=1)


class TestPace:
    def test_an_unknown_store_is_taken_for_slow(self) -> None:
        assert Pace().store_is_slow(1000)

    def test_slow_is_who_takes_twice_as_long_as_to_answer_all(self) -> None:
        pace = Pace()
        for _ in range(30):
            pace.stored(0.010)
            pace.answered(500, 1.0)
            pace.returned(1.002)
        assert pace.store_is_slow(1000), "answered in 4 ms"
        assert not pace.store_is_slow(1300)

    def test_it_follows_a_store_that_becomes_slower(self) -> None:
        pace = Pace()
        for took_s, slow in ((0.001, False), (0.1, True), (0.001, False)):
            for _ in range(40):
                pace.stored(took_s)
                pace.answered(1000, 1.0)
                pace.returned(1.004)
            assert pace.store_is_slow(1000) is slow

    def test_who_comes_back_later_is_not_counted_again(self) -> None:
        pace = Pace()
        pace.stored(0.010)
        pace.answered(10, 1.0)
        pace.returned(1.0)
        pace.returned(900.0)
        assert pace.store_is_slow(1000)


class TestTheLoopIsAskedForOnce:
    """By the first caller of a turn. The others are known by their thread."""

    def test_a_call_from_another_loop_is_refused_also_in_the_middle_of_a_turn(self) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(MemoryStore(), create=True) as log:
                future = log.submit(b"ours")
                refused: list[Invalid] = []

                async def call() -> None:
                    try:
                        await log.append(b"theirs")
                    except Invalid as error:
                        refused.append(error)

                elsewhere = threading.Thread(target=lambda: asyncio.run(call()))
                elsewhere.start()
                elsewhere.join()  # the turn does not end before
                assert len(refused) == 1
                assert (await future).offset == 1
                assert log.tail == 2

        run(main())
