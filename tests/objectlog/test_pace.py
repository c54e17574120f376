"""Behaviour 4: callers that move in step, whatever the store takes and whatever they take.

The clock is virtual, so that callers take time too only if they say so: ``CALLER_S`` each.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import patch

import pytest

import stratalog as sl
from objectlog.whole_log import check_whole_log, run
from objectlog.wrapped_stores import PassingStore
from stratalog.errors import Invalid
from stratalog.objectlog.append import committer
from stratalog.objectlog.append.pace import DIVIDE_FROM, DIVIDE_UP_TO, Pace
from stratalog.objectlog.options import RECORD_OVERHEAD_BYTES
from stratalog.store import MemoryStore
from stratalog.testing import Simulation, simulate

CALLERS, ROUNDS, RECORD_BYTES = 40, 30, 100
ROOM_BYTES = CALLERS * (RECORD_BYTES + RECORD_OVERHEAD_BYTES)
OPTIONS = sl.WriterOptions(fragment_bytes=ROOM_BYTES)
CALLER_S = 0.0001
ALL_CALLERS_S = CALLERS * CALLER_S
HALF, ALL = CALLERS // 2, CALLERS


class SlowStore(PassingStore):
    """Takes its time for fragments and manifests, three to one."""

    def __init__(self, inner: sl.Store, both_s: float) -> None:
        super().__init__(inner)
        self.both_s = both_s
        self.uploading = 0
        self.together: list[int] = []

    async def put_if_absent(self, path: str, data: bytes) -> str:
        if not path.startswith("log/"):
            return await super().put_if_absent(path, data)
        self.uploading += 1
        self.together.append(self.uploading)
        try:
            await asyncio.sleep(0.75 * self.both_s)
            return await super().put_if_absent(path, data)
        finally:
            self.uploading -= 1

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await asyncio.sleep(0.25 * self.both_s)
        return await super().put_if_match(path, data, etag)


class Step:
    """A log on a store that takes as long as it takes to answer all callers, so many times."""

    def __init__(self, simulation: Simulation, times: float) -> None:
        self.loop = simulation.loop
        self.store = SlowStore(MemoryStore(), times * ALL_CALLERS_S)

    def open(self, options: sl.WriterOptions = OPTIONS) -> Any:
        return sl.LogWriter.open(self.store, create=True, options=options)

    async def call(self, log: sl.LogWriter, rounds: int = ROUNDS, callers: int = CALLERS) -> None:
        async def caller() -> None:
            for _ in range(rounds):
                await log.append(bytes(RECORD_BYTES))
                self.loop._now += CALLER_S

        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(caller())

    async def sizes(self) -> list[int]:
        async with sl.LogReader.open(self.store) as reader:
            return [fragment.count for fragment in await reader.scan(1)]


def in_step(times: float, main: Callable[[Step], Coroutine[Any, Any, None]]) -> None:
    simulate(lambda simulation: main(Step(simulation, times)), seed=1)


class TestBehaviour04CallersInStep:
    @pytest.mark.parametrize(
        ("times", "size"), [(0.5, ALL), (1.0, ALL), (3.0, HALF), (5.0, HALF), (12.0, ALL)]
    )
    def test_they_are_divided_where_the_store_and_answering_take_about_as_long(
        self, times: float, size: int
    ) -> None:
        async def main(step: Step) -> None:
            async with step.open() as log:
                await step.call(log)
            sizes = await step.sizes()
            settled = sizes[len(sizes) // 3 :]
            assert settled.count(size) >= 0.9 * len(settled), sizes
            assert len(await check_whole_log(step.store)) == CALLERS * ROUNDS

        in_step(times, main)

    def test_halves_upload_side_by_side_though_never_more_than_two(self) -> None:
        async def main(step: Step) -> None:
            async with step.open() as log:
                await step.call(log)
                began_s = step.loop.time()
                await step.call(log)
            took_s = step.loop.time() - began_s
            assert set(step.store.together) == {1, 2}
            one_upload_at_a_time_s = ROUNDS * 2 * 0.75 * step.store.both_s
            assert took_s < 0.9 * one_upload_at_a_time_s

        in_step(3.0, main)

    def test_the_second_half_of_a_divided_burst_waits_until_the_first_is_uploaded(self) -> None:
        """Otherwise both would be answered together, and would never get out of step."""

        async def main(step: Step) -> None:
            with patch.object(Pace, "divides", lambda *_: True):
                async with step.open() as log:
                    await asyncio.gather(*(log.submit(bytes(RECORD_BYTES)) for _ in range(CALLERS)))
            assert step.store.together == [1, 1]
            assert await step.sizes() == [HALF, HALF]

        in_step(3.0, main)

    @pytest.mark.parametrize("becomes", [0.5, 12.0])
    def test_halves_come_together_again_when_it_no_longer_pays(self, becomes: float) -> None:
        async def main(step: Step) -> None:
            async with step.open() as log:
                await step.call(log)
                assert (await step.sizes())[-1] == HALF
                step.store.both_s = becomes * ALL_CALLERS_S
                await step.call(log)
            sizes = await step.sizes()
            assert sizes[-5:-1] == [ALL] * 4, sizes

        in_step(3.0, main)

    def test_few_callers_are_never_divided(self) -> None:
        async def main(step: Step) -> None:
            options = sl.WriterOptions(fragment_bytes=4 * ROOM_BYTES)
            async with step.open(options) as log:
                await step.call(log)
            assert await step.sizes() == [ALL] * ROUNDS

        in_step(3.0, main)

    @pytest.mark.parametrize("before", [0, 2])
    @pytest.mark.parametrize("behind", [0, 2])
    def test_one_large_batch_is_no_half(self, before: int, behind: int) -> None:
        """Few are before or behind it, so it is not worth while to keep anybody waiting."""

        async def main(step: Step) -> None:
            with patch.object(Pace, "divides", lambda *_: True):
                async with step.open() as log:
                    batch = [bytes(RECORD_BYTES)] * (3 * CALLERS // 4)
                    batches = [batch[:1]] * before + [batch] + [batch[:1]] * behind
                    tasks = [asyncio.create_task(log.append_many(each)) for each in batches]
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    assert [unit.half for unit in log._sender.units._units] == [None]
                    await asyncio.gather(*tasks)
            assert await step.sizes() == [before + 3 * CALLERS // 4 + behind]
            assert step.store.together == [1]

        in_step(3.0, main)

    def test_with_an_interval_nobody_is_made_to_wait_for_two(self) -> None:
        async def main(step: Step) -> None:
            options = sl.WriterOptions(fragment_bytes=ROOM_BYTES, interval_s=1.0)
            async with step.open(options) as log:
                await step.call(log)
            assert await step.sizes() == [ALL] * ROUNDS

        in_step(3.0, main)


class TestWhatIsMeasured:
    """A verdict that came about in step is not changed by what is not in step."""

    def test_an_idle_log_does_not_make_its_store_fast(self) -> None:
        async def main(step: Step) -> None:
            async with step.open() as log:
                await step.call(log)
                for _ in range(5):
                    await log.append(b"alone")
                    await asyncio.sleep(100.0)
                before = len(await step.sizes())
                await step.call(log, rounds=2)
                assert (await step.sizes())[before : before + 2] == [HALF, HALF]

        in_step(3.0, main)

    def test_a_pause_for_others_is_not_the_stores_time(self) -> None:
        async def main(step: Step) -> None:
            with (
                patch.object(committer, "WINS_IN_A_ROW_MAX", 5),
                patch.object(committer, "WINNING_S_MIN", 0.0),
            ):
                async with step.open() as log:
                    await step.call(log)
                    assert log.stats["pauses_for_others"] >= 5
            assert (await step.sizes())[2:] == [ALL] * (ROUNDS - 1)

        in_step(1.0, main)

    def test_a_stream_that_waits_for_nobody_is_not_divided(self) -> None:
        async def main(step: Step) -> None:
            async with step.open() as log:
                futures = []
                for _ in range(600):
                    futures.append(log.submit(bytes(RECORD_BYTES)))
                    await asyncio.sleep(step.store.both_s / (0.6 * CALLERS))
                await asyncio.gather(*futures)
                assert set(step.store.together) == {1}

        in_step(3.0, main)


class TestPace:
    def known(self, store_s: float, caller_s: float = 0.001) -> Pace:
        pace = Pace()
        for _ in range(30):
            pace.stored(store_s)
            pace.answered(10, 5.0)
            pace.returned(5.0 + 10 * caller_s, with_more=True)
        return pace

    def test_it_is_tried_once_as_long_as_nothing_is_known(self) -> None:
        pace = Pace()
        assert pace.divides(1000)
        pace.stored(1.0)
        assert not pace.divides(1000)

    def test_it_pays_between_two_bounds(self) -> None:
        for times, pays in (
            (0.9 * DIVIDE_FROM, False),
            (1.1 * DIVIDE_FROM, True),
            (0.9 * DIVIDE_UP_TO, True),
            (1.1 * DIVIDE_UP_TO, False),
        ):
            assert self.known(store_s=times * 100 * 0.001).divides(100) is pays

    def test_more_callers_take_longer(self) -> None:
        pace = self.known(store_s=3 * 100 * 0.001)
        assert pace.divides(100)
        assert not pace.divides(300)

    def test_who_does_not_come_back_at_once_tells_nothing(self) -> None:
        pace = self.known(store_s=3 * 100 * 0.001)
        pace.answered(10, 1.0)
        pace.returned(1.0, with_more=False)
        pace.returned(900.0, with_more=True)
        assert pace.divides(100)


class TestTheLoopIsAskedForOnceATurn:
    """By the first caller. The others are known by their thread, and by a loop that runs."""

    def test_another_loop_in_another_thread_is_refused_in_the_middle_of_a_turn(self) -> None:
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

    def test_a_loop_that_stopped_in_the_middle_of_a_turn_takes_nothing(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            store = MemoryStore()

            async def begin() -> sl.LogWriter:
                return await sl.LogWriter.open(store, create=True)

            log = loop.run_until_complete(begin())
            loop.call_soon(lambda: (loop.stop(), log.submit(b"in the last turn")))
            loop.run_forever()
            with pytest.raises(RuntimeError, match="no running event loop"):
                log.submit(b"nowhere")

            async def elsewhere() -> None:
                with pytest.raises(Invalid, match="another event loop"):
                    await log.append(b"elsewhere")

            asyncio.run(elsewhere())
            loop.run_until_complete(log.close())
            assert log.tail == 2
        finally:
            loop.close()

    def test_a_loop_that_moved_to_another_thread_takes_nothing_from_the_first(self) -> None:
        loop = asyncio.new_event_loop()
        try:

            async def begin() -> sl.LogWriter:
                return await sl.LogWriter.open(MemoryStore(), create=True)

            log = loop.run_until_complete(begin())
            mover = threading.Thread(target=loop.run_forever)
            mover.start()
            submitted = threading.Event()

            def in_turn() -> None:
                log.submit(b"ours")
                submitted.set()
                refused.wait(30)

            refused = threading.Event()
            loop.call_soon_threadsafe(in_turn)
            assert submitted.wait(30)
            with pytest.raises(RuntimeError, match="no running event loop"):
                log.submit(b"from the thread that opened it")
            refused.set()
            asyncio.run_coroutine_threadsafe(log.close(), loop).result(30)
            assert log.tail == 2
            loop.call_soon_threadsafe(loop.stop)
            mover.join(30)
        finally:
            loop.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_child_that_is_forked_in_the_middle_of_a_turn_takes_nothing(self) -> None:
        async def main() -> int:
            async with sl.LogWriter.open(MemoryStore(), create=True) as log:
                future = log.submit(b"ours")
                child = os.fork()
                if child == 0:
                    try:
                        log.submit(b"the child's")
                    except RuntimeError:
                        os._exit(0)
                    os._exit(1)
                _, status = os.waitpid(child, 0)  # noqa: ASYNC222 (the turn must not end before)
                await future
                return os.waitstatus_to_exitcode(status)

        assert run(main()) == 0
