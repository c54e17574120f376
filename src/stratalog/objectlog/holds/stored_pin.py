"""A pin as it is stored: a named hold on a stretch of the log, one JSON object changed by CAS.

    path      pin/{name}.json, name [A-Za-z0-9_]+
    fields    start, limit, snapshots, fragments, owner, note, created_us, expires_us, format,
              write_id, released

Persisted: keep stable.
"""

from __future__ import annotations

from typing import ClassVar

from stratalog.errors import Invalid, NotFound, Trimmed
from stratalog.objectlog.holds.cursor import legal_name
from stratalog.objectlog.stored import (
    Entry,
    Fragment,
    LogPosition,
    Manifest,
    Natural,
    SnapshotPointer,
    StoredObject,
    load_manifest,
    refuse_newer_format,
)
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Store

PIN_PREFIX = "pin/"
PIN_SUFFIX = ".json"


class PinnedManifest(Manifest, frozen=True, kw_only=True, omit_defaults=True):
    """What a pin holds, as if that were the whole log. Never stored."""

    held_from: int
    held_upto: int

    @property
    def first_offset(self) -> int:
        return self.held_from

    @property
    def tail(self) -> LogPosition:
        return LogPosition(self.held_upto, self.entries[-1].limit.timestamp_us)


class StoredPin(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The stored object."""

    what: ClassVar[str] = "pin"

    start: LogPosition
    limit: LogPosition
    snapshots: tuple[SnapshotPointer, ...]
    fragments: tuple[Fragment, ...]
    owner: str
    note: str
    created_us: Natural
    expires_us: Natural | None = None
    format: str | None = None
    write_id: str | None = None
    released: bool = False

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What it points to, oldest first."""
        return (*self.snapshots, *self.fragments)

    @property
    def is_cleared(self) -> bool:
        """Whether it is released, and nothing is left of it."""
        return self.released and not self.entries

    def is_past(self, now_us: int) -> bool:
        return self.expires_us is not None and self.expires_us <= now_us

    def as_manifest(self) -> PinnedManifest:
        """What it holds, in the form in which a reader walks it."""
        return PinnedManifest(
            held_from=self.start.offset,
            held_upto=self.limit.offset,
            setsum=Setsum.total(entry.setsum for entry in self.entries),
            collected=EMPTY,
            acc_bytes=sum(entry.num_bytes for entry in self.entries),
            writer=self.owner,
            snapshots=self.snapshots,
            fragments=self.fragments,
            format=self.format,
            write_id=self.write_id,
        )


def pin_path(name: str) -> str:
    """Where a pin is stored. ``Invalid`` for a name that is not one."""
    if not legal_name(name):
        raise Invalid(f"not a pin name: {name!r}", hint="Use letters, digits and underscores.")
    return f"{PIN_PREFIX}{name}{PIN_SUFFIX}"


def decode_pin(data: bytes, path: str) -> StoredPin:
    refuse_newer_format(data)
    return StoredPin.from_json(data, path)


async def read_pin(store: Store, path: str) -> tuple[StoredPin, str]:
    try:
        blob = await store.get(path)
    except NotFound:
        raise no_pin(path.removeprefix(PIN_PREFIX).removesuffix(PIN_SUFFIX), path) from None
    return decode_pin(blob.data, path), blob.etag


async def load_pinned(store: Store, name: str) -> tuple[Manifest, str]:
    """What a pin holds, as a reader walks it. ``Trimmed`` once it is released."""
    stored, etag = await read_pin(store, pin_path(name))
    if stored.released:
        manifest, _ = await load_manifest(store)
        raise let_go_of_pin(name, manifest)
    return stored.as_manifest(), etag


def let_go_of_pin(name: str, manifest: Manifest) -> Trimmed:
    first = manifest.first_offset
    return Trimmed(f"the pin {name!r} was released", first_offset=first)


def no_pin(name: str, path: str) -> NotFound:
    return NotFound(f"there is no pin {name!r}", path=path)
