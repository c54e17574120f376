"""One job over a herd: where the herd is, which logs it is about, and what it has come to so far.

Each of the jobs (materialize, compact, collect, scrub, verify) begins by making one, finds its logs
with it, and does the same work for each of them. What comes of that adds up here: the logs that
were dropped meanwhile, those that failed, what the store was asked for, and the time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict, TypeVar

from stratalog.blocking import loop_thread
from stratalog.errors import StratalogError
from stratalog.ordered import gather_bounded
from stratalog.pipeline.jobs.logs import LogRef, find_logs, place_of, resolve
from stratalog.pipeline.jobs.results import LogResult, LogResults, Trouble
from stratalog.pipeline.spark import OnProgress, in_tasks, slots_of
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import CountedStore, PatientStore, Store, Usage, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

HERE_MAX = 128
LOGS_PER_TASK_MAX = 1000
LOGS_AT_ONCE = 32
TASKS_PER_SLOT = 2
TIMEOUT_S = 60.0

Work = Callable[[Store, LogRef], Awaitable[T]]
"""What is done for a log, given the root of its herd. Travels to the workers by pickle."""


class Ended(TypedDict):
    gone: int
    troubles: tuple[Trouble, ...]
    seconds: float
    usage: Usage


class HerdJob:
    def __init__(
        self,
        spark: SparkSession,
        root_url: str,
        runtime: Runtime,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.spark = spark
        self.place = place_of(root_url)
        self.runtime = runtime
        self.started_us = runtime.now_us()
        self.counted = CountedStore(open_store(self.place))
        self.root = PatientStore(self.counted, runtime, timeout_s)
        self.gone = 0
        self.troubles: list[Trouble] = []
        self._used_elsewhere = Usage()

    @property
    def usage(self) -> Usage:
        """What the store was asked for, here and by tasks."""
        return self.counted.usage + self._used_elsewhere

    @property
    def seconds(self) -> float:
        return (self.runtime.now_us() - self.started_us) / 1e6

    def find(
        self, names: Sequence[str] | None = None, log_ids: Sequence[str] | None = None
    ) -> list[LogRef]:
        """These logs of the herd, or all."""
        return loop_thread().run(lambda: find_logs(self.counted, names=names, log_ids=log_ids))

    def for_each(
        self,
        refs: Sequence[LogRef],
        work: Work[T],
        *,
        at_once: int = LOGS_AT_ONCE,
        here_max: int = HERE_MAX,
        tasks_per_slot: int = TASKS_PER_SLOT,
        on_progress: OnProgress | None = None,
    ) -> LogResults[T]:
        """Do ``work`` for each of these logs, in as many tasks as keep the session busy.

        A task does several logs at a time. At most ``here_max`` logs are done by this process,
        which takes less time than to start tasks for them. ``work`` is unpickled anew in each task,
        so an object may keep in itself what the logs of one task share.
        """
        place = self.place

        def do(share: Sequence[LogRef]) -> LogResults[T]:
            return loop_thread().run(lambda: _do_all(place, share, work, at_once))

        if len(refs) <= here_max:
            done = do(refs)
        else:
            shares = self.shares(refs, tasks_per_slot)
            done = LogResults.joined(in_tasks(self.spark, shares, do, on_progress))
        self.add(done.gone, done.troubles, done.usage)
        return done

    def shares(self, refs: Sequence[LogRef], tasks_per_slot: int) -> list[tuple[LogRef, ...]]:
        """The logs in shares of about the same number, for so many tasks or more."""
        tasks = slots_of(self.spark) * tasks_per_slot
        size = max(1, min(LOGS_PER_TASK_MAX, -(-len(refs) // max(1, tasks))))
        return [tuple(refs[start : start + size]) for start in range(0, len(refs), size)]

    def add(
        self, gone: int = 0, troubles: Sequence[Trouble] = (), usage: Usage | None = None
    ) -> None:
        """Count what was done elsewhere for this job."""
        self.gone += gone
        self.troubles += troubles
        self._used_elsewhere += usage or Usage()

    def fail(self, ref: LogRef, error: StratalogError) -> LogResult[None]:
        """Count a log for which there was no ``for_each``."""
        result: LogResult[None] = LogResult(ref, error=error)
        self.add(result.is_gone, [*filter(None, [result.trouble])])
        return result

    def ended(self) -> Ended:
        return Ended(
            gone=self.gone,
            troubles=tuple(self.troubles),
            seconds=self.seconds,
            usage=self.usage,
        )


async def _do_all(
    root_url: str, refs: Sequence[LogRef], work: Work[T], at_once: int
) -> LogResults[T]:
    counted = CountedStore(open_store(root_url))
    root = PatientStore(counted, DEFAULT_RUNTIME, TIMEOUT_S)
    results = await gather_bounded(refs, partial(_do, root, work), at_once)
    return LogResults(tuple(results), counted.usage)


async def _do(root: Store, work: Work[T], ref: LogRef) -> LogResult[T]:
    try:
        ref, _ = await resolve(root, ref)
        return LogResult(ref, await work(root, ref))
    except StratalogError as error:
        return LogResult(ref, error=error)
