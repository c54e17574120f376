"""Looking at a whole log from outside, and changing its past as a collector would."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

import stratalog as sl
from stratalog.errors import Conflict
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, decode_manifest, encode_manifest
from stratalog.objectlog.stored.snapshot import in_base
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY
from stratalog.store import StoreLike
from stratalog.store.locate import sibling
from stratalog.testing import Row

T = TypeVar("T")

ids = Runtime()

LIMIT_S = 60.0
"""A test that does not end is a failure, not a hanging run."""

SMALL_TREE = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4)


def run(work: Coroutine[Any, Any, T], limit_s: float = LIMIT_S) -> T:
    """Run a test's coroutine on an event loop of its own, within a time limit."""

    async def limited() -> T:
        async with asyncio.timeout(limit_s):
            return await work

    return asyncio.run(limited())


async def rows_of(url: StoreLike) -> list[Row]:
    """All records, read and verified."""
    async with sl.LogReader.open(url) as reader:
        return [
            (record.offset, record.timestamp_us, record.body)
            async for record in reader.records(from_offset=reader.first_offset)
        ]


async def bodies_of(url: StoreLike) -> list[bytes]:
    return [body for _, _, body in await rows_of(url)]


async def check_whole_log(url: StoreLike, *, compacted: bool = False) -> list[Row]:
    """Check every promise about a log at rest; gives its records.

    Of one that was ``compacted``, records may be absent, and only those.

    The sum of the manifest is compared with one that is hashed here from the records, so that no
    code of the library vouches for itself. What a fork shares is looked for where it belongs.
    """
    store = sl.open_store(url)
    async with sl.LogReader.open(store) as reader:
        manifest = reader.manifest
        manifest.check()
        rows = await rows_of(store)
        offsets, span = [offset for offset, _, _ in rows], range(reader.first_offset, reader.tail)
        assert offsets == (
            [each for each in span if each in set(offsets)] if compacted else [*span]
        )
        times = [timestamp_us for _, timestamp_us, _ in rows]
        assert times == sorted(times)
        items = [struct.pack(">QQ", offset, at_us) + body for offset, at_us, body in rows]
        collected = manifest.collected if isinstance(manifest.collected, sl.Setsum) else EMPTY
        assert manifest.setsum == sl.Setsum.of(*items) + collected
        if manifest.entries:
            assert manifest.fragments, "the newest fragment is in the root"
    linked: dict[str | None, set[str]] = {None: {MANIFEST_PATH}}
    async for entry in walk(store):
        linked.setdefault(entry.base, set()).add(entry.path)
    for base, paths in linked.items():
        owner = store if base is None else sibling(store, base)
        missing = paths - {row.path async for row in owner.list()}
        assert not missing, f"linked, but not there: {missing}"
    return rows


async def reachable(url: StoreLike) -> set[str]:
    """The paths of all objects of this log that its manifest leads to, itself included."""
    store = sl.open_store(url)
    found = {MANIFEST_PATH}
    async for entry in walk(store):
        if entry.base is None:
            found.add(entry.path)
    return found


async def walk(store: sl.Store) -> AsyncIterator[sl.Fragment | sl.SnapshotPointer]:
    """All fragments and snapshot pointers below the manifest, each with the base it inherits."""
    blob = await store.get(MANIFEST_PATH)
    pending: list[sl.Fragment | sl.SnapshotPointer] = [*decode_manifest(blob.data).entries]
    while pending:
        entry = pending.pop(0)
        yield entry
        if isinstance(entry, sl.SnapshotPointer):
            owner = store if entry.base is None else sibling(store, entry.base)
            node = sl.Snapshot.from_json((await owner.get(entry.path)).data, entry.path)
            node.check(entry)
            assert len(node.entries) > 1, "a snapshot with a single child"
            pending.extend(in_base(child, entry.base) for child in node.entries)


async def orphans(url: StoreLike) -> set[str]:
    """Stored objects that nothing links."""
    store = sl.open_store(url)
    kept = await reachable(store)
    return {row.path async for row in store.list() if row.path not in kept}


async def depth_of(url: StoreLike) -> int:
    async with sl.LogReader.open(url) as reader:
        return max((pointer.depth for pointer in reader.manifest.snapshots), default=0)


async def rewrite_manifest(
    url: StoreLike, change: Callable[[sl.Manifest], sl.Manifest | Awaitable[sl.Manifest]]
) -> sl.Manifest:
    """Change the manifest by CAS as another party would, on top of whoever else changes it."""
    store = sl.open_store(url)
    while True:
        blob = await store.get(MANIFEST_PATH)
        changed = change(decode_manifest(blob.data))
        if not isinstance(changed, sl.Manifest):
            changed = await changed
        changed = msgspec.structs.replace(changed, write_id=ids.new_id())
        changed.check()
        try:
            await store.put_if_match(MANIFEST_PATH, encode_manifest(changed), blob.etag)
        except Conflict:
            continue
        return changed


async def note_in_manifest(url: StoreLike, name: str, value: object) -> None:
    """Add a field that this version of the library does not know: only the past changed."""

    def change(manifest: sl.Manifest) -> sl.Manifest:
        raw = msgspec.Raw(msgspec.json.encode(value))
        return msgspec.structs.replace(manifest, unknown={**(manifest.unknown or {}), name: raw})

    await rewrite_manifest(url, change)


async def manifest_field(url: StoreLike, name: str) -> object:
    blob = await sl.open_store(url).get(MANIFEST_PATH)
    return json.loads(blob.data).get(name)


async def raise_sweep_epoch(url: StoreLike) -> None:
    """What a sweep does before it deletes."""
    await rewrite_manifest(
        url,
        lambda manifest: msgspec.structs.replace(manifest, sweep_epoch=manifest.sweep_epoch + 1),
    )


async def sweep(url: StoreLike) -> set[str]:
    """A whole sweep: list, raise the epoch, delete what was listed and is not linked."""
    store = sl.open_store(url)
    listed = {
        row.path
        for prefix in ("log/", "snapshot/")
        for row in [each async for each in store.list(prefix)]
    }
    await raise_sweep_epoch(store)
    doomed = listed - await reachable(store)
    await store.delete_many(sorted(doomed))
    return doomed


async def collect_roots(url: StoreLike, count: int) -> int:
    """Collect the oldest ``count`` entries of the root, objects included; gives the new start."""
    store = sl.open_store(url)
    before = await reachable(store)

    def change(manifest: sl.Manifest) -> sl.Manifest:
        dropped, kept = manifest.entries[:count], manifest.entries[count:]
        assert any(isinstance(entry, sl.Fragment) for entry in kept)
        collected = manifest.collected if isinstance(manifest.collected, sl.Setsum) else EMPTY
        fragments = tuple(entry for entry in kept if isinstance(entry, sl.Fragment))
        return msgspec.structs.replace(
            manifest,
            collected=sl.Setsum.total([collected, *(entry.setsum for entry in dropped)]),
            snapshots=tuple(entry for entry in kept if isinstance(entry, sl.SnapshotPointer)),
            fragments=fragments,
            initial_offset=kept[0].start,
            initial_seq_no=fragments[0].seq_no,
        )

    changed = await rewrite_manifest(store, change)
    await store.delete_many(sorted(before - await reachable(store)))
    return changed.first_offset


async def replace_bytes(url: StoreLike, path: str, data: bytes) -> None:
    """Damage: other bytes under a name that is in use."""
    store = sl.open_store(url)
    await store.delete_many([path])
    await store.put_if_absent(path, data)


class FakeClock(Runtime):
    """A wall clock that a test sets."""

    def __init__(self, now_us: int = 1_000_000) -> None:
        self.time_us = now_us

    def now_us(self) -> int:
        return self.time_us
