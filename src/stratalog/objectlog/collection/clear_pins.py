"""What happens to a pin that holds nothing any more, and to what it has held.

    held       it may be released by name, and by any collection once its expiry is past
    released   it holds nothing; the objects that only it led to are deleted here
    cleared    its name is never used again

A pin that nobody owns, an orphan, ends by its expiry (``PinStore.release_expired``). One without an
expiry, such as the pin of a fork, stays until somebody releases it by name.
"""

import contextlib
from collections.abc import Callable, Sequence

from stratalog.errors import Conflict, NotFound
from stratalog.objectlog.collection.delete_unreachable import Removal, Removed
from stratalog.objectlog.collection.older_manifest import check_pins
from stratalog.objectlog.collection.reach import Root
from stratalog.objectlog.holds import Pin, PinStore
from stratalog.objectlog.stored import load_manifest
from stratalog.objectlog.tree import Reloads
from stratalog.store import Store


def root_of(pin: Pin) -> Root:
    """What a pin leads to. Below a node that is gone it holds nothing."""
    return Root(f"the pin {pin.name!r}", pin.entries, pin.window)


async def clear_pins(
    store: Store,
    pins: PinStore,
    reloads: Reloads,
    removal: Callable[[Sequence[Root]], Removal],
    *,
    older_manifest: bool = False,
) -> Removed:
    """Delete what only released pins have held; ``removal`` deletes what none of its roots reach.

    ``Corrupt`` if a pin shows that the manifest is an older one that was put back, which does not
    lead to all that is needed; with ``older_manifest`` that is what its owner wants.

    The manifest is read between two listings of the pins:

    1  It is younger than what the released pins point to. What it does not link, no later manifest
       will link.
    2  A pin that the second listing does not show was written later. It counts only if a manifest
       that is younger still links what it holds.
    """
    removed = Removed()
    while True:
        _, released = await pins.release_expired()
        if not released:
            return removed
        manifest, etag = await load_manifest(store)
        if not older_manifest:
            check_pins(released, manifest)
        held, _ = await pins.release_expired()
        roots = [Root("the manifest", manifest.entries), *map(root_of, held)]
        for pin in released:
            try:
                removed += await removal(roots).remove(pin.entries)
            except NotFound as gone:
                await reloads.after(gone, etag)
                break
            with contextlib.suppress(Conflict):  # another collector has cleared it
                await pins.clear(pin)
        else:
            return removed
