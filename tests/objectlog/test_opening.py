"""Behaviour 1: opening and initialising a log."""

from __future__ import annotations

import asyncio
import copy
import inspect
import uuid
from typing import Any

import pytest

import stratalog as sl
from objectlog.whole_log import bodies_of, check_whole_log, run
from objectlog.wrapped_stores import CountingStore, TrickyStore
from stratalog.errors import Closed, Corrupt, Exists, Invalid, NotFound
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.store import MemoryStore


async def listing(url: str) -> list[str]:
    return [row.path async for row in sl.open_store(url).list()]


class TestBehaviour01Opening:
    def test_opening_a_log_that_is_not_there_fails_and_creates_nothing(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            with pytest.raises(NotFound) as caught:
                await sl.LogWriter.open(store_url)
            assert "create" in caught.value.hint
            with pytest.raises(NotFound):
                await sl.LogReader.open(store_url)
            with pytest.raises(NotFound):
                async with sl.LogWriter.open(store_url):
                    pytest.fail("it opened")
            assert await listing(store_url) == []

        run(main())

    def test_forgetting_to_await_it_is_told(self, store_url: str) -> None:
        opening: Any = sl.LogWriter.open(store_url, create=True)
        with pytest.raises(AttributeError, match=r"'append'.*await it, or use `async with`"):
            opening.append(b"lost")
        with pytest.raises(TypeError, match="await it, or use `async with`"), opening:
            pytest.fail("it opened")
        assert run(listing(store_url)) == []

    def test_one_that_has_not_begun_can_be_copied_and_looked_at(self, store_url: str) -> None:
        opening: Any = sl.LogWriter.open(store_url, create=True)
        assert not hasattr(opening, "append")
        assert not hasattr(opening, "_nothing")
        assert inspect.isawaitable(opening)
        assert "_start" in dict(inspect.getmembers(opening))

        another: Any = copy.copy(opening)

        async def main() -> None:
            async with another as log:
                assert (await log.append(b"one")).offset == 1

        run(main())

    def test_creating_makes_an_empty_log_that_starts_at_one(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            assert await listing(store_url) == [MANIFEST_PATH]
            async with sl.LogReader.open(store_url) as reader:
                assert (reader.first_offset, reader.tail) == (1, 1)
                assert await reader.scan() == []
                assert not reader.manifest.setsum
            assert await check_whole_log(store_url) == []

        run(main())

    def test_creating_it_a_second_time_fails_and_changes_nothing(self, store_url: str) -> None:
        async def main() -> None:
            store = sl.open_store(store_url)
            await sl.create_log(store_url)
            async with sl.LogWriter.open(store_url) as log:
                await log.append(b"kept")
            before = await store.get(MANIFEST_PATH)
            with pytest.raises(Exists):
                await sl.create_log(store_url)
            await sl.create_log(store_url, exist_ok=True)
            async with sl.LogWriter.open(store_url, create=True):
                pass
            after = await store.get(MANIFEST_PATH)
            assert (after.data, after.etag) == (before.data, before.etag)
            assert await bodies_of(store_url) == [b"kept"]

        run(main())

    def test_thirty_two_open_or_initialise_at_once_and_share_one_log(self, store_url: str) -> None:
        async def main() -> None:
            logs = await asyncio.gather(
                *(sl.LogWriter.open(store_url, create=True, writer=f"w{i}") for i in range(32))
            )
            versions = {log.manifest.write_id for log in logs}
            assert len(versions) == 1, "they saw different first manifests"
            assert len({log.incarnation for log in logs}) == 32
            assert (await logs[7].append(b"one")).offset == 1
            await asyncio.gather(*(log.close() for log in logs))
            assert await bodies_of(store_url) == [b"one"]
            assert not [path for path in await listing(store_url) if path.startswith("probe/")]

        run(main())

    def test_of_six_who_create_it_without_exist_ok_exactly_one_succeeds(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            outcomes = await asyncio.gather(
                *(sl.create_log(store_url) for _ in range(6)), return_exceptions=True
            )
            assert outcomes.count(None) == 1
            assert all(isinstance(each, Exists) for each in outcomes if each is not None)

        run(main())

    def test_opening_costs_one_read_and_no_write(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = CountingStore(sl.open_store(store_url))
            async with sl.LogWriter.open(store, create=True):
                pass
            async with sl.LogReader.open(store):
                pass
            assert store.counts == {"get": 2}

        run(main())

    @pytest.mark.parametrize("trick", ["lost", "echoed", "dropped"])
    def test_a_creation_whose_answer_went_astray_still_succeeds_once(self, trick: str) -> None:
        async def main() -> None:
            honest = MemoryStore(uuid.uuid4().hex)
            store = TrickyStore(honest, MANIFEST_PATH)
            store.tricks.append(trick)  # type: ignore[arg-type]
            await sl.create_log(store)
            with pytest.raises(Exists):
                await sl.create_log(honest)
            assert await check_whole_log(honest) == []

        run(main())

    def test_a_damaged_manifest_is_not_mistaken_for_no_log(self, store_url: str) -> None:
        async def main() -> None:
            store = sl.open_store(store_url)
            await store.put_if_absent(MANIFEST_PATH, b'{"setsum":')
            with pytest.raises(Corrupt) as caught:
                await sl.LogWriter.open(store_url, create=True)
            assert caught.value.path == MANIFEST_PATH
            with pytest.raises(Corrupt):
                await sl.create_log(store_url, exist_ok=True)
            assert (await store.get(MANIFEST_PATH)).data == b'{"setsum":'

        run(main())

    def test_a_log_of_another_program_is_read_but_never_written(self, store_url: str) -> None:
        zeros = b"0" * 64
        foreign = (
            b'{"setsum":"%s","collected":"%s","acc_bytes":0,"writer":"test",'
            b'"snapshots":[],"fragments":[]}' % (zeros, zeros)
        )

        async def main() -> None:
            store = sl.open_store(store_url)
            await store.put_if_absent(MANIFEST_PATH, foreign)
            assert await check_whole_log(store_url) == []
            with pytest.raises(Invalid):
                await sl.LogWriter.open(store_url, create=True)
            assert (await store.get(MANIFEST_PATH)).data == foreign

        run(main())

    def test_a_closed_writer_and_a_closed_reader_say_so(self, store_url: str) -> None:
        async def main() -> None:
            log = await sl.LogWriter.open(store_url, create=True)
            await log.append(b"one")
            await log.close()
            await log.close()
            with pytest.raises(Closed):
                await log.append(b"two")
            with pytest.raises(Closed):
                log.submit(b"two")
            with pytest.raises(Closed):
                await log.append_many([b"two"])
            reader = await sl.LogReader.open(store_url)
            await reader.close()
            with pytest.raises(Closed):
                await reader.scan()
            with pytest.raises(Closed):
                await reader.refresh()
            assert await bodies_of(store_url) == [b"one"]

        run(main())
