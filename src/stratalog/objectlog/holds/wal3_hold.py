"""A hold on a log of wal3: a cursor of its own kind, because its collector knows no pins.

    path      cursor/{name}.json
    fields    position, epoch_us, writer: what wal3 itself writes, and nothing else

wal3 collects nothing at or after any cursor. So this holds more than a pin does: it stops the cut
at the first record that there is, and what comes later stays as well, until it is released.

wal3's collector lists the cursors, writes down its plan, and later carries it out, without looking
at the cursors again. A plan that is there already is seen here, and refused. A plan that is written
a moment later, by a collector that had listed the cursors before, is not seen: wal3 relies on time
there, and so must every hold on its logs.

wal3 knows no tombstones either, so releasing deletes the object. Nobody else uses its name.
"""

import contextlib

from stratalog.errors import Conflict, Exists
from stratalog.objectlog.holds.cursor import StoredCursor, cursor_path
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    LogPosition,
    Manifest,
    load_garbage,
    load_manifest,
)
from stratalog.objectlog.tree import delete_surely
from stratalog.runtime import Runtime
from stratalog.store import Patience, Store, create

HOLD_TIMEOUT_S = 60.0


async def hold_by_cursor(store: Store, name: str, writer: str, runtime: Runtime) -> Manifest:
    """Hold everything that a log of wal3 has. Gives the manifest whose entries are held.

    Idempotent. ``Conflict`` while wal3 is collecting.
    """
    manifest, _ = await load_manifest(store)
    cursor = StoredCursor(
        position=LogPosition(manifest.first_offset), epoch_us=runtime.now_us(), writer=writer
    )
    with contextlib.suppress(Exists):
        await create(store, cursor_path(name), cursor.to_json(), Patience(runtime, HOLD_TIMEOUT_S))
    plan, _ = await load_garbage(store)
    manifest, _ = await load_manifest(store)
    if plan is not None and plan.first_to_keep.offset > manifest.first_offset:
        await release_cursor_hold(store, name, runtime)
        raise Conflict(
            f"wal3 is collecting this log up to {plan.first_to_keep.offset}",
            path=GARBAGE_PATH,
            hint="Try again when its collection has ended.",
            actual=plan.first_to_keep.offset,
        )
    return manifest


async def release_cursor_hold(store: Store, name: str, runtime: Runtime) -> None:
    """Let wal3 collect again. Idempotent."""
    await delete_surely(store, [cursor_path(name)], Patience(runtime, HOLD_TIMEOUT_S))
