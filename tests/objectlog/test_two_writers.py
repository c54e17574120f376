"""Behaviour 5: several live writers, and somebody who changes only the past."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import stratalog as sl
from objectlog.whole_log import (
    bodies_of,
    check_whole_log,
    manifest_field,
    note_in_manifest,
    rewrite_manifest,
    run,
)
from objectlog.wrapped_stores import PassingStore, YieldingStore
from stratalog.errors import Conflict, Fenced, NotHappened, Sealed
from stratalog.objectlog.manifest import MANIFEST_PATH
from stratalog.testing import Append, History, check_appends

REOPEN = sl.WriterOptions(on_fenced="reopen")


class PastChangingStore(PassingStore):
    """Somebody changes the past just before each of the next ``times`` manifest puts."""

    def __init__(self, inner: sl.Store, times: int) -> None:
        super().__init__(inner)
        self.times = times
        self.changes = 0

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        if path == MANIFEST_PATH and self.changes < self.times:
            self.changes += 1
            await note_in_manifest(self.inner, "keeper", {"changes": self.changes})
        return await super().put_if_match(path, data, etag)


class TestBehaviour05TwoWriters:
    def test_250_alternating_writes_finish_and_are_all_there_in_order(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            logs = [await sl.LogWriter.open(store_url, options=REOPEN) for _ in range(2)]
            for number in range(250):
                position = await logs[number % 2].append(b"%d" % number)
                assert position.offset == number + 1
            assert logs[0].stats["reopenings"] == 124
            assert logs[1].stats["reopenings"] == 125
            for log in logs:
                await log.close()
            rows = await check_whole_log(store_url)
            assert [body for _, _, body in rows] == [b"%d" % number for number in range(250)]

        run(main())

    def test_a_fenced_writer_says_so_and_its_append_did_not_happen(self, store_url: str) -> None:
        async def main() -> None:
            first = await sl.LogWriter.open(store_url, create=True, writer="first")
            await first.append(b"one")
            second = await sl.LogWriter.open(store_url, writer="second")
            await second.append(b"two")
            with pytest.raises(Fenced) as caught:
                await first.append(b"lost")
            assert caught.value.actual == 3
            assert isinstance(caught.value, NotHappened)
            with pytest.raises(Fenced):
                await first.append(b"lost again")
            with pytest.raises(Fenced):
                first.submit(b"lost again")
            await first.close()
            assert (await second.append(b"three")).offset == 3
            await second.close()
            assert await bodies_of(store_url) == [b"one", b"two", b"three"]
            await check_whole_log(store_url)

        run(main())

    def test_when_fenced_all_that_is_under_way_did_not_happen(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(fragment_bytes=64)
            first = await sl.LogWriter.open(store_url, create=True, options=options)
            async with sl.LogWriter.open(store_url) as second:
                await second.append(b"winner")
            pending = [first.submit(b"lost-%d" % i * 10) for i in range(40)]
            with pytest.raises(Fenced):
                await first.flush()
            for outcome in await asyncio.gather(*pending, return_exceptions=True):
                assert isinstance(outcome, Fenced)
            await first.close()
            assert await bodies_of(store_url) == [b"winner"]

        run(main())

    def test_a_writer_that_reopens_sends_again_exactly_what_did_not_happen(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            options = sl.WriterOptions(on_fenced="reopen", fragment_bytes=64)
            first = await sl.LogWriter.open(store_url, create=True, options=options)
            await first.append(b"linked")
            before = first.incarnation
            async with sl.LogWriter.open(store_url) as second:
                await second.append(b"winner")
            bodies = [b"again-%d" % i for i in range(40)]
            pending = [first.submit(body) for body in bodies]
            await first.flush()
            assert [(await each).offset for each in pending] == list(range(3, 43))
            assert first.incarnation != before
            await first.close()
            assert await bodies_of(store_url) == [b"linked", b"winner", *bodies]

        run(main())

    def test_two_saturated_writers_both_make_progress(self, store_url: str) -> None:
        """Each has many appenders that never pause, and must get its share through."""
        appenders, each = (4, 6) if store_url.startswith("s3") else (8, 25)

        async def main() -> None:
            await sl.create_log(store_url)
            history = History()

            async def saturate(name: str) -> None:
                store = YieldingStore(sl.open_store(store_url))
                async with sl.LogWriter.open(store, writer=name, options=REOPEN) as log:

                    async def appender(number: int) -> None:
                        for i in range(each):
                            body = f"{name}-{number}-{i}".encode()
                            await history.observe(name, Append((body,)), log.append(body))

                    await asyncio.gather(*(appender(number) for number in range(appenders)))

            await asyncio.gather(saturate("left"), saturate("right"))
            rows = await check_whole_log(store_url)
            assert len(rows) == 2 * appenders * each
            check_appends(history, rows)

        run(main())

    def test_writers_that_stop_when_fenced_leave_one_that_goes_on(self, store_url: str) -> None:
        """At most one wins each position, and what the others were told did not happen did not."""

        async def main() -> None:
            await sl.create_log(store_url)
            history = History()
            logs = [await sl.LogWriter.open(store_url, writer=f"w{i}") for i in range(3)]

            async def appender(name: str, log: sl.LogWriter) -> int:
                acknowledged = 0
                for i in range(8):
                    body = f"{name}-{i}".encode()
                    try:
                        await history.observe(name, Append((body,)), log.append(body))
                    except Fenced:
                        return acknowledged
                    acknowledged += 1
                return acknowledged

            counts = await asyncio.gather(*(appender(f"w{i}", log) for i, log in enumerate(logs)))
            assert max(counts) == 8, "nobody made progress"
            await asyncio.gather(*(log.close() for log in logs))
            rows = await check_whole_log(store_url)
            assert len(rows) == sum(counts)
            check_appends(history, rows)

        run(main())


class TestBehaviour05ChangesOfThePast:
    def test_a_writer_rebases_on_a_changed_past_and_keeps_the_unknown_field(
        self, store_url: str
    ) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = PastChangingStore(sl.open_store(store_url), times=6)
            async with sl.LogWriter.open(store) as log:
                for number in range(10):
                    assert (await log.append(b"%d" % number)).offset == number + 1
                assert log.stats["rebases"] == 6
                assert log.stats["reopenings"] == 0
            assert await manifest_field(store_url, "keeper") == {"changes": 6}
            assert len(await check_whole_log(store_url)) == 10

        run(main())

    def test_a_rebased_append_is_not_uploaded_again(self, store_url: str) -> None:
        async def main() -> None:
            await sl.create_log(store_url)
            store = PastChangingStore(sl.open_store(store_url), times=3)
            async with sl.LogWriter.open(store) as log:
                await log.append(b"one")
                assert log.stats["fragments"].count == 1  # type: ignore[union-attr]
            fragments = [row async for row in store.list("log/")]
            assert len(fragments) == 1

        run(main())

    def test_two_saturated_writers_and_one_who_changes_the_past_all_make_progress(
        self, store_url: str
    ) -> None:
        appenders, each, changes = (2, 5, 4) if store_url.startswith("s3") else (4, 20, 30)

        async def main() -> None:
            await sl.create_log(store_url)
            history = History()

            async def saturate(name: str) -> None:
                store = YieldingStore(sl.open_store(store_url))
                async with sl.LogWriter.open(store, writer=name, options=REOPEN) as log:

                    async def appender(number: int) -> None:
                        for i in range(each):
                            body = f"{name}-{number}-{i}".encode()
                            await history.observe(name, Append((body,)), log.append(body))

                    await asyncio.gather(*(appender(number) for number in range(appenders)))

            async def keeper() -> None:
                for change in range(changes):
                    await note_in_manifest(
                        YieldingStore(sl.open_store(store_url)), f"note_{change}", change
                    )

            await asyncio.gather(saturate("left"), keeper(), saturate("right"))
            for change in range(changes):
                assert await manifest_field(store_url, f"note_{change}") == change
            rows = await check_whole_log(store_url)
            assert len(rows) == 2 * appenders * each
            check_appends(history, rows)

        run(main())

    def test_unknown_fields_of_entries_survive_appends_and_roll_ups(self, store_url: str) -> None:
        async def main() -> None:
            options = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4)
            async with sl.LogWriter.open(store_url, create=True, options=options) as log:
                await log.append(b"first")

                def mark(manifest: sl.Manifest) -> sl.Manifest:
                    marked = msgspec.structs.replace(
                        manifest.fragments[0], unknown={"mark": msgspec.Raw(b'"kept"')}
                    )
                    return msgspec.structs.replace(
                        manifest, fragments=(marked, *manifest.fragments[1:])
                    )

                await rewrite_manifest(store_url, mark)
                for number in range(12):
                    await log.append(b"%d" % number)
            store = sl.open_store(store_url)
            texts = [(await store.get(MANIFEST_PATH)).data]
            texts += [(await store.get(row.path)).data async for row in store.list("snapshot/")]
            assert any(b'"mark":"kept"' in text for text in texts)
            assert len(await check_whole_log(store_url)) == 13

        run(main())

    @pytest.mark.parametrize("on_fenced", ["raise", "reopen"])
    def test_at_a_seal_a_writer_stops_with_sealed(self, store_url: str, on_fenced: str) -> None:
        def seal(manifest: sl.Manifest) -> sl.Manifest:
            return msgspec.structs.replace(manifest, seal={"by": msgspec.Raw(b'"test"')})

        async def main() -> None:
            options = sl.WriterOptions(on_fenced=on_fenced)  # type: ignore[arg-type]
            log = await sl.LogWriter.open(store_url, create=True, options=options)
            await log.append(b"one")
            await rewrite_manifest(store_url, seal)
            with pytest.raises(Sealed):
                await log.append(b"two")
            with pytest.raises(Sealed):
                await log.append(b"three")
            await log.close()
            assert await bodies_of(store_url) == [b"one"]
            assert await manifest_field(store_url, "seal") == {"by": "test"}

        run(main())

    def test_a_manifest_that_vanishes_is_never_made_again_by_a_writer(self, store_url: str) -> None:
        async def main() -> None:
            log = await sl.LogWriter.open(store_url, create=True, options=REOPEN)
            await log.append(b"one")
            store = sl.open_store(store_url)
            await store.delete_many([MANIFEST_PATH])
            with pytest.raises(sl.StratalogError) as caught:
                await log.append(b"two")
            assert not isinstance(caught.value, Conflict)
            await log.close()
            assert [row async for row in store.list("manifest/")] == []

        run(main())
