"""What a fork's manifest says about where it comes from, changing it, and releasing the source.

    fork    source, pin, at, state, then for a log of wal3: held_by, then while it is not open:
            former, the names of pins that earlier runs may have made

The states and their order are those of ``fork_log``. The source is released before the fork is
open, or when it needs it no more. The pin goes last, when nobody can rely on it any more.
Persisted: keep stable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal

import msgspec

from stratalog.errors import Conflict, Invalid, NotFound
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.holds.wal3_hold import release_cursor_hold
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    Manifest,
    Natural,
    StoredObject,
    as_fields,
    from_fields,
    load_any_manifest,
    load_manifest,
)
from stratalog.objectlog.tree import manifest_document
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import PatientStore, Store, StoreLike, Version, open_store, sibling

FORK_TIMEOUT_S = 60.0

State = Literal["forking", "open", "aborted", "detached"]


class ForkNote(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    what: ClassVar[str] = "note of a fork"

    source: str
    pin: str
    at: Natural
    state: State
    held_by: Literal["pin", "cursor"] = "pin"
    former: tuple[str, ...] = ()

    def put_into(self, manifest: Manifest, state: State, runtime: Runtime) -> Manifest:
        """The next manifest, which carries this note in this state."""
        noted = msgspec.structs.replace(self, state=state)
        return msgspec.structs.replace(manifest, fork=as_fields(noted), write_id=runtime.new_id())

    async def release_source(self, store: Store, runtime: Runtime) -> None:
        """Release what holds the shared objects in the source of the fork. Idempotent."""
        await self._release(store, (*self.former, self.pin), runtime)

    async def release_former(self, store: Store, runtime: Runtime) -> None:
        """Release only what earlier runs may have made there."""
        await self._release(store, self.former, runtime)

    async def _release(self, store: Store, pins: Iterable[str], runtime: Runtime) -> None:
        """A run that sleeps may be about to make one of them, so their names are retired."""
        source = sibling(store, self.source)
        for name in pins:
            if self.held_by == "cursor":
                await release_cursor_hold(source, name, runtime)
                continue
            with contextlib.suppress(NotFound):  # the source is gone, and with it its pins
                await load_manifest(source)
                await PinStore(source, runtime=runtime).retire(name)


def note_of(manifest: Manifest) -> ForkNote | None:
    return from_fields(ForkNote, manifest.fork)


def require_note(manifest: Manifest) -> ForkNote:
    note = note_of(manifest)
    if note is None:
        raise Invalid(
            "this log is not a fork",
            hint="Name the fork, and not the log that it was made from.",
        )
    return note


async def change_fork(
    store: Store, change: Callable[[Manifest], Manifest | None], runtime: Runtime
) -> Manifest:
    """Put the changed manifest of a fork, until it lands or nothing is left to change."""

    async def changed(manifest: Manifest) -> Manifest | None:
        after = change(manifest)
        if after is not None:
            after.check()
        return after

    before = Version(*await load_any_manifest(store))
    document = manifest_document(store, runtime, FORK_TIMEOUT_S)
    return (await document.change(changed, before=before)).value


async def abort_fork(target: StoreLike, *, runtime: Runtime = DEFAULT_RUNTIME) -> None:
    """Give up a fork that is not open yet, and release what it holds in its source."""
    store = PatientStore(open_store(target), runtime, FORK_TIMEOUT_S)

    def abort(manifest: Manifest) -> Manifest | None:
        note = require_note(manifest)
        if note.state != "forking":
            return None
        return note.put_into(manifest, "aborted", runtime)

    manifest = await change_fork(store, abort, runtime)
    note = require_note(manifest)
    if note.state not in ("aborted", "detached"):
        raise Conflict("the fork is open already", path=MANIFEST_PATH, hint="Destroy it instead.")
    await note.release_source(store, runtime)


async def detach_fork(store: Store, *, runtime: Runtime) -> bool:
    """Release the source once neither the fork nor a pin of it reaches below its own part.

    The manifest is read before the pins: one that is made later cannot hold what is cut off.
    """
    manifest, _ = await load_manifest(store)
    note = note_of(manifest)
    if note is None or note.state != "open" or manifest.first_offset < note.at:
        return False
    if any(pin.from_offset < note.at for pin in await PinStore(store, runtime=runtime).list_all()):
        return False
    await note.release_source(store, runtime)

    def detach(current: Manifest) -> Manifest | None:
        if note_of(current) != note:  # detached already, or another fork took its place
            return None
        return note.put_into(current, "detached", runtime)

    await change_fork(store, detach, runtime)
    return True
