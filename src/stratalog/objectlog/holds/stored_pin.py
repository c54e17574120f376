"""A pin as it is stored: a named hold on a stretch of the log, one JSON object changed by CAS.

    path      pin/{name}.json, name [A-Za-z0-9_]+
    fields    start, limit, snapshots, fragments, owner, note, created_us, expires_us, format,
              write_id, released

Persisted: keep stable.
"""

from functools import partial
from typing import ClassVar

from stratalog.errors import NotFound, Trimmed
from stratalog.objectlog.holds.hold_names import path_of
from stratalog.objectlog.stored import (
    Entry,
    Fragment,
    LogPosition,
    Manifest,
    Natural,
    SnapshotPointer,
    StoredObject,
    decode_document,
    load_manifest,
)
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Store, Version, read_version

PIN_PREFIX = "pin/"


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


decode_pin = partial(decode_document, StoredPin)


def pin_path(name: str) -> str:
    """Where a pin is stored. ``Invalid`` for a name that is not one."""
    return path_of(PIN_PREFIX, name, "pin")


async def read_pin(store: Store, name: str) -> Version[StoredPin]:
    """The newest version of a pin, which may be released. ``NotFound`` if there never was one."""
    path = pin_path(name)
    found = await read_version(store, path, decode_pin)
    if found is None:
        raise NotFound(f"there is no pin {name!r}", path=path)
    return found


async def load_pinned(store: Store, name: str) -> tuple[Manifest, str]:
    """What a pin holds, as a reader walks it. ``Trimmed`` once it is released."""
    pin = await read_pin(store, name)
    if pin.value.released:
        raise await why_released(store, name)
    return pin.value.as_manifest(), pin.etag


async def why_released(store: Store, name: str) -> Trimmed:
    """The error for a pin that holds nothing any more. It says where the log begins."""
    manifest, _ = await load_manifest(store)
    return Trimmed(f"the pin {name!r} was released", first_offset=manifest.first_offset)
