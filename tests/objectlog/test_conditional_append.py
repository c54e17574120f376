"""Behaviour 7: an append at an expected position lands there, or fails with the actual tail."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import stratalog as sl
from objectlog.whole_log import SMALL_TREE, bodies_of, check_whole_log, run
from objectlog.wrapped_stores import CountingStore, YieldingStore
from stratalog.errors import Conflict, NotHappened
from stratalog.testing import Append, History, Placed, check_appends

REOPEN = sl.WriterOptions(on_fenced="reopen")


class TestBehaviour07ConditionalAppend:
    def test_it_lands_at_the_expected_offset(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                assert (await log.append(b"a", expected_offset=1)).offset == 1
                span = await log.append_many([b"b", b"c"], expected_offset=2)
                assert (span.first.offset, span.limit) == (2, 4)
                assert (await log.submit(b"d", expected_offset=4)).offset == 4
            assert await bodies_of(store_url) == [b"a", b"b", b"c", b"d"]

        run(main())

    @pytest.mark.parametrize("wrong", [1, 2, 4, 10**12])
    def test_it_fails_with_the_actual_tail_and_writes_nothing(
        self, store_url: str, wrong: int
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = CountingStore(sl.open_store(store_url))
            async with sl.LogWriter.open(store) as log:
                await log.append_many([b"a", b"b"])
                store.reset()
                with pytest.raises(Conflict) as caught:
                    await log.append(b"never", expected_offset=wrong)
                assert (caught.value.expected, caught.value.actual) == (wrong, 3)
                with pytest.raises(Conflict):
                    await log.append_many([b"never", b"ever"], expected_offset=wrong)
                assert store.writes == 0
                assert log.stats["conditional_refusals"] == 2
                assert (await log.append(b"c")).offset == 3
            assert await bodies_of(store_url) == [b"a", b"b", b"c"]

        run(main())

    def test_of_many_at_one_offset_exactly_one_lands(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                outcomes = await asyncio.gather(
                    *(log.append(b"%d" % i, expected_offset=1) for i in range(10)),
                    return_exceptions=True,
                )
                assert sum(isinstance(each, sl.LogPosition) for each in outcomes) == 1
                for outcome in outcomes[1:]:
                    assert isinstance(outcome, Conflict)
                    assert outcome.actual == 2
            assert await bodies_of(store_url) == [b"0"]

        run(main())

    def test_pipelined_ones_that_continue_each_other_all_land(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(fragment_bytes=50)
            await sl.create_log(store_url)
            async with sl.LogWriter.open(
                YieldingStore(sl.open_store(store_url)), options=options
            ) as log:
                futures = [log.submit(b"%d" % i, expected_offset=i) for i in range(1, 41)]
                assert [(await each).offset for each in futures] == list(range(1, 41))
            assert len(await check_whole_log(store_url)) == 40

        run(main())

    def test_refused_ones_do_not_disturb_the_others_of_that_writer(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(fragment_bytes=60)
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:
                plain, refused = [], []
                for number in range(60):
                    if number % 3 == 1:
                        refused.append(log.submit(b"no-%d" % number, expected_offset=10_000))
                    elif number % 3 == 2:
                        refused.append(log.submit(b"no-%d" % number, expected_offset=1))
                    else:
                        plain.append(log.submit(b"yes-%d" % number))
                with pytest.raises(Conflict):
                    await log.flush()
                await log.flush()
                assert [(await each).offset for each in plain] == list(range(1, 21))
                for outcome in await asyncio.gather(*refused, return_exceptions=True):
                    assert isinstance(outcome, Conflict)
            assert await bodies_of(store_url) == [b"yes-%d" % i for i in range(0, 60, 3)]

        run(main())

    def test_a_refusal_names_a_tail_that_is_linked_not_hoped_for(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                before = [log.submit(b"%d" % i) for i in range(7)]
                with pytest.raises(Conflict) as caught:
                    await log.append(b"never", expected_offset=3)
                assert caught.value.actual == 8
                async with sl.LogReader.open(store_url) as reader:
                    assert reader.tail == 8
                assert [(await each).offset for each in before] == list(range(1, 8))

        run(main())

    def test_a_writer_that_did_not_know_of_the_others_appends_learns_of_them(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            stale = await sl.LogWriter.open(store_url, create=True, options=REOPEN)
            async with sl.LogWriter.open(store_url) as other:
                await other.append_many([b"x", b"y", b"z"])
            with pytest.raises(Conflict) as caught:
                await stale.append(b"never", expected_offset=1)
            assert caught.value.actual == 4
            async with sl.LogWriter.open(store_url) as other:
                await other.append(b"w")
            assert (await stale.append(b"fits", expected_offset=5)).offset == 5
            await stale.close()
            assert await bodies_of(store_url) == [b"x", b"y", b"z", b"w", b"fits"]

        run(main())

    @pytest.mark.parametrize("expected_offset", [1, 4, 9])
    def test_a_stale_writer_that_stops_when_fenced_fails_with_the_actual_tail_too(
        self, store_url: str, expected_offset: int
    ) -> None:
        async def main() -> None:
            stale = await sl.LogWriter.open(store_url, create=True)
            async with sl.LogWriter.open(store_url) as other:
                await other.append_many([b"x", b"y", b"z"])
            with pytest.raises(NotHappened) as caught:
                await stale.append(b"never", expected_offset=expected_offset)
            assert caught.value.actual == 4
            await stale.close()
            assert await bodies_of(store_url) == [b"x", b"y", b"z"]

        run(main())

    def test_two_writers_that_race_for_each_offset_share_them_out(self, store_url: str) -> None:
        """An archive's way of writing: only with ``expected_offset``, never sent again."""
        rounds = 8 if store_url.startswith("s3") else 30

        async def main() -> None:
            await sl.create_log(store_url)
            logs = [await sl.LogWriter.open(store_url, options=REOPEN) for _ in range(2)]
            for offset in range(1, rounds + 1):
                outcomes = await asyncio.gather(
                    *(
                        log.append(b"%d-%d" % (offset, i), expected_offset=offset)
                        for i, log in enumerate(logs)
                    ),
                    return_exceptions=True,
                )
                won = [each for each in outcomes if isinstance(each, sl.LogPosition)]
                lost = [each for each in outcomes if isinstance(each, Conflict)]
                assert len(won) == len(lost) == 1
                assert won[0].offset == offset
                assert lost[0].actual == offset + 1
            for log in logs:
                await log.close()
            assert len(await check_whole_log(store_url)) == rounds

        run(main())

    @pytest.mark.parametrize("seed", range(6))
    def test_a_random_mixture_is_explained_by_the_log(self, store_url: str, seed: int) -> None:
        if store_url.startswith("s3") and seed > 0:
            pytest.skip("one seed is enough here")

        async def main() -> None:
            await sl.create_log(store_url)
            history, random = History(), Random(seed)
            refusals: list[tuple[object, object]] = []

            async def process(name: str) -> None:
                options = sl.WriterOptions(
                    on_fenced="reopen",
                    fragment_bytes=80,
                    rollup_entries=SMALL_TREE.rollup_entries,
                    snapshot_entries_max=SMALL_TREE.snapshot_entries_max,
                )
                store = YieldingStore(sl.open_store(store_url), turns=random.randrange(3))
                async with sl.LogWriter.open(store, options=options) as log:

                    async def appender(number: int) -> None:
                        for i in range(6):
                            expected = None
                            if random.random() < 0.6:
                                expected = max(1, log.tail + random.choice((-1, 0, 0, 0, 1, 2)))
                            await append(f"{name}-{number}-{i}", expected, random.choice((1, 3)))

                    async def append(label: str, expected: int | None, count: int) -> None:
                        bodies = tuple(f"{label}.{k}".encode() for k in range(count))
                        number = history.call(name, Append(bodies, expected))
                        try:
                            span = await log.append_many(bodies, expected_offset=expected)
                        except Conflict as error:
                            history.failed(number, error)
                            refusals.append((error.expected, error.actual))
                        else:
                            history.ok(number, Placed(span.first.offset, span.first.timestamp_us))

                    await asyncio.gather(*(appender(number) for number in range(3)))

            await asyncio.gather(process("p"), process("q"))
            assert all(expected != actual for expected, actual in refusals)
            check_appends(history, await check_whole_log(store_url))

        run(main())
