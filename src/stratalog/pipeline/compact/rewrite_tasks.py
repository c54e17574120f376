"""Rewriting what a compaction changes in Spark's tasks, where there is much of it.

Reading, hashing and storing a fragment is nearly all of the work, and groups of fragments do not
depend on each other. The driver decides which belong together, tasks rewrite them under the guard
of the driver, and the driver links what they have stored. A task that Spark repeats uploads under
other names; what the first attempt has left is swept.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql import SparkSession

from stratalog.blocking import loop_thread
from stratalog.indexset import IndexSet
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import Group, Replaced, Rewrite, Rewriter
from stratalog.objectlog.holds import UploadGuard
from stratalog.objectlog.stored import ByteCache, Snapshot, UploadNames
from stratalog.objectlog.tree import Tree
from stratalog.pipeline.spark import OnProgress, in_groups, in_tasks, slots_of
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, open_store

HERE_BYTES_MAX = 32 << 20
"""So much is rewritten by the driver in less time than tasks take to start."""

TASK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Share:
    place: str
    groups: tuple[Group, ...]
    live: IndexSet
    incarnation: str
    options: CompactOptions


def rewriting_in_tasks(spark: SparkSession, place: str, options: CompactOptions) -> Rewrite:
    """How the fragments of a log are rewritten on a session, or here if there are few."""

    async def rewrite(
        groups: Sequence[Group], live: IndexSet, guard: UploadGuard, on_progress: OnProgress | None
    ) -> list[Replaced]:
        whole = sum(map(_bytes_of, groups))
        if whole <= HERE_BYTES_MAX:
            rewriter = _rewriter(place, live, options)
            return await rewriter.rewrite(groups, guard.names, on_progress)
        room = min(TASK_BYTES, -(-whole // slots_of(spark)))  # for as many as keep it busy
        shares = [
            _Share(place, tuple(each), _within(live, each), guard.incarnation, options)
            for each in in_groups(groups, _bytes_of, room, evenly=True)
        ]
        loop = asyncio.get_running_loop()
        return await _to_its_end(loop.run_in_executor(None, _run, spark, shares, on_progress))

    return rewrite


async def _to_its_end(job: asyncio.Future[list[Replaced]]) -> list[Replaced]:
    """Wait for it, however often this is cancelled: the guard is released next, and an erasure must
    not take that for the end of all tasks."""
    cancelled: asyncio.CancelledError | None = None
    while not job.done():
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        job.exception()  # whatever it was, it has ended
        raise cancelled
    return job.result()


def _run(
    spark: SparkSession, shares: Sequence[_Share], on_progress: OnProgress | None
) -> list[Replaced]:
    whole = sum(len(group.fragments) for share in shares for group in share.groups)

    def report(done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(whole * done // max(1, total), whole)

    return [each for done in in_tasks(spark, shares, _in_task, report) for each in done]


def _in_task(share: _Share) -> list[Replaced]:
    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    names = UploadNames.of_share(share.incarnation, context.taskAttemptId() + 1)
    rewriter = _rewriter(share.place, share.live, share.options)
    return loop_thread().run(lambda: rewriter.rewrite(share.groups, names))


def _rewriter(place: str, live: IndexSet, options: CompactOptions) -> Rewriter:
    store = PatientStore(open_store(place), DEFAULT_RUNTIME, options.timeout_s)
    return Rewriter(store, Tree(store, ByteCache[Snapshot](0)), live, options, DEFAULT_RUNTIME)


def _bytes_of(group: Group) -> int:
    return sum(each.num_bytes for each in group.fragments if each is not group.keeper)


def _within(live: IndexSet, groups: Sequence[Group]) -> IndexSet:
    first, last = groups[0].fragments[0], groups[-1].fragments[-1]
    return live.within(range(first.start.offset, last.limit.offset))
