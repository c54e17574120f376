"""Walking a tree that may be damaged, and that may change while it is walked.

A node that cannot be read hides what is below it. This is noted, and the walk goes on beside it. A
node that is missing may have been collected or folded since the manifest was read. So the manifest
is read again, and the walk goes on in the new tree from there. Only a node that is missing and
reached *again* is damage.

In memory: the entries of one path through the tree, and a few nodes read ahead.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from stratalog.errors import Corrupt, Denied, Invalid, NotFound, StratalogError, Unavailable
from stratalog.objectlog.check.damage import Damage, DamageKind, about
from stratalog.objectlog.check.scrub_read import read_object, tree_of
from stratalog.objectlog.check.tree_check import examine_entry, examine_node_bytes, follows
from stratalog.objectlog.stored import Entry, Fragment, Manifest, Snapshot, SnapshotPointer
from stratalog.objectlog.tree import Window, key_of
from stratalog.store import Store

READ_AHEAD_NODES = 16

_Found = tuple[Snapshot, tuple[Damage, ...]]
"""A node, and what does not hold of it."""

Note = Callable[[Damage], None]
Reload = Callable[[], Awaitable[Manifest | None]]
"""Reads the newest manifest. None if it cannot be read any more, which is noted as damage."""


class TreeWalk:
    """One walk. ``snapshots`` counts the nodes that begin within its range."""

    def __init__(self, store: Store, note: Note, reload: Reload) -> None:
        self._tree = tree_of(store)
        self._note = note
        self._reload = reload
        self._missing: set[str] = set()
        self._loads: dict[str, asyncio.Task[bytes | StratalogError]] = {}
        self.snapshots = 0

    async def fragments(
        self, manifest: Manifest, low: int = 0, high: int | None = None
    ) -> AsyncGenerator[Fragment, None]:
        """The fragments that overlap the range, in log order; notes all damage on the way."""
        counted_from = low
        queue = deque(filter(Window(low, high).overlaps, manifest.entries))
        before: Fragment | None = None
        try:
            while queue:
                entry = queue.popleft()
                if isinstance(entry, Fragment):
                    for damage in (*examine_entry(entry), *follows(before, entry)):
                        self._note(damage)
                    before = entry
                    yield entry
                    continue
                found = await self._load(entry, queue)
                if isinstance(found, NotFound):
                    current = await self._current(entry)
                    if current is not None and current != manifest:
                        manifest, low = current, max(low, entry.start.offset)
                        queue = deque(filter(Window(low, high).overlaps, manifest.entries))
                        continue
                if isinstance(found, Denied | Unavailable):
                    await self._reload()  # raises if the store gives nothing at all
                if isinstance(found, tuple) and entry.start.offset >= counted_from:
                    self.snapshots += 1
                below = filter(Window(low, high).overlaps, self._below(entry, found))
                queue.extendleft(reversed([*below]))
        finally:
            await self._drop_loads()

    async def _load(
        self, pointer: SnapshotPointer, queue: Iterable[Entry]
    ) -> _Found | StratalogError:
        """The node behind a pointer, while those after it are being read ahead."""
        self._begin(pointer)
        for entry in queue:
            if len(self._loads) >= READ_AHEAD_NODES:
                break
            if isinstance(entry, SnapshotPointer):
                self._begin(entry)
        data = await self._loads.pop(key_of(pointer))
        if isinstance(data, StratalogError):
            return data
        try:
            node, damages = examine_node_bytes(data, pointer)
        except Corrupt as error:
            return error
        return node if pointer.base is None else node.in_base(pointer.base), damages

    def _begin(self, pointer: SnapshotPointer) -> None:
        key = key_of(pointer)
        if key not in self._loads:
            self._loads[key] = asyncio.ensure_future(read_object(self._tree, pointer))

    async def _current(self, pointer: SnapshotPointer) -> Manifest | None:
        """The newest manifest, because a node is missing. None if that is known to be damage.

        What is in ``_missing`` was missing before the manifest of this walk was read.
        """
        key = key_of(pointer)
        if key in self._missing:
            return None
        self._missing.add(key)
        await self._drop_loads()
        return await self._reload()

    def _below(self, pointer: SnapshotPointer, found: _Found | StratalogError) -> Iterable[Entry]:
        """The children to walk. Those that cannot belong here are left out, which is noted."""
        if isinstance(found, StratalogError):
            self._note(_unread(pointer, found))
            return ()
        node, damages = found
        for damage in damages:
            self._note(damage)
        children: Iterable[Entry] = node.entries
        if node.path != pointer.path:
            whole = Window(pointer.start.offset, pointer.limit.offset)
            children = filter(whole.overlaps, children)
        return self._shallower(children, pointer)

    def _shallower(self, children: Iterable[Entry], parent: SnapshotPointer) -> Iterable[Entry]:
        """Every step goes down, so that the walk ends whatever the nodes say."""
        for child in children:
            if isinstance(child, SnapshotPointer) and child.depth >= parent.depth:
                self._note(
                    about(
                        DamageKind.SNAPSHOT_DEPTH,
                        child,
                        expected=parent.depth - 1,
                        actual=child.depth,
                        detail=f"too deep for {parent.path}; nothing below it was examined",
                    )
                )
            else:
                yield child

    async def _drop_loads(self) -> None:
        loads, self._loads = [*self._loads.values()], {}
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)


async def replacements_of(
    entry: Fragment, manifest: Manifest, walk: TreeWalk
) -> list[Fragment] | None:
    """What the manifest has in place of a missing fragment; None if it still counts on that one."""
    start, limit = entry.start.offset, entry.limit.offset
    if limit <= manifest.first_offset:
        return []
    low, high = min(start, limit - 1), max(limit, start + 1)
    found = [each async for each in walk.fragments(manifest, low, high)]
    if not found or any(key_of(each) == key_of(entry) for each in found):
        return None
    return found


def _unread(pointer: SnapshotPointer, error: StratalogError) -> Damage:
    hidden = f"offsets {pointer.start.offset} to {pointer.limit.offset - 1} were not examined"
    if isinstance(error, NotFound):
        return about(DamageKind.SNAPSHOT_MISSING, pointer, detail=hidden)
    kind = {Corrupt: DamageKind.SNAPSHOT_UNREADABLE, Invalid: DamageKind.SNAPSHOT_PATH}.get(
        type(error), DamageKind.OBJECT_REFUSED
    )
    return about(kind, pointer, detail=f"{error}; {hidden}")
