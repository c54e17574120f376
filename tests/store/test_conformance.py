"""Every store, and every view of a store, keeps the contract."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from bench.metered_store import MeteredStore
from stratalog.store import DirectoryStore, MemoryStore, PrefixedStore, Store, open_store
from stratalog.testing.store_conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    async def make_store(self) -> Store:
        return MemoryStore()


class TestDirectoryStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _root(self, tmp_path: Path) -> None:
        self.root = tmp_path / "store"

    async def make_store(self) -> Store:
        return DirectoryStore(self.root)


class TestPrefixedStore(StoreConformance):
    async def make_store(self) -> Store:
        store = MemoryStore()
        await store.put_if_absent("a", b"beside")
        await store.put_if_absent("some/prefix-more", b"beside")
        await store.put_if_absent("some/prefiy", b"beside")
        return PrefixedStore(store, "some/prefix")


class TestMeteredStore(StoreConformance):
    async def make_store(self) -> Store:
        return MeteredStore(MemoryStore())


@pytest.mark.s3
class TestS3Store(StoreConformance):
    contenders = 2
    rounds = 4

    @pytest.fixture(autouse=True)
    def _url(self, s3_url: str) -> None:
        self.url = s3_url

    async def make_store(self) -> Store:
        return open_store(f"{self.url}/{uuid.uuid4().hex[:8]}")
