"""Small logs of every shape, in memory, with something of everything that is stored beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pyarrow as pa

import stratalog as sl
from objectlog.trees import LEAF, MadeLog
from stratalog import IndexSet
from stratalog.objectlog.bulk import BulkUpload, link_uploaded
from stratalog.objectlog.holds.upload_guard import UploadGuard
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.objectlog.stored.object_digest import with_digest
from stratalog.store import Store
from stratalog.store.prefixed import PrefixedStore

TREE = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=2)
COMPACT = sl.CompactOptions(interval_s=0.0, live_share_min=1.0)
COLLECT = sl.CollectorOptions(interval_s=0.0)

Make = Callable[[Store], Awaitable[Store]]
"""Makes a log somewhere in a store; gives the store of the log."""


async def append(store: Store, *batches: list[bytes], tree: bool = False) -> None:
    options = TREE if tree else sl.WriterOptions()
    async with sl.LogWriter.open(store, create=True, options=options) as log:
        for batch in batches:
            await log.append_many(batch)


def batches(count: int) -> list[list[bytes]]:
    return [[b"%d.%d" % (number, each) for each in range(2)] for number in range(count)]


async def plain(store: Store) -> Store:
    await append(store, *batches(2))
    return store


async def tree(store: Store) -> Store:
    await append(store, *batches(9), tree=True)
    return store


async def sealed(store: Store) -> Store:
    await append(store, *batches(2))
    await sl.Sealer(store).seal()
    return store


async def compacted(store: Store) -> Store:
    await append(store, *batches(5))
    await sl.compact(store, IndexSet.of([1, 4, 5, 9, 10]), up_to=9, options=COMPACT)
    return store


async def sunk(store: Store) -> Store:
    await append(store, *batches(1))
    task = await BulkUpload.open(store, query="q", batch=1)
    uploads = [await task.upload(pa.array([b"x", b"y"], pa.binary()))]
    await link_uploaded(store, uploads)
    await append(store, *batches(1))
    return store


async def compacted_after_a_sink(store: Store) -> Store:
    """Rows that were hashed with other offsets than they have."""
    await sunk(store)
    await sl.compact(store, IndexSet.of([1, 4, 5, 6]), up_to=5, options=COMPACT)
    return store


async def collected(store: Store) -> Store:
    await append(store, *batches(9), tree=True)
    await sl.CursorStore(store).create("at", 6)
    await sl.collect(store, options=COLLECT)
    return store


async def forked(store: Store) -> Store:
    source, target = PrefixedStore(store, "source"), PrefixedStore(store, "fork")
    await append(source, *batches(9), tree=True)
    await sl.fork(source, target, at=14)
    await append(target, *batches(2))
    return target


async def mixed(store: Store) -> Store:
    """Begun by software of 1.0, which knows no digests, and continued by this one."""
    made = MadeLog(((LEAF, LEAF), LEAF, LEAF), records=2, encoded=True)
    root = msgspec.structs.replace(
        made.manifest,
        snapshots=tuple(with_digest(each, None) for each in made.manifest.snapshots),
        acc_bytes=1_000_000,
    )
    await made.store(store)
    blob = await store.get(MANIFEST_PATH)
    await store.put_if_match(MANIFEST_PATH, root.to_json(), blob.etag)
    await append(store, *batches(5), tree=True)
    return store


SHAPES: dict[str, Make] = {
    each.__name__: each
    for each in (
        plain,
        tree,
        sealed,
        compacted,
        sunk,
        compacted_after_a_sink,
        collected,
        forked,
        mixed,
    )
}


async def with_everything_beside(store: Store) -> Store:
    """A log that has one of everything that is no part of the tree."""
    await append(store, *batches(9), tree=True)
    await sl.CursorStore(store).create("at", 4)
    await sl.collect(store, options=COLLECT)
    await sl.PinStore(store, owner="o").create("held", 5, 9)
    await sl.PolicyStore(store).set(sl.Policy(live=sl.Live(key="body")))
    await UploadGuard.register(store)
    await sl.erase(store, IndexSet.of([14]), options=COMPACT)
    collector = sl.Collector(store, options=COLLECT)
    await sl.CursorStore(store).create("other", 10)
    for cursor in await sl.CursorStore(store).list():
        await cursor.move(12)
    await collector.compute()
    return store
