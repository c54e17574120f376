"""Behaviour 9: a cancelled append neither hangs the log nor tears a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random

import pytest

import stratalog as sl
from objectlog.whole_log import bodies_of, check_whole_log, run
from objectlog.wrapped_stores import GateStore, YieldingStore
from stratalog.errors import Fenced
from stratalog.objectlog.manifest import MANIFEST_PATH
from stratalog.store import MemoryStore
from stratalog.testing import Append, History, Placed, check_appends

LIMIT_S = 20.0


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class TestBehaviour09Cancellation:
    @pytest.mark.parametrize("many", [False, True])
    def test_at_every_turn_of_the_event_loop(self, many: bool) -> None:
        """Cancelled after any number of turns: all or nothing, and the writer goes on."""
        happened: set[bool] = set()
        batch = [b"batch-%d" % i * 10 for i in range(6)]

        async def main(after: int) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            options = sl.WriterOptions(fragment_bytes=100)
            async with sl.LogWriter.open(YieldingStore(honest, 3), options=options) as log:
                work: Awaitable[object] = log.append_many(batch) if many else log.append(batch[0])
                append = asyncio.ensure_future(work)
                await turns(after)
                was_done = append.done()
                append.cancel()
                outcome = (await asyncio.gather(append, return_exceptions=True))[0]
                assert was_done or isinstance(outcome, asyncio.CancelledError)
                next_position = await log.append(b"next")
                await log.flush()
            bodies = await bodies_of(honest)
            expected = batch if many else batch[:1]
            assert bodies in ([*expected, b"next"], [b"next"])
            assert next_position.offset == len(bodies)
            if was_done:
                assert len(bodies) > 1
            happened.add(len(bodies) > 1)
            await check_whole_log(honest)

        for after in range(45):
            run(main(after), LIMIT_S)
        assert True in happened

    def test_a_cancelled_caller_does_not_cancel_its_write(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), MANIFEST_PATH)
            log = await sl.LogWriter.open(gate)
            append = asyncio.ensure_future(log.append(b"written all the same"))
            await gate.arrived.wait()
            append.cancel()
            with pytest.raises(asyncio.CancelledError):
                await append
            gate.open()
            await log.flush()
            assert await bodies_of(store_url) == [b"written all the same"]
            assert (await log.append(b"next")).offset == 2
            await log.close()

        run(main(), LIMIT_S)

    @pytest.mark.parametrize("seed", range(5))
    def test_many_callers_cancelled_at_random(self, store_url: str, seed: int) -> None:
        if store_url.startswith("s3") and seed > 1:
            pytest.skip("two seeds are enough here")

        async def main() -> None:
            await sl.create_log(store_url)
            history, random = History(), Random(seed)
            options = sl.WriterOptions(
                fragment_bytes=120, rollup_entries=2, snapshot_entries_max=4, queue_records_max=8
            )
            store = YieldingStore(sl.open_store(store_url), random.randrange(4))
            async with sl.LogWriter.open(store, options=options) as log:

                async def append(name: int, number: int) -> None:
                    bodies = tuple(
                        b"%d-%d-%d" % (name, number, k) for k in range(random.choice((1, 1, 5)))
                    )
                    called = history.call(str(name), Append(bodies))
                    span = await log.append_many(bodies)
                    history.ok(called, Placed(span.first.offset, span.first.timestamp_us))

                async def impatient(name: int) -> None:
                    for number in range(8):
                        task = asyncio.ensure_future(append(name, number))
                        await turns(random.randrange(60))
                        if random.random() < 0.6:
                            task.cancel()
                        await asyncio.gather(task, return_exceptions=True)

                await asyncio.gather(*(impatient(name) for name in range(10)))
                await log.flush()
                number = history.call("last", Append((b"last",)))
                position = await log.append(b"last")
                history.ok(number, Placed(position.offset, position.timestamp_us))
            check_appends(history, await check_whole_log(store_url))

        run(main(), LIMIT_S)

    def test_callers_that_wait_for_room_may_be_cancelled(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), "log/")
            log = await sl.LogWriter.open(gate, options=sl.WriterOptions(queue_records_max=1))
            first = asyncio.ensure_future(log.append(b"first"))
            await gate.arrived.wait()
            queued = asyncio.ensure_future(log.append(b"queued"))
            await turns(3)
            waiting = [asyncio.ensure_future(log.append(b"w-%d" % i)) for i in range(9)]
            drains = [asyncio.ensure_future(log.drain()) for _ in range(2)]
            await turns(3)
            for task in (waiting[0], waiting[3], waiting[8], drains[0]):
                task.cancel()
            await turns(1)
            gate.open()
            await drains[1]
            kept = [task for i, task in enumerate(waiting) if i not in (0, 3, 8)]
            positions = await asyncio.gather(first, queued, *kept)
            assert [each.offset for each in positions] == list(range(1, 9))
            await log.close()
            assert await bodies_of(store_url) == [
                b"first",
                b"queued",
                *(b"w-%d" % i for i in (1, 2, 4, 5, 6, 7)),
            ]

        run(main(), LIMIT_S)

    def test_a_turn_given_to_a_caller_that_is_cancelled_goes_to_the_next(self) -> None:
        """Cancelled in the very moment in which it was its turn."""

        async def main(after: int) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            options = sl.WriterOptions(queue_records_max=1)
            log = await sl.LogWriter.open(YieldingStore(honest), options=options)
            tasks = [asyncio.ensure_future(log.append(b"%d" % i)) for i in range(6)]
            await turns(after)
            tasks[2].cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(each, sl.LogPosition) for each in outcomes) >= 5
            await log.close()
            bodies = await bodies_of(honest)
            assert set(bodies) >= {b"0", b"1", b"3", b"4", b"5"}
            assert len(set(bodies)) == len(bodies)

        for after in range(40):
            run(main(after), LIMIT_S)

    @pytest.mark.parametrize("what", ["flush", "drain", "close"])
    def test_cancelling_another_call_leaves_the_writer_usable(
        self, store_url: str, what: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), MANIFEST_PATH)
            log = await sl.LogWriter.open(gate, options=sl.WriterOptions(queue_records_max=2))
            futures = [log.submit(b"%d" % i) for i in range(2)]
            call = asyncio.ensure_future(getattr(log, what)())
            await gate.arrived.wait()
            await turns(3)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            gate.open()
            assert [(await each).offset for each in futures] == [1, 2]
            await log.close()
            assert await bodies_of(store_url) == [b"0", b"1"]

        run(main(), LIMIT_S)

    def test_cancelled_callers_of_a_fenced_writer_do_not_hang_it(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), MANIFEST_PATH)
            log = await sl.LogWriter.open(gate)
            tasks = [asyncio.ensure_future(log.append(b"%d" % i)) for i in range(5)]
            await gate.arrived.wait()
            async with sl.LogWriter.open(store_url) as other:
                await other.append(b"theirs")
            for task in tasks[::2]:
                task.cancel()
            gate.open()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(each) for each in outcomes[1::2]] == [Fenced, Fenced]
            await log.close()
            assert await bodies_of(store_url) == [b"theirs"]

        run(main(), LIMIT_S)
