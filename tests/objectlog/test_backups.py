"""Backups: right beside a busy log, complete if they are there, and brought back whole."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import stratalog as sl
from objectlog.crashing import CrashPoint, crash_at_each, run_until_crash, sides_of
from objectlog.leftovers import InterruptedStore, everything, grown
from objectlog.whole_log import SMALL_TREE, bodies_of, check_whole_log, replace_bytes, run
from objectlog.wrapped_stores import CountingStore, Puts
from stratalog.errors import Conflict, Corrupt, Exists, Invalid, NotFound
from stratalog.objectlog.backup.copy_objects import BackupProgress
from stratalog.objectlog.stored import MANIFEST_PATH, load_manifest
from stratalog.store import MemoryStore, PrefixedStore, Store
from stratalog.testing import History, StoreCall

AT_ONCE = sl.CollectorOptions(interval_s=0.0)


def a_store() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


async def append(store: Store, *bodies: bytes) -> None:
    async with sl.LogWriter.open(store, options=SMALL_TREE) as log:
        for body in bodies:
            await log.append(body)


async def held_log(store: Store, records: int = 20) -> None:
    await grown(store, records)
    await sl.CursorStore(store).create("billing", 7)
    await sl.PolicyStore(store).set(sl.Policy(retain=sl.Retention(age_s=60.0)))


class TestBackUpAndRestore:
    def test_a_log_comes_back_with_its_cursors_and_its_policy(self, store_url: str) -> None:
        async def main() -> None:
            source = await grown(store_url, 20)
            await sl.CursorStore(source).create("a", 7)
            dest, target = a_store(), a_store()
            taken = await sl.backup(source, dest, note="before the move")
            assert (taken.backup.first_offset, taken.backup.tail) == (1, 21)
            assert taken.backup.note == "before the move"
            restored = await sl.restore(dest, target)
            assert restored.backup == taken.backup
            rows = await check_whole_log(source)
            assert await check_whole_log(target) == rows
            assert [(c.name, c.offset) for c in await sl.CursorStore(target).list()] == [("a", 7)]
            assert (await sl.scrub(target)).clean
            before, after = [(await load_manifest(each))[0] for each in (source, target)]
            assert before.write_id != after.write_id
            assert before.sweep_epoch != after.sweep_epoch
            assert before.linked == after.linked
            assert not [path for path in await everything(target) if path.startswith("restoring")]
            await append(target, b"goes on")
            assert (await sl.sweep(target)).deleted.objects <= 3  # nodes of a roll-up
            assert (await sl.PinStore(source).list()) == []

        run(main())

    def test_the_policy_comes_back_with_a_version_of_its_own(self) -> None:
        async def main() -> None:
            source, dest, target = a_store(), a_store(), a_store()
            await held_log(source)
            await sl.backup(source, dest)
            await sl.restore(dest, target, cursors=False)
            policies = [await sl.PolicyStore(each).load() for each in (source, target)]
            assert policies[0].to_dict() == policies[1].to_dict()
            assert policies[0].write_id != policies[1].write_id
            assert await sl.CursorStore(target).list() == []

        run(main())

    def test_an_empty_log(self) -> None:
        async def main() -> None:
            source, dest, target = a_store(), a_store(), a_store()
            await sl.create_log(source, first_offset=5)
            await sl.backup(source, dest)
            await sl.restore(dest, target)
            await append(target, b"first")
            async with sl.LogReader.open(target) as log:
                assert log.first_offset == 5

        run(main())

    def test_each_object_is_copied_once_and_each_state_can_be_restored(self) -> None:
        async def main() -> None:
            source, dest = await grown(a_store(), 30), a_store()
            first = await sl.backup(source, dest)
            assert first.objects > 30
            again = await sl.backup(source, dest)
            assert (again.objects, again.num_bytes) == (0, 0)
            await append(source, b"one more")
            third = await sl.backup(source, dest)
            assert 1 <= third.objects <= 5
            listed = await sl.list_backups(dest)
            assert [each.id for each in listed] == [
                each.backup.id for each in (first, again, third)
            ]
            for each in (first, third):
                target = a_store()
                await sl.restore(dest, target, backup=each.backup.id)
                assert len(await bodies_of(target)) == each.backup.tail - 1
                await check_whole_log(target)

        run(main())

    def test_a_place_with_backups_is_no_log_and_can_be_destroyed(self) -> None:
        async def main() -> None:
            source, dest = await grown(a_store()), a_store()
            await sl.backup(source, dest)
            with pytest.raises(NotFound):
                await sl.sweep(dest)
            await sl.destroy(dest)
            assert await everything(dest) == {}

        run(main())

    def test_progress_ends_at_the_whole(self) -> None:
        async def main() -> None:
            source, dest = await grown(a_store(), 30), a_store()
            seen: list[BackupProgress] = []
            taken = await sl.backup(source, dest, on_progress=seen.append)
            assert seen[-1] == BackupProgress(taken.backup.num_bytes, taken.backup.num_bytes)
            assert [each.num_bytes for each in seen] == sorted(each.num_bytes for each in seen)

        run(main())


class TestWhatIsRefused:
    def test_no_log_and_no_backup(self) -> None:
        async def main() -> None:
            with pytest.raises(NotFound):
                await sl.backup(a_store(), a_store())
            with pytest.raises(NotFound):
                await sl.restore(a_store(), a_store())
            source, dest = await grown(a_store()), a_store()
            await sl.backup(source, dest)
            with pytest.raises(NotFound, match="no backup 'other'"):
                await sl.restore(dest, a_store(), backup="other")

        run(main())

    def test_a_place_where_something_is(self) -> None:
        async def main() -> None:
            source, dest = await grown(a_store()), a_store()
            await sl.backup(source, dest)
            for path in ("notes.txt", "log/Uuid=x.parquet", "cursor/a.json", MANIFEST_PATH):
                target = a_store()
                await target.put_if_absent(path, b"mine")
                before = await everything(target)
                with pytest.raises(Exists, match="already"):
                    await sl.restore(dest, target)
                assert await everything(target) == before
            with pytest.raises(Exists):
                await sl.restore(dest, source)

        run(main())

    def test_backups_of_another_log_a_log_and_a_place_inside(self) -> None:
        async def main() -> None:
            bucket = a_store()
            one, other = PrefixedStore(bucket, "one"), PrefixedStore(bucket, "other")
            await grown(one)
            await grown(other)
            dest = a_store()
            await sl.backup(one, dest)
            with pytest.raises(Conflict, match="holds backups of"):
                await sl.backup(other, dest)
            with pytest.raises(Exists, match="there is a log"):
                await sl.backup(one, other)
            for inside in (one, PrefixedStore(bucket, "one/backup"), bucket):
                with pytest.raises(Invalid, match="apart"):
                    await sl.backup(one, inside)

        run(main())

    def test_a_fork(self) -> None:
        async def main() -> None:
            bucket = a_store()
            source, fork = PrefixedStore(bucket, "source"), PrefixedStore(bucket, "fork")
            await grown(source)
            await sl.fork(source, fork)
            with pytest.raises(Invalid, match="fork"):
                await sl.backup(fork, a_store())
            assert len(await sl.PinStore(fork).list()) == 0

        run(main())

    def test_a_damaged_fragment_is_not_copied(self) -> None:
        async def main() -> None:
            source, dest = await grown(a_store()), a_store()
            manifest, _ = await load_manifest(source)
            path = manifest.fragments[-1].path
            data = bytearray((await source.get(path)).data)
            data[len(data) // 3] ^= 1
            await replace_bytes(source, path, bytes(data))
            with pytest.raises(Corrupt, match="Fragment") as caught:
                await sl.backup(source, dest)
            assert caught.value.path == path
            assert await sl.list_backups(dest) == []

        run(main())

    def test_a_backup_that_has_lost_or_changed_something(self) -> None:
        async def main() -> None:
            source, dest = await grown(a_store(), 30), a_store()
            await sl.backup(source, dest)
            assert (await sl.check_backup(dest)).objects > 30
            manifest, _ = await load_manifest(source)
            path = manifest.fragments[-1].path
            await dest.delete_many([path])
            for work in (sl.check_backup(dest), sl.restore(dest, a_store())):
                with pytest.raises(Corrupt, match="missing"):
                    await work
            await dest.put_if_absent(path, b"something else")
            with pytest.raises(Corrupt, match="another object"):
                await sl.backup(source, dest)

        run(main())

    @pytest.mark.parametrize("folder", ["log/", "snapshot/"])
    def test_what_was_deleted_at_the_place_is_copied_again(self, folder: str) -> None:
        async def main() -> None:
            source, dest, target = await grown(a_store(), 30), a_store(), a_store()
            await sl.backup(source, dest)
            paths = [row.path async for row in dest.list(folder)]
            assert len(paths) > 3
            await dest.delete_many(paths[:3])
            assert (await sl.backup(source, dest)).objects == 3
            await sl.restore(dest, target)
            assert await check_whole_log(target) == await check_whole_log(source)

        run(main())

    @pytest.mark.parametrize("folder", ["log/", "snapshot/"])
    def test_what_has_another_size_at_the_place_is_refused(self, folder: str) -> None:
        async def main() -> None:
            source, dest = await grown(a_store(), 30), a_store()
            await sl.backup(source, dest)
            path, *_ = [row.path async for row in dest.list(folder)]
            await replace_bytes(dest, path, (await dest.get(path)).data[:-1])
            with pytest.raises(Corrupt, match="another object") as caught:
                await sl.backup(source, dest)
            assert caught.value.path == path

        run(main())

    @pytest.mark.parametrize("folder", ["log/", "snapshot/"])
    def test_flipped_bits_at_the_place_are_noticed_if_it_is_verified(self, folder: str) -> None:
        async def main() -> None:
            source, dest = await grown(a_store(), 30), a_store()
            await sl.backup(source, dest)
            assert (await sl.backup(source, dest, verify=True)).objects == 0
            path, *_ = [row.path async for row in dest.list(folder)]
            data = bytearray((await dest.get(path)).data)
            data[len(data) // 3] ^= 1
            await replace_bytes(dest, path, bytes(data))
            await sl.backup(source, dest)
            with pytest.raises(Corrupt, match="another object") as caught:
                await sl.backup(source, dest, verify=True)
            assert caught.value.path == path

        run(main())


Action = Callable[[Store], Awaitable[object]]


async def appending(store: Store) -> None:
    await append(store, *(b"meanwhile %d" % number for number in range(6)))


async def collecting(store: Store) -> None:
    cursor = await sl.CursorStore(store).load("billing")
    async with sl.LogReader.open(store) as log:
        await cursor.move(log.tail)
    await sl.collect(store, options=AT_ONCE)
    await sl.sweep(store)


async def compacting(store: Store) -> None:
    async with sl.LogReader.open(store) as log:
        first, tail = log.first_offset, log.tail
    options = sl.CompactOptions(live_share_min=1.0, interval_s=0.0)
    live = sl.IndexSet.of([offset for offset in range(first, tail) if offset % 2])
    await sl.compact(store, live, up_to=tail, options=options)
    await sl.sweep(store)


async def everything_at_once(store: Store) -> None:
    await appending(store)
    await compacting(store)
    await collecting(store)


@pytest.mark.parametrize("action", [appending, collecting, compacting, everything_at_once])
def test_a_backup_is_right_whatever_happens_at_any_moment(action: Action) -> None:
    """The other one acts just before each operation of the backup, in turn."""

    async def one(number: int) -> bool:
        source, dest, target = a_store(), a_store(), a_store()
        await grown(source, 16)
        await sl.CursorStore(source).create("billing", 3)
        watched = InterruptedStore(source, {number: lambda: action(source)})
        await sl.backup(watched, dest)
        await sl.restore(dest, target)
        assert (await sl.scrub(target)).clean
        await check_whole_log(target, compacted=True)
        assert await sl.PinStore(source).list() == []
        for cursor in await sl.CursorStore(target).list():
            async with sl.LogReader.open(target) as log:
                assert log.first_offset <= cursor.offset <= log.tail
        return number <= len(watched.operations)

    async def main() -> None:
        number = 1
        while await one(number):
            number += 1
        assert number > 20

    run(main())


class TestCrashes:
    """Before and after every store operation; the next run goes on."""

    async def begun(self) -> tuple[MemoryStore, list[object]]:
        store = a_store()
        await grown(PrefixedStore(store, "source"), 12)
        await sl.CursorStore(PrefixedStore(store, "source")).create("billing", 3)
        return store, list(await check_whole_log(PrefixedStore(store, "source")))

    def test_of_a_backup(self) -> None:
        async def script(store: Store, _: History) -> None:
            await sl.backup(PrefixedStore(store, "source"), PrefixedStore(store, "dest"))

        async def check(store: Store, rows: list[object]) -> None:
            source, dest = PrefixedStore(store, "source"), PrefixedStore(store, "dest")
            for each in await sl.list_backups(dest):
                await sl.check_backup(dest, backup=each.id)
            await sl.backup(source, dest)
            await sl.restore(dest, PrefixedStore(store, "target"))
            assert await check_whole_log(PrefixedStore(store, "target")) == rows

        self.crash_everywhere(script, check)

    def test_of_a_restoration(self) -> None:
        async def script(store: Store, _: History) -> None:
            await sl.restore(PrefixedStore(store, "dest"), PrefixedStore(store, "target"))

        async def prepare(store: Store) -> None:
            await sl.backup(PrefixedStore(store, "source"), PrefixedStore(store, "dest"))

        async def check(store: Store, rows: list[object]) -> None:
            target = PrefixedStore(store, "target")
            with contextlib.suppress(Exists):  # it was done
                await sl.restore(PrefixedStore(store, "dest"), target)
            assert await check_whole_log(target) == rows
            assert [cursor.offset for cursor in await sl.CursorStore(target).list()] == [3]
            left = [path for path in await everything(target) if path.startswith("restoring/")]
            assert left == []

        self.crash_everywhere(script, check, prepare)

    def crash_everywhere(
        self,
        script: Callable[[Store, History], Coroutine[Any, Any, None]],
        check: Callable[[Store, list[object]], Coroutine[Any, Any, None]],
        prepare: Callable[[Store], Awaitable[None]] | None = None,
    ) -> None:
        async def ready() -> tuple[MemoryStore, list[object]]:
            store, rows = await self.begun()
            if prepare is not None:
                await prepare(store)
            return store, rows

        def crash(point: CrashPoint | None) -> list[StoreCall]:
            store, rows = run(ready())
            operations = run_until_crash(store, script, point, History(), Puts())
            run(check(store, rows))
            return operations

        operations = crash(None)
        assert len(operations) > 20
        crash_at_each(sides_of(operations), crash)


def test_a_second_backup_reads_little() -> None:
    async def main() -> None:
        source, dest = await grown(a_store(), 60), a_store()
        await sl.backup(source, dest)
        counted = CountingStore(source)
        await sl.backup(counted, dest)
        assert sum(counted.counts.values()) < 45
        assert not [path for path in counted.paths_read if path.startswith("log/")]

    run(main())
