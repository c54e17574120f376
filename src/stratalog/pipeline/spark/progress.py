"""How far a Spark job is, told while the thread that started it waits for its result.

A classic session is asked from time to time; a session of Spark Connect tells by itself. What is
told are tasks: how many have ended, and how many are known so far.
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

OnTasks = Callable[[int, int], None]
"""Called with how many tasks have ended and how many there are."""


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect, which has no context on this side."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def slots_of(spark: SparkSession) -> int:
    """How many tasks can run at one time, as far as the session tells."""
    if not is_remote(spark):
        return max(1, spark.sparkContext.defaultParallelism)
    told = spark.conf.get("spark.default.parallelism", None)
    return max(1, int(told)) if told else SLOTS_DEFAULT


@contextmanager
def watched(spark: SparkSession, tell: OnTasks | None) -> Iterator[None]:
    """Let ``tell`` hear of the jobs that are started inside, from another thread."""
    if tell is None:
        yield
    elif is_remote(spark):
        with _told(spark, tell):
            yield
    else:
        with _asked(spark, tell):
            yield


@contextmanager
def _told(spark: SparkSession, tell: OnTasks) -> Iterator[None]:
    def handler(stages: Iterable[Any] | None, **_: object) -> None:
        known = [*(stages or ())]
        done = sum(stage.num_completed_tasks for stage in known)
        tell(done, sum(stage.num_tasks for stage in known))

    registered: Any = handler
    spark.registerProgressHandler(registered)
    try:
        yield
    finally:
        spark.removeProgressHandler(registered)


@contextmanager
def _asked(spark: SparkSession, tell: OnTasks) -> Iterator[None]:
    context: Any = spark.sparkContext
    group = f"stratalog-{DEFAULT_RUNTIME.new_id()}"
    before = context.getLocalProperty("spark.jobGroup.id")
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(LOOK_EVERY_S):
            with contextlib.suppress(Exception):  # the session may be stopped at any moment
                _tell_stages(context.statusTracker(), group, tell)

    context.setLocalProperty("spark.jobGroup.id", group)
    asking = threading.Thread(target=ask, name="stratalog-watch", daemon=True)
    asking.start()
    try:
        yield
    finally:
        ended.set()
        asking.join()
        context.setLocalProperty("spark.jobGroup.id", before)


def _tell_stages(tracker: Any, group: str, tell: OnTasks) -> None:
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    if known:
        tell(
            sum(stage.numCompletedTasks for stage in known),
            sum(stage.numTasks for stage in known),
        )
