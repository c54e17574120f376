"""How far a Spark job is, reported while the thread that started it waits for its result.

A classic session is polled from a thread; Spark Connect calls a handler. Progress counts tasks: how
many have ended, and how many are known so far.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stratalog.runtime import DEFAULT_RUNTIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.25
SLOTS_DEFAULT = 8

OnProgress = Callable[[int, int], None]
"""Called with how much is done and how much there is: tasks of Spark if nothing else is said."""


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect, which has no context on this side."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def slots_of(spark: SparkSession) -> int:
    """How many tasks can run at one time, as far as the session knows."""
    if not is_remote(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    parallelism = spark.conf.get("spark.default.parallelism", None)
    return max(1, int(parallelism)) if parallelism else SLOTS_DEFAULT


def watched(
    spark: SparkSession, on_progress: OnProgress | None
) -> contextlib.AbstractContextManager[None]:
    """Report the jobs that are started inside. ``on_progress`` is called in another thread."""
    if on_progress is None:
        return contextlib.nullcontext()
    return (_handled if is_remote(spark) else _polled)(spark, on_progress)


@contextmanager
def _handled(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    def handler(stages: Iterable[Any] | None, **_: object) -> None:
        known = [*(stages or ())]
        done = sum(stage.num_completed_tasks for stage in known)
        on_progress(done, sum(stage.num_tasks for stage in known))

    registered: Any = handler
    spark.registerProgressHandler(registered)
    try:
        yield
    finally:
        spark.removeProgressHandler(registered)


@contextmanager
def _polled(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    context: Any = spark.sparkContext
    group = f"stratalog-{DEFAULT_RUNTIME.new_id()}"
    before = context.getLocalProperty("spark.jobGroup.id")
    ended = threading.Event()

    def poll() -> None:
        while not ended.wait(LOOK_EVERY_S):
            with contextlib.suppress(Exception):  # the session may be stopped at any moment
                _report(context.statusTracker(), group, on_progress)

    context.setLocalProperty("spark.jobGroup.id", group)
    polling = threading.Thread(target=poll, name="stratalog-watch", daemon=True)
    polling.start()
    try:
        yield
    finally:
        ended.set()
        polling.join()
        context.setLocalProperty("spark.jobGroup.id", before)


def _report(tracker: Any, group: str, on_progress: OnProgress) -> None:
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    if known:
        on_progress(
            sum(stage.numCompletedTasks for stage in known),
            sum(stage.numTasks for stage in known),
        )
