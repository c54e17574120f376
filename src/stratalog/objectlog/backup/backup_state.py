"""A backup: what a log was at one moment. One immutable JSON object, beside the objects it names.

    path      backup/{taken_us:016x}-{id}.json, at the place of the backups
    fields    format, write_id, source, taken_us, note, manifest, cursors, then when set: policy

``write_id`` is the id of the backup. ``manifest`` and ``policy`` are the stored objects, field by
field, and ``cursors`` has the offset that each cursor held. The fragments and snapshots that the
manifest leads to lie at the same place under the names that they have in the log. They are put
first, so a backup that is there is whole.

``restoring/{id}.json`` marks a place where the backup of this id is being restored, with the
``write_id`` and the ``sweep_epoch`` that the log will begin with there. Persisted: keep stable.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from stratalog.errors import Corrupt
from stratalog.objectlog.stored import (
    Fields,
    Manifest,
    Natural,
    StoredObject,
    decode_document,
    decode_manifest,
)

BACKUP_PREFIX = "backup/"
RESTORING_PREFIX = "restoring/"
SWEEPS_MAX = 1 << 16
_NAME = re.compile(rf"{BACKUP_PREFIX}[0-9a-f]{{16}}-([0-9a-f]+)\.json")


class StoredBackup(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    what: ClassVar[str] = "backup"

    format: str
    write_id: str
    source: str
    taken_us: Natural
    note: str = ""
    manifest: Fields
    cursors: dict[str, Natural] = msgspec.field(default_factory=dict)
    policy: Fields | None = None

    @property
    def id(self) -> str:
        return self.write_id

    @property
    def path(self) -> str:
        return f"{BACKUP_PREFIX}{self.taken_us:016x}-{self.id}.json"

    @property
    def log(self) -> Manifest:
        """The manifest of the log at that moment, checked."""
        return decode_manifest(msgspec.json.encode(self.manifest))


class RestoringMark(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    what: ClassVar[str] = "mark of a restoration"

    write_id: str
    sweep_epoch: Natural

    def has_become(self, manifest: Manifest) -> bool:
        """Whether this is the log that was restored: each sweep raises the epoch by one."""
        return self.sweep_epoch <= manifest.sweep_epoch < self.sweep_epoch + SWEEPS_MAX


def decode_backup(data: bytes, path: str) -> StoredBackup:
    backup = decode_document(StoredBackup, data, path)
    if backup.path != path:
        raise Corrupt(f"{path} is another backup", path=path, actual=backup.path)
    return backup


def backup_id_in(path: str) -> str | None:
    """The id that the path of a backup tells, or None if it is none."""
    found = _NAME.fullmatch(path)
    return found[1] if found else None


def restoring_path(backup_id: str) -> str:
    return f"{RESTORING_PREFIX}{backup_id}.json"
