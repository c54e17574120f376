"""Behaviour 22 under schedules that once went wrong: places used twice, runs that die twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import stratalog as sl
from objectlog.test_collection import AT_ONCE, DEEP, garbage_left, made
from objectlog.trees import LEAF
from objectlog.whole_log import check_whole_log, rows_of, run
from objectlog.wrapped_stores import PassingStore
from stratalog.errors import Conflict, Invalid
from stratalog.objectlog.branch.destroy_log import destroy
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.holds.fork_note import note_of
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, load_any_manifest, load_manifest
from stratalog.store import MemoryStore
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Blob, Store

Puts = list[tuple[str, str]]


class DiedError(Exception):
    """The process is dead."""


class DyingStore(PassingStore):
    """Dies before the first put at which ``when`` holds; it is told all puts so far."""

    def __init__(self, inner: Store, when: Callable[[Puts], bool]) -> None:
        super().__init__(inner)
        self._when = when
        self._puts: Puts = []

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self._note("create", path)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self._note("swap", path)
        return await super().put_if_match(path, data, etag)

    def _note(self, kind: str, path: str) -> None:
        self._puts.append((kind, path))
        if self._when(self._puts):
            raise DiedError(path)


class SleepyStore(PassingStore):
    """Sleeps before it reads the fork's manifest, once the pin in the source was released."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._released = False
        self.asleep, self.wake = asyncio.Event(), asyncio.Event()

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self._released |= path.startswith("source/pin/")
        return await super().put_if_match(path, data, etag)

    async def get(self, path: str) -> Blob:
        if self._released and path == f"fork/{MANIFEST_PATH}":
            self.asleep.set()
            await self.wake.wait()
        return await super().get(path)


def at(bucket: Store, name: str) -> PrefixedStore:
    return PrefixedStore(bucket, name)


async def grown(bucket: Store) -> tuple[Store, Store]:
    """A source of five records, and the place of a fork."""
    source, target = at(bucket, "source"), at(bucket, "fork")
    await made(source, (LEAF,) * 5)
    return source, target


@pytest.mark.parametrize("half", [True, False], ids=["half a fork", "an open fork"])
def test_a_collector_that_sleeps_does_not_detach_another_fork_at_the_same_place(half: bool) -> None:
    async def main() -> None:
        bucket = MemoryStore()
        source, target = await grown(bucket)
        await fork(source, target)
        async with sl.LogWriter.open(target) as log:
            await log.append(b"own")
        await sl.CursorStore(target).create("keeper", 6)
        sleepy = SleepyStore(bucket)
        collecting = asyncio.ensure_future(sl.collect(at(sleepy, "fork"), options=AT_ONCE))
        await sleepy.asleep.wait()
        await destroy(target)
        if half:
            dying = DyingStore(bucket, lambda puts: puts[-1] == ("swap", f"fork/{MANIFEST_PATH}"))
            with pytest.raises(DiedError):
                await fork(at(dying, "source"), at(dying, "fork"))
        else:
            await fork(source, target)
        sleepy.wake.set()
        await asyncio.gather(collecting, return_exceptions=True)
        assert (await fork(source, target)).is_new is half
        assert [offset for offset, _, _ in await rows_of(target)] == [1, 2, 3, 4, 5]
        note = note_of((await load_any_manifest(target))[0])
        assert note is not None
        assert note.state == "open"
        assert [pin.name for pin in await PinStore(source).list()] == [note.pin]

    run(main())


def test_two_runs_that_died_leave_no_pin_behind() -> None:
    async def main() -> None:
        bucket = MemoryStore()
        source, target = await grown(bucket)
        opening = DyingStore(bucket, lambda puts: puts[-1] == ("swap", f"fork/{MANIFEST_PATH}"))
        with pytest.raises(DiedError):
            await fork(at(opening, "source"), at(opening, "fork"))
        renamed = DyingStore(bucket, lambda puts: puts[-1][1].startswith("source/pin/"))
        with pytest.raises(DiedError):
            await fork(at(renamed, "source"), at(renamed, "fork"))
        forked = await fork(source, target)
        assert [pin.name for pin in await PinStore(source).list()] == [forked.hold]
        await destroy(target)
        assert await PinStore(source).list() == []
        await sl.CursorStore(source).create("keeper", 6)
        await sl.collect(source, options=AT_ONCE)
        await sweep(source)
        assert await garbage_left(source) == set()
        await destroy(source)

    run(main())


def test_a_bucket_of_the_same_name_elsewhere_is_not_the_same_store() -> None:
    async def main() -> None:
        here, there = MemoryStore("same"), MemoryStore("same")
        source, _ = await grown(here)
        await grown(there)
        with pytest.raises(Invalid, match="cannot be reached"):
            await fork(source, at(there, "fork"))
        assert await PinStore(source).list() == []

    run(main())


def test_a_fork_counts_its_fragments_from_the_cut_that_it_was_made_on() -> None:
    async def main() -> None:
        bucket = MemoryStore()
        source, target = await grown(bucket)
        await sl.CursorStore(source).create("keeper", 5)

        class Busy(PassingStore):
            """A collection comes between the pin and the opening."""

            async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
                if path == f"fork/{MANIFEST_PATH}":
                    await sl.collect(source, options=AT_ONCE)
                return await super().put_if_match(path, data, etag)

        await fork(source, at(Busy(bucket), "fork"))
        assert (await load_manifest(target))[0].initial_seq_no == 1
        await sl.CursorStore(target).create("keeper", 4)
        assert (await sl.collect(target, options=AT_ONCE)).fragments == 3
        await check_whole_log(target)

    run(main())


def test_destroying_a_pinned_log_names_who_holds_it() -> None:
    async def main() -> None:
        bucket = MemoryStore()
        source, target = await grown(bucket)
        await fork(source, target)
        with pytest.raises(Conflict, match="held by the fork at memory://anonymous/fork"):
            await destroy(source)

    run(main())


def test_a_detached_fork_is_destroyed_without_its_source() -> None:
    async def main() -> None:
        bucket = MemoryStore()
        source, target = at(bucket, "source"), at(bucket, "fork")
        await made(source, DEEP)
        await fork(source, target)
        async with sl.LogWriter.open(target) as log:
            await log.append(b"own")
        await sl.CursorStore(target).create("keeper", 10)
        await sl.collect(target, options=AT_ONCE)
        await destroy(source)
        await destroy(target)
        assert [row.path async for row in bucket.list()] == []

    run(main())
