"""The plan that is installed in ``gc/GARBAGE``: at most one change of the past at a time.

    empty ──► installed ──► published, and when that was noted ──► empty

An empty plan is an object too, with a write id of its own, so that each step is a compare-and-swap
and no two versions are equal. What has become of a plan is read off the manifest, not off this.
"""

import msgspec

from stratalog.errors import Conflict
from stratalog.objectlog.stored import GARBAGE_PATH, Garbage, plan_document
from stratalog.runtime import Runtime
from stratalog.store import Store, Superseded, Version


class InstalledPlan:
    def __init__(self, store: Store, writer: str, timeout_s: float, runtime: Runtime) -> None:
        self._writer = writer
        self._runtime = runtime
        self._plans = plan_document(store, runtime, timeout_s)

    async def check_empty(self) -> Version[Garbage] | None:
        """The empty plan, if there is an object. ``Conflict`` if another is installed."""
        found = await self._plans.read()
        if found is not None and not found.value.is_empty:
            raise _under_way(found.value)
        return found

    async def install(self, plan: Garbage, before: Version[Garbage] | None) -> None:
        """Put a plan in the place of the empty one. ``Conflict`` if another was faster."""
        if isinstance(await self._plans.try_put(before, plan), Superseded):
            raise _under_way(plan)

    async def note_published(self, plan: Garbage) -> Garbage:
        """Write down when the plan was seen to be published, for the courtesy to readers."""
        stored = await self._plans.read()
        if stored is None or stored.value.plan_id != plan.plan_id:
            return plan
        if stored.value.published_us is not None:
            return stored.value
        noted = msgspec.structs.replace(stored.value, published_us=self._runtime.now_us())
        await self._plans.try_put(stored, noted)
        return noted

    async def is_there(self, plan: Garbage) -> bool:
        stored = await self._plans.read()
        return stored is not None and stored.value.plan_id == plan.plan_id

    async def empty(self, plan: Garbage) -> None:
        """Put an empty plan in the place of this one. Done if another is there already."""
        stored = await self._plans.read()
        if stored is not None and stored.value.plan_id == plan.plan_id:
            empty = Garbage.empty(self._writer, self._runtime.new_id())
            await self._plans.try_put(stored, empty)


def _under_way(plan: Garbage) -> Conflict:
    return Conflict(
        "another collection of this log is under way",
        path=GARBAGE_PATH,
        hint="Let it finish, or go on with it: `stratalog collect` does.",
        actual=plan.plan_id,
    )
