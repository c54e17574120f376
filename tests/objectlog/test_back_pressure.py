"""Options of a writer and a reader: bounded queues, capped requests, counters, silent logging."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

import stratalog as sl
from objectlog.whole_log import bodies_of, check_whole_log, run
from objectlog.wrapped_stores import CountingStore, GateStore, YieldingStore
from stratalog.errors import Closed, Conflict, Fenced, Full, Invalid, NotHappened
from stratalog.meter import Timing
from stratalog.store import MemoryStore
from stratalog.testing import Simulation, simulate

LIMIT_S = 20.0


def timing(stats: object) -> Timing:
    assert isinstance(stats, Timing)
    return stats


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def held_back(
    url: sl.Store | str, options: sl.WriterOptions
) -> tuple[sl.LogWriter, GateStore]:
    """A writer whose first fragment is stuck on its way, so that everything else queues."""
    await sl.create_log(url, exist_ok=True)
    gate = GateStore(sl.open_store(url), "log/")
    log = await sl.LogWriter.open(gate, options=options)
    log.submit(b"stuck")
    await gate.arrived.wait()
    return log, gate


class TestQueueBounds:
    @pytest.mark.parametrize(
        "options",
        [sl.WriterOptions(queue_records_max=3), sl.WriterOptions(queue_bytes_max=3 * 20)],
        ids=["records", "bytes"],
    )
    def test_a_full_writer_makes_append_wait(
        self, store_url: str, options: sl.WriterOptions
    ) -> None:
        async def main() -> None:
            log, gate = await held_back(store_url, options)
            tasks = [asyncio.ensure_future(log.append(b"q-%02d" % i)) for i in range(10)]
            await turns()
            with pytest.raises(Full):
                log.submit(b"one too many")
            assert not any(task.done() for task in tasks)
            gate.open()
            positions = await asyncio.gather(*tasks)
            assert [each.offset for each in positions] == list(range(2, 12)), "in call order"
            await log.close()
            assert b"one too many" not in await bodies_of(store_url)
            await check_whole_log(store_url)

        run(main(), LIMIT_S)

    def test_a_full_writer_refuses_if_asked_to(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(queue_records_max=2, when_full="raise")
            log, gate = await held_back(store_url, options)
            waiting = [asyncio.ensure_future(log.append(b"%d" % i)) for i in range(2)]
            await turns()
            for refused in (log.append(b"no"), log.append_many([b"no", b"no"])):
                with pytest.raises(Full) as caught:
                    await refused
                assert isinstance(caught.value, NotHappened)
                assert "drain" in caught.value.hint
            gate.open()
            await asyncio.gather(*waiting)
            assert (await log.append(b"room again")).offset == 4
            await log.close()
            assert await bodies_of(store_url) == [b"stuck", b"0", b"1", b"room again"]

        run(main(), LIMIT_S)

    def test_submit_says_full_and_drain_waits_for_room(self, store_url: str) -> None:
        async def main() -> None:
            log, gate = await held_back(store_url, sl.WriterOptions(queue_records_max=2))
            futures = [log.submit(b"0"), log.submit(b"1")]
            with pytest.raises(Full):
                log.submit(b"no")
            draining = asyncio.ensure_future(log.drain())
            await turns()
            assert not draining.done()
            gate.open()
            await draining
            futures.append(log.submit(b"2"))
            await log.flush()
            assert [(await each).offset for each in futures] == [2, 3, 4]
            await log.close()

        run(main(), LIMIT_S)

    def test_many_who_submit_and_drain_all_get_through(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = YieldingStore(sl.open_store(store_url))
            options = sl.WriterOptions(queue_records_max=2)
            async with sl.LogWriter.open(store, options=options) as log:

                async def producer(name: int) -> None:
                    for number in range(6):
                        while True:
                            try:
                                log.submit(b"%d-%d" % (name, number))
                                break
                            except Full:
                                await log.drain()

                async def appender(name: int) -> None:
                    for number in range(6):
                        await log.append(b"a%d-%d" % (name, number))

                await asyncio.gather(
                    *(producer(name) for name in range(5)), *(appender(name) for name in range(3))
                )
                await log.flush()
            bodies = await bodies_of(store_url)
            assert len(set(bodies)) == len(bodies) == 48
            for name in range(5):
                mine = [body for body in bodies if body.startswith(b"%d-" % name)]
                assert mine == [b"%d-%d" % (name, number) for number in range(6)]

        run(main(), LIMIT_S)

    def test_one_submission_larger_than_the_whole_queue_is_let_in(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(queue_bytes_max=10, queue_records_max=2)
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:
                assert (await log.append_many([b"x" * 100] * 9)).count == 9
                assert (await log.append(b"y" * 1_000)).offset == 10
            assert len(await check_whole_log(store_url)) == 10

        run(main(), LIMIT_S)

    def test_closing_leaves_nobody_waiting_for_room(self, store_url: str) -> None:
        async def main() -> None:
            log, gate = await held_back(store_url, sl.WriterOptions(queue_records_max=1))
            tasks = [asyncio.ensure_future(log.append(b"%d" % i)) for i in range(8)]
            drains = [asyncio.ensure_future(log.drain()) for _ in range(3)]
            await turns()
            closing = asyncio.ensure_future(log.close())
            await turns()
            gate.open()
            await closing
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*drains, return_exceptions=True)
            placed = [each for each in outcomes if isinstance(each, sl.LogPosition)]
            assert all(isinstance(each, sl.LogPosition | Closed) for each in outcomes)
            assert len(await bodies_of(store_url)) == 1 + len(placed)

        run(main(), LIMIT_S)

    def test_a_writer_that_stops_leaves_nobody_waiting_for_room(self, store_url: str) -> None:
        async def main() -> None:
            log, gate = await held_back(store_url, sl.WriterOptions(queue_records_max=1))
            tasks = [asyncio.ensure_future(log.append(b"%d" % i)) for i in range(8)]
            await turns()
            async with sl.LogWriter.open(store_url) as other:
                await other.append(b"winner")
            gate.open()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(outcome, NotHappened)
            with pytest.raises(Fenced):
                await log.close()
            assert await bodies_of(store_url) == [b"winner"]

        run(main(), LIMIT_S)

    def test_the_bound_holds_when_many_conditional_appends_are_refused_at_once(
        self, store_url: str
    ) -> None:
        """Each refusal makes room for one, not for everybody who waits."""

        async def main() -> None:
            room = 64_000
            options = sl.WriterOptions(queue_bytes_max=room, queue_records_max=40)
            log, gate = await held_back(store_url, options)
            small = [asyncio.ensure_future(log.append(b"s", expected_offset=99)) for _ in range(40)]
            await turns()
            large = [asyncio.ensure_future(log.append(bytes(8_000))) for _ in range(60)]
            await turns()
            queue, largest, most = log._accumulator, 0, 0
            gate.open()
            while not all(task.done() for task in large):
                largest, most = max(largest, queue.bytes), max(most, queue.records)
                await asyncio.sleep(0)
            for outcome in await asyncio.gather(*small, return_exceptions=True):
                assert isinstance(outcome, Conflict)
            positions = [await task for task in large]
            assert [each.offset for each in positions] == list(range(2, 62)), "in call order"
            assert largest < room + 8_016
            assert most <= 40
            await log.close()

        run(main(), LIMIT_S)

    def test_after_drain_there_is_room_for_one_more(self) -> None:
        async def main() -> None:
            options = sl.WriterOptions(queue_records_max=2)
            async with sl.LogWriter.open(MemoryStore(), create=True, options=options) as log:

                async def drainer(name: int) -> None:
                    for number in range(20):
                        await log.drain()
                        log.submit(b"%d-%d" % (name, number))

                async def appender() -> None:
                    for _ in range(20):
                        await log.append(b"a")

                async def noise() -> None:
                    for _ in range(200):
                        with suppress(Full):
                            log.submit(b"n")
                        await asyncio.sleep(0)

                others = [appender() for _ in range(6)]
                await asyncio.gather(*(drainer(name) for name in range(6)), *others, noise())

        run(main(), LIMIT_S)

    def test_options_that_cannot_work_are_refused(self) -> None:
        for wrong in (
            {"fragment_bytes": 0},
            {"queue_records_max": 0},
            {"queue_bytes_max": 0},
            {"timeout_s": 0},
            {"interval_s": -1},
            {"rollup_entries": 1},
            {"uploads_max": 1},
            {"manifest_fragments_max": 0},
            {"snapshot_entries_max": 5},
            {"on_fenced": "maybe"},
            {"when_full": "maybe"},
            {"compression": "rot13"},
        ):
            with pytest.raises(Invalid):
                sl.WriterOptions(**wrong)
        for wrong in ({"prefetch_fragments": 0}, {"cache_bytes": -1}, {"poll_s_min": 0}):
            with pytest.raises(Invalid):
                sl.ReaderOptions(**wrong)  # type: ignore[arg-type]


class TestRequests:
    def test_an_idle_log_writes_at_once_and_an_interval_caps_its_requests(self) -> None:
        async def main(simulation: Simulation) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = CountingStore(honest)
            loop = asyncio.get_running_loop()
            options = sl.WriterOptions(interval_s=1.0, rollup_entries=16)
            async with sl.LogWriter.open(store, options=options, runtime=simulation.runtime) as log:
                started_s = loop.time()
                await log.append(b"at once")
                assert loop.time() - started_s < 0.1
                until_s = loop.time() + 20.0

                async def appender(name: int) -> None:
                    number = 0
                    while loop.time() < until_s:
                        await log.append(b"%d-%d" % (name, number))
                        number += 1

                await asyncio.gather(*(appender(name) for name in range(4)))
                manifests = store.counts["put_if_match"]
                assert 15 <= manifests <= 23
                snapshots = timing(log.stats["snapshots"]).count
                assert store.counts["put_if_absent"] - snapshots <= 23
            await check_whole_log(honest)

        simulate(main, seed=3)

    def test_an_interval_does_not_lose_or_hold_back_for_ever(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(interval_s=0.02)
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:
                futures = [log.submit(b"%d" % i) for i in range(20)]
                await log.append_many([b"x"] * 20)
                await log.flush()
                assert [(await each).offset for each in futures] == list(range(1, 21))
            assert len(await check_whole_log(store_url)) == 40

        run(main(), LIMIT_S)

    def test_a_lone_append_costs_one_fragment_and_one_manifest(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = CountingStore(sl.open_store(store_url))
            async with sl.LogWriter.open(store) as log:
                store.reset()
                for _ in range(5):
                    await log.append(b"one")
                assert store.counts == {"put_if_absent": 5, "put_if_match": 5}

        run(main())

    def test_many_appends_at_once_share_their_requests(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = CountingStore(sl.open_store(store_url))
            async with sl.LogWriter.open(store) as log:
                await asyncio.gather(*(log.append(b"%d" % i) for i in range(200)))
                assert store.writes <= 10
            assert len(await check_whole_log(store_url)) == 200

        run(main())

    def test_no_manifest_links_more_fragments_than_allowed(self) -> None:
        async def main() -> None:
            store = YieldingStore(MemoryStore())
            options = sl.WriterOptions(fragment_bytes=40, manifest_fragments_max=4)
            async with sl.LogWriter.open(store, create=True, options=options) as log:
                before = 0
                pending = [log.submit(b"%03d" % i * 10) for i in range(120)]
                while log.stats["records"] != 120:
                    await asyncio.sleep(0)
                    linked = log.manifest.next_seq_no - 1
                    assert linked - before <= 4
                    before = linked
                await asyncio.gather(*pending)
            await check_whole_log(store)

        run(main(), LIMIT_S)


class TestStats:
    def test_counters_of_a_writer_are_plausible(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4)
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:
                assert log.stats["records"] == 0
                for number in range(10):
                    await log.append_many([b"%d" % number * 10] * 3)
                stats = log.stats
                assert stats["records"] == 30
                assert stats["record_bytes"] == 30 * (10 + 16)
                assert timing(stats["appends"]).count == 10
                assert timing(stats["fragments"]).count == 10
                assert timing(stats["manifests"]).count == 10
                assert timing(stats["snapshots"]).count >= 1
                stored = log.manifest.acc_bytes
                assert timing(stats["fragments"]).bytes == stored
                for name in ("appends", "fragments", "manifests"):
                    each = timing(stats[name])
                    assert 0 < each.p50_s <= each.p99_s
                    assert each.mean_s > 0
                for name in ("rebases", "reopenings", "manifest_conflicts", "uploads_again"):
                    assert stats[name] == 0

        run(main())

    def test_counters_of_a_reader_are_plausible(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                for number in range(5):
                    await log.append_many([b"%d" % number * 10] * 3)
            async with sl.LogReader.open(store_url) as reader:
                assert len([row async for row in reader.records()]) == 15
                fragment = reader.manifest.fragments[0]
                for _ in range(3):
                    await reader.fetch(fragment)
                await reader.refresh()
                stats = reader.stats
                assert stats["records"] == 15
                assert timing(stats["fragments"]).count == 6
                assert stats["cache_hits"] == 2
                assert timing(stats["manifests"]).count == 1

        run(main())

    def test_the_cache_keeps_within_its_budget(self, store_url: str) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store_url, create=True) as log:
                for number in range(4):
                    await log.append(b"%d" % number * 10_000)
            store = CountingStore(sl.open_store(store_url))
            for cache_bytes, reads in ((0, 8), (200_000, 4)):
                options = sl.ReaderOptions(cache_bytes=cache_bytes)
                async with sl.LogReader.open(store, options=options) as reader:
                    store.reset()
                    for _ in range(2):
                        for fragment in reader.manifest.fragments:
                            await reader.fetch(fragment)
                    assert store.reads == reads

        run(main())


class TestLogging:
    def test_the_library_is_silent_by_default(self) -> None:
        """Also when it has something to say: a snapshot that cannot be stored is a warning."""
        program = textwrap.dedent(
            """
            import asyncio
            import stratalog as sl
            from stratalog.errors import Denied
            from stratalog.store import MemoryStore

            class NoSnapshots(MemoryStore):
                async def put_if_absent(self, path, data):
                    if path.startswith("snapshot/"):
                        raise Denied("no snapshots here", path=path)
                    return await super().put_if_absent(path, data)

            async def main():
                options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=2)
                async with sl.LogWriter.open(NoSnapshots(), create=True, options=options) as log:
                    for number in range(8):
                        await log.append(b"%d" % number)

            asyncio.run(main())
            """
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_what_it_has_to_say_goes_to_loggers_of_its_own_name(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        class NoSnapshots(MemoryStore):
            async def put_if_absent(self, path: str, data: bytes) -> str:
                if path.startswith("snapshot/"):
                    raise sl.errors.Denied("no snapshots here", path=path)
                return await super().put_if_absent(path, data)

        async def main() -> None:
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=2)
            async with sl.LogWriter.open(NoSnapshots(), create=True, options=options) as log:
                for number in range(8):
                    await log.append(b"%d" % number)

        with caplog.at_level(logging.WARNING, logger="stratalog"):
            run(main())
        assert caplog.records
        assert all(record.name.startswith("stratalog.") for record in caplog.records)
