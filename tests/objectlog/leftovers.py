"""Objects that nothing links, and a store in which others act at a chosen moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import stratalog as sl
from objectlog.crashing import let_requests_arrive
from objectlog.whole_log import SMALL_TREE, ids, orphans
from objectlog.wrapped_stores import PassingStore
from stratalog.objectlog.stored.names import UploadNames
from stratalog.setsum import EMPTY
from stratalog.store import StoreLike
from stratalog.store.protocol import Blob, Head, Listed, Store

Action = Callable[[], Awaitable[object]]


async def grown(url: StoreLike, records: int = 9) -> sl.Store:
    """A log with a tree; the nodes that its roll-ups took over lie about.

    A roll-up that the end of its writer cuts off has arrived as well.
    """
    store = sl.open_store(url)
    async with sl.LogWriter.open(store, create=True, options=SMALL_TREE) as log:
        for number in range(records):
            await log.append(b"%d" % number)
    let_requests_arrive()
    return store


async def litter(url: StoreLike, names: UploadNames | None = None, fragments: int = 3) -> set[str]:
    """What a writer leaves that dies after its uploads: fragments and a snapshot.

    Others have linked the numbers of the fragments, so a sweep spares none of them.
    """
    store = sl.open_store(url)
    names = names or UploadNames(ids)
    paths = [names.fragment(1) for _ in range(fragments)]
    paths.append(names.snapshot(EMPTY))
    for path in paths:
        await store.put_if_absent(path, b"litter")
    return set(paths)


async def everything(url: StoreLike) -> dict[str, bytes]:
    """All objects and their bytes."""
    store = sl.open_store(url)
    return {row.path: (await store.get(row.path)).data async for row in store.list()}


async def unlinked_data(url: StoreLike) -> set[str]:
    """Fragments and snapshots that nothing links."""
    return {path for path in await orphans(url) if path.startswith(("log/", "snapshot/"))}


class InterruptedStore(PassingStore):
    """Lets others act just before the operations of these numbers, which start at 1.

    Everybody else reaches the store by a way of his own, so an action cannot interrupt itself.
    """

    def __init__(self, inner: Store, actions: Mapping[int, Action] | None = None) -> None:
        super().__init__(inner)
        self.actions = actions or {}
        self.operations: list[tuple[str, str]] = []

    async def get(self, path: str) -> Blob:
        await self._note("get", path)
        return await super().get(path)

    async def head(self, path: str) -> Head:
        await self._note("head", path)
        return await super().head(path)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        await self._note("put_if_absent", path)
        return await super().put_if_absent(path, data)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        await self._note("put_if_match", path)
        return await super().put_if_match(path, data, etag)

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        await self._note("list", prefix)
        async for row in super().list(prefix, after):
            yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        await self._note(f"delete {len(paths)}", paths[0])
        await super().delete_many(paths)

    async def _note(self, name: str, path: str) -> None:
        self.operations.append((name, path))
        action = self.actions.get(len(self.operations))
        if action is not None:
            await action()
