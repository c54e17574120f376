"""Behaviour 9: a cancelled append neither hangs the log nor tears a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from random import Random

import pytest

import stratalog as sl
from objectlog.whole_log import bodies_of, check_whole_log, run
from objectlog.wrapped_stores import GateStore, PassingStore, YieldingStore
from stratalog.errors import Closed, Fenced, NotHappened, StratalogError, Unknown
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
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


class LostInTransit(PassingStore):
    """Carries out manifest puts. The answer never comes, or the client breaks."""

    def __init__(self, inner: sl.Store, defect: Exception | None = None) -> None:
        super().__init__(inner)
        self.defect = defect
        self.landed = asyncio.Event()

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await super().put_if_match(path, data, etag)
        self.landed.set()
        if self.defect is not None:
            raise self.defect
        await asyncio.Event().wait()
        raise AssertionError("nobody comes here")


def cancel_all_others() -> None:
    """The usual end of a program: whatever runs is cancelled, then everything is closed."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


class TestBehaviour09CancellingTheWritersOwnTasks:
    def test_at_every_turn_of_the_event_loop_close_ends_and_all_is_settled(self) -> None:
        outcomes: set[type] = set()

        async def main(after: int) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            options = sl.WriterOptions(fragment_bytes=40, rollup_entries=2, snapshot_entries_max=4)
            log = await sl.LogWriter.open(YieldingStore(honest, 2), options=options)
            bodies = [b"body-%02d" % i * 4 for i in range(12)]
            futures = [log.submit(body) for body in bodies]
            futures.append(log.submit(b"never", expected_offset=99))
            await turns(after)
            cancel_all_others()
            settled = await asyncio.gather(*futures, return_exceptions=True)
            await log.close()
            stored = await bodies_of(honest)
            for body, outcome in zip(bodies, settled, strict=False):
                outcomes.add(type(outcome))
                assert isinstance(outcome, sl.LogPosition | StratalogError)
                if isinstance(outcome, sl.LogPosition):
                    assert stored[outcome.offset - 1] == body
                elif not isinstance(outcome, Unknown):
                    assert body not in stored, "it was told that it did not happen"
            await check_whole_log(honest)

        for after in range(80):
            run(main(after), LIMIT_S)
        assert outcomes >= {sl.LogPosition, Unknown, NotHappened}

    @pytest.mark.parametrize("kind", ["cancelled", "defect"])
    def test_what_was_being_linked_is_unknown_and_the_rest_did_not_happen(self, kind: str) -> None:
        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = LostInTransit(honest, OSError("bare") if kind == "defect" else None)
            log = await sl.LogWriter.open(store)
            linking = log.submit(b"linking")
            if kind == "cancelled":
                await store.landed.wait()
                behind = log.submit(b"behind")
                await turns(5)
                cancel_all_others()
                with pytest.raises(NotHappened):
                    await behind
            with pytest.raises(Unknown):
                await linking
            with pytest.raises(Closed):
                await log.append(b"later")
            await log.close()
            assert await bodies_of(honest) == [b"linking"]

        run(main(), LIMIT_S)

    def test_a_store_that_breaks_while_uploading_leaves_nobody_waiting(self) -> None:
        class Broken(PassingStore):
            async def put_if_absent(self, path: str, data: bytes) -> str:
                raise OSError("bare")

        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            log = await sl.LogWriter.open(Broken(honest))
            with pytest.raises(NotHappened):
                await log.append(b"one")
            with pytest.raises(Closed):
                await log.append(b"two")
            await log.close()
            assert await bodies_of(honest) == []

        run(main(), LIMIT_S)

    def test_cancelled_tasks_of_an_idle_writer_do_not_matter(self) -> None:
        async def main() -> None:
            log = await sl.LogWriter.open(MemoryStore(), create=True)
            await log.append(b"one")
            cancel_all_others()
            await turns(3)
            assert (await log.append(b"two")).offset == 2
            await log.close()

        run(main(), LIMIT_S)
