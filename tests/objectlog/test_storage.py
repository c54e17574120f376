"""What a log has stored, by class: every byte that a listing shows, each in one place."""

from __future__ import annotations

import pytest

import stratalog as sl
from objectlog.whole_log import SMALL_TREE, collect_roots, orphans, run
from objectlog.wrapped_stores import CountingStore, PassingStore
from stratalog.errors import Corrupt, NotFound
from stratalog.objectlog.branch.fork_log import fork
from stratalog.objectlog.collection.unlinked_objects import Amount
from stratalog.objectlog.cost import storage as storage_module
from stratalog.objectlog.cost.storage import CLASSES, measure_storage
from stratalog.objectlog.erasure.certificate import certificate_path
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.upload_guard import UploadGuard
from stratalog.objectlog.stored.policy import POLICY_PATH
from stratalog.store import MemoryStore
from stratalog.store.protocol import Blob

ORPHAN = "log/Bucket=0000000000000000/Writer=0123456789ab-1/FragmentSeqNo=0000000000000003.parquet"


async def fill(url: str | sl.Store, records: int = 20) -> None:
    async with sl.LogWriter.open(url, create=True, options=SMALL_TREE) as log:
        for number in range(records):
            await log.append(b"%03d" % number)


async def bytes_of(store: sl.Store) -> int:
    return sum([row.size async for row in store.list()])


def test_every_stored_byte_is_counted_once_on_every_store(store_url: str) -> None:
    async def scenario() -> None:
        await fill(store_url)
        store = sl.open_store(store_url)
        await sl.CursorStore(store_url).create("reader", 3)
        await PinStore(store_url).create("kept", 1, 5)
        await UploadGuard.register(store_url)
        await store.put_if_absent(certificate_path("0" * 16), b"{}")
        await store.put_if_absent(POLICY_PATH, b"{}")
        await store.put_if_absent(ORPHAN, b"12345")
        await store.put_if_absent("notes.txt", b"123")
        found = await measure_storage(store_url)
        assert list(found.amounts) == list(CLASSES)
        assert found.total.bytes == await bytes_of(store)
        objects = {name: amount.objects for name, amount in found.amounts.items()}
        loose = [path for path in await orphans(store) if path.startswith(("log/", "snapshot/"))]
        assert objects["snapshots"] > 0
        assert objects == {
            "fragments": 20,
            "snapshots": objects["snapshots"],
            "manifest": 1,
            "cursors": 1,
            "pins": 1,
            "stages": 1,
            "indexes": 0,
            "plan": 0,
            "certificates": 1,
            "policy": 1,
            "unreferenced": len(loose),
            "other": 1,
        }
        assert ORPHAN in loose
        assert found.amounts["other"] == Amount(1, 3)

    run(scenario())


def test_what_a_pin_holds_is_not_unreferenced_though_the_log_was_cut_above_it() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, 12)
        await PinStore(store).create("kept", 1, 3)
        cursors = sl.CursorStore(store)
        await cursors.create("reader", 12)
        at_once = sl.CollectorOptions(interval_s=0)
        await sl.collect(store, options=at_once)
        found = await measure_storage(store)
        async with sl.LogReader.open(store, pin="kept") as reader:
            pinned = len(await reader.scan(1))
        async with sl.LogReader.open(store) as reader:
            linked = len(await reader.scan(reader.first_offset))
        assert found.amounts["fragments"].objects == pinned + linked
        assert found.amounts["plan"].objects == 1

    run(scenario())


def test_the_objects_that_a_fork_shares_are_counted_in_the_log_that_owns_them() -> None:
    async def scenario() -> None:
        await fill("memory://storage-source", 20)
        await fork("memory://storage-source", "memory://storage-fork")
        found = await measure_storage("memory://storage-fork")
        assert found.amounts["fragments"].objects == 0
        assert found.amounts["manifest"].objects == 1
        source = await measure_storage("memory://storage-source")
        assert (source.amounts["fragments"].objects, source.amounts["pins"].objects) == (20, 1)

    run(scenario())


def test_more_unreferenced_objects_than_fit_are_taken_in_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage_module, "UNREFERENCED_AT_ONCE", 3)

    async def scenario() -> None:
        store = MemoryStore()
        await fill(store, 5)
        for orphan in await orphans(store):
            await store.delete_many([orphan])
        for number in range(1, 11):
            await store.put_if_absent(ORPHAN.replace("-1/", f"-{number}/"), b"1234")
        found = await measure_storage(store)
        assert found.amounts["unreferenced"] == Amount(10, 40)
        assert found.amounts["fragments"].objects == 5
        assert found.total.bytes == await bytes_of(store)

    run(scenario())


def test_it_lists_once_writes_nothing_and_tells_how_far_it_is() -> None:
    async def scenario() -> None:
        store = CountingStore(MemoryStore())
        await fill(store)
        store.reset()
        told: list[int] = []
        found = await measure_storage(store, on_progress=told.append)
        assert store.writes == 0
        assert told == list(range(1, found.total.objects + 1))

    run(scenario())


def test_a_collection_meanwhile_is_no_damage() -> None:
    class Collecting(PassingStore):
        """Most of the log is collected once its tree is being walked."""

        done = False

        async def get(self, path: str) -> Blob:
            if path.startswith("snapshot/") and not self.done:
                self.done = True
                await collect_roots(self.inner, 1)
            return await super().get(path)

    async def scenario() -> None:
        store = MemoryStore()
        await fill(store)
        found = await measure_storage(Collecting(store))
        assert found.total.bytes == await bytes_of(store)

    run(scenario())


def test_a_node_that_is_lost_is_damage_also_while_the_log_grows() -> None:
    class Growing(PassingStore):
        """No node is ever there, and the manifest is another one with each read."""

        async def get(self, path: str) -> Blob:
            if path.startswith("snapshot/"):
                raise NotFound(f"{path} is gone", path=path)
            async with sl.LogWriter.open(self.inner) as log:
                await log.append(b"more")
            return await super().get(path)

    async def scenario() -> None:
        store = MemoryStore()
        await fill(store)
        with pytest.raises(Corrupt, match="is missing although the log links it"):
            await measure_storage(Growing(store))

    run(scenario())


def test_a_place_without_a_log_is_not_found() -> None:
    with pytest.raises(NotFound):
        run(measure_storage(MemoryStore()))
