"""The catalogue of a herd: names of logs and their ids, one JSON object each, changed by CAS.

    path      catalogue/{name}.json
    fields    name, id, created_us, format, write_id, dropped

The entry decides the id. It comes before the log, and whoever finds it without one creates the log.
A log is dropped by a tombstone; a name that is taken again gets another id. Persisted: keep stable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import msgspec

from stratalog.errors import Exists, NotFound
from stratalog.herd.names import CATALOGUE_PREFIX, ID_BYTES, entry_path, name_in
from stratalog.objectlog.stored import FORMAT, Natural, StoredObject, refuse_newer_format
from stratalog.runtime import Runtime
from stratalog.store import Blob, Landed, Patience, Store, create, swap

CATALOGUE_TIMEOUT_S = 60.0


class Entry(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What the catalogue says of a name."""

    what: ClassVar[str] = "entry of a catalogue"

    name: str
    id: str
    created_us: Natural = 0
    format: str | None = None
    write_id: str | None = None
    dropped: bool = False


class Catalogue:
    """The names of one herd."""

    def __init__(self, root: Store, runtime: Runtime) -> None:
        self._root = root
        self._runtime = runtime

    async def find(self, name: str) -> Entry:
        """The entry of a log. ``NotFound`` if there is none."""
        entry, _ = await self._read(name)
        if entry.dropped:
            raise _no_log(name)
        return entry

    async def add(self, name: str, *, exist_ok: bool) -> Entry:
        """A new entry, or with ``exist_ok`` the one that is there."""
        path, entry = entry_path(name), self._new(name)
        while True:
            try:
                await create(self._root, path, entry.to_json(), self._patience())
                return entry
            except Exists:
                found, etag = await self._read(name)
            if not found.dropped:
                if exist_ok:
                    return found
                raise Exists(f"there is already a log {name!r}", path=path)
            # What lies there may have been this very version, created after all and then dropped.
            entry = self._new(name)
            if await self._swap(path, entry, etag):
                return entry

    async def drop(self, name: str) -> Entry:
        """Put a tombstone over an entry. Gives it, also if it was dropped before."""
        while True:
            entry, etag = await self._read(name)
            if entry.dropped:
                return entry
            dropped = msgspec.structs.replace(entry, dropped=True, write_id=self._runtime.new_id())
            if await self._swap(entry_path(name), dropped, etag):
                return dropped

    async def names(self) -> AsyncIterator[str]:
        """All names, also of logs that were dropped, in order."""
        async for row in self._root.list(CATALOGUE_PREFIX):
            name = name_in(row.path, CATALOGUE_PREFIX)
            if name is not None:
                yield name

    def _new(self, name: str) -> Entry:
        return Entry(
            name=name,
            id=self._runtime.new_id(2 * ID_BYTES),
            created_us=self._runtime.now_us(),
            format=FORMAT,
            write_id=self._runtime.new_id(),
        )

    async def _read(self, name: str) -> tuple[Entry, str]:
        path = entry_path(name)
        try:
            blob = await self._root.get(path)
        except NotFound:
            raise _no_log(name) from None
        entry = _decode(blob.data, path)
        if entry.name != name:
            raise Exists(
                f"there is a log {entry.name!r}, and this store does not tell it from {name!r}",
                path=path,
                hint="Choose a name that differs by more than its capital letters.",
            )
        return entry, blob.etag

    async def _swap(self, path: str, entry: Entry, etag: str) -> bool:
        def is_ours(blob: Blob) -> bool:
            return _decode(blob.data, path).write_id == entry.write_id

        settled = await swap(self._root, path, entry.to_json(), etag, is_ours, self._patience())
        return isinstance(settled, Landed)

    def _patience(self) -> Patience:
        return Patience(self._runtime, CATALOGUE_TIMEOUT_S)


def _decode(data: bytes, path: str) -> Entry:
    refuse_newer_format(data)
    return Entry.from_json(data, path)


def _no_log(name: str) -> NotFound:
    return NotFound(
        f"there is no log {name!r} in this herd",
        path=entry_path(name),
        hint="Create it, or list what there is.",
    )
