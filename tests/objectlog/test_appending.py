"""Behaviours 2 and 3: what an append returns, and the order of records."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import msgspec
import pytest

import stratalog as sl
from objectlog.whole_log import (
    FakeClock,
    bodies_of,
    check_whole_log,
    orphans,
    rewrite_manifest,
    rows_of,
    run,
)
from objectlog.wrapped_stores import CountingStore
from stratalog.errors import Invalid
from stratalog.testing import Append, History, Placed, check_appends

SMALL_FRAGMENTS = sl.WriterOptions(fragment_bytes=1_000, batch_bytes_max=20_000)


class TestBehaviour02Append:
    def test_append_returns_the_position_under_which_the_record_can_be_read_at_once(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                for number in range(1, 4):
                    body = b"record-%d" % number
                    position = await log.append(body)
                    assert position.offset == number
                    rows = await rows_of(store_url)
                    assert rows[-1] == (position.offset, position.timestamp_us, body)
                    assert log.tail == number + 1
            await check_whole_log(store_url)

        run(main())

    def test_append_many_is_contiguous_and_returns_its_span(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                await log.append(b"before")
                span = await log.append_many([b"a", b"b", b"c"])
                assert (span.first.offset, span.limit, span.count) == (2, 5, 3)
                assert (await log.append(b"after")).offset == 5
            rows = await check_whole_log(store_url)
            assert [body for _, _, body in rows] == [b"before", b"a", b"b", b"c", b"after"]
            assert rows[1][:2] == (2, span.first.timestamp_us)

        run(main())

    def test_batches_beside_single_appends_are_never_interleaved(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True, options=SMALL_FRAGMENTS) as log:
                random = Random(7)

                async def batch(number: int) -> None:
                    bodies = [b"%d:%d" % (number, i) for i in range(random.randrange(1, 90))]
                    span = await log.append_many(bodies)
                    spans[span.first.offset] = bodies

                async def single(number: int) -> None:
                    position = await log.append(b"single-%d" % number)
                    spans[position.offset] = [b"single-%d" % number]

                spans: dict[int, list[bytes]] = {}
                work = [batch(i) if i % 2 else single(i) for i in range(60)]
                await asyncio.gather(*work)
            rows = await check_whole_log(store_url)
            for first, bodies in spans.items():
                assert [body for _, _, body in rows[first - 1 : first - 1 + len(bodies)]] == bodies
            assert sum(map(len, spans.values())) == len(rows)

        run(main())

    def test_a_batch_above_the_fragment_size_is_several_fragments_under_one_manifest(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = CountingStore(sl.open_store(store_url))
            async with sl.LogWriter.open(store, options=SMALL_FRAGMENTS) as log:
                bodies = [b"%04d" % i * 25 for i in range(40)]
                span = await log.append_many(bodies)
                assert span.count == 40
                assert store.counts["put_if_match"] == 1
                assert store.counts["put_if_absent"] == len(log.manifest.fragments) > 3
                times = {each.start.timestamp_us for each in log.manifest.fragments}
                assert times == {span.first.timestamp_us}
            rows = await check_whole_log(store_url)
            assert [body for _, _, body in rows] == bodies
            assert await orphans(store_url) == set()

        run(main())

    def test_the_largest_batch_still_fits_under_one_manifest(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(
                fragment_bytes=10, batch_bytes_max=20_000, manifest_fragments_max=3
            )
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:
                await log.append_many([b"x" * 84] * 200)
                assert 1 < len(log.manifest.fragments) <= 3
            assert len(await check_whole_log(store_url)) == 200

        run(main())

    def test_a_batch_above_the_limit_is_invalid_and_nothing_is_written(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = CountingStore(sl.open_store(store_url))
            async with sl.LogWriter.open(store, options=SMALL_FRAGMENTS) as log:
                store.reset()
                with pytest.raises(Invalid) as caught:
                    await log.append_many([b"x" * 1_000] * 20)
                assert caught.value.expected == 20_000
                assert caught.value.actual == 20 * 1_016
                assert store.counts == {}
                assert (await log.append_many([b"x" * 984] * 20)).count == 20
            assert len(await check_whole_log(store_url)) == 20

        run(main())

    def test_a_record_above_the_limit_is_invalid_and_nothing_is_written(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = CountingStore(sl.open_store(store_url))
            options = sl.WriterOptions(record_bytes_max=100)
            async with sl.LogWriter.open(store, options=options) as log:
                store.reset()
                with pytest.raises(Invalid):
                    await log.append(b"x" * 101)
                with pytest.raises(Invalid):
                    await log.append_many([b"fits", b"x" * 101])
                with pytest.raises(Invalid):
                    log.submit(b"x" * 101)
                assert store.counts == {}
                assert (await log.append(b"x" * 100)).offset == 1

        run(main())

    def test_an_empty_batch_is_refused_and_an_empty_body_is_not(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                with pytest.raises(Invalid):
                    await log.append_many([])
                with pytest.raises(Invalid):
                    await log.append_many(iter(()))
                assert (await log.append(b"")).offset == 1
                assert (await log.append_many([b"", b"", b"x", b""])).count == 4
            assert await bodies_of(store_url) == [b"", b"", b"", b"x", b""]
            await check_whole_log(store_url)

        run(main())

    def test_bodies_may_be_bytes_bytearrays_and_views_but_not_text(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                mutable = bytearray(b"two")
                pending = log.submit(mutable)
                mutable[:] = b"xxx"
                assert (await pending).offset == 1
                await log.append(memoryview(b"abcdef")[::2])
                await log.append_many([b"four", bytearray(b"five"), memoryview(b"six")])
                for wrong in ("text", 7, None, ["list"]):
                    with pytest.raises(Invalid):
                        await log.append(cast(bytes, wrong))
                    with pytest.raises(Invalid):
                        await log.append_many([b"good", cast(bytes, wrong)])
            assert await bodies_of(store_url) == [b"two", b"ace", b"four", b"five", b"six"]

        run(main())

    def test_submitted_records_keep_the_order_of_the_calls(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True, options=SMALL_FRAGMENTS) as log:
                bodies = [b"%d" % i * 20 for i in range(300)]
                futures = [log.submit(body) for body in bodies]
                await log.flush()
                positions = [await future for future in futures]
            assert [each.offset for each in positions] == list(range(1, 301))
            assert await bodies_of(store_url) == bodies

        run(main())

    def test_closing_settles_everything_that_was_submitted(self, store_url: str) -> None:
        async def main() -> None:
            log = await sl.LogWriter.open(store_url, create=True)
            futures = [log.submit(b"%d" % i) for i in range(50)]
            await log.close()
            assert [(await future).offset for future in futures] == list(range(1, 51))
            assert len(await check_whole_log(store_url)) == 50

        run(main())

    @pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
    def test_large_records_of_any_bytes_come_back_as_they_were(
        self, store_url: str, compression: str
    ) -> None:
        async def main() -> None:
            random = Random(3)
            bodies = [random.randbytes(size) for size in (0, 1, 255, 70_000, 300_000)]
            bodies += [bytes(100_000), b"\xff" * 5]
            options = sl.WriterOptions(compression=compression)  # type: ignore[arg-type]
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:
                await log.append_many(bodies)
                for body in bodies:
                    await log.append(body)
            assert await bodies_of(store_url) == bodies * 2

        run(main())


class TestBehaviour03Order:
    def test_positions_are_dense_from_one_across_reopening(self, store_url: str) -> None:
        async def main() -> None:
            history = History()
            for opening in range(4):
                async with sl.LogWriter.open(store_url, create=True) as log:

                    async def appender(name: str, log: sl.LogWriter = log) -> None:
                        for i in range(5):
                            body = f"{name}-{i}".encode()
                            await history.observe(name, Append((body,)), log.append(body))

                    await asyncio.gather(*(appender(f"{opening}.{n}") for n in range(8)))
            rows = await check_whole_log(store_url)
            assert len(rows) == 4 * 8 * 5
            check_appends(history, rows)

        run(main())

    def test_concurrent_appenders_see_real_time_order(self, store_url: str) -> None:
        """An append that began after another one was acknowledged comes after it."""

        async def main() -> None:
            history = History()
            random = Random(11)
            options = sl.WriterOptions(fragment_bytes=200, rollup_entries=2, snapshot_entries_max=4)
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:

                async def appender(name: str) -> None:
                    for i in range(12):
                        bodies = tuple(
                            f"{name}-{i}-{k}".encode() for k in range(random.choice((1, 1, 1, 9)))
                        )
                        if len(bodies) == 1:
                            await history.observe(name, Append(bodies), log.append(bodies[0]))
                        else:
                            number = history.call(name, Append(bodies))
                            span = await log.append_many(bodies)
                            history.ok(number, Placed(span.first.offset, span.first.timestamp_us))

                await asyncio.gather(*(appender(f"a{n}") for n in range(12)))
            check_appends(history, await check_whole_log(store_url))

        run(main())

    def test_timestamps_never_go_back_when_the_clock_does(self, store_url: str) -> None:
        async def main() -> None:
            clock = FakeClock(5_000)
            times: list[int] = []
            async with sl.LogWriter.open(store_url, create=True, runtime=clock) as log:
                for now_us in (5_000, 4_000, 4_999, 6_000, 1, 6_001):
                    clock.time_us = now_us
                    times.append((await log.append(b"%d" % now_us)).timestamp_us)
            assert times == [5_000, 5_000, 5_000, 6_000, 6_000, 6_001]
            clock.time_us = 10
            async with sl.LogWriter.open(store_url, runtime=clock) as log:
                assert (await log.append(b"reopened")).timestamp_us == 6_001
                clock.time_us = 7_000
                assert (await log.append(b"later")).timestamp_us == 7_000
            rows = await check_whole_log(store_url)
            assert [at_us for _, at_us, _ in rows] == [*times, 6_001, 7_000]

        run(main())

    def test_a_writer_with_a_late_clock_takes_over_without_going_back(self, store_url: str) -> None:
        async def main() -> None:
            reopen = sl.WriterOptions(on_fenced="reopen")
            ahead, behind = FakeClock(9_000_000), FakeClock(1_000_000)
            first = await sl.LogWriter.open(store_url, create=True, runtime=ahead, options=reopen)
            second = await sl.LogWriter.open(store_url, runtime=behind, options=reopen)
            for i in range(5):
                await first.append(b"ahead-%d" % i)
                assert (await second.append(b"behind-%d" % i)).timestamp_us >= 9_000_000
            await first.close()
            await second.close()
            await check_whole_log(store_url)

        run(main())

    def test_a_log_may_start_above_one(self, store_url: str) -> None:
        """As a bootstrapped log or a successor does: ``initial_offset`` without entries."""

        async def main() -> None:
            await sl.create_log(store_url)
            await rewrite_manifest(
                store_url,
                lambda manifest: msgspec.structs.replace(
                    manifest, initial_offset=sl.LogPosition(100, 7_000), initial_seq_no=40
                ),
            )
            async with sl.LogWriter.open(store_url, runtime=FakeClock(5)) as log:
                position = await log.append(b"first")
                assert (position.offset, position.timestamp_us) == (100, 7_000)
                assert log.manifest.fragments[0].seq_no == 40
            rows = await check_whole_log(store_url)
            assert rows == [(100, 7_000, b"first")]

        run(main())
