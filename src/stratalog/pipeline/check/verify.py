"""Verify a herd: that its parts fit together, shown cheaply from what is stored.

    each log      its manifest adds up, and the nodes at both ends of its tree are what it promises
    its cursor    lies between the first offset and the tail
    its output    is not ahead of the tail and not behind the cursor; its files have their sizes
    its mark      if records wait after the cursor, some dirty log has a mark for all of them

Reads a handful of objects for each log, and the dirty logs once. With ``records`` every record is
read as well. Read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Corrupt, NotFound, StratalogError
from stratalog.herd import COMPACTION, ROLLUP_CURSOR, SIDES, Mark, dirty_store, log_store, servers
from stratalog.objectlog.read import LogReader
from stratalog.objectlog.stored import body_views, load_any_manifest
from stratalog.ordered import gather_bounded
from stratalog.pipeline.check.findings import Finding
from stratalog.pipeline.check.verify_tasks import LogVerify, LookAtLog, offset_of
from stratalog.pipeline.jobs import (
    HERE_MAX,
    LOGS_AT_ONCE,
    Held,
    HerdJob,
    Trouble,
    check_names,
    require,
)
from stratalog.pipeline.spark import OnProgress
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Store, Usage

LOOKS_MAX = 3


@dataclass(frozen=True, kw_only=True)
class HerdVerifyOptions:
    """What is shown."""

    cursor: str = COMPACTION
    """The cursor up to which logs are compacted."""

    job: str | None = "latest"
    """The job whose outputs are looked at. None for none."""

    records: bool = False
    """Read and hash every record, and check those that describe themselves."""

    outputs: bool = True
    """Read and hash the files of the outputs: where a log was collected, they are the only copy."""

    here_max: int = HERE_MAX
    """So many logs are looked at by this process, more by Spark's tasks."""

    def __post_init__(self) -> None:
        check_names(self.cursor, self.job)
        require(self.here_max >= 0, "here_max is not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class HerdVerify(Held):
    """What was shown of all."""

    logs: tuple[LogVerify, ...]
    gone: int
    marks: int
    findings: tuple[Finding, ...]
    troubles: tuple[Trouble, ...]
    """The logs of which nothing is shown, because the store did not give them."""

    seconds: float
    usage: Usage = field(default_factory=Usage)

    @property
    def ok(self) -> bool:
        return not self.findings and not self.troubles

    @property
    def waiting(self) -> int:
        """How many logs have records after their cursor."""
        return sum(each.waiting > 0 for each in self.logs)


DEFAULT_OPTIONS = HerdVerifyOptions()


def verify_herd(
    spark: SparkSession,
    root_url: str,
    *,
    logs: Sequence[str] | None = None,
    log_ids: Sequence[str] | None = None,
    options: HerdVerifyOptions = DEFAULT_OPTIONS,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> HerdVerify:
    """Show that these logs, or all, fit together with their cursors, outputs and marks."""
    job = HerdJob(spark, root_url, runtime)
    looked = job.for_each(
        job.find(logs, log_ids),
        LookAtLog(options.cursor, options.job, options.records, options.outputs),
        here_max=0 if options.records else options.here_max,
        on_progress=on_progress,
    )
    marks, unmarked = loop_thread().run(
        lambda: _unmarked(job.root, looked.values, options.cursor, runtime)
    )
    unreadable = [
        Finding(kind="unreadable", log=each.log, detail=str(each.error))
        for each in job.troubles
        if isinstance(each.error, Corrupt)
    ]
    job.troubles = [each for each in job.troubles if not isinstance(each.error, Corrupt)]
    return HerdVerify(
        logs=tuple(looked.values),
        marks=marks.count,
        findings=(
            *(Finding(kind="marks-unreadable", log=None, detail=each) for each in marks.unread),
            *(finding for each in looked.values for finding in each.findings),
            *unreadable,
            *unmarked,
        ),
        **job.ended(),
    )


async def _unmarked(
    root: Store, seen: Sequence[LogVerify], cursor: str, runtime: Runtime
) -> tuple[_Marks, list[Finding]]:
    """The logs with records that no roll-up will find.

    The marks are read after the logs: whatever was linked then had been marked before. A mark may
    have gone since because the cursor has passed it, or have moved from one dirty log to another
    while they were read. So a suspect is looked at again before it becomes a finding.
    """
    suspects = [*{each.log_id: each for each in seen if each.waiting}.values()]
    marks = await _read_marks(root, runtime)
    for look in range(LOOKS_MAX):
        suspects = [each for each in suspects if marks.ends.get(each.log_id, 0) < each.tail]
        suspects = await _still_waiting(root, suspects, cursor)
        if not suspects or look == LOOKS_MAX - 1:
            break
        marks = await _read_marks(root, runtime)
    return marks, [
        Finding(
            kind="unmarked",
            log=each.log or each.log_id,
            detail=f"{each.waiting} records from {each.compacted_upto} to {each.tail}, "
            f"marked up to {marks.ends.get(each.log_id, 0)}",
        )
        for each in suspects
    ]


async def _still_waiting(
    root: Store, suspects: Sequence[LogVerify], cursor: str
) -> list[LogVerify]:
    """Those whose records are there and not passed by the cursor yet."""

    async def waits(log: LogVerify) -> bool:
        store = log_store(root, log.log_id)
        try:
            manifest, _ = await load_any_manifest(store)
            upto = await offset_of(store, cursor)
        except StratalogError:
            return False  # it is gone, or there is a finding already
        return max(manifest.first_offset, upto or 0) < log.tail

    answers = await gather_bounded(suspects, waits, LOGS_AT_ONCE)
    return [log for log, waiting in zip(suspects, answers, strict=True) if waiting]


@dataclass(frozen=True, slots=True)
class _Marks:
    """Up to where each log is marked, in any dirty log."""

    ends: dict[str, int]
    count: int
    unread: tuple[str, ...]
    """The dirty logs that could not be read, and why."""


async def _read_marks(root: Store, runtime: Runtime) -> _Marks:
    """Every mark that no roll-up is done with, read as a roll-up does."""
    ends: dict[str, int] = {}
    count, unread = 0, []
    async for server in servers(root):
        for side in SIDES:
            try:
                for mark in await _marks_of(dirty_store(root, server, side), runtime):
                    ends[mark.log_id] = max(ends.get(mark.log_id, 0), mark.end)
                    count += 1
            except NotFound:
                continue
            except StratalogError as error:
                unread.append(f"{server} ({side}): {error}")
    return _Marks(ends, count, tuple(unread))


async def _marks_of(store: Store, runtime: Runtime) -> Iterable[Mark]:
    async with LogReader.open(store, runtime=runtime) as reader:
        first = max(await offset_of(store, ROLLUP_CURSOR) or 0, reader.first_offset)
        return [
            Mark.from_bytes(body)
            async for batch in reader.batches(first, reader.tail)
            for body in body_views(batch.column(2))
        ]
