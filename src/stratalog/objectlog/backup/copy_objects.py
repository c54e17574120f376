"""Copying the objects that a manifest leads to, under the names that they have.

Each object is verified against the entry that leads to it before it is stored, and children are
stored before the node that links them. The whole tree is walked each time and compared with a
listing of the target, also below a node that is there: something may have been deleted at the
target since. So a run that was cut short loses little, a second backup copies only what is new, and
what is missing is copied again.

A name is never used for two contents, so what lies under it with the right size is taken for the
same object. With ``verify`` its bytes are read and compared as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice

from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.collection import Amount
from stratalog.objectlog.options import KIB, CopyOptions
from stratalog.objectlog.stored import (
    Entry,
    Fragment,
    Snapshot,
    SnapshotPointer,
    check_bytes,
    decode_fragment,
)
from stratalog.ordered import OrderedTasks
from stratalog.runtime import Runtime
from stratalog.store import Patience, Store, put_once

VERIFY_INLINE_BYTES_MAX = 32 * KIB
BUCKETS_KEPT = 4
NODES_AHEAD = 16

_BUCKET_CHARS = len("log/Bucket=0123456789abcdef/")


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """How far the copying is. What was there already counts as well."""

    num_bytes: int
    num_bytes_total: int


OnProgress = Callable[[BackupProgress], None]
BetweenSteps = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Node:
    """A node whose children come before it, as it is stored."""

    pointer: SnapshotPointer
    data: bytes


@dataclass(frozen=True, slots=True)
class _Stored:
    """What was found or stored at the target, or the node that follows its children."""

    num_bytes: int
    copied: Amount
    node: _Node | None = None


class ObjectCopy:
    """One run from one store to another. Without a ``target`` everything is only verified."""

    def __init__(
        self,
        source: Store,
        target: Store | None,
        options: CopyOptions,
        runtime: Runtime,
        on_progress: OnProgress | None = None,
        between: BetweenSteps | None = None,
        *,
        verify: bool = False,
    ) -> None:
        self._source = source
        self._target = target
        self._options = options
        self._runtime = runtime
        self._on_progress = on_progress
        self._between = between
        self._verify_there = verify
        self._nodes_there: dict[str, int] | None = None
        self._nodes_done: set[str] = set()
        self._buckets: dict[str, dict[str, int]] = {}
        self.copied = Amount()
        """What this run has stored, also in attempts that met a change of the source."""

    async def run(self, entries: Sequence[Entry]) -> None:
        """Copy all that these lead to. ``NotFound`` if the source has lost an object meanwhile."""
        total = sum(entry.num_bytes for entry in entries)
        done = 0
        if self._nodes_there is None:
            self._nodes_there = await self._listed_nodes()
        limits = self._options.fragments_max, self._options.bytes_max
        async with (
            aclosing(self._steps(entries)) as steps,
            OrderedTasks[_Stored](*limits) as ahead,
        ):
            async for step in steps:
                size = step.num_bytes if isinstance(step, Fragment) else 0
                while not ahead.has_room(size):
                    done += await self._taken(ahead)
                    self._tell(done, total)
                ahead.start(self._carried_out(step), size)
            while ahead:
                done += await self._taken(ahead)
                self._tell(done, total)

    async def _steps(
        self, entries: Sequence[Entry]
    ) -> AsyncGenerator[Fragment | _Node | _Stored, None]:
        """Fragments and nodes, children before parents. What lies below a node that this run is
        done with, in an attempt that met a change of the source, is one step."""
        stack: list[Entry | _Node] = [*reversed(entries)]
        loads: dict[str, asyncio.Task[bytes]] = {}
        try:
            while stack:
                item = stack.pop()
                if isinstance(item, _Node):
                    yield item
                    continue
                _check_own(item)
                if isinstance(item, Fragment):
                    yield item
                elif item.path in self._nodes_done:
                    yield _Stored(item.num_bytes, Amount())
                else:
                    self._read_ahead(loads, [item, *islice(reversed(stack), NODES_AHEAD)])
                    data = await loads.pop(item.path)
                    stack.append(_Node(item, data))
                    stack.extend(reversed(_entries_of(item, data)))
        finally:
            for load in loads.values():
                load.cancel()
            await asyncio.gather(*loads.values(), return_exceptions=True)

    def _read_ahead(
        self, loads: dict[str, asyncio.Task[bytes]], items: Iterable[Entry | _Node]
    ) -> None:
        """Begin to read these nodes of the source."""
        for item in items:
            if not isinstance(item, SnapshotPointer):
                continue
            if item.base is None and item.path not in self._nodes_done and item.path not in loads:
                loads[item.path] = asyncio.ensure_future(self._read(item.path))

    async def _read(self, path: str) -> bytes:
        return (await self._source.get(path)).data

    async def _carried_out(self, step: Fragment | _Node | _Stored) -> _Stored:
        if isinstance(step, Fragment):
            return await self._copy_fragment(step)
        return _Stored(0, Amount(), step) if isinstance(step, _Node) else step

    async def _taken(self, ahead: OrderedTasks[_Stored]) -> int:
        """The oldest step. A node is put here, when all before it has been stored."""
        if self._between is not None:
            await self._between()
        found = await ahead.take()
        self.copied += found.copied
        if found.node is not None:
            await self._copy_node(found.node.pointer.path, found.node.data)
        return found.num_bytes

    async def _copy_node(self, path: str, data: bytes) -> None:
        assert self._nodes_there is not None
        there = self._nodes_there.get(path)
        if there is None:
            await self._put(path, data)
        else:
            _check_size(path, data_size=len(data), there=there)
            if self._verify_there and await self._bytes_there(path) != data:
                raise _another(path)
        self._nodes_done.add(path)

    async def _copy_fragment(self, fragment: Fragment) -> _Stored:
        there = await self._size_there(fragment.path)
        if there is not None:
            _check_size(fragment.path, data_size=fragment.num_bytes, there=there)
            if self._verify_there:
                await self._verify_fragment_there(fragment)
            return _Stored(fragment.num_bytes, Amount())
        data = (await self._source.get(fragment.path)).data
        await self._verify(data, fragment)
        if self._target is None:
            return _Stored(fragment.num_bytes, Amount(1, len(data)))
        patience = Patience(self._runtime, self._options.timeout_s)
        await put_once(self._target, lambda: fragment.path, data, patience)
        return _Stored(fragment.num_bytes, Amount(1, len(data)))

    async def _verify_fragment_there(self, fragment: Fragment) -> None:
        try:
            await self._verify(await self._bytes_there(fragment.path), fragment)
        except Corrupt as damage:
            raise _another(fragment.path) from damage

    async def _verify(self, data: bytes, fragment: Fragment) -> None:
        if len(data) != fragment.num_bytes:
            raise Corrupt(
                f"{fragment.path} has another size than its entry says",
                path=fragment.path,
                expected=fragment.num_bytes,
                actual=len(data),
            )
        if len(data) <= VERIFY_INLINE_BYTES_MAX:
            _check(data, fragment)
        else:
            await self._runtime.compute(lambda: _check(data, fragment))

    async def _put(self, path: str, data: bytes) -> None:
        if self._target is not None:
            patience = Patience(self._runtime, self._options.timeout_s)
            await put_once(self._target, lambda: path, data, patience)
        self.copied += Amount(1, len(data))

    # What is there

    async def _listed_nodes(self) -> dict[str, int]:
        if self._target is None:
            return {}
        return {row.path: row.size async for row in self._target.list("snapshot/")}

    async def _bytes_there(self, path: str) -> bytes:
        assert self._target is not None
        return (await self._target.get(path)).data

    async def _size_there(self, path: str) -> int | None:
        """The size of a fragment at the target, from a listing of its bucket."""
        if self._target is None:
            return None
        prefix = path[:_BUCKET_CHARS]
        if prefix not in self._buckets:
            listed = {row.path: row.size async for row in self._target.list(prefix)}
            while len(self._buckets) >= BUCKETS_KEPT:
                del self._buckets[next(iter(self._buckets))]
            self._buckets[prefix] = listed
        return self._buckets[prefix].get(path)

    def _tell(self, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(BackupProgress(done, total))


def _check(data: bytes, fragment: Fragment) -> None:
    """The bytes by their digest, or the records of an entry that has none."""
    if not check_bytes(data, fragment):
        decode_fragment(data, fragment)


def _entries_of(pointer: SnapshotPointer, data: bytes) -> Sequence[Entry]:
    """What a node leads to, once it is known to be the one that is meant."""
    check_bytes(data, pointer)
    node = Snapshot.from_json(data, pointer.path)
    node.check(pointer)
    return node.entries


def _check_size(path: str, *, data_size: int, there: int) -> None:
    if there != data_size:
        raise _another(path, data_size, there)


def _another(path: str, expected: int | None = None, actual: int | None = None) -> Corrupt:
    return Corrupt(
        f"{path} at the place of the backup is another object",
        path=path,
        expected=expected,
        actual=actual,
        hint="Take the backup to another place, and check this one.",
    )


def _check_own(entry: Entry) -> None:
    if entry.base is not None:
        raise Invalid(
            "a fork shares objects with its source, and a backup of it would not have them",
            path=entry.path,
            hint="Copy it with `stratalog copy`, and take backups of the copy.",
        )
