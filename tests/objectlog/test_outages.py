"""While a store does not answer, everybody is told in time; afterwards the writer goes on."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest

import stratalog as sl
from objectlog.whole_log import bodies_of, check_whole_log
from objectlog.wrapped_stores import PassingStore
from stratalog.errors import NotHappened, Unavailable
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.store import MemoryStore
from stratalog.store.protocol import Blob
from stratalog.testing import Simulation, simulate

TIMEOUT_S = 30.0
IN_TIME_S = 2 * TIMEOUT_S + 5.0
SMALL = sl.WriterOptions(timeout_s=TIMEOUT_S, fragment_bytes=100, compression="none")


class DownStore(PassingStore):
    """While ``down`` names the beginning of a path, nothing below it is answered or carried out."""

    def __init__(self, inner: sl.Store) -> None:
        super().__init__(inner)
        self.down: str | None = None

    async def get(self, path: str) -> Blob:
        await self._fail(path)
        return await super().get(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        await self._fail(path)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await self._fail(path)
        return await super().put_if_match(path, data, etag)

    async def _fail(self, path: str) -> None:
        await asyncio.sleep(0.01)
        if self.down is not None and path.startswith(self.down):
            raise Unavailable(f"{path}: down on purpose", path=path)


@pytest.fixture(params=["", "log/", MANIFEST_PATH], ids=["all", "fragments", "manifest"])
def what(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


async def opened(simulation: Simulation) -> tuple[sl.LogWriter, DownStore]:
    store = DownStore(MemoryStore())
    await sl.create_log(store, runtime=simulation.runtime)
    log = await sl.LogWriter.open(store, options=SMALL, runtime=simulation.runtime)
    await log.append(b"before")
    return log, store


class TestOutage:
    def test_all_queued_appends_are_unavailable_in_time_and_the_writer_works_again(
        self, what: str
    ) -> None:
        async def main(simulation: Simulation) -> None:
            log, store = await opened(simulation)
            store.down = what
            started_s = simulation.loop.time()
            outcomes = await asyncio.gather(
                *(log.append(b"%02d" % number * 50) for number in range(40)),
                return_exceptions=True,
            )
            assert simulation.loop.time() - started_s <= IN_TIME_S
            assert {type(each) for each in outcomes} == {Unavailable}
            store.down = None
            assert (await log.append(b"after")).offset == 2
            await log.close()
            assert await bodies_of(store.inner) == [b"before", b"after"]
            await check_whole_log(store.inner)

        simulate(main, seed=1)

    def test_conditional_appends_in_the_queue_do_not_make_it_longer(self, what: str) -> None:
        async def main(simulation: Simulation) -> None:
            log, store = await opened(simulation)
            store.down = what
            started_s = simulation.loop.time()
            calls = [
                log.append(b"x" * 100, expected_offset=None if number % 2 else 999 + number)
                for number in range(20)
            ]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert simulation.loop.time() - started_s <= IN_TIME_S
            assert all(isinstance(each, Unavailable | NotHappened) for each in outcomes)
            assert all(isinstance(each, Unavailable) for each in outcomes[1::2])
            store.down = None
            assert (await log.append(b"after", expected_offset=2)).offset == 2
            await log.close()

        simulate(main, seed=2)

    def test_an_append_called_later_gets_its_own_time(self) -> None:
        """One that has waited for a moment only is not failed along with those before it."""

        async def main(simulation: Simulation) -> None:
            log, store = await opened(simulation)
            store.down = "log/"
            early = asyncio.ensure_future(log.append(b"early"))
            await asyncio.sleep(TIMEOUT_S - 1.0)
            late = asyncio.ensure_future(log.append(b"late"))
            with pytest.raises(Unavailable):
                await early
            store.down = None
            assert (await late).offset == 2
            await log.close()

        simulate(main, seed=3)

    def test_close_ends_in_time_and_raises_what_nobody_looked_at(self, what: str) -> None:
        async def main(simulation: Simulation) -> None:
            log, store = await opened(simulation)
            store.down = what
            started_s = simulation.loop.time()
            for number in range(40):
                log.submit(b"%02d" % number * 50)
            with pytest.raises(Unavailable):
                await log.close()
            assert simulation.loop.time() - started_s <= IN_TIME_S
            assert await bodies_of(store.inner) == [b"before"]
            assert simulation.unhandled == []

        simulate(main, seed=4)

    def test_what_is_appended_all_the_time_is_told_in_time_and_goes_on_afterwards(self) -> None:
        async def main(simulation: Simulation) -> None:
            log, store = await opened(simulation)
            loop = simulation.loop
            failed, worst_s = 0, 0.0

            async def appender(name: int) -> list[bytes]:
                nonlocal failed, worst_s
                landed: list[bytes] = []
                for number in range(30):
                    body = b"%d-%d" % (name, number) + b"." * 90
                    called_s = loop.time()
                    try:
                        await log.append(body)
                        landed.append(body)
                    except Unavailable:
                        failed += 1
                    worst_s = max(worst_s, loop.time() - called_s)
                    await asyncio.sleep(7.0)
                return landed

            async def outage() -> None:
                await asyncio.sleep(20.0)
                store.down = ""
                await asyncio.sleep(100.0)
                store.down = None

            under_way = asyncio.ensure_future(outage())
            landed = await asyncio.gather(*(appender(name) for name in range(8)))
            await under_way
            await log.close()
            assert failed > 0
            assert worst_s <= IN_TIME_S
            bodies = await bodies_of(store.inner)
            assert sorted(bodies) == sorted([b"before", *chain(*landed)])

        simulate(main, seed=5)
