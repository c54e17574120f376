"""Erasure beside pins, compactions and loads: nothing is certified that is still stored somewhere.

``3`` goes each time, which is the third record of the first fragment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq

import stratalog as sl
from objectlog.erasures import AT_ONCE, check_erased, erased, written
from objectlog.trees import LEAF, MadeLog
from objectlog.whole_log import rows_of, run
from objectlog.wrapped_stores import PassingStore
from stratalog import IndexSet, Pin, PinStore
from stratalog.objectlog.bulk.commit import link_uploaded
from stratalog.objectlog.bulk.upload import BulkUpload
from stratalog.objectlog.collection.sweep_log import _Sweep, sweep_noting
from stratalog.objectlog.erasure import delete_copies as copying
from stratalog.objectlog.holds.upload_guard import StoredUploadGuard, UploadGuardStore
from stratalog.objectlog.stored.manifest import load_manifest
from stratalog.store import MemoryStore, Store


async def is_stored(store: Store, offset: int) -> bool:
    """Whether any object of the log has the record."""
    paths = [row.path async for row in store.list("log/")]
    tables = [pq.read_table(pa.BufferReader((await store.get(path)).data)) for path in paths]
    return any(offset in table.column("offset").to_pylist() for table in tables)


class SlowPin:
    """A pin that is written, and does not look at the log again before it is told to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_written, self._may_look = asyncio.Event(), asyncio.Event()
        self._confirm = PinStore._confirm
        self._made: asyncio.Task[Pin] | None = None

    async def write(self) -> None:
        self._made = asyncio.create_task(PinStore(self._store).create("slow"))
        await self._is_written.wait()

    async def look(self) -> Pin:
        self._may_look.set()
        assert self._made is not None
        return await self._made

    @contextmanager
    def patched(self) -> Iterator[None]:
        async def slowly(pins: PinStore, pin: Pin) -> Pin:
            self._is_written.set()
            await self._may_look.wait()
            return await self._confirm(pins, pin)

        with patch.object(PinStore, "_confirm", slowly):
            yield


class SlowCompaction(PassingStore):
    """The store of a compaction whose stage is on its way after it has read the manifest."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.is_reached, self.may_register = asyncio.Event(), asyncio.Event()
        self.has_uploaded, self.may_go_on = asyncio.Event(), asyncio.Event()

    def start(self) -> asyncio.Task[sl.Compacted]:
        live = IndexSet.of([1, 2, 3])
        return asyncio.create_task(sl.compact(self, live, up_to=11, options=AT_ONCE))

    async def upload(self) -> None:
        self.may_register.set()
        await self.has_uploaded.wait()

    async def put_if_absent(self, path: str, data: bytes) -> str:
        if path.startswith("stage/"):
            self.is_reached.set()
            await self.may_register.wait()
        etag = await super().put_if_absent(path, data)
        if path.startswith("log/"):
            self.has_uploaded.set()
            await self.may_go_on.wait()
        return etag


class TestAPinThatPointsElsewhere:
    """What it leads to is left by the sweep. Then it looks at the log, points to the new tree, and
    nothing leads to the old one any more."""

    def test_while_records_are_erased_that_a_compaction_had_dropped(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            before = await rows_of(store)
            pin, forget = SlowPin(store), copying._forget_index

            async def meanwhile(*args: Any) -> None:
                await pin.look()
                await forget(*args)

            with pin.patched(), patch.object(copying, "_forget_index", meanwhile):
                await pin.write()
                await sl.compact(store, IndexSet(), up_to=11, options=AT_ONCE)
                made = await erased(store, 3, despite_holders=True)
            assert not made.complete
            assert made.reasons[0].startswith("old objects are still there: log/")
            (again,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert again.complete
            assert (await sl.verify_certificate(again, store)).holds
            await check_erased(store, before, IndexSet(range(1, 11)))

        run(main())

    def test_between_two_rounds_of_the_sweep(self) -> None:
        """The second deletes the node by which it led there, so that nobody can walk it again."""

        async def main() -> None:
            store = MemoryStore()
            shape = ((LEAF,) * 3, (LEAF,) * 3, LEAF, LEAF)
            await MadeLog(shape, records=10, encoded=True).store(store)
            pin, find, options = SlowPin(store), _Sweep._find_candidates, sl.SweepOptions

            async def between(self: _Sweep, after: str) -> Any:
                if after.startswith("log/"):
                    await pin.look()
                return await find(self, after)

            def small(**others: Any) -> sl.SweepOptions:
                return options(candidates_max=3, **others)

            with (
                pin.patched(),
                patch.object(_Sweep, "_find_candidates", between),
                patch.object(copying, "SweepOptions", small),
            ):
                await pin.write()
                await sl.compact(store, IndexSet(), up_to=31, options=AT_ONCE)
                made = await erased(store, 3, despite_holders=True)
            assert await is_stored(store, 3)
            assert not made.complete
            (again,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert again.complete
            assert not await is_stored(store, 3)

        run(main())


class TestACompactionThatRegistersLate:
    """It has read the manifest before the records were taken out. Its stage is not in the list."""

    def test_while_a_pin_still_keeps_the_old_fragment(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            pin = await PinStore(store).create("model")
            late = SlowCompaction(store)
            compaction = late.start()
            await late.is_reached.wait()

            async def sweep_and_upload(*args: Any, **options: Any) -> Any:
                done = await sweep_noting(*args, **options)
                await late.upload()
                await pin.release()
                return done

            with patch.object(copying, "sweep_noting", sweep_and_upload):
                made = await erased(store, 3, despite_holders=True)
            assert made.complete
            assert not await is_stored(store, 3)
            late.may_go_on.set()
            await compaction
            assert not await is_stored(store, 3)

        run(main())

    def test_while_the_old_fragment_waits_for_its_readers(self) -> None:
        """The eraser was stopped after its plan was published, and somebody else finishes it."""

        async def main() -> None:
            store = await written(MemoryStore())
            late = SlowCompaction(store)
            compaction = late.start()
            await late.is_reached.wait()
            polite = sl.CompactOptions(interval_s=60.0)
            first = asyncio.create_task(sl.erase(store, IndexSet.of([3]), options=polite))
            while (await load_manifest(store))[0].compacted is None:
                await asyncio.sleep(0.01)
            first.cancel()
            await asyncio.wait([first])

            class ListedThenUploaded(UploadGuardStore):
                async def list(self) -> list[StoredUploadGuard]:
                    found = await super().list()
                    await late.upload()
                    return found

            with patch.object(copying, "UploadGuardStore", ListedThenUploaded):
                await sl.finish_erasures(store, options=AT_ONCE)
            assert not await is_stored(store, 3)
            late.may_go_on.set()
            await asyncio.wait([compaction])
            left = await sl.finish_erasures(store, options=AT_ONCE)
            assert all(each.complete for each in left)
            assert not await is_stored(store, 3)

        run(main())


class TestALoad:
    def test_what_a_task_has_uploaded_twice_is_spared_and_told(self) -> None:
        """The second copy will never be linked. It goes when the load has ended."""

        async def main() -> None:
            store = await written(MemoryStore(), fragments=1)
            bodies = pa.array([b"secret-%d" % each for each in range(10)], pa.binary())
            load = await BulkUpload.open(store, note="a write of Spark")
            uploaded = await load.upload(bodies)
            await load.upload(bodies)
            await link_uploaded(store, [uploaded])
            made = await erased(store, 13)
            assert not made.complete
            (holder,) = made.holders
            assert (holder.kind, holder.name) == ("stage", load.guard.incarnation)
            assert "a write of Spark, by " in made.reasons[0]
            await load.guard.release()
            (again,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert again.complete
            async for row in store.list("log/"):
                assert b"secret-2" not in (await store.get(row.path)).data

        run(main())

    def test_one_that_ends_between_two_rounds_of_the_sweep_is_told(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore(), fragments=1)
            bodies = pa.array([b"secret-%d" % each for each in range(10)], pa.binary())
            load = await BulkUpload.open(store)
            uploaded = await load.upload(bodies)
            await link_uploaded(store, [uploaded])
            find, options, rounds = _Sweep._find_candidates, sl.SweepOptions, 0

            async def between(self: _Sweep, after: str) -> Any:
                nonlocal rounds
                rounds += 1
                if rounds == 1:
                    await load.upload(bodies)
                else:
                    await load.guard.release()
                return await find(self, after)

            def small(**others: Any) -> sl.SweepOptions:
                return options(candidates_max=1, **others)

            with (
                patch.object(_Sweep, "_find_candidates", between),
                patch.object(copying, "SweepOptions", small),
            ):
                made = await erased(store, 13)
            assert rounds > 1
            assert not made.complete
            assert [each.name for each in made.holders] == [load.guard.incarnation]
            (again,) = await sl.finish_erasures(store, options=AT_ONCE)
            assert again.complete

        run(main())

    def test_a_batch_that_is_not_linked_has_none_of_the_logs_records(self) -> None:
        """Otherwise no erasure would ever be complete beside a stream."""

        async def main() -> None:
            store = await written(MemoryStore())
            stream = await BulkUpload.open(store, query="q", batch=7)
            await stream.upload(pa.array([b"new"], pa.binary()))
            assert (await erased(store, 3)).complete
            report = await sl.sweep(store)
            assert [each.incarnation for each in report.sparing] == [stream.guard.incarnation]

        run(main())

    def test_one_that_has_linked_all_it_uploaded_holds_nothing(self) -> None:
        async def main() -> None:
            store = await written(MemoryStore())
            load = await BulkUpload.open(store, note="a write of Spark")
            uploaded = await load.upload(pa.array([b"new"], pa.binary()))
            await link_uploaded(store, [uploaded])
            assert (await erased(store, 3)).complete

        run(main())
