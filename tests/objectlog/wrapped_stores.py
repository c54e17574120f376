"""Stores that pass everything on, and watch or disturb it on the way."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal

from stratalog.errors import Conflict, Exists, Unknown
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest, decode_manifest
from stratalog.objectlog.stored.snapshot import Snapshot
from stratalog.setsum import Setsum
from stratalog.store.protocol import Blob, Head, Listed, Store

ROOT_BYTES_MAX = 32_000

Trick = Literal["lost", "dropped", "echoed", "refused", "late"]


class PassingStore:
    """The same store. Subclasses override what they change."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def url(self) -> str:
        return self.inner.url

    async def get(self, path: str) -> Blob:
        return await self.inner.get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self.inner.get_range(path, start, length)

    async def head(self, path: str) -> Head:
        return await self.inner.head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        return await self.inner.put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        return await self.inner.put_if_match(path, data, etag)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        async for row in self.inner.list(prefix, after):
            yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        await self.inner.delete_many(paths)


class CountingStore(PassingStore):
    """Counts what is asked, by operation, and remembers the paths that were read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self.paths_read: list[str] = []

    def reset(self) -> None:
        self.counts.clear()
        self.paths_read.clear()

    @property
    def writes(self) -> int:
        return self.counts["put_if_absent"] + self.counts["put_if_match"]

    @property
    def reads(self) -> int:
        return self.counts["get"] + self.counts["get_range"] + self.counts["head"]

    async def get(self, path: str) -> Blob:
        self.counts["get"] += 1
        self.paths_read.append(path)
        return await super().get(path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        self.counts["get_range"] += 1
        return await super().get_range(path, start, length)

    async def head(self, path: str) -> Head:
        self.counts["head"] += 1
        return await super().head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self.counts["put_if_absent"] += 1
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self.counts["put_if_match"] += 1
        return await super().put_if_match(path, data, etag)


class Puts:
    """Every put that any store of a run was asked for, by path."""

    def __init__(self) -> None:
        self.contents: dict[str, list[bytes]] = {}

    def note(self, path: str, data: bytes) -> None:
        self.contents.setdefault(path, []).append(bytes(data))

    def paths(self, prefix: str) -> list[str]:
        return [path for path in self.contents if path.startswith(prefix)]

    def check_names_were_used_once(self) -> None:
        """No immutable name ever met two contents, and no version of the root came twice."""
        for path, contents in self.contents.items():
            if path.startswith(("log/", "snapshot/")):
                assert len(set(contents)) == 1, f"{path} was put with different bytes"
        ids = [decode_manifest(data).write_id for data in self.contents.get(MANIFEST_PATH, ())]
        versions = set(self.contents.get(MANIFEST_PATH, ()))
        assert None not in ids
        assert len(set(ids)) == len(versions), "two versions of the manifest share a write id"


class RecordingStore(PassingStore):
    """Notes every put in a ``Puts`` that may be shared by several stores."""

    def __init__(self, inner: Store, puts: Puts) -> None:
        super().__init__(inner)
        self.puts = puts

    async def put_if_absent(self, path: str, data: bytes) -> str:
        self.puts.note(path, data)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        self.puts.note(path, data)
        return await super().put_if_match(path, data, etag)


class GateStore(PassingStore):
    """Holds back the puts whose path begins with ``held`` until the gate is opened.

    A put that arrives is announced by ``arrived``; then it waits. It is carried out after that, so
    for others it is as if the writer had been paused just before its request left.
    """

    def __init__(self, inner: Store, held: str) -> None:
        super().__init__(inner)
        self.held = held
        self.arrived = asyncio.Event()
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def put_if_absent(self, path: str, data: bytes) -> str:
        await self._wait(path)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await self._wait(path)
        return await super().put_if_match(path, data, etag)

    async def _wait(self, path: str) -> None:
        if path.startswith(self.held):
            self.arrived.set()
            await self._open.wait()


class TrickyStore(PassingStore):
    """Plays the next trick of a list on each put below ``prefix``; honest when the list is empty.

        lost       carried out, then ``Unknown``
        echoed     carried out, then refused, as a second attempt would be
        dropped    ``Unknown``, never carried out
        refused    refused although nothing changed, never carried out
        late       ``Unknown``, carried out when ``land_late`` is called

    ``meanwhile`` runs after a put was played with and before its answer: what others did then.
    """

    def __init__(
        self,
        inner: Store,
        prefix: str,
        tricks: Sequence[Trick] = (),
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(inner)
        self.prefix = prefix
        self.tricks: deque[Trick] = deque(tricks)
        self.meanwhile = meanwhile
        self.asked = 0
        self._late: list[Callable[[], Awaitable[str]]] = []

    async def put_if_absent(self, path: str, data: bytes) -> str:
        return await self._put(path, lambda: self.inner.put_if_absent(path, data), Exists)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        return await self._put(path, lambda: self.inner.put_if_match(path, data, etag), Conflict)

    async def land_late(self) -> list[bool]:
        """Carry out what is late, in the order of the calls; tells which of it landed."""
        landed: list[bool] = []
        for effect in self._late:
            try:
                await effect()
            except (Conflict, Exists):
                landed.append(False)
            else:
                landed.append(True)
        self._late.clear()
        return landed

    async def _put(
        self,
        path: str,
        effect: Callable[[], Awaitable[str]],
        refusal: type[Conflict] | type[Exists],
    ) -> str:
        if not path.startswith(self.prefix):
            return await effect()
        self.asked += 1
        if not self.tricks:
            return await effect()
        trick = self.tricks.popleft()
        if trick in ("lost", "echoed"):
            await effect()
        elif trick == "late":
            self._late.append(effect)
        if self.meanwhile is not None:
            await self.meanwhile()
        if trick in ("echoed", "refused"):
            raise refusal(f"{path}: {trick} on purpose", path=path)
        raise Unknown(f"{path}: {trick} on purpose", path=path)


class InspectingStore(PassingStore):
    """Checks every manifest and every snapshot on its way to the store.

    The manifest adds up, is small, keeps the newest fragment in the root, grows by exactly what
    it links, and links only what is stored. A snapshot has more than one child.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.manifests = 0
        self.snapshots = 0
        self.largest = 0

    async def put_if_absent(self, path: str, data: bytes) -> str:
        if path.startswith("snapshot/"):
            snapshot = Snapshot.from_json(data, path)
            assert snapshot.path == path
            assert len(snapshot.entries) > 1, "a snapshot with a single child"
            snapshot.check(snapshot.pointer())
            self.snapshots += 1
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        if path == MANIFEST_PATH:
            current = await self.inner.get(path)
            if current.etag == etag:
                await self._check(decode_manifest(current.data), decode_manifest(data))
            assert len(data) <= ROOT_BYTES_MAX, f"a root of {len(data)} bytes"
            self.largest = max(self.largest, len(data))
            self.manifests += 1
        return await super().put_if_match(path, data, etag)

    async def _check(self, before: Manifest, after: Manifest) -> None:
        after.check()
        assert after.fragments, "the newest fragment left the root"
        new = [each for each in after.fragments if each.start.offset >= before.tail.offset]
        grown = Setsum.total([before.setsum, *(each.setsum for each in new)])
        assert after.setsum == grown, "the sum did not grow by what was linked"
        assert after.collected == before.collected
        assert after.first_offset == before.first_offset
        known = {entry.path for entry in before.entries}
        for entry in after.entries:
            if entry.path not in known:
                await self.inner.head(entry.path)


class YieldingStore(PassingStore):
    """Lets others run ``turns`` times before and after each operation: many places to cut in."""

    def __init__(self, inner: Store, turns: int = 1) -> None:
        super().__init__(inner)
        self._turns = turns

    async def get(self, path: str) -> Blob:
        await self._yield()
        found = await super().get(path)
        await self._yield()
        return found

    async def put_if_absent(self, path: str, data: bytes) -> str:
        await self._yield()
        etag = await super().put_if_absent(path, data)
        await self._yield()
        return etag

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await self._yield()
        landed = await super().put_if_match(path, data, etag)
        await self._yield()
        return landed

    async def _yield(self) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)
