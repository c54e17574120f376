"""The store under a simulation: sees every put and deletion, and knows what none of them may do.

name        no two contents are ever sent under one immutable name
version     no two versions of a mutable object are ever byte-equal
balance     every manifest that lands adds up, stays within its bound and keeps its newest
            fragment in the root
linked      whatever a manifest newly links is stored, with the bytes that it promises
growth      a manifest that lands ends at or after the one it replaces, and begins there too
records     what was linked once stays linked, in its place, until it is before the first offset
collected   ``collected`` is the sum of exactly the records before the first offset, and the setsum
            that of all records ever linked, both hashed by the harness
fields      fields that a manifest carried and nobody may touch are still there
reached     nothing is deleted that the stored manifest leads to
held        no cursor that counts lies before the first offset
plan        a plan gives way to an empty one, or to itself once it is published
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from simulation.held_cursors import HeldCursors
from simulation.linked_records import LinkedRecords, StoredTree
from simulation.promises import PromiseBroken, promise
from stratalog.objectlog.committer import ROOT_BYTES_MAX
from stratalog.objectlog.cursor import CURSOR_PREFIX, Cursor
from stratalog.objectlog.fragment import Fragment
from stratalog.objectlog.garbage import GARBAGE_PATH, Garbage
from stratalog.objectlog.manifest import MANIFEST_PATH, Manifest
from stratalog.objectlog.snapshot import Entry
from stratalog.store.memory import MemoryStore
from stratalog.store.protocol import Blob, Head, Listed

IMMUTABLE = ("log/", "snapshot/")
MUTABLE = ("manifest/", "gc/", "cursor/", "pin/", "stage/")
NEVER_DELETED = ("manifest/", "gc/", "cursor/", "pin/")


class WatchedStore:
    """A memory store that objects. What it objects to is kept in ``broken``."""

    def __init__(self) -> None:
        self._store = MemoryStore("watched")
        self._contents: dict[str, bytes] = {}
        self._versions: set[tuple[str, bytes]] = set()
        self._manifest: Manifest | None = None
        self._plan: Garbage | None = None
        self._tree = StoredTree(self._store._objects)
        self._reached: dict[str, Entry] = {}
        self._cursors = HeldCursors()
        self.records = LinkedRecords(self._store._objects)
        self.broken: PromiseBroken | None = None

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def manifest(self) -> Manifest:
        """The manifest that is stored."""
        assert self._manifest is not None
        return self._manifest

    @property
    def plan(self) -> Garbage | None:
        """The plan that is installed, if there is one."""
        return None if self._plan is None or self._plan.is_empty else self._plan

    @property
    def unreached(self) -> set[str]:
        """Stored data that the manifest does not lead to."""
        stored = {path for path in self._store._objects if path.startswith(IMMUTABLE)}
        return stored - self._reached.keys()

    async def get(self, path: str) -> Blob:
        return await self._store.get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self._store.get_range(path, start, length)

    async def head(self, path: str) -> Head:
        return await self._store.head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self._watch(lambda: self._check_name(path, data))
        etag = await self._store.put_if_absent(path, data)
        self._watch(lambda: self._landed(path, data))
        return etag

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        new_etag = await self._store.put_if_match(path, data, etag)
        self._watch(lambda: self._landed(path, data))
        return new_etag

    def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        return self._store.list(prefix, after)

    async def delete_many(self, paths: Sequence[str]) -> None:
        self._watch(lambda: self._check_deletion(paths))
        await self._store.delete_many(paths)

    def acknowledged(self, cursor: Cursor) -> None:
        """A cursor was given to its caller: it counts from here on."""
        self._watch(lambda: self._cursors.acknowledged(cursor, self.manifest.first_offset))

    def raise_if_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _watch(self, check: Callable[[], None]) -> None:
        try:
            check()
        except PromiseBroken as broken:
            self.broken = self.broken or broken
        except Exception as error:  # something that cannot even be checked
            self.broken = self.broken or PromiseBroken("balance", repr(error))

    def _check_name(self, path: str, data: bytes) -> None:
        if path.startswith(IMMUTABLE):
            same = self._contents.setdefault(path, data) == data
            promise(same, "name", f"two contents under {path}")

    def _landed(self, path: str, data: bytes) -> None:
        if not path.startswith(MUTABLE):
            return
        promise((path, data) not in self._versions, "version", f"{path} as it was before")
        self._versions.add((path, data))
        if path == MANIFEST_PATH:
            self._manifest_landed(Manifest.from_json(data), data)
        elif path == GARBAGE_PATH:
            self._plan_landed(Garbage.from_json(data, path))
        elif path.startswith(CURSOR_PREFIX):
            self._cursors.landed(path, data)

    def _manifest_landed(self, manifest: Manifest, data: bytes) -> None:
        before, self._manifest = self._manifest, manifest
        known, self._reached = self._reached, {}
        entries = [each for entry in manifest.entries for each in self._tree.below(entry)]
        self._reached = {entry.path: entry for entry in entries}
        if before is not None:
            self._check_manifest(manifest, data)
            self._check_growth(before, manifest)
        for entry in entries:
            if entry.path not in known:
                self._check_stored(entry)
        fragments = [entry for entry in entries if isinstance(entry, Fragment)]
        self.records.check(manifest, fragments)
        self._cursors.check(manifest.first_offset)

    def _check_manifest(self, manifest: Manifest, data: bytes) -> None:
        manifest.check()
        promise(len(data) <= ROOT_BYTES_MAX, "balance", f"a root of {len(data)} bytes")
        promise(
            bool(manifest.fragments) or not manifest.snapshots,
            "balance",
            "the newest fragment is not in the root",
        )

    def _check_growth(self, before: Manifest, after: Manifest) -> None:
        promise(
            before.tail.offset <= after.tail.offset and before.acc_bytes <= after.acc_bytes,
            "growth",
            f"{before.tail} became {after.tail}",
        )
        promise(
            before.first_offset <= after.first_offset,
            "growth",
            f"the first offset {before.first_offset} became {after.first_offset}",
        )
        promise(before.sweep_epoch <= after.sweep_epoch, "fields", "the sweep epoch went back")
        missing = set(before.unknown or {}) - set(after.unknown or {})
        promise(not missing, "fields", f"lost {missing}")

    def _check_stored(self, entry: Entry) -> None:
        data = self._store._objects.get(entry.path)
        if data is None:
            raise PromiseBroken("linked", f"{entry.path} is not stored")
        if isinstance(entry, Fragment):
            same = len(data) == entry.num_bytes
            promise(same, "linked", f"{entry.path} has {len(data)} bytes")

    def _plan_landed(self, plan: Garbage) -> None:
        before, self._plan = self._plan, plan
        if before is None or before.is_empty or plan.is_empty:
            return
        noted = msgspec.structs.replace(
            before, published_us=plan.published_us, write_id=plan.write_id
        )
        promise(
            plan == noted and plan.published_us is not None,
            "plan",
            f"{before.plan_id} gave way to {plan.plan_id}",
        )

    def _check_deletion(self, paths: Sequence[str]) -> None:
        for path in paths:
            promise(not path.startswith(NEVER_DELETED), "reached", f"{path} was deleted")
            promise(path not in self._reached, "reached", f"{path} was deleted, and is linked")
