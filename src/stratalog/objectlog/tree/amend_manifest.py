"""Changing the past, or what a manifest says about it, without touching the tail.

Every change that is not an append goes through ``amend``: a conditional put on top of what is
stored, repeated until it lands or is no longer needed. A change is a function of the stored
manifest, called anew for each attempt. So it never carries the content of an older manifest along,
and a put that landed without an answer is recognised by its effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from stratalog.errors import NotFound
from stratalog.invariants import invariant
from stratalog.objectlog.stored import MANIFEST_PATH, Manifest, decode_manifest, load_manifest
from stratalog.objectlog.tree.reload import Load
from stratalog.objectlog.tree.settle import only_the_past_changed
from stratalog.store import Blob, Landed, Patience, Store, swap

Change = Callable[[Manifest], Manifest | None]
"""The manifest that should be stored next, or None if nothing is left to do."""

Check = Callable[[], Awaitable[None]]
"""Raises if a change may not be put any more."""


async def amend(
    store: Store,
    change: Change,
    patience: Patience,
    *,
    check: Check | None = None,
    load: Load = load_manifest,
) -> Manifest:
    """Put the changed manifest; gives the one that is stored when nothing is left to do.

    ``check`` runs between each reading of the manifest and the put on top of it. ``load`` decides
    which manifests may be changed at all.
    """
    manifest, etag = await load(store)
    while True:
        changed = change(manifest)
        if changed is None:
            return manifest
        check_amendment(manifest, changed)
        if check is not None:
            await check()
        settled = await swap(
            store, MANIFEST_PATH, changed.to_json(), etag, is_version(changed), patience
        )
        if isinstance(settled, Landed) and settled.newer is None:
            return changed
        current = settled.newer if isinstance(settled, Landed) else settled.current
        if current is None:
            raise NotFound(f"the log at {store.url} is gone", path=MANIFEST_PATH)
        manifest, etag = decode_manifest(current.data), current.etag


def is_version(manifest: Manifest) -> Callable[[Blob], bool]:
    """Whether stored bytes are exactly this version."""

    def same(blob: Blob) -> bool:
        return decode_manifest(blob.data).write_id == manifest.write_id

    return same


def check_amendment(before: Manifest, after: Manifest) -> None:
    """Refuse a change that would lose a record, or that would not be a new version."""
    after.check()
    invariant(only_the_past_changed(before, after), "an amendment leaves the tail alone")
    invariant(before.setsum == after.setsum, "an amendment conserves the setsum")
    invariant(before.write_id != after.write_id, "every version has a fresh write id")
