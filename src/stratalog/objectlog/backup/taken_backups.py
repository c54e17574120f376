"""What a place of backups holds. A backup is immutable, so a listing and a read tell all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from stratalog.errors import NotFound
from stratalog.objectlog.backup.backup_state import (
    BACKUP_PREFIX,
    StoredBackup,
    backup_id_in,
    decode_backup,
)
from stratalog.objectlog.stored import (
    Manifest,
)
from stratalog.ordered import gather_bounded
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import PatientStore, Store, StoreLike, open_store

LIST_TIMEOUT_S = 60.0
READS_AT_ONCE = 32
LIST_HINT = "`stratalog backups DEST` lists what is there."


@dataclass(frozen=True, slots=True)
class Backup:
    """One backup: which log it is of, when it was taken, and what it holds."""

    id: str
    source: str
    taken_us: int
    note: str
    first_offset: int
    tail: int
    num_bytes: int
    """How many bytes of fragments."""

    cursors: int

    @classmethod
    def of(cls, stored: StoredBackup, manifest: Manifest) -> Self:
        return cls(
            id=stored.id,
            source=stored.source,
            taken_us=stored.taken_us,
            note=stored.note,
            first_offset=manifest.first_offset,
            tail=manifest.tail.offset,
            num_bytes=sum(entry.num_bytes for entry in manifest.entries),
            cursors=len(stored.cursors),
        )


async def list_backups(dest: StoreLike, *, runtime: Runtime = DEFAULT_RUNTIME) -> list[Backup]:
    """The backups at a place, the oldest first."""
    store = PatientStore(open_store(dest), runtime, LIST_TIMEOUT_S)
    stored = await gather_bounded(
        await backup_paths(store), lambda path: read_backup(store, path), READS_AT_ONCE
    )
    return [Backup.of(each, each.log) for each in stored]


async def backup_paths(store: Store) -> list[str]:
    """Where the backups are, the oldest first: a path begins with the time."""
    listed = [row.path async for row in store.list(BACKUP_PREFIX)]
    return [path for path in listed if backup_id_in(path) is not None]


async def read_backup(store: Store, path: str) -> StoredBackup:
    return decode_backup((await store.get(path)).data, path)


async def find_backup(store: Store, backup_id: str | None) -> StoredBackup:
    """The backup with this id, or the newest. ``NotFound`` if there is none."""
    paths = [path for path in await backup_paths(store) if backup_id in (None, backup_id_in(path))]
    if not paths:
        what = "no backup" if backup_id is None else f"no backup {backup_id!r}"
        raise NotFound(f"there is {what} at {store.url}", hint=LIST_HINT)
    return await read_backup(store, paths[-1])
