"""The same work for each of many logs, in Spark tasks: a task does several logs at a time.

What a log gives is small and comes back to the caller, one outcome a log. A log that fails does not
stop the others: its error is its outcome. What the store was asked for is counted. A few logs are
done by this process, which takes less time than to start tasks for them.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import pyarrow as pa

from stratalog.blocking import loop_thread
from stratalog.errors import NotFound, StratalogError
from stratalog.objectlog.stored import MANIFEST_PATH
from stratalog.pipeline.jobs.logs import LogRef, open_root, resolve
from stratalog.pipeline.jobs.trouble import Trouble
from stratalog.pipeline.spark import (
    OnTasks,
    frame_of,
    readable_spark_errors,
    slots_of,
    watched,
    whole_errors,
)
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import CountedStore, PatientStore, Store, Usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

HERE_MAX = 128
LOGS_PER_TASK_MAX = 1000
LOGS_AT_ONCE = 32
TASKS_PER_SLOT = 2
READ_TIMEOUT_S = 60.0

Work = Callable[[Store, LogRef], Awaitable[T]]
"""What is done for a log, given the root of its herd. Travels to the workers by pickle."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What became of one log: a value or an error."""

    ref: LogRef
    value: T | None = None
    error: StratalogError | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the log itself is not there any more."""
        if not isinstance(self.error, NotFound):
            return False
        path = self.error.path or ""
        return path.endswith(MANIFEST_PATH) or path.startswith("catalogue/")


@dataclass(frozen=True, slots=True)
class Outcomes(Generic[T]):
    """What became of all of them, in their order, and what it took."""

    outcomes: tuple[Outcome[T], ...]
    usage: Usage

    @property
    def values(self) -> list[T]:
        return [each.value for each in self.outcomes if each.value is not None]

    @property
    def gone(self) -> int:
        """How many of the logs are not there any more."""
        return sum(each.is_gone for each in self.outcomes)

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """The logs that failed, and why."""
        return tuple(
            Trouble(each.ref.label, each.error)
            for each in self.outcomes
            if each.error is not None and not each.is_gone
        )


def for_each_log(
    spark: SparkSession,
    root_url: str,
    refs: Sequence[LogRef],
    work: Work[T],
    *,
    at_once: int = LOGS_AT_ONCE,
    here_max: int = HERE_MAX,
    tasks_per_slot: int = TASKS_PER_SLOT,
    on_tasks: OnTasks | None = None,
) -> Outcomes[T]:
    """Do ``work`` for each of these logs, in as many tasks as keep the session busy.

    At most ``here_max`` logs are done without tasks. ``work`` is unpickled anew in each task, so an
    object may keep in itself what the logs of one task share.
    """
    if len(refs) <= here_max:
        return Outcomes(*loop_thread().run(lambda: _share(root_url, refs, work, at_once)))

    def make(share: Sequence[LogRef]) -> Iterator[pa.RecordBatch]:
        with whole_errors():
            done = loop_thread().run(lambda: _share(root_url, share, work, at_once))
        yield pa.RecordBatch.from_pydict({"done": pa.array([pickle.dumps(done)], pa.binary())})

    shares = shares_of(refs, slots_of(spark) * tasks_per_slot)
    with readable_spark_errors(), watched(spark, on_tasks):
        rows = frame_of(spark, shares, make, "done binary").toArrow()
    outcomes: tuple[Outcome[T], ...] = ()
    usage = Usage()
    for data in rows.column("done").to_pylist():
        found, used = cast(tuple[tuple[Outcome[T], ...], Usage], pickle.loads(data))
        outcomes += found
        usage += used
    return Outcomes(outcomes, usage)


def shares_of(refs: Sequence[LogRef], tasks: int) -> list[tuple[LogRef, ...]]:
    """The logs in shares of about the same number, for so many tasks or more."""
    size = max(1, min(LOGS_PER_TASK_MAX, -(-len(refs) // max(1, tasks))))
    return [tuple(refs[start : start + size]) for start in range(0, len(refs), size)]


async def _share(
    root_url: str, refs: Sequence[LogRef], work: Work[T], at_once: int
) -> tuple[tuple[Outcome[T], ...], Usage]:
    counted = CountedStore(open_root(root_url))
    root = PatientStore(counted, DEFAULT_RUNTIME, READ_TIMEOUT_S)
    room = asyncio.Semaphore(at_once)

    async def one(ref: LogRef) -> Outcome[T]:
        async with room:
            try:
                ref, _ = await resolve(root, ref)
                return Outcome(ref, await work(root, ref))
            except StratalogError as error:
                return Outcome(ref, error=error)

    return tuple(await asyncio.gather(*map(one, refs))), counted.usage
