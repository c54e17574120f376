"""What a fork's manifest says about where it comes from, and changing it.

    fork    source, pin, at, state, then for a log of wal3: held_by, then while it is not open:
            former, the names of pins that earlier runs may have made

The states and their order are told in ``forking``. Persisted: keep stable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal

import msgspec

from stratalog.errors import Invalid, NotFound
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.wal3_hold import release_cursor_hold
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    Manifest,
    Natural,
    StoredObject,
    as_fields,
    load_any_manifest,
    load_manifest,
)
from stratalog.objectlog.tree import manifest_document
from stratalog.runtime import Runtime
from stratalog.store import Store, Version, sibling

FORK_TIMEOUT_S = 60.0

State = Literal["forking", "open", "aborted", "detached"]


class ForkNote(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What a fork's manifest says about where it comes from."""

    what: ClassVar[str] = "note of a fork"

    source: str
    pin: str
    at: Natural
    state: State
    held_by: Literal["pin", "cursor"] = "pin"
    former: tuple[str, ...] = ()


def note_of(manifest: Manifest) -> ForkNote | None:
    """Where a log was forked from, or None if it was not."""
    if manifest.fork is None:
        return None
    return ForkNote.from_json(msgspec.json.encode(manifest.fork), MANIFEST_PATH)


def require_note(manifest: Manifest) -> ForkNote:
    note = note_of(manifest)
    if note is None:
        raise Invalid(
            "this log is not a fork",
            hint="Name the fork, and not the log that it was made from.",
        )
    return note


def with_note(manifest: Manifest, note: ForkNote, state: State, runtime: Runtime) -> Manifest:
    noted = msgspec.structs.replace(note, state=state)
    return msgspec.structs.replace(manifest, fork=as_fields(noted), write_id=runtime.new_id())


async def change_fork(
    store: Store, change: Callable[[Manifest], Manifest | None], runtime: Runtime
) -> Manifest:
    """Put the changed manifest of a fork, again until nothing is left to change."""

    async def changed(manifest: Manifest) -> Manifest | None:
        after = change(manifest)
        if after is not None:
            after.check()
        return after

    before = Version(*await load_any_manifest(store))
    document = manifest_document(store, runtime, FORK_TIMEOUT_S)
    return (await document.change(changed, before=before)).value


async def release_source(store: Store, note: ForkNote, runtime: Runtime) -> None:
    """Release what holds the shared objects in the source of a fork. Again without harm."""
    await release_in_source(store, note, (*note.former, note.pin), runtime)


async def release_in_source(
    store: Store, note: ForkNote, pins: Iterable[str], runtime: Runtime
) -> None:
    """See to it that these hold nothing in the source of a fork.

    A run that sleeps may be about to make one of them, so their names are used up.
    """
    source = sibling(store, note.source)
    for name in pins:
        if note.held_by == "cursor":
            await release_cursor_hold(source, name, runtime)
            continue
        with contextlib.suppress(NotFound):  # the source is gone, and with it its pins
            await load_manifest(source)
            await PinStore(source, runtime=runtime).retire(name)
