"""The plan that is installed in ``gc/GARBAGE``: at most one change of the past at a time.

    empty ──► installed ──► published, and when that was noted ──► empty

An empty plan is an object too, with a write id of its own, so that each step is a compare-and-swap
and no two versions are equal. What has become of a plan is read off the manifest, not off this.
"""

from __future__ import annotations

import msgspec

from stratalog.errors import Conflict, Exists
from stratalog.objectlog.stored import GARBAGE_PATH, Garbage, load_garbage
from stratalog.runtime import Runtime
from stratalog.store import Blob, Landed, Patience, Store, create, swap


class InstalledPlan:
    """The place of the plan of one log."""

    def __init__(self, store: Store, writer: str, timeout_s: float, runtime: Runtime) -> None:
        self._store = store
        self._writer = writer
        self._timeout_s = timeout_s
        self._runtime = runtime

    async def check_empty(self) -> str | None:
        """The etag of the empty plan, if there is an object. ``Conflict`` if one is installed."""
        found, etag = await load_garbage(self._store)
        if found is not None and not found.is_empty:
            raise _under_way(found)
        return etag

    async def install(self, plan: Garbage, etag: str | None) -> None:
        """Put a plan in the place of the empty one. ``Conflict`` if another was faster."""
        if etag is None:
            try:
                await create(self._store, GARBAGE_PATH, plan.to_json(), self._patience())
            except Exists:
                raise _under_way(plan) from None
        elif not await self._swap(plan, etag):
            raise _under_way(plan)

    async def note_published(self, plan: Garbage) -> Garbage:
        """Write down when the plan was seen to be published, for the courtesy to readers."""
        stored, etag = await load_garbage(self._store)
        if stored is None or etag is None or stored.plan_id != plan.plan_id:
            return plan
        if stored.published_us is not None:
            return stored
        noted = msgspec.structs.replace(
            stored, published_us=self._runtime.now_us(), write_id=self._runtime.new_id()
        )
        await self._swap(noted, etag)
        return noted

    async def is_there(self, plan: Garbage) -> bool:
        stored, _ = await load_garbage(self._store)
        return stored is not None and stored.plan_id == plan.plan_id

    async def empty(self, plan: Garbage) -> None:
        """Put an empty plan in the place of this one. Done if another is there already."""
        stored, etag = await load_garbage(self._store)
        if stored is not None and etag is not None and stored.plan_id == plan.plan_id:
            await self._swap(Garbage.empty(self._writer, self._runtime.new_id()), etag)

    async def _swap(self, plan: Garbage, etag: str) -> bool:
        def is_ours(blob: Blob) -> bool:
            return Garbage.from_json(blob.data, GARBAGE_PATH).write_id == plan.write_id

        data, patience = plan.to_json(), self._patience()
        settled = await swap(self._store, GARBAGE_PATH, data, etag, is_ours, patience)
        return isinstance(settled, Landed)

    def _patience(self) -> Patience:
        return Patience(self._runtime, self._timeout_s)


def _under_way(plan: Garbage) -> Conflict:
    return Conflict(
        "another collection of this log is under way",
        path=GARBAGE_PATH,
        hint="Let it finish, or go on with it: `stratalog collect` does.",
        actual=plan.plan_id,
    )
