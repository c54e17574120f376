"""Behaviour 14: following sees every record once, in order, whatever happens to the log."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import pairwise

import pytest

import stratalog as sl
from objectlog.whole_log import SMALL_TREE, check_whole_log, collect_roots, run, sweep
from objectlog.wrapped_stores import CountingStore
from stratalog.errors import Closed, Trimmed
from stratalog.objectlog.branch.seal_log import Sealer
from stratalog.store import MemoryStore, PrefixedStore
from stratalog.testing import Row, Simulation, simulate

QUICK = sl.ReaderOptions(poll_s_min=0.001, poll_s_max=0.01)


async def follow_until(url: str | sl.Store, limit: int, from_offset: int = 1) -> list[Row]:
    """Follow until the record before ``limit`` was seen."""
    rows: list[Row] = []
    async with (
        sl.LogReader.open(url, options=QUICK) as reader,
        aclosing(reader.follow(from_offset)) as batches,
    ):
        async for batch in batches:
            rows += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            if rows[-1][0] >= limit - 1:
                break
    return rows


class TestBehaviour14Following:
    def test_every_record_once_and_in_order_across_writer_changes_and_roll_ups(
        self, store_url: str
    ) -> None:
        openings, appends = 4, 10

        async def main() -> None:
            await sl.create_log(store_url)
            followers = [
                asyncio.ensure_future(follow_until(store_url, 3 * openings * appends + 1))
                for _ in range(2)
            ]
            for opening in range(openings):
                async with sl.LogWriter.open(store_url, options=SMALL_TREE) as log:
                    for number in range(appends):
                        await log.append_many(
                            [b"%d.%d.%d" % (opening, number, i) for i in range(3)]
                        )
            rows = await check_whole_log(store_url)
            for follower in followers:
                assert await follower == rows

        run(main())

    def test_two_writers_that_take_turns_are_followed_as_one_log(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            follower = asyncio.ensure_future(follow_until(store_url, 31))
            reopen = sl.WriterOptions(on_fenced="reopen", rollup_entries=2, snapshot_entries_max=4)
            logs = [await sl.LogWriter.open(store_url, options=reopen) for _ in range(2)]
            for number in range(30):
                await logs[number % 2].append(b"%d" % number)
            for log in logs:
                await log.close()
            assert await follower == await check_whole_log(store_url)

        run(main())

    def test_by_default_only_what_is_new(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                await log.append(b"old")
                async with (
                    sl.LogReader.open(store_url, options=QUICK) as reader,
                    aclosing(reader.follow()) as batches,
                ):
                    coming = asyncio.ensure_future(anext(batches))
                    await asyncio.sleep(0)
                    await log.append(b"new")
                    batch = await coming
                    assert batch.column("offset").to_pylist() == [2]
                    assert batch.column("body").to_pylist() == [b"new"]

        run(main())

    def test_from_the_middle_of_a_fragment_and_from_beyond_the_tail(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                await log.append_many([b"1", b"2", b"3"])
                middle = await follow_until(store_url, 4, from_offset=2)
                assert [row[0] for row in middle] == [2, 3]
                beyond = asyncio.ensure_future(follow_until(store_url, 7, from_offset=5))
                await log.append_many([b"4", b"5"])
                await log.append(b"6")
                assert [row[0] for row in await beyond] == [5, 6]

        run(main())

    def test_a_follower_that_is_ahead_of_collection_goes_on(self, store_url: str) -> None:
        async def main() -> None:
            async with (
                sl.LogWriter.open(store_url, create=True, options=SMALL_TREE) as log,
                sl.LogReader.open(store_url, options=QUICK) as reader,
                aclosing(reader.follow(1)) as batches,
            ):
                seen: list[int] = []
                for number in range(30):
                    position = await log.append(b"%d" % number)
                    while not seen or seen[-1] < position.offset:
                        seen += (await anext(batches)).column("offset").to_pylist()
                    if number % 6 == 5:
                        assert await collect_roots(store_url, 1) > 1
                        await sweep(store_url)
                assert seen == list(range(1, 31))

        run(main())

    def test_a_follower_that_was_overtaken_by_collection_says_where_the_log_starts(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            options = sl.ReaderOptions(
                poll_s_min=0.001, poll_s_max=0.01, prefetch_fragments=1, cache_bytes=0
            )
            async with (
                sl.LogWriter.open(store_url, create=True) as log,
                sl.LogReader.open(store_url, options=options) as reader,
            ):
                for number in range(9):
                    await log.append(b"%d" % number)
                async with aclosing(reader.follow(1)) as batches:
                    seen = (await anext(batches)).column("offset").to_pylist()
                    assert await collect_roots(store_url, 6) == 7
                    trimmed: Trimmed | None = None
                    while trimmed is None:
                        try:
                            seen += (await anext(batches)).column("offset").to_pylist()
                        except Trimmed as error:
                            trimmed = error
                assert trimmed.first_offset == 7
                assert seen == list(range(1, len(seen) + 1)), "without a gap up to there"
                rows = await follow_until(store_url, 10, from_offset=7)
                assert [row[0] for row in rows] == [7, 8, 9]

        run(main())

    def test_a_roll_up_and_a_sweep_under_a_slow_follower_do_not_show(self, store_url: str) -> None:
        """Its manifest points to snapshots that were replaced and deleted meanwhile."""

        async def main() -> None:
            options = sl.ReaderOptions(
                poll_s_min=0.001, poll_s_max=0.01, prefetch_fragments=1, cache_bytes=0
            )
            async with sl.LogWriter.open(store_url, create=True, options=SMALL_TREE) as log:
                for number in range(11):
                    await log.append(b"%d" % number)
                async with (
                    sl.LogReader.open(store_url, options=options) as reader,
                    aclosing(reader.follow(1)) as batches,
                ):
                    seen: list[int] = []
                    number = 11
                    while len(seen) < 36:
                        seen += (await anext(batches)).column("offset").to_pylist()
                        if number < 36:
                            await log.append(b"%d" % number)
                            number += 1
                            await sweep(store_url)
                    assert seen == list(range(1, 37))

        run(main())


class TestBehaviour14Successors:
    def test_a_chain_of_hundreds_is_followed_to_its_end(self) -> None:
        async def main() -> None:
            bucket, hops = MemoryStore("chain"), 400
            places = [PrefixedStore(bucket, f"log-{number}") for number in range(hops + 1)]
            async with sl.LogWriter.open(places[0], create=True) as log:
                await log.append(b"first")
            for place, successor in pairwise(places):
                await Sealer(place).migrate(successor)
            async with sl.LogWriter.open(places[-1]) as log:
                await log.append(b"last")
            async with sl.LogReader.open(places[0]) as reader:
                batches = [batch async for batch in reader.follow(1, idle_timeout_s=0)]
                assert reader.manifest.tail.offset == 2
            assert [batch.column("body").to_pylist() for batch in batches] == [
                [b"first"],
                [b"last"],
            ]

        run(main())

    def test_a_closed_reader_ends_its_followers_also_there(self) -> None:
        async def main() -> None:
            bucket = MemoryStore("closed")
            old, new = PrefixedStore(bucket, "old"), PrefixedStore(bucket, "new")
            await sl.create_log(old)
            await Sealer(old).migrate(new)
            async with sl.LogWriter.open(new) as log:
                await log.append(b"there")
            reader = await sl.LogReader.open(old, options=QUICK)
            async with aclosing(reader.follow(1)) as batches:
                assert (await anext(batches)).num_rows == 1
                await reader.close()
                with pytest.raises(Closed):
                    await anext(batches)

        run(main())


class TestBehaviour14Polling:
    """In virtual time."""

    def test_it_ends_when_nothing_came_for_the_idle_timeout(self) -> None:
        async def main(simulation: Simulation) -> None:
            store = MemoryStore()
            loop = asyncio.get_running_loop()
            reader_options = sl.ReaderOptions()
            async with sl.LogWriter.open(store, create=True) as log:
                await log.append(b"one")
                async with sl.LogReader.open(store) as reader:
                    offsets: list[int] = []
                    started_s = loop.time()

                    async def append_later() -> None:
                        await asyncio.sleep(4.0)
                        await log.append(b"two")

                    later = asyncio.ensure_future(append_later())
                    async for batch in reader.follow(1, idle_timeout_s=5.0):
                        offsets += batch.column("offset").to_pylist()
                    await later
            assert offsets == [1, 2]
            assert 9.0 <= loop.time() - started_s <= 9.0 + reader_options.poll_s_max

        simulate(main, seed=1)

    def test_a_slow_consumer_does_not_count_as_an_idle_log(self) -> None:
        async def main(simulation: Simulation) -> None:
            store = MemoryStore()
            async with sl.LogWriter.open(store, create=True) as log:
                await log.append(b"one")
                async with sl.LogReader.open(store) as reader:
                    offsets: list[int] = []
                    async for batch in reader.follow(1, idle_timeout_s=1.0):
                        offsets += batch.column("offset").to_pylist()
                        if len(offsets) < 4:
                            await asyncio.sleep(5.0)
                            await log.append(b"more")
            assert offsets == [1, 2, 3, 4]

        simulate(main, seed=1)

    def test_an_idle_log_is_asked_ever_more_rarely(self) -> None:
        async def main(simulation: Simulation) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = CountingStore(honest)
            options = sl.ReaderOptions(poll_s_min=0.1, poll_s_max=2.0)
            async with sl.LogReader.open(store, options=options) as reader:
                store.reset()
                async for _ in reader.follow(1, idle_timeout_s=100.0):
                    pytest.fail("there is nothing")
            assert 50 <= store.reads <= 70

        simulate(main, seed=1)

    def test_news_is_seen_within_the_longest_poll(self) -> None:
        async def main(simulation: Simulation) -> None:
            store = MemoryStore()
            loop = asyncio.get_running_loop()
            async with (
                sl.LogWriter.open(store, create=True) as log,
                sl.LogReader.open(store) as reader,
                aclosing(reader.follow(1)) as batches,
            ):
                for pause_s in (0.01, 30.0, 0.5, 300.0):
                    coming = asyncio.ensure_future(anext(batches))
                    await asyncio.sleep(pause_s)
                    await log.append(b"news")
                    appended_s = loop.time()
                    await coming
                    assert loop.time() - appended_s <= 1.01

        simulate(main, seed=1)

    def test_a_closed_reader_ends_its_followers(self) -> None:
        async def main(simulation: Simulation) -> None:
            store = MemoryStore()
            await sl.create_log(store)
            reader = await sl.LogReader.open(store)
            batches = reader.follow()
            coming = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(5.0)
            await reader.close()
            with pytest.raises(Closed):
                await coming

        simulate(main, seed=1)
