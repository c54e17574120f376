"""The log keeps its promises on every store that this library ships."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import DirectoryStore, MemoryStore, Store, open_store
from stratalog.testing import Faults, LogConformance, Simulation, simulate


class TestLogInMemory(LogConformance):
    async def make_store(self) -> Store:
        return MemoryStore()


class TestLogOnASlowStoreInVirtualTime(LogConformance):
    """Requests overtake each other, which they never do on a store in memory."""

    async def make_store(self) -> Store:
        return MemoryStore()

    def run(self, scenario: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
        async def main(simulation: Simulation) -> None:
            delays = Faults(request_s=(0.0, 0.1), answer_s=(0.0, 0.1))
            await scenario(simulation.node("a", await self.make_store(), delays).store)

        simulate(main, seed=1)


class TestLogInADirectory(LogConformance):
    @pytest.fixture(autouse=True)
    def _root(self, tmp_path: Path) -> None:
        self.root = tmp_path / "log"

    async def make_store(self) -> Store:
        return DirectoryStore(self.root)


@pytest.mark.s3
class TestLogOnS3(LogConformance):
    @pytest.fixture(autouse=True)
    def _url(self, s3_url: str) -> None:
        self.url = s3_url

    async def make_store(self) -> Store:
        return open_store(f"{self.url}/{uuid.uuid4().hex[:8]}")
