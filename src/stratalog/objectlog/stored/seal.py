"""The seal: a log that takes no more records, and where it goes on.

    where     ``seal`` in the manifest, an object
    fields    sealed_us, writer, note, then when named: successor {url, id},
              then while the log is being destroyed: destroyed_us
    back      ``predecessor`` {url, id} in the successor's manifest

A seal is set once, by the same compare-and-swap that every append goes through, so there is one
last position, and no append is in doubt because of it. It names a successor at most once, when it
is set or later. A successor is valid only if the seal names it, by its ``id``.
Persisted: keep stable.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import msgspec

from stratalog.errors import Sealed
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest
from stratalog.objectlog.stored.position import Natural
from stratalog.objectlog.stored.stored_json import StoredObject
from stratalog.store import redact


class Link(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """Another log that this one continues, or that continues it."""

    what: ClassVar[str] = "link to another log"

    url: str
    id: str


class Seal(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What is known about a sealed log."""

    what: ClassVar[str] = "seal"

    sealed_us: Natural = 0
    writer: str = ""
    note: str = ""
    successor: Link | None = None
    destroyed_us: Natural | None = None

    @property
    def entries(self) -> tuple[StoredObject, ...]:
        return () if self.successor is None else (self.successor,)


Fields = dict[str, msgspec.Raw]
Part = TypeVar("Part", bound=StoredObject)


def as_fields(value: StoredObject) -> Fields:
    """A part of a manifest in the form in which the manifest carries it."""
    return msgspec.json.decode(value.to_json(), type=Fields)


def from_fields(kind: type[Part], fields: Fields | None) -> Part | None:
    """The part that a manifest carries in this form, if it does."""
    if fields is None:
        return None
    return kind.from_json(msgspec.json.encode(fields), MANIFEST_PATH)


def seal_of(manifest: Manifest) -> Seal | None:
    """The seal of a log, or None if it takes records."""
    return from_fields(Seal, manifest.seal)


def is_being_destroyed(manifest: Manifest) -> bool:
    """Whether all that the log has is about to go. It may not be relied on any more."""
    seal = seal_of(manifest)
    return seal is not None and seal.destroyed_us is not None


def predecessor_of(manifest: Manifest) -> Link | None:
    return from_fields(Link, manifest.predecessor)


def sealed(manifest: Manifest) -> Sealed:
    """Why this log takes no more records, and where they go."""
    seal = seal_of(manifest)
    hint: str | None = None
    if seal is not None and seal.successor is not None:
        hint = f"It goes on at {redact(seal.successor.url)}."
    elif is_being_destroyed(manifest):
        hint = "It is being destroyed. Choose another place."
    return Sealed("the log is sealed", actual=manifest.tail.offset, hint=hint)
