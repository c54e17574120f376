"""The catalogue of a herd: names of logs and their ids, one JSON object each, changed by CAS.

    path      catalogue/{name}.json
    fields    name, id, created_us, format, write_id, dropped

The entry decides the id. It comes before the log; a server that finds an entry without a log
creates the log. A log is dropped by a tombstone; a name that is taken again gets another id.
Persisted: keep stable.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import ClassVar

import msgspec

from stratalog.errors import Exists
from stratalog.herd.names import CATALOGUE_PREFIX, ID_BYTES, entry_path, names_below
from stratalog.objectlog.stored import FORMAT, Natural, StoredObject, decode_document
from stratalog.runtime import Runtime
from stratalog.store import Document, Store, Version

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
    def __init__(self, root: Store, runtime: Runtime) -> None:
        self._root = root
        self._runtime = runtime

    async def find(self, name: str) -> Entry:
        """The entry of a log. ``NotFound`` if there is none."""
        entry = (await self._read(name)).value
        if entry.dropped:
            raise self._document(name).missing()
        return entry

    async def add(self, name: str, *, exist_ok: bool) -> Entry:
        """A new entry, or with ``exist_ok`` the one that is there."""
        document = self._document(name)
        before: Version[Entry] | None = None
        while True:
            settled = await document.try_put(before, self._new(name))
            if isinstance(settled, Version):
                return settled.value
            before = await self._read(name)
            if before.value.dropped:
                continue
            if exist_ok:
                return before.value
            raise document.taken()

    async def drop(self, name: str) -> Entry:
        """Put a tombstone over an entry. Idempotent: gives an entry that was dropped before.

        An entry with another id has taken the name since, so the one that was found is dropped.
        """
        found = await self._read(name)

        async def dropped(entry: Entry) -> Entry | None:
            if entry.dropped or entry.id != found.value.id:
                return None
            return msgspec.structs.replace(entry, dropped=True)

        await self._document(name).change(dropped, before=found)
        return found.value

    def names(self) -> AsyncIterator[str]:
        """All names, also of logs that were dropped, in order."""
        return names_below(self._root, CATALOGUE_PREFIX)

    def _new(self, name: str) -> Entry:
        return Entry(
            name=name,
            id=self._runtime.new_id(2 * ID_BYTES),
            created_us=self._runtime.now_us(),
            format=FORMAT,
        )

    async def _read(self, name: str) -> Version[Entry]:
        document = self._document(name)
        found = await document.read()
        if found is None:
            raise document.missing()
        if found.value.name != name:
            raise Exists(
                f"there is a log {found.value.name!r}, and this store does not tell it from "
                f"{name!r}",
                path=document.path,
                hint="Choose a name that differs by more than its capital letters.",
            )
        return found

    def _document(self, name: str) -> Document[Entry]:
        return Document(
            self._root,
            entry_path(name),
            partial(decode_document, Entry),
            label=f"log {name!r} in this herd",
            runtime=self._runtime,
            timeout_s=CATALOGUE_TIMEOUT_S,
            is_tombstone=lambda entry: entry.dropped,
            hint_if_missing="Create it, or list what there is.",
        )
