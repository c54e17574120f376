"""Releasing the log that a fork came from: before the fork is open, or when it needs it no more.

The pin goes last, when nobody can rely on it any more: see ``fork_log``.
"""

from __future__ import annotations

from stratalog.errors import Conflict
from stratalog.objectlog.holds.fork_note import (
    FORK_TIMEOUT_S,
    change_fork,
    note_of,
    require_note,
)
from stratalog.objectlog.holds.pin import PinStore
from stratalog.objectlog.stored import MANIFEST_PATH, Manifest, load_manifest
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import PatientStore, Store, StoreLike, open_store


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
