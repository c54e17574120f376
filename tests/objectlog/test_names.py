"""Behaviour 8: two different contents never meet under one name, and a paused writer is safe."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

import stratalog as sl
from objectlog.whole_log import (
    SMALL_TREE,
    bodies_of,
    check_whole_log,
    collect_roots,
    manifest_field,
    raise_sweep_epoch,
    run,
    sweep,
    walk,
)
from objectlog.wrapped_stores import (
    GateStore,
    PassingStore,
    Puts,
    RecordingStore,
)
from stratalog.errors import Conflict, Fenced
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.store import MemoryStore
from stratalog.testing import Faults, FaultyStore

REOPEN = sl.WriterOptions(on_fenced="reopen", rollup_entries=2, snapshot_entries_max=4)


class TestBehaviour08Names:
    def test_every_opening_draws_a_name_of_its_own(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            incarnations = set()
            for _ in range(20):
                async with sl.LogWriter.open(store_url, writer="the same label") as log:
                    incarnations.add(log.incarnation)
            assert len(incarnations) == 20

        run(main())

    def test_fenced_writers_and_refused_appends_leave_their_names_unused_by_others(
        self, store_url: str
    ) -> None:
        """Writers that try for one and the same position never share a path."""

        async def main() -> None:
            await sl.create_log(store_url)
            puts = Puts()
            logs = [
                await sl.LogWriter.open(
                    RecordingStore(sl.open_store(store_url), puts), options=REOPEN
                )
                for _ in range(2)
            ]
            for number in range(8):
                await asyncio.gather(
                    *(log.append(b"%d-%d" % (number, i)) for i, log in enumerate(logs))
                )
                with pytest.raises(Conflict):
                    await logs[number % 2].append(b"refused", expected_offset=1)
            for log in logs:
                await log.close()
            puts.check_names_were_used_once()
            assert all(len(set(puts.contents[path])) == 1 for path in puts.paths("log/"))
            assert len(await check_whole_log(store_url)) == 16

        run(main())

    @pytest.mark.parametrize("seed", range(8))
    def test_across_retries_faults_fencing_and_reopening(self, seed: int) -> None:
        faults = Faults(
            lost_answer=0.15,
            put_error=0.1,
            echoed_refusal=0.1,
            false_refusal=0.05,
            late_landing=0.1,
            duplicate=0.1,
            late_s=(0.0, 0.02),
        )

        async def main() -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            puts, random = Puts(), Random(seed)

            async def process(name: str) -> None:
                for life in range(3):
                    store = FaultyStore(
                        RecordingStore(honest, puts), faults, random=Random(random.random())
                    )
                    log = await sl.LogWriter.open(store, options=REOPEN)
                    bodies = [f"{name}-{life}-{i}".encode() for i in range(6)]
                    await asyncio.gather(
                        *(log.append(body) for body in bodies), return_exceptions=True
                    )
                    await log.close()
                    await store.settle()

            await asyncio.gather(process("a"), process("b"), sweeper(honest))
            puts.check_names_were_used_once()
            rows = await check_whole_log(honest)
            assert len({body for _, _, body in rows}) == len(rows)

        async def sweeper(store: sl.Store) -> None:
            for _ in range(4):
                await asyncio.sleep(0.01)
                await sweep(store)

        run(main())

    def test_a_name_that_is_taken_by_other_bytes_is_given_up(self, store_url: str) -> None:
        class Squatter(PassingStore):
            """Somebody's bytes sit under the first three names that a writer chooses."""

            async def put_if_absent(self, path: str, data: bytes) -> str:
                if path.startswith("log/") and len(squatted) < 3:
                    squatted.append(path)
                    await self.inner.put_if_absent(path, b"not yours")
                return await super().put_if_absent(path, data)

        squatted: list[str] = []

        async def main() -> None:
            await sl.create_log(store_url)
            store = Squatter(sl.open_store(store_url))
            async with sl.LogWriter.open(store) as log:
                assert (await log.append(b"one")).offset == 1
                assert log.manifest.fragments[0].path not in squatted
            assert len(set(squatted)) == 3
            assert await bodies_of(store_url) == [b"one"]

        run(main())

    def test_equal_snapshots_made_twice_have_two_names(self, store_url: str) -> None:
        """Two writers roll up the same fragments; only the linked one counts."""

        async def main() -> None:
            puts = Puts()
            honest = sl.open_store(store_url)
            async with sl.LogWriter.open(store_url, create=True) as log:
                for number in range(4):
                    await log.append(b"%d" % number)
            for number in range(2):
                log = await sl.LogWriter.open(RecordingStore(honest, puts), options=SMALL_TREE)
                await log.append(b"writer-%d" % number)
                while len([row async for row in honest.list("snapshot/")]) == number:
                    await asyncio.sleep(0.001)
                await log.close()
            first, second = (
                sl.Snapshot.from_json(puts.contents[path][0]) for path in puts.paths("snapshot/")
            )
            assert first.setsum == second.setsum
            assert first.path != second.path
            puts.check_names_were_used_once()
            await check_whole_log(store_url)

        run(main())


class TestBehaviour08PausedWriters:
    """A writer that stops just before its manifest put, for longer than every interval."""

    def test_a_writer_paused_over_a_sweep_uploads_again_under_new_names(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            puts = Puts()
            gate = GateStore(RecordingStore(sl.open_store(store_url), puts), MANIFEST_PATH)
            options = sl.WriterOptions(fragment_bytes=100)
            log = await sl.LogWriter.open(gate, options=options)
            bodies = [b"%d" % number * 40 for number in range(10)]
            append = asyncio.ensure_future(log.append_many(bodies))
            await gate.arrived.wait()
            swept = await sweep(store_url)
            assert len(swept) > 1
            gate.open()
            assert (await append).first.offset == 1
            assert log.stats["uploads_again"] == 1
            await log.close()
            linked = {entry.path async for entry in walk(sl.open_store(store_url))}
            assert not linked & swept
            assert set(puts.paths("log/")) == linked | swept
            puts.check_names_were_used_once()
            assert await bodies_of(store_url) == bodies
            await check_whole_log(store_url)

        run(main())

    def test_nothing_is_acknowledged_before_it_was_uploaded_again(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            honest = sl.open_store(store_url)
            first = GateStore(honest, MANIFEST_PATH)
            second = GateStore(first, "log/")
            second.open()
            log = await sl.LogWriter.open(second)
            append = asyncio.ensure_future(log.append(b"one"))
            await first.arrived.wait()
            await sweep(store_url)
            second._open.clear()
            second.arrived.clear()
            first.open()
            await second.arrived.wait()
            assert not append.done()
            assert await bodies_of(store_url) == []
            second.open()
            assert (await append).offset == 1
            await log.close()
            await check_whole_log(store_url)

        run(main())

    def test_everything_in_flight_under_the_old_epoch_is_uploaded_again(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), MANIFEST_PATH)
            options = sl.WriterOptions(fragment_bytes=50)
            log = await sl.LogWriter.open(gate, options=options)
            bodies = [b"%02d" % number * 20 for number in range(24)]
            futures = [log.submit(body) for body in bodies]
            await gate.arrived.wait()
            for _ in range(50):
                await asyncio.sleep(0)
            swept = await sweep(store_url)
            gate.open()
            assert [(await each).offset for each in futures] == list(range(1, 25))
            await log.close()
            linked = {entry.path async for entry in walk(sl.open_store(store_url))}
            assert swept
            assert not linked & swept
            assert await bodies_of(store_url) == bodies
            await check_whole_log(store_url)

        run(main())

    def test_several_epochs_may_pass_one_after_the_other(self, store_url: str) -> None:
        class Hurried(PassingStore):
            async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
                if self.epochs < 4:
                    self.epochs += 1
                    await sweep(self.inner)
                return await super().put_if_match(path, data, etag)

            epochs = 0

        async def main() -> None:
            await sl.create_log(store_url)
            store = Hurried(sl.open_store(store_url))
            async with sl.LogWriter.open(store) as log:
                assert (await log.append(b"one")).offset == 1
                assert log.stats["uploads_again"] == 4
            assert await bodies_of(store_url) == [b"one"]
            await check_whole_log(store_url)

        run(main())

    def test_a_prepared_snapshot_of_an_older_epoch_is_never_linked(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            puts = Puts()
            store = RecordingStore(sl.open_store(store_url), puts)
            log = await sl.LogWriter.open(store, options=SMALL_TREE)
            for number in range(3):
                await log.append(b"%d" % number)
            while not puts.paths("snapshot/"):
                await asyncio.sleep(0)
            [prepared] = puts.paths("snapshot/")
            assert not log.manifest.snapshots
            while prepared not in [row.path async for row in store.list("snapshot/")]:
                await asyncio.sleep(0.001)
            assert prepared in await sweep(store_url)
            for number in range(3, 12):
                await log.append(b"%d" % number)
                await check_whole_log(store_url)
            await log.close()
            linked = {entry.path async for entry in walk(store)}
            assert any(path.startswith("snapshot/") for path in linked)
            assert prepared not in linked

        run(main())

    def test_a_paused_writer_that_was_overtaken_acknowledges_nothing(self, store_url: str) -> None:
        """Others went on, the past was collected and swept; then the writer resumes."""

        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), MANIFEST_PATH)
            paused = await sl.LogWriter.open(gate)
            append = asyncio.ensure_future(paused.append(b"from the past"))
            await gate.arrived.wait()
            async with sl.LogWriter.open(store_url) as other:
                for number in range(10):
                    await other.append(b"%d" % number)
            assert await collect_roots(store_url, 5) == 6
            await sweep(store_url)
            gate.open()
            with pytest.raises(Fenced):
                await append
            await paused.close()
            rows = await check_whole_log(store_url)
            assert [body for _, _, body in rows] == [b"%d" % number for number in range(5, 10)]

        run(main())

    def test_a_paused_writer_that_reopens_lands_once_at_the_new_tail(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            gate = GateStore(sl.open_store(store_url), MANIFEST_PATH)
            paused = await sl.LogWriter.open(gate, options=REOPEN)
            append = asyncio.ensure_future(paused.append(b"from the past"))
            await gate.arrived.wait()
            async with sl.LogWriter.open(store_url) as other:
                for number in range(10):
                    await other.append(b"%d" % number)
            await collect_roots(store_url, 5)
            await sweep(store_url)
            gate.open()
            assert (await append).offset == 11
            await paused.close()
            assert await bodies_of(store_url) == [
                *(b"%d" % number for number in range(5, 10)),
                b"from the past",
            ]
            await check_whole_log(store_url)

        run(main())

    def test_an_unchanged_epoch_does_not_make_a_writer_upload_again(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            await raise_sweep_epoch(store_url)
            epoch = await manifest_field(store_url, "sweep_epoch")
            async with sl.LogWriter.open(store_url) as log:
                await log.append(b"one")
                assert log.stats["uploads_again"] == 0
            assert await manifest_field(store_url, "sweep_epoch") == epoch

        run(main())
