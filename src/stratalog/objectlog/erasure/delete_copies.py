"""What may have a copy of a record beside the log itself: it is deleted or reported.

    released pins     what only they held is deleted
    unlinked objects  a sweep deletes them; it spares what live jobs have uploaded, and pins hold
    key index         a cache that may know a record; it is deleted
    compactions       one that is under way may have read a record, and store it again later
    loads             one may have uploaded a record twice, and the sweep spares it
    ahead             uploads beyond the tail, which the sweep spares as well: a writer may have
                      appended their records again, under other offsets

The order matters:

1  Jobs are listed before the sweep. What one has stored that has ended until then is there to be
   swept.
2  A pin may be released until the end, or point elsewhere, so pins are cleared again after the
   sweep.
"""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from stratalog.errors import Conflict, NotFound
from stratalog.indexset import IndexSet
from stratalog.objectlog.collection import Collector, SweepReport, sweep_noting
from stratalog.objectlog.compaction import STAGE_NOTE
from stratalog.objectlog.erasure.find_holders import Holder
from stratalog.objectlog.holds import StoredUploadGuard, UploadGuardStore
from stratalog.objectlog.options import CompactOptions, SweepOptions
from stratalog.objectlog.stored import Fragment, Kind, own
from stratalog.objectlog.tree import delete_surely
from stratalog.runtime import Runtime
from stratalog.store import Patience, Store

INDEX_PREFIX = "live/"


@dataclass(frozen=True, slots=True)
class Copies:
    """What was found and deleted beside the log itself."""

    stages: tuple[Holder, ...]
    """Jobs that may have a copy of a record."""

    swept: int
    left: tuple[Fragment, ...]
    """What the sweep has left to pins, as far as it may have a record that was to go."""


async def delete_copies(
    url: Store,
    store: Store,
    collector: Collector,
    wanted: IndexSet,
    options: CompactOptions,
    runtime: Runtime,
    *,
    older_manifest: bool = False,
) -> Copies:
    """Delete the copies of these records that can be deleted. ``store`` is the patient ``url``."""
    await collector.clear_pins()
    listed = await UploadGuardStore(url, runtime=runtime).list()
    left: list[Fragment] = []

    def note(fragment: Fragment) -> None:
        if wanted.overlaps(fragment.offsets):
            left.append(fragment)

    limits = SweepOptions(timeout_s=options.timeout_s)
    sweeping = partial(sweep_noting, url, note, limits, runtime, older_manifest=older_manifest)
    swept = await _sweep(sweeping, collector, options.attempts_max)
    await collector.clear_pins()
    await _forget_index(store, options, runtime)
    may_have_read = [each for each in listed if each.state == "live" and each.note == STAGE_NOTE]
    may_repeat = [each for each in swept.sparing if each.batch is None]
    stages = {each.incarnation: each for each in (*may_have_read, *may_repeat)}
    ahead = [
        Holder(kind="stage", name=each, note="uploads beyond the tail") for each in swept.doubtful
    ]
    holders = (*(_holder(each) for each in stages.values()), *ahead)
    return Copies(holders, swept.deleted.objects, tuple(left))


async def _forget_index(store: Store, options: CompactOptions, runtime: Runtime) -> None:
    listed = [row.path async for row in store.list(INDEX_PREFIX)]
    paths = [path for path in listed if (o := own(path)) is not None and o.kind is Kind.INDEX]
    await delete_surely(store, paths, Patience(runtime, options.timeout_s))


async def _sweep(
    sweeping: Callable[[], Awaitable[SweepReport]], collector: Collector, attempts_max: int
) -> SweepReport:
    for _ in range(attempts_max - 1):
        with contextlib.suppress(Conflict):
            return await sweeping()
        with contextlib.suppress(NotFound):  # another collector was faster
            await collector.finish()
    return await sweeping()


def _holder(stage: StoredUploadGuard) -> Holder:
    note = f"{stage.note or 'a job'}, by {stage.owner}"
    return Holder(kind="stage", name=stage.incarnation, note=note)
