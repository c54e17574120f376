"""Behaviour 5: several live writers, and somebody who changes only the past."""

from __future__ import annotations

import asyncio
from typing import cast

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
from stratalog.objectlog.append import committer
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.store import MemoryStore
from stratalog.testing import Append, History, Simulation, check_appends, simulate

REOPEN = sl.WriterOptions(on_fenced="reopen")


def seal(manifest: sl.Manifest) -> sl.Manifest:
    return msgspec.structs.replace(manifest, seal={"by": msgspec.Raw(b'"test"')})


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


class HeldBack(PassingStore):
    """Holds back the next manifest put, and the next fragment until its upload is given up.

    Giving up takes ``cleanup_turns`` turns of the event loop, as in a client that tidies up.
    """

    def __init__(self, inner: sl.Store, cleanup_turns: int) -> None:
        super().__init__(inner)
        self.cleanup_turns = cleanup_turns
        self.hold_fragment = False
        self.manifest_held = asyncio.Event()
        self.fragment_held = asyncio.Event()
        self.release = asyncio.Event()

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self.manifest_held.set()
        await self.release.wait()
        return await super().put_if_match(path, data, etag)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        if self.hold_fragment and path.startswith("log/"):
            self.hold_fragment = False
            self.fragment_held.set()
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(self.cleanup_turns):
                    await asyncio.sleep(0)
        return await super().put_if_absent(path, data)


class TestBehaviour05Uploads:
    """A fenced writer gives up its uploads. Whoever waits for these to end is woken."""

    @pytest.mark.parametrize("cleanup_turns", [0, 1, 2, 5])
    @pytest.mark.parametrize("newcomer_turns", [None, 0, 1, 2, 3])
    def test_what_was_uploading_when_a_writer_was_fenced_is_sent_again(
        self, cleanup_turns: int, newcomer_turns: int | None
    ) -> None:
        """With and without an append that comes so many turns before the writer hears of it."""

        async def main(simulation: Simulation) -> None:
            honest = MemoryStore()
            await sl.create_log(honest)
            store = HeldBack(honest, cleanup_turns)
            log = await sl.LogWriter.open(store, options=REOPEN, runtime=simulation.runtime)
            appends = [asyncio.ensure_future(log.append(b"linking"))]
            await store.manifest_held.wait()
            store.hold_fragment = True
            appends.append(asyncio.ensure_future(log.append(b"uploading")))
            await store.fragment_held.wait()
            async with sl.LogWriter.open(honest) as other:
                await other.append(b"theirs")
            if newcomer_turns is not None:
                appends.append(asyncio.ensure_future(log.append(b"newcomer")))
                for _ in range(newcomer_turns):
                    await asyncio.sleep(0)
            store.release.set()
            positions = await asyncio.gather(*appends)
            assert [each.offset for each in positions] == list(range(2, 2 + len(appends)))
            await log.close()
            expected = [b"theirs", b"linking", b"uploading", b"newcomer"]
            assert await bodies_of(honest) == expected[: 1 + len(appends)]

        simulate(main, seed=1)


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

    @pytest.mark.parametrize("on_fenced", ["raise", "reopen"])
    @pytest.mark.parametrize("expected_offset", [None, 1])
    def test_a_log_that_others_wrote_to_and_sealed_is_sealed_not_fenced(
        self, store_url: str, on_fenced: str, expected_offset: int | None
    ) -> None:
        """Sealed is for good, so that is what a writer needs to hear."""

        async def main() -> None:
            options = sl.WriterOptions(on_fenced=on_fenced)  # type: ignore[arg-type]
            log = await sl.LogWriter.open(store_url, create=True, options=options)
            async with sl.LogWriter.open(store_url) as other:
                await other.append(b"theirs")
            await rewrite_manifest(store_url, seal)
            with pytest.raises(Sealed):
                await log.append(b"ours", expected_offset=expected_offset)
            with pytest.raises(Sealed):
                await log.append(b"ours again")
            await log.close()
            assert await bodies_of(store_url) == [b"theirs"]

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


def test_who_always_wins_leaves_room_again_and_again_but_not_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committer, "WINNING_S_MIN", 0.05)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with sl.LogWriter.open(MemoryStore(), create=True) as log:
            started_s, pauses = loop.time(), 0
            while pauses < 3:
                await log.append(b"mine")
                pauses = cast(int, log.stats["pauses_for_others"])
            assert loop.time() - started_s >= 3 * 0.05

    run(main())
