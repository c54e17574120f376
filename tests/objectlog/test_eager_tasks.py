"""Under ``asyncio.eager_task_factory`` a task may have ended before its creator knows its name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import stratalog as sl
from objectlog.eager_tasks import make_tasks_eager
from objectlog.whole_log import SMALL_TREE, bodies_of, check_whole_log, run
from objectlog.wrapped_stores import InspectingStore, YieldingStore
from stratalog.errors import Conflict, Fenced
from stratalog.store import MemoryStore

LIMIT_S = 20.0


def run_eagerly(main: Callable[[], Awaitable[None]]) -> None:
    async def eager() -> None:
        make_tasks_eager(asyncio.get_running_loop())
        await main()

    run(eager(), LIMIT_S)


@pytest.fixture(params=["at once", "after a turn", "directory"])
def store(request: pytest.FixtureRequest, store_path: str) -> sl.Store:
    """Stores that never wait, that wait a little, and that wait for threads."""
    if request.param == "directory":
        return sl.open_store(store_path)
    return MemoryStore() if request.param == "at once" else YieldingStore(MemoryStore())


@pytest.fixture
def store_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("eager"))


class TestEagerTasks:
    def test_the_factory_of_these_tests_begins_a_task_at_once(self) -> None:
        async def main() -> None:
            steps: list[str] = []

            async def work(wait: bool) -> int:
                steps.append(f"begins as {asyncio.current_task() is not None}")
                if wait:
                    await asyncio.sleep(0)
                steps.append("ends")
                return 5

            short = asyncio.ensure_future(work(False))
            assert short.done()
            assert steps == ["begins as True", "ends"]
            long = asyncio.ensure_future(work(True))
            assert not long.done()
            async with asyncio.TaskGroup() as group:
                child = group.create_task(work(True))
            assert (await short, await long, child.result()) == (5, 5, 5)

        run_eagerly(main)

    def test_appends_one_by_one_and_many_at_once_all_land_in_order(self, store: sl.Store) -> None:
        async def main() -> None:
            options = sl.WriterOptions(fragment_bytes=100)
            async with sl.LogWriter.open(store, create=True, options=options) as log:
                for number in range(3):
                    assert (await log.append(b"%d" % number)).offset == number + 1
                futures = [log.submit(b"%02d" % number * 20) for number in range(60)]
                batch = await log.append_many([b"x" * 50] * 7)
                await log.flush()
                assert [(await each).offset for each in futures] == list(range(4, 64))
                assert (batch.first.offset, batch.count) == (64, 7)
            assert len(await check_whole_log(store)) == 70

        run_eagerly(main)

    def test_conditional_appends_are_refused_and_the_writer_goes_on(self, store: sl.Store) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store, create=True) as log:
                for number in range(4):
                    with pytest.raises(Conflict) as caught:
                        await log.append(b"never", expected_offset=99)
                    assert caught.value.actual == number + 1
                    await log.append(b"%d" % number, expected_offset=number + 1)
                outcomes = await asyncio.gather(
                    *(log.append(b"one of us", expected_offset=5) for _ in range(6)),
                    return_exceptions=True,
                )
                assert sum(isinstance(each, sl.LogPosition) for each in outcomes) == 1
                assert sum(isinstance(each, Conflict) for each in outcomes) == 5
            assert await bodies_of(store) == [b"0", b"1", b"2", b"3", b"one of us"]

        run_eagerly(main)

    def test_roll_ups_are_stored_and_linked(self, store: sl.Store) -> None:
        async def main() -> None:
            async with sl.LogWriter.open(store, create=True, options=SMALL_TREE) as log:
                for number in range(40):
                    await log.append(b"%d" % number)
                assert len(log.manifest.entries) < 20
                assert max(pointer.depth for pointer in log.manifest.snapshots) >= 2
            assert len(await check_whole_log(store)) == 40

        run_eagerly(main)

    @pytest.mark.parametrize(("rollup_entries", "snapshot_entries_max"), [(2, 2), (16, 16)])
    def test_a_root_that_would_be_too_large_waits_for_its_roll_up(
        self, rollup_entries: int, snapshot_entries_max: int
    ) -> None:
        """A roll-up that has ended before it could be waited for counts like any other."""

        async def main() -> None:
            store = InspectingStore(MemoryStore())
            options = sl.WriterOptions(
                fragment_bytes=20,
                manifest_fragments_max=16,
                rollup_entries=rollup_entries,
                snapshot_entries_max=snapshot_entries_max,
            )
            async with sl.LogWriter.open(store, create=True, options=options) as log:
                for _ in range(60):
                    await log.append_many([b"x" * 20] * 16)
            assert store.largest <= 32_000
            assert len(await check_whole_log(store)) == 60 * 16

        run_eagerly(main)

    def test_a_fenced_writer_stops_and_one_that_reopens_goes_on(self, store: sl.Store) -> None:
        async def main() -> None:
            stops = await sl.LogWriter.open(store, create=True)
            reopen = sl.WriterOptions(on_fenced="reopen")
            goes_on = await sl.LogWriter.open(store, options=reopen)
            await stops.append(b"one")
            assert (await goes_on.append(b"two")).offset == 2
            with pytest.raises(Fenced):
                await stops.append(b"never")
            await stops.close()
            await goes_on.close()
            assert await bodies_of(store) == [b"one", b"two"]

        run_eagerly(main)
