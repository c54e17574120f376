"""Materialize: merge what the logs of a herd have added into their outputs.

    look at each log ──► one merge over all on Spark ──► publish each output ──► move its cursor

Many small logs share one Spark job, and a large one is divided over several tasks and files. A log
that fails is listed in ``troubles``, and the others go on. After a crash the next run goes on from
what is published: see ``outputs`` for the protocol and ``merge`` for what a merge is.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pyspark.sql import SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid, StratalogError
from stratalog.ordered import gather_bounded
from stratalog.pipeline.jobs import LOGS_AT_ONCE, Counted, HerdJob, Trouble
from stratalog.pipeline.materialize.merge import Merge
from stratalog.pipeline.materialize.merge_job import (
    MaterializeOptions,
    Merged,
    MergeJob,
    Work,
    failure_of,
)
from stratalog.pipeline.materialize.plan import Planner
from stratalog.pipeline.outputs import Outputs
from stratalog.pipeline.spark import watched
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Usage

LOGS_PER_HOP = 512
"""After so many logs progress is reported."""

UNMERGED_MAX = 8
"""More logs than so many with a record that the merge refuses, and the run fails."""

Phase = Literal["plan", "merge", "publish"]


@dataclass(frozen=True, slots=True)
class MaterializeProgress:
    """How far a run is."""

    stage: Phase
    done: int
    """How many logs are through this phase; while merging, how many of Spark's tasks."""

    total: int


OnPhase = Callable[[MaterializeProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedLog:
    """What was published of one log."""

    name: str
    log_id: str
    records: int
    """How many records were merged in."""

    rows: int
    """How many rows the output has now."""

    bytes_in: int
    """The bytes of the fragments that hold the records."""

    bytes_out: int
    """The bytes of the output."""

    files: int
    upto: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized(Counted):
    """What a run did."""

    logs: tuple[MaterializedLog, ...]
    """The logs that have a new output."""

    unchanged: int
    """How many logs had nothing new."""

    caught_up: int
    """How many of those had an output beyond their cursor, which was moved: a run had crashed."""

    troubles: tuple[Trouble, ...]
    plan_s: float
    merge_s: float
    publish_s: float
    usage: Usage
    """What the store was asked for, by the tasks too."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.logs)

    @property
    def bytes_in(self) -> int:
        return sum(each.bytes_in for each in self.logs)

    @property
    def bytes_out(self) -> int:
        return sum(each.bytes_out for each in self.logs)


DEFAULT_OPTIONS = MaterializeOptions()


def materialize(
    spark: SparkSession,
    root_url: str,
    merge: Merge,
    *,
    logs: Sequence[str] | None = None,
    log_ids: Sequence[str] | None = None,
    options: MaterializeOptions = DEFAULT_OPTIONS,
    on_progress: OnPhase | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Materialized:
    """Merge the new records of these logs, by name or by id, or of all logs of a herd.

    Give ``log_ids`` what a roll-up has selected. A wrong expression or a merge that does not fit
    is ``Invalid`` before anything is read. While it merges, ``on_progress`` is called in another
    thread.
    """
    if logs is not None and log_ids is not None:
        raise Invalid("logs are named or given by their ids, not both", hint="Leave one out.")
    herd = HerdJob(spark, root_url, runtime)
    merging = MergeJob(spark, herd.place, merge, options)
    merging.check()
    return _Run(herd, merging, on_progress).run(logs, log_ids)


class _Run:
    def __init__(self, herd: HerdJob, merging: MergeJob, on_progress: OnPhase | None) -> None:
        self._herd = herd
        self._merging = merging
        self._options = options = merging.options
        self._on_progress = on_progress
        identity: str | None = getattr(merging.merge, "identity", None)
        self._outputs = Outputs(
            herd.counted, options.job, cursor=options.cursor, merge=identity, runtime=herd.runtime
        )
        self._planner = Planner(herd, self._outputs, options.job, identity)
        self._done: list[MaterializedLog] = []
        self._unmerged = 0
        self._spent_us: Counter[Phase] = Counter()

    def run(self, logs: Sequence[str] | None, log_ids: Sequence[str] | None) -> Materialized:
        for works in self._batches(logs, log_ids):
            shares = deque([works])
            while shares:
                share = shares.popleft()
                with self._spending("merge"):
                    merged, instead = self._merge(share)
                shares.extendleft(reversed(instead))
                if merged is not None:
                    with self._spending("publish"):
                        self._publish(share, merged)
        return Materialized(
            logs=tuple(self._done),
            unchanged=self._planner.unchanged,
            caught_up=self._planner.caught_up,
            troubles=tuple(self._herd.troubles),
            plan_s=self._spent_us["plan"] / 1e6,
            merge_s=self._spent_us["merge"] / 1e6,
            publish_s=self._spent_us["publish"] / 1e6,
            usage=self._herd.usage,
        )

    def _batches(
        self, logs: Sequence[str] | None, log_ids: Sequence[str] | None
    ) -> Iterator[list[Work]]:
        """The logs with news, as many as one Spark job may have at a time."""
        with self._spending("plan"):
            refs = self._planner.find(logs, log_ids)
        works: list[Work] = []
        for start in range(0, len(refs), LOGS_PER_HOP):
            some = refs[start : start + LOGS_PER_HOP]
            with self._spending("plan"):
                works += self._planner.plan(some)
            self._report("plan", start + len(some), len(refs))
            while len(works) >= self._options.logs_at_once:
                yield works[: self._options.logs_at_once]
                works = works[self._options.logs_at_once :]
        if works:
            yield works

    # Merging

    def _merge(self, works: list[Work]) -> tuple[Merged | None, list[list[Work]]]:
        """Merge these logs. If that fails, what to merge in place of them."""
        report = partial(self._report, "merge") if self._on_progress is not None else None
        try:
            with watched(self._herd.spark, report):
                merged = self._merging.run(works)
            self._herd.add(usage=_requests_of(works, merged))
            return merged, []
        except Exception as error:
            failure, is_of_data = failure_of(error)
            if failure is None or failure is error:
                raise
        if isinstance(failure, Invalid):
            if is_of_data:
                return None, self._halves(works, failure)
            raise failure
        readable = self._without_guilty(works, failure)
        return None, [readable] if readable else []

    def _halves(self, works: list[Work], failure: Invalid) -> list[list[Work]]:
        """A record that cannot be merged is found by halving, and its log left out.

        Where so many have one, it is rather the merge that is wrong.
        """
        if len(works) > 1:
            half = len(works) // 2
            return [works[:half], works[half:]]
        self._unmerged += 1
        if self._unmerged > UNMERGED_MAX:
            raise failure
        self._herd.troubles.append(Trouble(works[0].name, failure))
        return []

    def _without_guilty(self, works: list[Work], failure: StratalogError) -> list[Work]:
        """The logs that can be read. If all can, the failure has another reason."""
        guilty = self._merging.troubles_of(works)
        if not guilty:
            raise failure
        self._herd.troubles += guilty
        names = {each.log for each in guilty}
        return [work for work in works if work.name not in names]

    # Publishing

    def _publish(self, works: Sequence[Work], merged: Merged) -> None:
        publish = partial(self._publish_one, merged)
        for start in range(0, len(works), LOGS_PER_HOP):
            some = works[start : start + LOGS_PER_HOP]
            done = loop_thread().run(partial(gather_bounded, some, publish, LOGS_AT_ONCE))
            for each in done:
                if isinstance(each, Trouble):
                    self._herd.troubles.append(each)
                else:
                    self._done.append(each)
            self._report("publish", start + len(some), len(works))

    async def _publish_one(self, merged: Merged, work: Work) -> MaterializedLog | Trouble:
        files = merged.files.get(work.name, [])
        try:
            output = await self._outputs.publish(work.state, files, merged.schema_json)
        except StratalogError as error:
            return Trouble(work.name, error)
        return MaterializedLog(
            name=work.name,
            log_id=work.state.log_id,
            records=work.state.records,
            rows=output.rows,
            bytes_in=work.part.num_bytes,
            bytes_out=output.num_bytes,
            files=len(files),
            upto=output.upto,
            version=output.version,
        )

    # Progress

    def _report(self, phase: Phase, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(MaterializeProgress(phase, done, total))

    @contextmanager
    def _spending(self, phase: Phase) -> Iterator[None]:
        started_us = self._herd.runtime.now_us()
        yield
        self._spent_us[phase] += self._herd.runtime.now_us() - started_us


def _requests_of(works: Sequence[Work], merged: Merged) -> Usage:
    """What the tasks of a merge have asked the store for."""
    last = [work.last for work in works if work.last is not None]
    files = [file for each in merged.files.values() for file in each]
    return Usage(
        class_a_requests=len(files),
        class_b_requests=sum(len(work.part.fragments) for work in works)
        + sum(len(output.files) for output in last),
        bytes_written=sum(file.num_bytes for file in files),
        bytes_read=sum(work.num_bytes for work in works),
    )
