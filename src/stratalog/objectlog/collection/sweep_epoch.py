"""The rule of the sweep epoch: what is linked was uploaded in the epoch of the manifest.

    manifest    ``sweep_epoch``, which only goes up
    upload      notes the epoch before its first byte is sent
    linking     only into a manifest of the same epoch; otherwise it is uploaded again

A sweep lists what nothing links and then raises the epoch. Every object of that list began to be
uploaded before, so nobody can link it any more, however long its writer sleeps. Uploads of a long
job are spared as long as their guard is live, and may be linked in a later epoch.

Raising the epoch is here. The writer's ``committer`` and ``bulk.commit`` compare it when they link,
and ``sweep_log`` lists and deletes.
"""

import msgspec

from stratalog.objectlog.stored import Manifest
from stratalog.objectlog.tree import amend
from stratalog.runtime import Runtime
from stratalog.store import Patience, Store


async def raise_epoch(store: Store, epoch: int, runtime: Runtime, timeout_s: float) -> Manifest:
    """See to it that ``sweep_epoch`` is at least ``epoch``.

    From then on, what began to be uploaded in an earlier epoch cannot be linked any more.
    """

    def change(manifest: Manifest) -> Manifest | None:
        if manifest.sweep_epoch >= epoch:
            return None
        return msgspec.structs.replace(manifest, sweep_epoch=epoch, write_id=runtime.new_id())

    return await amend(store, change, Patience(runtime, timeout_s))
