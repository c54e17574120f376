"""The store under a simulation: sees every put, and knows what no put may do.

name        no two contents are ever sent under one immutable name
balance     every manifest that lands adds up, stays within its bound and keeps its newest
            fragment in the root
linked      whatever a manifest newly links is stored, with the bytes that it promises
growth      a manifest that lands ends at or after the one it replaces, and keeps its records
fields      fields that a manifest carried and nobody may touch are still there
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from stratalog.objectlog.committer import ROOT_BYTES_MAX
from stratalog.objectlog.fragment import Fragment
from stratalog.objectlog.manifest import MANIFEST_PATH, Manifest
from stratalog.objectlog.snapshot import Entry, Snapshot
from stratalog.store.memory import MemoryStore
from stratalog.store.protocol import Blob, Head, Listed


class PromiseBroken(AssertionError):
    """A put that no correct writer sends. ``rule`` names the promise."""

    def __init__(self, rule: str, explanation: str) -> None:
        super().__init__(f"{rule}: {explanation}")
        self.rule = rule


class WatchedStore:
    """A memory store that objects. What it objects to is kept in ``broken``."""

    def __init__(self) -> None:
        self._store = MemoryStore("watched")
        self._contents: dict[str, bytes] = {}
        self._manifest: Manifest | None = None
        self.broken: PromiseBroken | None = None

    @property
    def url(self) -> str:
        return self._store.url

    async def get(self, path: str) -> Blob:
        return await self._store.get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self._store.get_range(path, start, length)

    async def head(self, path: str) -> Head:
        return await self._store.head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self._watch(self._check_name, path, data)
        etag = await self._store.put_if_absent(path, data)
        if path == MANIFEST_PATH:
            self._manifest = Manifest.from_json(data)
        return etag

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        new_etag = await self._store.put_if_match(path, data, etag)
        if path == MANIFEST_PATH:
            manifest = Manifest.from_json(data)
            self._watch(self._check_manifest, manifest, data)
            self._manifest = manifest
        return new_etag

    def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        return self._store.list(prefix, after)

    async def delete_many(self, paths: Sequence[str]) -> None:
        await self._store.delete_many(paths)

    def raise_if_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def _watch(self, check: object, *arguments: object) -> None:
        try:
            assert callable(check)
            check(*arguments)
        except PromiseBroken as broken:
            self.broken = self.broken or broken
        except Exception as error:  # a manifest that cannot even be checked
            self.broken = self.broken or PromiseBroken("balance", repr(error))

    def _check_name(self, path: str, data: bytes) -> None:
        if path.startswith(("log/", "snapshot/")) and self._contents.setdefault(path, data) != data:
            raise PromiseBroken("name", f"two contents under {path}")

    def _check_manifest(self, manifest: Manifest, data: bytes) -> None:
        manifest.check()
        if len(data) > ROOT_BYTES_MAX:
            raise PromiseBroken("balance", f"a root of {len(data)} bytes")
        if manifest.snapshots and not manifest.fragments:
            raise PromiseBroken("balance", "the newest fragment is not in the root")
        before = self._manifest
        assert before is not None
        if manifest.tail.offset < before.tail.offset or manifest.acc_bytes < before.acc_bytes:
            raise PromiseBroken("growth", f"{before.tail} became {manifest.tail}")
        if manifest.sweep_epoch < before.sweep_epoch:
            raise PromiseBroken("fields", "the sweep epoch went back")
        missing = set(before.unknown or {}) - set(manifest.unknown or {})
        if missing:
            raise PromiseBroken("fields", f"lost {missing}")
        known = {entry.path for entry in before.entries}
        for entry in manifest.entries:
            if entry.path not in known:
                self._check_linked(entry)

    def _check_linked(self, entry: Entry) -> None:
        data = self._store._objects.get(entry.path)
        if data is None:
            raise PromiseBroken("linked", f"{entry.path} is not stored")
        if isinstance(entry, Fragment):
            if len(data) != entry.num_bytes:
                raise PromiseBroken("linked", f"{entry.path} has {len(data)} bytes")
            return
        snapshot = Snapshot.from_json(data)
        snapshot.check(entry)
        if len(snapshot.entries) < 2:
            raise PromiseBroken("linked", f"{entry.path} has a single child")
