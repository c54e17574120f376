"""Walking the tree below a manifest: only into nodes that overlap what is asked for.

Nodes are immutable, checked against their pointer when read (their bytes first), and cached. A walk
that goes on beyond its first leaf reads more and more nodes ahead, up to sixteen. A walk that stops
early has read one node of each level.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable

from stratalog.errors import NotFound
from stratalog.meter import Meter
from stratalog.objectlog.stored import (
    ByteCache,
    Entry,
    Fragment,
    Manifest,
    Snapshot,
    SnapshotPointer,
    check_bytes,
)
from stratalog.objectlog.tree.seek_window import Window
from stratalog.store import Store, sibling

READ_AHEAD_MAX = 16


def key_of(entry: Entry) -> str:
    """Identifies an object, also among those of other logs."""
    return entry.path if entry.base is None else f"{entry.base} {entry.path}"


class Tree:
    """``cache`` keeps the nodes that were read; a number stands for a new one of so many bytes."""

    def __init__(
        self, store: Store, cache: ByteCache[Snapshot] | int = 0, meter: Meter | None = None
    ) -> None:
        self._store = store
        self._cache = ByteCache[Snapshot](cache) if isinstance(cache, int) else cache
        self._bases: dict[str, Store] = {}
        self._meter = meter or Meter()

    def store_of(self, entry: Entry) -> Store:
        """Where the object behind an entry is: in this log, or in one that it was forked from."""
        if entry.base is None:
            return self._store
        if entry.base not in self._bases:
            self._bases[entry.base] = sibling(self._store, entry.base)
        return self._bases[entry.base]

    async def snapshot(self, pointer: SnapshotPointer) -> Snapshot:
        """The node behind a pointer. ``NotFound`` if it is gone, ``Corrupt`` if it is another.

        Its children carry the base that they inherit.
        """
        known = self._cache.get(key_of(pointer))
        if known is not None and known.fits(pointer):
            return known
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        blob = await self.store_of(pointer).get(pointer.path)
        self._meter.add(loop.time() - started_s, len(blob.data))
        check_bytes(blob.data, pointer)
        snapshot = Snapshot.from_json(blob.data, pointer.path)
        snapshot.check(pointer)
        if pointer.base is not None:
            snapshot = snapshot.in_base(pointer.base)
        self._cache.put(key_of(pointer), snapshot, len(blob.data))
        return snapshot

    def remember(self, snapshot: Snapshot, size: int) -> None:
        """Keep a node that was just written, so that it need not be read."""
        self._cache.put(snapshot.path, snapshot, size)

    def walk(self, manifest: Manifest, window: Window) -> AsyncGenerator[Fragment, None]:
        """The fragments that overlap the window, oldest first."""
        return self.fragments(manifest.entries, window.overlaps)

    async def fragments(
        self,
        entries: Iterable[Entry],
        wanted: Callable[[Entry], bool],
        on_missing: Callable[[SnapshotPointer], None] | None = None,
    ) -> AsyncGenerator[Fragment, None]:
        """The wanted fragments below these entries, oldest first.

        ``wanted`` is called once for each entry, parents before their children; nothing below a
        node that is not wanted is read. A node that is gone is ``NotFound``, or, with
        ``on_missing``, is reported to that and passed over.
        """
        queue = deque(filter(wanted, entries))
        loads: dict[str, asyncio.Task[Snapshot]] = {}
        ahead, gave_fragments = 1, False
        try:
            while queue:
                entry = queue.popleft()
                if isinstance(entry, Fragment):
                    gave_fragments = True
                    yield entry
                    continue
                if gave_fragments:
                    ahead, gave_fragments = min(2 * ahead, READ_AHEAD_MAX), False
                try:
                    if ahead == 1:
                        snapshot = await self.snapshot(entry)
                    else:
                        self._read_ahead(loads, (entry, *queue), ahead)
                        snapshot = await loads.pop(key_of(entry))
                except NotFound:
                    if on_missing is None:
                        raise
                    on_missing(entry)
                    continue
                queue.extendleft(reversed(list(filter(wanted, snapshot.entries))))
        finally:
            for load in loads.values():
                load.cancel()
            await asyncio.gather(*loads.values(), return_exceptions=True)

    def _read_ahead(
        self, loads: dict[str, asyncio.Task[Snapshot]], entries: Iterable[Entry], ahead: int
    ) -> None:
        for entry in entries:
            if ahead == 0:
                return
            if isinstance(entry, SnapshotPointer):
                ahead -= 1
                if key_of(entry) not in loads:
                    loads[key_of(entry)] = asyncio.ensure_future(self.snapshot(entry))
