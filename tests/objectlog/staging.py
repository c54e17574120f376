"""A long job under a stage: it moves the root's oldest fragments into a snapshot of its own."""

from __future__ import annotations

import msgspec

import stratalog as sl
from objectlog.whole_log import ids
from stratalog.objectlog.holds.upload_guard import UploadGuard
from stratalog.objectlog.stored.manifest import load_manifest
from stratalog.objectlog.tree.fold import Fold, apply_fold, make_snapshot
from stratalog.setsum import Setsum

MOVED = 2
NO_ROLLUPS = sl.WriterOptions(rollup_entries=16)


class Job:
    """Uploads once, and links that upload whenever it is told to, however late."""

    def __init__(self, store: sl.Store, stage: UploadGuard, node: sl.Snapshot) -> None:
        self.store = store
        self.stage = stage
        self.node = node

    @classmethod
    async def upload(cls, store: sl.Store, stage: UploadGuard) -> Job:
        manifest, _ = await load_manifest(store)
        moved = manifest.fragments[:MOVED]
        path = stage.names.snapshot(Setsum.total(each.setsum for each in moved))
        node = make_snapshot(moved, 1, lambda _: path, "job")
        await store.put_if_absent(path, node.to_json())
        return cls(store, stage, node)

    @property
    def path(self) -> str:
        return self.node.path

    async def link(self) -> sl.Manifest:
        return await self.stage.link(self._change)

    def _change(self, manifest: sl.Manifest) -> sl.Manifest | None:
        if self.path in {entry.path for entry in manifest.entries}:
            return None
        replaced = tuple(each.path for each in self.node.fragments)
        rollup = Fold(self.node.pointer(), replaced, manifest.sweep_epoch)
        rolled = apply_fold(manifest, rollup)
        assert rolled is not None, "somebody else moved these fragments"
        return msgspec.structs.replace(rolled, write_id=ids.new_id())


async def log_of(url: sl.Store | str, records: int = 4) -> sl.Store:
    """A log with one record in each fragment, all of them in the root."""
    store = sl.open_store(url)
    async with sl.LogWriter.open(store, create=True, options=NO_ROLLUPS) as log:
        for number in range(records):
            await log.append(b"%d" % number)
    return store
