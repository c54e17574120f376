"""A failed ``submit`` is not silent: whoever looks at its future hears, or else who flushes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import stratalog as sl
from objectlog.whole_log import bodies_of, run
from objectlog.wrapped_stores import PassingStore
from stratalog.errors import Conflict, Denied
from stratalog.store import MemoryStore

LIMIT_S = 20.0


class NoUploads(PassingStore):
    """Refuses fragments while ``denied``."""

    def __init__(self, inner: sl.Store) -> None:
        super().__init__(inner)
        self.denied = True

    async def put_if_absent(self, path: str, data: bytes) -> str:
        if self.denied and path.startswith("log/"):
            raise Denied("no permission", path=path)
        return await super().put_if_absent(path, data)


async def opened() -> tuple[sl.LogWriter, NoUploads]:
    store = NoUploads(MemoryStore())
    return await sl.LogWriter.open(store, create=True), store


async def by_awaiting(future: Awaitable[object]) -> None:
    with pytest.raises(Denied):
        await future


async def by_gathering(future: Awaitable[object]) -> None:
    [outcome] = await asyncio.gather(future, return_exceptions=True)
    assert isinstance(outcome, Denied)


async def by_asking(future: Awaitable[object]) -> None:
    assert isinstance(future, asyncio.Future)
    await asyncio.wait([future])
    assert isinstance(future.exception(), Denied)


LOOKING = [by_awaiting, by_gathering, by_asking]


class TestUnseenFailures:
    @pytest.mark.parametrize("call", ["flush", "close"])
    def test_the_first_that_nobody_looked_at_is_raised_once(self, call: str) -> None:
        async def main() -> None:
            log, store = await opened()
            for number in range(5):
                log.submit(b"%d" % number)
            with pytest.raises(Denied):
                await getattr(log, call)()
            await log.flush()
            await log.close()
            assert await bodies_of(store) == []

        run(main(), LIMIT_S)

    def test_leaving_the_block_raises_it(self) -> None:
        async def main() -> None:
            store = NoUploads(MemoryStore())
            await sl.create_log(store)
            with pytest.raises(Denied):
                async with sl.LogWriter.open(store) as log:
                    log.submit(b"lost")

        run(main(), LIMIT_S)

    def test_leaving_the_block_does_not_replace_what_went_wrong_inside(self) -> None:
        async def main() -> None:
            store = NoUploads(MemoryStore())
            await sl.create_log(store)
            async with sl.LogWriter.open(store) as log:
                log.submit(b"lost")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            run(main(), LIMIT_S)

    @pytest.mark.parametrize("look", LOOKING)
    @pytest.mark.parametrize("call", ["flush", "close"])
    def test_one_that_was_looked_at_is_not_raised_again(
        self, look: Callable[[Awaitable[object]], Awaitable[None]], call: str
    ) -> None:
        async def main() -> None:
            log, _ = await opened()
            await look(log.submit(b"lost"))
            await getattr(log, call)()
            await log.close()

        run(main(), LIMIT_S)

    def test_of_several_only_the_unseen_one_is_raised(self) -> None:
        async def main() -> None:
            log = await sl.LogWriter.open(MemoryStore(), create=True)
            seen = log.submit(b"seen", expected_offset=50)
            log.submit(b"unseen", expected_offset=60)
            with pytest.raises(Conflict):
                await seen
            with pytest.raises(Conflict) as caught:
                await log.flush()
            assert caught.value.expected == 60
            assert (await log.append(b"goes on")).offset == 1
            await log.close()

        run(main(), LIMIT_S)

    def test_the_failure_of_an_append_is_its_callers_alone(self) -> None:
        async def main() -> None:
            log, _ = await opened()
            with pytest.raises(Denied):
                await log.append(b"lost")
            await log.flush()
            await log.close()

        run(main(), LIMIT_S)

    def test_a_cancelled_future_is_nobodys_failure(self) -> None:
        async def main() -> None:
            log, _ = await opened()
            future = log.submit(b"lost")
            assert isinstance(future, asyncio.Future)
            future.cancel()
            await log.flush()
            await log.close()

        run(main(), LIMIT_S)

    def test_what_was_raised_leaves_no_complaint_about_futures_behind(self) -> None:
        async def main() -> None:
            complaints: list[object] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
            log, _ = await opened()
            for number in range(5):
                log.submit(b"%d" % number)
            with pytest.raises(Denied):
                await log.close()
            await asyncio.sleep(0)
            assert complaints == []

        run(main(), LIMIT_S)
