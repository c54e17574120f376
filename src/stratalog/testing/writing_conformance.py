"""What a writer must do on every store: behaviours 1, 2, 3, 5, 7 and 9, as seen from outside."""

import asyncio

import pytest

import stratalog as sl
from stratalog.errors import Closed, Conflict, Exists, Fenced, Invalid, NotFound
from stratalog.store import Store
from stratalog.testing.history import Append, History, check_appends
from stratalog.testing.scenarios import (
    SMALL_TREE,
    Scenarios,
    SteppingRuntime,
    append,
    read,
    read_all,
    scenario,
)


class WritingConformance(Scenarios):
    """Opening, creating, appending. ``appenders`` says how hard the races are, ``alternations`` how
    often two writers take turns."""

    appenders = 16
    alternations = 250

    @scenario
    async def test_opening_a_log_that_is_not_there_fails_and_creates_nothing(
        self, store: Store
    ) -> None:
        """[1]"""
        with pytest.raises(NotFound):
            await sl.LogWriter.open(store)
        with pytest.raises(NotFound):
            await sl.LogReader.open(store)
        assert [row async for row in store.list()] == []

    @scenario
    async def test_creating_a_log_twice_fails_and_changes_nothing(self, store: Store) -> None:
        """[1]"""
        await sl.create_log(store)
        async with sl.LogWriter.open(store) as log:
            await log.append(b"kept")
        before = [(row, (await store.get(row.path)).data) async for row in store.list()]
        with pytest.raises(Exists):
            await sl.create_log(store)
        await sl.create_log(store, exist_ok=True)
        after = [(row, (await store.get(row.path)).data) async for row in store.list()]
        assert after == before

    @scenario
    async def test_many_that_open_or_create_at_once_get_one_log(self, store: Store) -> None:
        """[1]"""
        logs = await asyncio.gather(*(sl.LogWriter.open(store, create=True) for _ in range(32)))
        assert {log.manifest.write_id for log in logs} == {logs[0].manifest.write_id}
        await logs[-1].append(b"one")
        for log in logs:
            await log.close()
        assert [body for _, _, body in await read_all(store)] == [b"one"]

    @scenario
    async def test_an_append_returns_the_position_of_a_record_that_can_be_read(
        self, store: Store
    ) -> None:
        """[2]"""
        async with sl.LogWriter.open(store, create=True) as log:
            for body in (b"one", b"", b"\x00\xff" * 5000):
                position = await log.append(body)
                last = (await read_all(store))[-1]
                assert last == (position.offset, position.timestamp_us, body)

    @scenario
    async def test_a_batch_is_contiguous_also_when_it_fills_several_fragments(
        self, store: Store
    ) -> None:
        """[2]"""
        options = sl.WriterOptions(fragment_bytes=1000)
        async with sl.LogWriter.open(store, create=True, options=options) as log:
            await log.append(b"before")
            bodies = [b"%d" % number * 50 for number in range(40)]
            span = await log.append_many(bodies)
            assert (span.first.offset, span.limit) == (2, 42)
        async with sl.LogReader.open(store) as reader:
            assert len(await reader.scan(from_offset=2)) > 1
        assert [body for _, _, body in await read_all(store)] == [b"before", *bodies]

    @scenario
    async def test_what_cannot_be_appended_is_refused_and_leaves_nothing_behind(
        self, store: Store
    ) -> None:
        """[2]"""
        options = sl.WriterOptions(record_bytes_max=10, batch_bytes_max=100)
        async with sl.LogWriter.open(store, create=True, options=options) as log:
            with pytest.raises(Invalid):
                await log.append_many([])
            with pytest.raises(Invalid):
                await log.append(b"x" * 11)
            with pytest.raises(Invalid):
                await log.append_many([b"x"] * 101)
            assert (await log.append(b"fits")).offset == 1
        with pytest.raises(Closed):
            await log.append(b"too late")
        assert [body for _, _, body in await read_all(store)] == [b"fits"]

    @scenario
    async def test_submitted_records_keep_the_order_of_the_calls(self, store: Store) -> None:
        """[3]"""
        bodies = [b"%d" % number for number in range(500)]
        async with sl.LogWriter.open(store, create=True) as log:
            futures = [log.submit(body) for body in bodies]
            await log.flush()
            assert [(await future).offset for future in futures] == [*range(1, 501)]
        assert [body for _, _, body in await read_all(store)] == bodies

    @scenario
    async def test_concurrent_appenders_see_dense_offsets_in_real_time_order(
        self, store: Store
    ) -> None:
        """[3]"""
        history = History(asyncio.get_running_loop().time)
        async with sl.LogWriter.open(store, create=True, options=SMALL_TREE) as log:

            async def work(client: int) -> None:
                for number in range(20):
                    await append(history, log, f"client-{client}", number, 1 + number % 3)

            async def watch() -> None:
                for _ in range(10):
                    await read(history, store)

            await asyncio.gather(watch(), *map(work, range(self.appenders)))
        check_appends(history, await read_all(store))

    @scenario
    async def test_time_does_not_go_back_with_the_clock_of_a_writer(self, store: Store) -> None:
        """[3]"""
        for start_us in (9_000_000, 5_000_000, 7_000_000):
            runtime = SteppingRuntime(start_us)
            async with sl.LogWriter.open(store, create=True, runtime=runtime) as log:
                await log.append(b"one")
                await log.append(b"two")
        times = [timestamp_us for _, timestamp_us, _ in await read_all(store)]
        assert times == sorted(times)
        assert times[0] >= 9_000_000

    @scenario
    async def test_a_fenced_writer_says_so_and_its_append_did_not_happen(
        self, store: Store
    ) -> None:
        """[5]"""
        async with (
            sl.LogWriter.open(store, create=True) as old,
            sl.LogWriter.open(store) as new,
        ):
            await old.append(b"old")
            with pytest.raises(Fenced):
                await new.append(b"lost")
            async with sl.LogWriter.open(store) as newer:
                await newer.append(b"newer")
            for _ in range(2):
                with pytest.raises(Fenced):
                    await old.append(b"lost too")
        assert [body for _, _, body in await read_all(store)] == [b"old", b"newer"]

    @scenario
    async def test_two_writers_that_alternate_both_make_progress(self, store: Store) -> None:
        """[5]"""
        history = History(asyncio.get_running_loop().time)
        options = sl.WriterOptions(on_fenced="reopen")
        async with (
            sl.LogWriter.open(store, create=True, options=options) as one,
            sl.LogWriter.open(store, options=options) as two,
        ):
            for number in range(self.alternations):
                await append(history, (one, two)[number % 2], "both", number)
        assert [each.outcome for each in history.operations] == ["ok"] * self.alternations
        check_appends(history, await read_all(store))

    @scenario
    async def test_two_busy_writers_lose_and_double_nothing(self, store: Store) -> None:
        """[5]"""
        history = History(asyncio.get_running_loop().time)
        options = sl.WriterOptions(on_fenced="reopen")
        async with (
            sl.LogWriter.open(store, create=True, options=options) as one,
            sl.LogWriter.open(store, options=options) as two,
        ):

            async def work(client: int) -> None:
                for number in range(10):
                    await append(history, (one, two)[client % 2], f"client-{client}", number, 2)

            await asyncio.gather(*map(work, range(self.appenders)))
        assert {each.outcome for each in history.operations} == {"ok"}
        check_appends(history, await read_all(store))

    @scenario
    async def test_a_conditional_append_lands_where_expected_or_tells_the_tail(
        self, store: Store
    ) -> None:
        """[7]"""
        async with sl.LogWriter.open(store, create=True) as log:
            assert (await log.append(b"one", expected_offset=1)).offset == 1
            span = await log.append_many([b"two", b"three"], expected_offset=2)
            assert (span.first.offset, span.limit) == (2, 4)
            for wrong in (1, 3, 5):
                with pytest.raises(Conflict) as caught:
                    await log.append(b"never", expected_offset=wrong)
                assert caught.value.actual == 4
            assert (await log.append(b"four", expected_offset=4)).offset == 4
        bodies = [body for _, _, body in await read_all(store)]
        assert bodies == [b"one", b"two", b"three", b"four"]

    @scenario
    async def test_a_refused_conditional_append_does_not_disturb_the_others(
        self, store: Store
    ) -> None:
        """[7]"""
        history = History(asyncio.get_running_loop().time)
        async with sl.LogWriter.open(store, create=True) as log:

            async def work(client: int) -> None:
                for number in range(10):
                    expected = log.tail if client % 4 == 0 else None
                    await append(history, log, f"client-{client}", number, expected=expected)

            await asyncio.gather(*map(work, range(self.appenders)))
        unconditional = [
            each.outcome
            for each in history.operations
            if isinstance(each.request, Append) and each.request.expected_offset is None
        ]
        assert set(unconditional) == {"ok"}
        check_appends(history, await read_all(store))

    @scenario
    async def test_cancelled_appends_neither_hang_the_log_nor_tear_a_batch(
        self, store: Store
    ) -> None:
        """[9]"""
        history = History(asyncio.get_running_loop().time)
        async with sl.LogWriter.open(store, create=True) as log:
            for patience in range(10):
                tasks = [
                    asyncio.create_task(append(history, log, f"{patience}-{client}", 0, 3))
                    for client in range(self.appenders)
                ]
                for _ in range(patience):
                    await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                await asyncio.wait(tasks)
            await append(history, log, "last", 0)
        assert history.operations[-1].outcome == "ok"
        records = await read_all(store)
        assert len(records) >= 10 * (self.appenders // 2) * 3
        check_appends(history, records)
