"""Collect a herd: give back the space of what is compacted, in many logs at a time.

    look       which logs have something to give back, or a collection that was cut short
    publish    each log without what goes
    wait       once, for all logs of a task: the courtesy to slow readers
    delete     what the published plans have dropped, then tidy and sweep if asked

Each log is collected as the library does it, in three phases; whatever crashes where, the next run
goes on. A log that fails is told in ``troubles``, and the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.blocking import loop_thread
from stratalog.errors import Conflict, NotFound
from stratalog.herd import COMPACTION, check_name, log_store
from stratalog.objectlog import CollectorOptions
from stratalog.objectlog.collection import Collector, sweep
from stratalog.objectlog.holds import CursorStore, cursor_path
from stratalog.objectlog.stored import POLICY_CURSOR, load_garbage, load_manifest
from stratalog.pipeline.jobs import (
    LOGS_AT_ONCE,
    LOGS_PER_TASK_MAX,
    LogRef,
    Trouble,
    find_logs,
    for_each_log,
    open_root,
    place_of,
    require,
)
from stratalog.pipeline.outputs import Outputs, bytes_of, remove_dropped_outputs
from stratalog.pipeline.spark import OnTasks
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import CountedStore, PatientStore, Store, Usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class HerdCollectOptions:
    """How a herd is collected."""

    cursor: str = COMPACTION
    """The cursor that tells whether a log has something to give back."""

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
        cursor_path(self.cursor)
        if self.job is not None:
            check_name(self.job, "job")
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
class HerdCollect:
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
    def records(self) -> int:
        """How many records went."""
        return sum(each.records for each in self.logs)

    @property
    def bytes_before(self) -> int:
        return sum(each.bytes_before for each in self.logs)

    @property
    def bytes_after(self) -> int:
        return sum(each.bytes_after for each in self.logs)

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
    on_progress: OnTasks | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> HerdCollect:
    """Collect these logs, or of all those whose cursor lies beyond their beginning.

    The cursor of a policy counts as well: a log that it holds has nothing to give back.

    With ``sweep`` the others are swept as well, and what only pins held that are over goes.
    """
    place, started_us = place_of(root_url), runtime.now_us()
    counted = CountedStore(open_root(place))
    refs = loop_thread().run(lambda: find_logs(counted, names=logs, log_ids=log_ids))
    usage, gone, looked_at = counted.usage, 0, len(refs)
    troubles: tuple[Trouble, ...] = ()
    idle: frozenset[str | None] = frozenset()
    dropped: tuple[str, ...] = ()
    if logs is None and log_ids is None:
        looked = for_each_log(spark, place, refs, _Looking(options.cursor))
        refs = [each.ref for each in looked.outcomes if each.value]
        usage, troubles, gone = usage + looked.usage, looked.troubles, looked.gone
        if options.sweep:
            others = [each.ref for each in looked.outcomes if each.value is False]
            idle = frozenset(ref.log_id for ref in others)
            refs += others
            if options.job is not None:
                there = {ref.log_id for ref in refs}
                dropped, used = _without_dropped(place, options, there, runtime)
                usage += used
    done = for_each_log(
        spark,
        place,
        refs,
        _Collecting(options, idle),
        at_once=LOGS_PER_TASK_MAX,
        here_max=options.here_max,
        tasks_per_slot=1,
        on_tasks=on_progress,
    )
    return HerdCollect(
        looked_at=looked_at,
        dropped_files=len(dropped),
        logs=tuple(done.values),
        gone=gone + done.gone,
        troubles=(*troubles, *done.troubles),
        seconds=(runtime.now_us() - started_us) / 1e6,
        usage=usage + done.usage,
    )


def _without_dropped(
    place: str, options: HerdCollectOptions, there: Collection[str | None], runtime: Runtime
) -> tuple[tuple[str, ...], Usage]:
    """What was deleted of outputs of logs that are not ``there`` any more, and what it took."""
    counted, job = CountedStore(open_root(place)), options.job
    assert job is not None
    root = PatientStore(counted, runtime, options.timeout_s)
    gone = loop_thread().run(lambda: remove_dropped_outputs(root, job, there, runtime))
    return gone, counted.usage


@dataclass(frozen=True, slots=True)
class _Looking:
    """Whether a log has something to give back."""

    cursor: str

    async def __call__(self, root: Store, ref: LogRef) -> bool:
        assert ref.log_id is not None
        store = log_store(root, ref.log_id)
        manifest, _ = await load_manifest(store)
        offsets = []
        for name in dict.fromkeys((self.cursor, POLICY_CURSOR)):
            with contextlib.suppress(NotFound):
                cursor = await CursorStore(store).load(name)
                offsets.append(cursor.holds(manifest.first_offset) or 0)
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
        assert ref.log_id is not None
        options, store = self._options, log_store(root, ref.log_id)
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
            files = () if options.job is None else await Outputs(root, options.job).tidy(ref.log_id)
            swept = (await sweep(store)).deleted.objects if options.sweep else 0
            after, _ = await load_manifest(store)
        return LogCollect(
            log=ref.name or before.name,
            log_id=ref.log_id,
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
        if await collector.compute() is None:
            return False
        await collector.publish()
        return True
    return False
