"""Creating a log: one conditional put, on a store that passed its probes."""

from __future__ import annotations

import msgspec

from stratalog.errors import Exists, NotFound, Unknown
from stratalog.objectlog.stored import (
    FIRST_OFFSET,
    MANIFEST_PATH,
    Manifest,
    check_offset,
    encode_manifest,
    load_manifest,
    taken,
    writer_label,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, Store, StoreLike, create, open_store, probe

CREATE_TIMEOUT_S = 60.0
TAKEN_HINT = "Open it, or choose another place."


async def create_log(
    url: StoreLike,
    *,
    exist_ok: bool = False,
    first_offset: int = FIRST_OFFSET,
    writer: str = "create_log",
    name: str | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> None:
    """Create an empty log. ``Exists`` if there is one, unless ``exist_ok``.

    Its first record gets ``first_offset``, for a log that takes over where another one ends.
    ``name`` is stored with it, so that a log met by its path alone can be recognised.
    The store is probed first, once per process: a store that ignores conditions is refused.
    """
    check_offset(first_offset)
    store = open_store(url)
    if await _is_there(store):
        if exist_ok:
            return
        raise taken(store.url, TAKEN_HINT)
    await probe(store, runtime)
    manifest = Manifest.of_new_log(writer_label(writer), runtime, first_offset)
    manifest = msgspec.structs.replace(manifest, name=name)
    try:
        await create(
            store, MANIFEST_PATH, encode_manifest(manifest), Patience(runtime, CREATE_TIMEOUT_S)
        )
    except Exists:
        if not exist_ok:
            raise taken(store.url, TAKEN_HINT) from None
    except Unknown:
        if not exist_ok or not await _is_there(store):
            raise


async def load_or_create(store: Store, *, writer: str, runtime: Runtime) -> tuple[Manifest, str]:
    """The manifest of the log, which is created if need be."""
    try:
        return await load_manifest(store)
    except NotFound:
        await create_log(store, exist_ok=True, writer=writer, runtime=runtime)
    return await load_manifest(store)


async def _is_there(store: Store) -> bool:
    try:
        await load_manifest(store)
    except NotFound:
        return False
    return True
