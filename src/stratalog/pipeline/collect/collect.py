"""Collect a herd: give back the space of what is compacted, in many logs at a time.

    look       which logs have something to give back, or a collection that was cut short
    publish    each log without what goes
    wait       once, for all logs of a task: the courtesy to slow readers
    delete     what the published plans have dropped, then tidy and sweep if asked

Each log is collected as the library does it, in three phases. After a crash the next run goes on.
A log that fails is listed in ``troubles``, and the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Conflict, Corrupt, NotFound
from stratalog.herd import COMPACTION, Catalogue, log_store
from stratalog.objectlog import CollectorOptions
from stratalog.objectlog.collection import Collector, sweep
from stratalog.objectlog.holds import CursorStore
from stratalog.objectlog.stored import POLICY_CURSOR, load_garbage, load_manifest
from stratalog.objectlog.tree import delete_surely
from stratalog.pipeline.jobs import (
    LOGS_AT_ONCE,
    LOGS_PER_TASK_MAX,
    Dropped,
    HerdJob,
    LogRef,
    Trouble,
    check_names,
    require,
)
from stratalog.pipeline.outputs import OUTPUT, Outputs, bytes_of, decode_output, folder_of
from stratalog.pipeline.spark import OnProgress
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, Store, Usage

TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class HerdCollectOptions:
    """How a herd is collected."""

    cursor: str = COMPACTION
    """The cursor that decides whether a log has something to give back."""

    job: str | None = "latest"
    """The job whose leftover files are deleted as well, and with ``sweep`` the outputs of logs that
    were dropped. None leaves them."""

    interval_s: float = 5.0
    """How long after publishing the deletions begin, for the sake of slow readers."""

    sweep: bool = False
    """Also delete the objects that nothing links: of every log, and with a listing of each."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer."""

    here_max: int = 32
    """So many logs are collected by this process, more by Spark's tasks."""

    def __post_init__(self) -> None:
        check_names(self.cursor, self.job)
        require(self.here_max >= 0, "here_max is not negative")
        CollectorOptions(interval_s=self.interval_s, timeout_s=self.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCollect:
    """What was given back by one log."""

    log: str | None
    log_id: str
    records: int
    """How many records went. Others may have come meanwhile."""

    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    fragments: int
    snapshots: int
    output_files: int
    """How many files of outputs were deleted that nothing named."""

    swept: int
    """How many objects were deleted that nothing linked."""

    @property
    def objects(self) -> int:
        """How many objects were deleted."""
        return self.fragments + self.snapshots + self.output_files + self.swept


@dataclass(frozen=True, slots=True, kw_only=True)
class HerdCollect(Dropped):
    """What was given back by all."""

    looked_at: int
    """How many logs there were to choose from."""

    logs: tuple[LogCollect, ...]
    dropped_files: int
    """How many objects of outputs were deleted whose logs were dropped."""

    gone: int
    troubles: tuple[Trouble, ...]
    seconds: float
    usage: Usage = field(default_factory=Usage)

    @property
    def objects(self) -> int:
        """How many objects were deleted."""
        return sum(each.objects for each in self.logs) + self.dropped_files


DEFAULT_OPTIONS = HerdCollectOptions()


def collect_herd(
    spark: SparkSession,
    root_url: str,
    *,
    logs: Sequence[str] | None = None,
    log_ids: Sequence[str] | None = None,
    options: HerdCollectOptions = DEFAULT_OPTIONS,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> HerdCollect:
    """Collect these logs, or all whose cursor lies beyond their first offset.

    The cursor of a policy counts as well: a log that it holds has nothing to give back. With
    ``sweep`` the other logs are swept too, and what only expired pins held is deleted.
    ``on_progress`` counts tasks.
    """
    job = HerdJob(spark, root_url, runtime, timeout_s=options.timeout_s)
    refs = job.find(logs, log_ids)
    looked_at, dropped_files = len(refs), 0
    idle: frozenset[str | None] = frozenset()
    if logs is None and log_ids is None:
        looked = job.for_each(refs, partial(_has_garbage, options.cursor))
        refs = [each.ref for each in looked.results if each.value]
        if options.sweep:
            others = [each.ref for each in looked.results if each.value is False]
            idle = frozenset(ref.log_id for ref in others)
            refs += others
            if options.job is not None:
                removing = partial(
                    _remove_dropped_outputs, job, options.job, {ref.log_id for ref in refs}
                )
                dropped_files = loop_thread().run(removing)
    done = job.for_each(
        refs,
        _Collecting(options, idle),
        at_once=LOGS_PER_TASK_MAX,
        here_max=options.here_max,
        tasks_per_slot=1,
        on_progress=on_progress,
    )
    return HerdCollect(
        looked_at=looked_at, logs=tuple(done.values), dropped_files=dropped_files, **job.ended()
    )


async def _remove_dropped_outputs(job: HerdJob, outputs: str, there: Collection[str | None]) -> int:
    """Delete the ``outputs`` of a job whose logs were dropped. How many objects went.

    A drop frees the name and destroys the log; what jobs have made of it lies elsewhere. Its output
    goes when both can be seen: the catalogue has no such log under the name in OUTPUT, and nothing
    is left of the log itself. An output whose log has merely lost its objects is the last copy of
    its records, and stays. Logs whose ids are ``there`` are not looked at.
    """
    prefix = folder_of(outputs, "")
    by_log: defaultdict[str, list[str]] = defaultdict(list)
    async for row in job.root.list(prefix):
        by_log[row.path.removeprefix(prefix).partition("/")[0]].append(row.path)
    to_delete: list[str] = []
    for log_id, paths in by_log.items():
        if log_id not in there and await _is_dropped(job.root, outputs, log_id, job.runtime):
            to_delete += sorted(paths, key=lambda path: path.endswith(f"/{OUTPUT}"))
    await delete_surely(job.root, to_delete, Patience(job.runtime, TIMEOUT_S))
    return len(to_delete)


async def _is_dropped(root: Store, job: str, log_id: str, runtime: Runtime) -> bool:
    async for _ in log_store(root, log_id).list():
        return False
    path = f"{folder_of(job, log_id)}/{OUTPUT}"
    try:
        output = decode_output((await root.get(path)).data, path)
    except (NotFound, Corrupt):
        return False
    try:
        entry = await Catalogue(root, runtime).find(output.log)
    except NotFound:
        return True
    return entry.id != log_id


async def _has_garbage(cursor: str, root: Store, ref: LogRef) -> bool:
    """Whether a log has something to give back."""
    store = log_store(root, ref.id)
    manifest, _ = await load_manifest(store)
    offsets = []
    for name in dict.fromkeys((cursor, POLICY_CURSOR)):
        with contextlib.suppress(NotFound):
            holder = await CursorStore(store).load(name)
            offsets.append(holder.holds(manifest.first_offset) or 0)
    if min(filter(None, offsets), default=0) > manifest.first_offset:
        return True
    left, _ = await load_garbage(store)
    return left is not None and not left.is_empty


class _Collecting:
    """Collects one log after it was published together with the others of its task."""

    def __init__(self, options: HerdCollectOptions, idle: frozenset[str | None]) -> None:
        """``idle`` are logs that have nothing to give back, and are only tidied and swept."""
        self._options = options
        self._idle = idle
        self._room: asyncio.Semaphore | None = None

    async def __call__(self, root: Store, ref: LogRef) -> LogCollect:
        self._room = room = self._room or asyncio.Semaphore(LOGS_AT_ONCE)
        options, store = self._options, log_store(root, ref.id)
        limits = CollectorOptions(interval_s=options.interval_s, timeout_s=options.timeout_s)
        collector = Collector(store, options=limits)
        is_idle = ref.log_id in self._idle
        async with room:
            before, _ = await load_manifest(store)
            is_published = not is_idle and await _published(collector)
        if is_published:
            await asyncio.sleep(options.interval_s)
        async with room:
            if is_idle:
                removed = await collector.clear_pins()
            else:
                removed = (await collector.collect()).removed
            files = () if options.job is None else await Outputs(root, options.job).tidy(ref.id)
            swept = (await sweep(store)).deleted.objects if options.sweep else 0
            after, _ = await load_manifest(store)
        return LogCollect(
            log=ref.name or before.name,
            log_id=ref.id,
            records=after.first_offset - before.first_offset,
            records_before=before.count,
            records_after=after.count,
            bytes_before=bytes_of(before),
            bytes_after=bytes_of(after),
            fragments=removed.fragments,
            snapshots=removed.snapshots,
            output_files=len(files),
            swept=swept,
        )


async def _published(collector: Collector) -> bool:
    """Whether this has published something. What it finds under way is left to ``collect``."""
    with contextlib.suppress(Conflict, NotFound):
        if await collector.compute() is not None:
            await collector.publish()
            return True
    return False
