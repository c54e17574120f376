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
from stratalog.objectlog.holds.wal3_hold import let_go_of_cursor
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    Manifest,
    Natural,
    StoredObject,
    as_fields,
    decode_manifest,
    load_any_manifest,
    load_manifest,
)
from stratalog.runtime import Runtime
from stratalog.store import Blob, Landed, Patience, Store, sibling, swap

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
    manifest, etag = await load_any_manifest(store)
    while True:
        changed = change(manifest)
        if changed is None:
            return manifest
        changed.check()
        write_id = changed.write_id

        def is_ours(blob: Blob, write_id: str | None = write_id) -> bool:
            return decode_manifest(blob.data).write_id == write_id

        patience = Patience(runtime, FORK_TIMEOUT_S)
        settled = await swap(store, MANIFEST_PATH, changed.to_json(), etag, is_ours, patience)
        if isinstance(settled, Landed) and settled.newer is None:
            return changed
        current = settled.newer if isinstance(settled, Landed) else settled.current
        if current is None:
            raise NotFound(f"the log at {store.url} is gone", path=MANIFEST_PATH)
        manifest, etag = decode_manifest(current.data), current.etag


async def release_source(store: Store, note: ForkNote, runtime: Runtime) -> None:
    """Release what holds the shared objects in the source of a fork. Again without harm."""
    await let_go(store, note, (*note.former, note.pin), runtime)


async def let_go(store: Store, note: ForkNote, pins: Iterable[str], runtime: Runtime) -> None:
    """See to it that these hold nothing in the source of a fork.

    A run that sleeps may be about to make one of them, so their names are used up.
    """
    source = sibling(store, note.source)
    for name in pins:
        if note.held_by == "cursor":
            await let_go_of_cursor(source, name, runtime)
            continue
        with contextlib.suppress(NotFound):  # the source is gone, and with it its pins
            await load_manifest(source)
            await PinStore(source, runtime=runtime).use_up(name)
