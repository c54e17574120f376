"""Changing the past, or what a manifest says about it, without touching the tail.

Every change that is not an append goes through ``amend``: a conditional put on top of what is
stored, repeated until it lands or is no longer needed. A change is a function of the stored
manifest, called anew for each attempt. So it never carries the content of an older manifest along,
and a put that landed without an answer is recognised by its effect.
"""

from collections.abc import Awaitable, Callable

from stratalog.invariants import invariant
from stratalog.objectlog.stored import MANIFEST_PATH, Manifest, decode_manifest, load_manifest
from stratalog.objectlog.tree.gone_object import Load
from stratalog.objectlog.tree.settle import only_the_past_changed
from stratalog.runtime import Runtime
from stratalog.store import Blob, Document, Patience, Store, Version

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

    async def amended(manifest: Manifest) -> Manifest | None:
        changed = change(manifest)
        if changed is None:
            return None
        check_amendment(manifest, changed)
        if check is not None:
            await check()
        return changed

    before = Version(*await load(store))
    document = manifest_document(store, patience.runtime)
    return (await document.change(amended, before=before, patience=patience)).value


def manifest_document(store: Store, runtime: Runtime, timeout_s: float = 0.0) -> Document[Manifest]:
    return Document(
        store,
        MANIFEST_PATH,
        lambda data, _path: decode_manifest(data),
        label=f"log at {store.url}",
        runtime=runtime,
        timeout_s=timeout_s,
    )


def is_version(manifest: Manifest) -> Callable[[Blob], bool]:
    """Whether stored bytes are exactly this version."""
    return lambda blob: decode_manifest(blob.data).write_id == manifest.write_id


def check_amendment(before: Manifest, after: Manifest) -> None:
    """Refuse a change that would lose a record, or that would not be a new version."""
    after.check()
    invariant(only_the_past_changed(before, after), "an amendment leaves the tail alone")
    invariant(before.setsum == after.setsum, "an amendment conserves the setsum")
    invariant(before.write_id != after.write_id, "every version has a fresh write id")
