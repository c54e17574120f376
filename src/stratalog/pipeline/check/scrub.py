"""Scrub a herd: every record of every log is read and hashed once, in one Spark job.

    logs ──► walk trees ──► shuffle fragments ──► examine ──► add up by log ──► audit
             in tasks       mixes and divides     in tasks    in Spark
             (scrub_walk_tasks)                         (scrub_examine_tasks)

All records of a log must add up to what its manifest says: ``setsum`` without ``collected``. The
eight columns of the sums are added as whole numbers, by Spark, first in each task and then over
all, and taken modulo their primes at the end. What is compared, and how damage is called, is the
library's: ``stratalog scrub`` of the same log finds the same. ``audit`` is what is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from stratalog.blocking import loop_thread
from stratalog.errors import NotFound, StratalogError
from stratalog.objectlog.check import DamageKind
from stratalog.objectlog.stored import MANIFEST_PATH, is_being_destroyed, load_any_manifest
from stratalog.ordered import gather_bounded
from stratalog.pipeline.check.audit import Audit, new_run, put_audit, put_part, tidy_audits
from stratalog.pipeline.check.scrub_examine_tasks import examine
from stratalog.pipeline.check.scrub_results import AddedUp, HerdScrub, LogScrub, audit_rows
from stratalog.pipeline.check.scrub_rows import COLUMNS, COUNTS, EXAMINED, WALKED, Walked
from stratalog.pipeline.check.scrub_walk_tasks import walk
from stratalog.pipeline.jobs import HERE_MAX, HerdJob, LogRef, has_lost_manifest, require, resolve
from stratalog.pipeline.read import SPLIT_BYTES
from stratalog.pipeline.spark import (
    OnProgress,
    frame_of,
    readable_spark_errors,
    slots_of,
    struct_of,
    watched,
)
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import PRIMES
from stratalog.store import Store

CONFIRM_AT_ONCE = 32
WALKS_PER_SLOT = 2
HERE_BYTES_MAX = 4 << 20
FRAGMENT_COST_BYTES = 1 << 16
"""What a fragment counts for beside its bytes when the work is divided."""


@dataclass(frozen=True, kw_only=True)
class HerdScrubOptions:
    """How a scrub divides its work, and what it leaves."""

    tasks_per_slot: int = 4
    """How many tasks examine the fragments of a large herd, for each that can run at a time."""

    keep_audits: int = 10
    """How many audits are kept, this one included."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer."""

    here_max: int = HERE_MAX
    """The trees of so many logs are walked by this process, those of more by Spark's tasks."""

    def __post_init__(self) -> None:
        require(self.tasks_per_slot >= 1, "tasks_per_slot is at least 1")
        require(self.here_max >= 0, "here_max is not negative")
        require(self.keep_audits >= 1, "keep_audits is at least 1")
        require(self.timeout_s > 0, "timeout_s is positive")


DEFAULT_OPTIONS = HerdScrubOptions()


def scrub_herd(
    spark: SparkSession,
    root_url: str,
    *,
    logs: Sequence[str] | None = None,
    log_ids: Sequence[str] | None = None,
    options: HerdScrubOptions = DEFAULT_OPTIONS,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> HerdScrub:
    """Read and hash every record of these logs, or of all, and leave an audit table.

    ``on_progress`` counts Spark's tasks. It is called in another thread.
    """
    job = HerdJob(spark, root_url, runtime, timeout_s=options.timeout_s)
    run, refs, found = new_run(runtime), job.find(logs, log_ids), AddedUp()
    with readable_spark_errors(), watched(spark, on_progress):
        fragments = _walked_here(job.place, refs, options, found)
        examined = _examined(job, refs, fragments, run, options)
        found.add_rows(_added_up(examined).toArrow())
    job.add(usage=found.usage)
    partial = logs is not None or log_ids is not None
    return loop_thread().run(lambda: _audited(job, run, refs, found, options, partial=partial))


async def _audited(
    job: HerdJob,
    run: str,
    refs: Sequence[LogRef],
    found: AddedUp,
    options: HerdScrubOptions,
    *,
    partial: bool,
) -> HerdScrub:
    """What was found, left behind as an audit."""
    kept = await _without_dropped(job.root, found.logs(refs))
    rows = [row for log in kept for row in audit_rows(log)]
    own = [await put_part(job.root, run, rows, job.runtime)] if rows else []
    scrubbed = HerdScrub(
        run=run,
        logs=tuple(sorted(kept, key=lambda log: (log.label, log.log_id))),
        gone=len(refs) - len(kept),
        seconds=job.seconds,
        usage=job.usage,
    )
    audit = Audit(
        run=run,
        started_us=job.started_us,
        ended_us=job.runtime.now_us(),
        logs=len(scrubbed.logs),
        fragments=scrubbed.fragments,
        records=scrubbed.records,
        num_bytes=scrubbed.num_bytes,
        damages=scrubbed.damages,
        troubles=len(scrubbed.troubles),
        expected_sum=scrubbed.expected_sum,
        actual_sum=scrubbed.actual_sum,
        collected_sum=scrubbed.collected_sum,
        parts=tuple(sorted([*found.parts, *own])),
        partial=partial,
    )
    await put_audit(job.root, audit, job.runtime)
    await tidy_audits(job.root, options.keep_audits, job.runtime)
    return scrubbed


def _walked_here(
    place: str, refs: Sequence[LogRef], options: HerdScrubOptions, found: AddedUp
) -> pa.Table | None:
    """The fragments of a small herd, found by this process: quicker than a stage of tasks.

    None for a herd that is too large for that. What is noted on the way goes to ``found``.
    """
    if len(refs) > options.here_max:
        return None
    batches: list[pa.RecordBatch] = []
    for batch in walk(place, refs, options.timeout_s):
        batches.append(batch)
        if sum(each.nbytes for each in batches) > HERE_BYTES_MAX:
            return None
    table = pa.Table.from_batches(batches, WALKED)
    is_note = pc.is_null(table.column("entry"))
    for row in table.filter(is_note).select(["log_id", "note"]).to_pylist():
        found.add_note(row["log_id"], row["note"])
    return table.filter(pc.invert(is_note))


def _examined(
    job: HerdJob,
    refs: Sequence[LogRef],
    fragments: pa.Table | None,
    run: str,
    options: HerdScrubOptions,
) -> DataFrame:
    """One row for each fragment of all logs, which tasks walk unless that was done."""
    spark, slots = job.spark, slots_of(job.spark)
    examined = partial(examine, job.place, run, options.timeout_s)
    if fragments is not None:
        shares = _even_shares(fragments, slots)
        return frame_of(spark, shares, lambda share: examined([share]), struct_of(EXAMINED))
    walk_share = partial(walk, job.place, timeout_s=options.timeout_s)
    walked = frame_of(spark, job.shares(refs, WALKS_PER_SLOT), walk_share, struct_of(WALKED))
    mixed = walked.repartition(slots * options.tasks_per_slot, "log_id", "entry")
    return mixed.mapInArrow(examined, struct_of(EXAMINED))


def _even_shares(fragments: pa.Table, slots: int) -> list[pa.RecordBatch]:
    """The fragments in shares of about the same weight, as many as keep all slots busy."""
    if not fragments.num_rows:
        return []
    upto = np.cumsum(fragments.column("num_bytes").to_numpy() + FRAGMENT_COST_BYTES)
    count = slots * max(1, round(int(upto[-1]) / SPLIT_BYTES / slots))
    ends = np.searchsorted(upto, upto[-1] * np.arange(1, count + 1) / count, side="left") + 1
    bounds = [0, *np.minimum(ends, fragments.num_rows).tolist()]
    whole = fragments.combine_chunks().to_batches()[0]
    return [whole.slice(low, high - low) for low, high in pairwise(bounds) if high > low]


def _added_up(examined: DataFrame) -> DataFrame:
    """One row a log: the sums of its columns, each modulo its prime, and what was noted."""
    return examined.groupBy("log_id").agg(
        *(
            sf.expr(f"sum({name}) % {prime}L as {name}")
            for name, prime in zip(COLUMNS, PRIMES, strict=True)
        ),
        *(sf.expr(f"sum({name}) as {name}") for name in COUNTS),
        sf.expr("collect_list(note) as notes"),
    )


async def _without_dropped(root: Store, found: Sequence[LogScrub | Walked]) -> list[LogScrub]:
    """The logs that are still there: what is being destroyed looks damaged."""

    async def look(each: LogScrub | Walked) -> LogScrub | None:
        if isinstance(each, LogScrub):
            if not each.damages:  # what was not read is no damage, but a trouble
                return each
            ref, log = LogRef(each.log, each.log_id), each
            kinds = {damage.kind for damage in each.damages}
        else:
            ref, kinds = each.ref, set()
            log = LogScrub(log=ref.name, log_id=ref.log_id or "", trouble=str(each.error))
        lost = DamageKind.MANIFEST_MISSING in kinds
        return None if await _is_dropped(root, ref, lost=lost) else log

    looked = await gather_bounded(found, look, CONFIRM_AT_ONCE)
    return [log for log in looked if log is not None]


async def _is_dropped(root: Store, ref: LogRef, *, lost: bool) -> bool:
    """Whether a log was dropped since it was found.

    A log that is destroyed loses its manifest last. One that was found without it has ``lost`` it.
    """
    try:
        found, store = await resolve(root, LogRef(ref.name) if ref.name else ref)
        if ref.log_id is not None and found.log_id != ref.log_id:
            return True
        return is_being_destroyed((await load_any_manifest(store))[0])
    except NotFound as error:
        return error.path != MANIFEST_PATH or not (lost or await has_lost_manifest(root, ref))
    except StratalogError:
        return False
