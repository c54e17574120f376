"""Materialize: merge what the logs of a herd have added into their outputs.

    look at each log ──► one merge over all on Spark ──► publish each output ──► move its cursor

Many small logs share one Spark job, and a large one is divided over several tasks and files. A log
that fails is told in ``troubles``, and the others go on. Whatever crashes where, the next run goes
on from what is published: see ``outputs`` for the protocol and ``merging`` for what a merge is.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from stratalog.blocking import loop_thread
from stratalog.errors import Conflict, Corrupt, Invalid, NotFound, StratalogError
from stratalog.objectlog.stored import MANIFEST_PATH
from stratalog.objectlog.tree import Window, missing
from stratalog.pipeline.jobs import LogRef, Trouble, find_logs, open_root, place_of, resolve
from stratalog.pipeline.materialize.merge import Merge
from stratalog.pipeline.materialize.merge_job import (
    Merged,
    MergeJob,
    Work,
    failure_of,
    is_fault_of_data,
)
from stratalog.pipeline.materialize.results import (
    Materialized,
    MaterializedLog,
    MaterializeOptions,
    MaterializeProgress,
    OnProgress,
    Stage,
)
from stratalog.pipeline.outputs import Outputs, Standing
from stratalog.pipeline.source import Part, part_of
from stratalog.pipeline.spark import below, readable_spark_errors, watched
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import CountedStore, PatientStore, Usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "MaterializeOptions",
    "MaterializeProgress",
    "Materialized",
    "MaterializedLog",
    "Trouble",
    "materialize",
]

T = TypeVar("T")
U = TypeVar("U")

LOGS_AT_ONCE = 32
"""How many logs are looked at, or published, at a time."""

LOGS_PER_HOP = 512
"""After so many the caller hears of the progress."""

UNMERGED_MAX = 8
"""More logs than so many with a record that the merge refuses, and the run fails."""

TIMEOUT_S = 60.0

DEFAULT_OPTIONS = MaterializeOptions()


def materialize(
    spark: SparkSession,
    root_url: str,
    merge: Merge,
    *,
    logs: Sequence[str] | None = None,
    log_ids: Sequence[str] | None = None,
    options: MaterializeOptions = DEFAULT_OPTIONS,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Materialized:
    """Merge the new records of these logs, by name or by id, or of all logs of a herd.

    Give ``log_ids`` what a roll-up has selected. A wrong expression or a merge that does not fit
    is ``Invalid`` before anything is read. Of merging ``on_progress`` hears in another thread.
    """
    if logs is not None and log_ids is not None:
        raise Invalid("logs are named or given by their ids, not both", hint="Leave one out.")
    place = place_of(root_url)
    job = MergeJob(
        spark, place, merge, options.job, options.split_bytes, options.file_bytes, options.verify
    )
    job.check()
    return _Run(place, job, options, on_progress, runtime).run(logs, log_ids)


class _Run:
    """One run, and what it has done so far."""

    def __init__(
        self,
        place: str,
        job: MergeJob,
        options: MaterializeOptions,
        on_progress: OnProgress | None,
        runtime: Runtime,
    ) -> None:
        self._place = place
        self._job = job
        self._options = options
        self._on_progress = on_progress
        self._runtime = runtime
        self._counted = CountedStore(open_root(place))
        self._root = PatientStore(self._counted, runtime, TIMEOUT_S)
        self._merge_identity: str | None = getattr(job.merge, "identity", None)
        self._outputs = Outputs(
            self._counted,
            options.job,
            cursor=options.cursor,
            merge=self._merge_identity,
            runtime=runtime,
        )
        self._done: list[MaterializedLog] = []
        self._troubles: list[Trouble] = []
        self._named: dict[str, str] = {}
        self._unchanged = 0
        self._caught_up = 0
        self._unmerged = 0
        self._other_merge: str | None = None
        self._spent_us: Counter[Stage] = Counter()
        self._of_tasks = Usage()

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
            unchanged=self._unchanged,
            caught_up=self._caught_up,
            troubles=tuple(self._troubles),
            plan_s=self._spent_us["plan"] / 1e6,
            merge_s=self._spent_us["merge"] / 1e6,
            publish_s=self._spent_us["publish"] / 1e6,
            usage=self._counted.usage + self._of_tasks,
        )

    # Planning

    def _batches(
        self, logs: Sequence[str] | None, log_ids: Sequence[str] | None
    ) -> Iterator[list[Work]]:
        """The logs with news, as many as one Spark job may have at a time."""
        works: list[Work] = []
        for looked in self._looked(logs, log_ids):
            works += self._without_twins(looked)
            while len(works) >= self._options.logs_at_once:
                yield works[: self._options.logs_at_once]
                works = works[self._options.logs_at_once :]
        if works:
            yield works

    def _looked(
        self, logs: Sequence[str] | None, log_ids: Sequence[str] | None
    ) -> Iterator[list[Work]]:
        with self._spending("plan"):
            refs, look = self._chosen(logs, log_ids)
        for start in range(0, len(refs), LOGS_PER_HOP):
            with self._spending("plan"):
                some = refs[start : start + LOGS_PER_HOP]
                found = loop_thread().run(partial(_for_each, some, look))
                self._troubles += [each for each in found if isinstance(each, Trouble)]
            self._refuse_other_merge()
            self._tell("plan", start + len(some), len(refs))
            yield [each for each in found if isinstance(each, Work)]

    def _chosen(
        self, logs: Sequence[str] | None, log_ids: Sequence[str] | None
    ) -> tuple[list[LogRef], Callable[[LogRef], Awaitable[Work | Trouble | None]]]:
        if logs is not None:
            return [LogRef(name) for name in dict.fromkeys(logs)], self._look
        if log_ids is not None:
            return [LogRef(None, log_id) for log_id in dict.fromkeys(log_ids)], self._look
        return loop_thread().run(lambda: find_logs(self._root)), self._look_if_there

    async def _look_if_there(self, ref: LogRef) -> Work | Trouble | None:
        """The catalogue lists names of logs that were dropped, too."""
        try:
            ref, _ = await resolve(self._root, ref)
        except NotFound:
            return None
        except StratalogError as error:
            return Trouble(ref.label, error)
        return await self._look(ref)

    async def _look(self, ref: LogRef) -> Work | Trouble | None:
        """What there is to do for a log, if anything."""
        try:
            return await self._planned_again(ref)
        except StratalogError as error:
            return Trouble(ref.label, error)

    async def _planned_again(self, ref: LogRef) -> Work | None:
        """Planned twice if a node of the tree is gone: a collection may have replaced it."""
        try:
            return await self._planned(ref)
        except NotFound as gone:
            if not _is_of_a_node(gone):
                raise
        try:
            return await self._planned(ref)
        except NotFound as gone:
            raise (missing(gone.path) if _is_of_a_node(gone) else gone) from None

    async def _planned(self, ref: LogRef) -> Work | None:
        ref, store = await resolve(self._root, ref)
        assert ref.log_id is not None
        standing, manifest = await self._outputs.look(ref.log_id, ref.name)
        self._compare_merge(standing)
        if standing.records:
            url = below(self._place, f"logs/{ref.log_id}")
            window = Window(standing.start, standing.limit)
            part = await part_of(store, url, manifest, window, log=standing.name)
            _check_whole(part)
            return Work(standing, part)
        if standing.is_behind and standing.output is not None:
            await self._outputs.advance(standing, standing.output)
            self._caught_up += 1
        self._unchanged += 1
        return None

    def _compare_merge(self, standing: Standing) -> None:
        """Note it if the output was merged by something else, which is no matter of one log."""
        before = None if standing.output is None else standing.output.merge
        if None not in (before, self._merge_identity) and before != self._merge_identity:
            self._other_merge = before

    def _refuse_other_merge(self) -> None:
        if self._other_merge is not None:
            raise Invalid(
                f"the job {self._options.job!r} has merged by another rule until now",
                hint="Give the new rule another job name and a cursor of its own.",
                expected=self._other_merge,
                actual=self._merge_identity,
            )

    def _without_twins(self, works: Sequence[Work]) -> Iterator[Work]:
        """Rows carry the names of their logs, so no two logs of one name go together."""
        for work in works:
            log_id = self._named.setdefault(work.name, work.standing.log_id)
            if log_id == work.standing.log_id:
                yield work
                continue
            error = Conflict(
                f"the logs {log_id} and {work.standing.log_id} are both called {work.name!r}",
                hint="One of them is about to be destroyed. Run again without it.",
            )
            self._troubles.append(Trouble(work.standing.log_id, error))

    # Merging

    def _merge(self, works: list[Work]) -> tuple[Merged | None, list[list[Work]]]:
        """Merge these logs. If that fails, what to merge in place of them."""
        tell = partial(self._tell, "merge") if self._on_progress is not None else None
        try:
            with watched(self._job.spark, tell):
                merged = self._job.run(works)
            self._count_requests(works, merged)
            return merged, []
        except Exception as error:
            failure = failure_of(error)
            if failure is None or failure is error:
                raise
            is_of_data = is_fault_of_data(error)
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
        self._troubles.append(Trouble(works[0].name, failure))
        return []

    def _without_guilty(self, works: list[Work], failure: StratalogError) -> list[Work]:
        """The logs that can be read. If all can, the failure has another reason."""
        with readable_spark_errors():
            guilty = self._job.troubles_of(works)
        if not guilty:
            raise failure
        self._troubles += [Trouble(log, error) for log, error in guilty.items()]
        return [work for work in works if work.name not in guilty]

    def _count_requests(self, works: Sequence[Work], merged: Merged) -> None:
        last = [work.last for work in works if work.last is not None]
        files = [file for each in merged.files.values() for file in each]
        self._of_tasks += Usage(
            class_a_requests=len(files),
            class_b_requests=sum(len(work.part.fragments) for work in works)
            + sum(len(output.files) for output in last),
            bytes_written=sum(file.num_bytes for file in files),
            bytes_read=sum(work.num_bytes for work in works),
        )

    # Publishing

    def _publish(self, works: Sequence[Work], merged: Merged) -> None:
        publish = partial(self._publish_one, merged)
        for start in range(0, len(works), LOGS_PER_HOP):
            some = works[start : start + LOGS_PER_HOP]
            for each in loop_thread().run(partial(_for_each, some, publish)):
                if isinstance(each, Trouble):
                    self._troubles.append(each)
                else:
                    self._done.append(each)
            self._tell("publish", start + len(some), len(works))

    async def _publish_one(self, merged: Merged, work: Work) -> MaterializedLog | Trouble:
        standing, files = work.standing, merged.files.get(work.name, [])
        try:
            output = await self._outputs.publish(standing, files, merged.schema_json)
        except StratalogError as error:
            return Trouble(work.name, error)
        return MaterializedLog(
            name=work.name,
            log_id=standing.log_id,
            records=standing.records,
            rows=output.rows,
            bytes_in=work.part.num_bytes,
            bytes_out=output.num_bytes,
            files=len(files),
            upto=output.upto,
            version=output.version,
        )

    # Telling

    def _tell(self, stage: Stage, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(MaterializeProgress(stage, done, total))

    @contextmanager
    def _spending(self, stage: Stage) -> Iterator[None]:
        started_us = self._runtime.now_us()
        yield
        self._spent_us[stage] += self._runtime.now_us() - started_us


async def _for_each(items: Sequence[T], work: Callable[[T], Awaitable[U]]) -> list[U]:
    """What ``work`` gives for each item, a few at a time."""
    room = asyncio.Semaphore(LOGS_AT_ONCE)

    async def one(item: T) -> U:
        async with room:
            return await work(item)

    return await asyncio.gather(*map(one, items))


def _check_whole(part: Part) -> None:
    """Refuse a stretch with a hole: what is not read now is passed over for ever."""
    at, limit = part.window.from_offset, part.window.to_offset
    for fragment in part.fragments:
        if fragment.start.offset > at:
            break
        at = fragment.limit.offset
    if limit is None or at < limit:
        raise Corrupt(f"the records from {at} to {limit} are not in the tree", path=MANIFEST_PATH)


def _is_of_a_node(gone: NotFound) -> bool:
    """Whether a node of a log's tree is not there, in contrast to the log."""
    return "/snapshot/" in f"/{gone.path}"
