"""Scrub a herd: every record of every log is read and hashed once, in one Spark job.

    logs ──► walk trees ──► shuffle fragments ──► examine ──► add up by log ──► audit
             in tasks       mixes and divides     in tasks    in Spark

All records of a log must add up to what its manifest says: ``setsum`` without ``collected``. The
eight columns of the sums are added as whole numbers, by Spark, first in each task and then over
all, and taken modulo their primes at the end. What is compared, and how damage is called, is the
library's: ``stratalog scrub`` of the same log finds the same. ``audit`` tells what is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from stratalog.errors import NotFound, StratalogError
from stratalog.objectlog.damage import DamageKind
from stratalog.objectlog.manifest import MANIFEST_PATH, load_any_manifest
from stratalog.objectlog.seal import is_being_destroyed
from stratalog.pipeline.audit import Audit, new_run, put_audit, put_part, tidy_audits
from stratalog.pipeline.frames import frame_of
from stratalog.pipeline.herd_logs import LogRef, find_logs, open_root, place_of, resolve
from stratalog.pipeline.job_options import require
from stratalog.pipeline.log_tasks import shares_of
from stratalog.pipeline.scrub_results import AddedUp, HerdScrub, LogScrub, audit_rows
from stratalog.pipeline.scrub_tasks import (
    COLUMNS,
    COUNTS,
    EXAMINED_DDL,
    WALKED_DDL,
    Walked,
    examine,
    walk,
)
from stratalog.pipeline.spark_errors import readable_spark_errors
from stratalog.pipeline.watching import OnTasks, slots_of, watched
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import PRIMES
from stratalog.store.counted import CountedStore
from stratalog.store.patient import PatientStore
from stratalog.store.protocol import Store
from stratalog.sync.loop_thread import loop_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIRM_AT_ONCE = 32
WALKS_PER_SLOT = 2


@dataclass(frozen=True, kw_only=True)
class HerdScrubOptions:
    """How a scrub divides its work, and what it leaves."""

    tasks_per_slot: int = 4
    """How many tasks examine fragments, for each that can run at one time."""

    keep_audits: int = 10
    """How many audits are kept, this one included."""

    timeout_s: float = 60.0
    """How long to go on when the store does not answer."""

    def __post_init__(self) -> None:
        require(self.tasks_per_slot >= 1, "tasks_per_slot is at least 1")
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
    on_progress: OnTasks | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> HerdScrub:
    """Read and hash every record of these logs, or of all, and leave an audit table.

    ``on_progress`` hears, in another thread, how many of Spark's tasks have ended.
    """
    place, started_us, run = place_of(root_url), runtime.now_us(), new_run(runtime)
    counted = CountedStore(open_root(place))
    root = PatientStore(counted, runtime, options.timeout_s)
    refs = loop_thread().run(lambda: find_logs(root, names=logs, log_ids=log_ids))
    with readable_spark_errors(), watched(spark, on_progress):
        found = AddedUp(_job(spark, place, refs, run, options).toArrow())

    async def settle() -> HerdScrub:
        kept = await _without_dropped(root, found.logs())
        rows = [row for log in kept for row in audit_rows(log)]
        own = [await put_part(root, run, rows, runtime)] if rows else []
        scrubbed = HerdScrub(
            run=run,
            logs=tuple(sorted(kept, key=lambda log: (log.label, log.log_id))),
            gone=len(refs) - len(kept),
            seconds=(runtime.now_us() - started_us) / 1e6,
            usage=found.usage + counted.usage,
        )
        audit = _audit(scrubbed, started_us, runtime.now_us(), [*found.parts, *own])
        await put_audit(root, audit, runtime)
        await tidy_audits(root, options.keep_audits, runtime)
        return scrubbed

    return loop_thread().run(settle)


def _job(
    spark: SparkSession,
    place: str,
    refs: Sequence[LogRef],
    run: str,
    options: HerdScrubOptions,
) -> DataFrame:
    """One row a log, with the sums of its columns, and one row for what belongs to none."""
    from pyspark.sql import functions as sf

    timeout_s, slots = options.timeout_s, slots_of(spark)

    def walk_share(share: Sequence[LogRef]) -> Iterator[pa.RecordBatch]:
        return walk(place, share, timeout_s)

    def examine_share(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return examine(place, run, timeout_s, batches)

    walked = frame_of(spark, shares_of(refs, WALKS_PER_SLOT * slots), walk_share, WALKED_DDL)
    mixed = walked.repartition(slots * options.tasks_per_slot)
    examined = mixed.mapInArrow(examine_share, EXAMINED_DDL)
    of_columns = zip(COLUMNS, PRIMES, strict=True)
    return examined.groupBy("log_id").agg(
        *((sf.sum(name) % sf.lit(prime)).alias(name) for name, prime in of_columns),
        *(sf.sum(name).alias(name) for name in COUNTS),
        sf.collect_list("told").alias("told"),
        sf.first("walked", ignorenulls=True).alias("walked"),
        sf.collect_list("usage").alias("usage"),
        sf.collect_list("part").alias("parts"),
    )


async def _without_dropped(root: Store, found: Sequence[LogScrub | Walked]) -> list[LogScrub]:
    """The logs that are still there: what is being destroyed looks damaged."""
    room = asyncio.Semaphore(CONFIRM_AT_ONCE)

    async def look(each: LogScrub | Walked) -> LogScrub | None:
        if isinstance(each, LogScrub):
            if not each.damages:
                return each
            ref, log = LogRef(each.log, each.log_id), each
            kinds = {damage.kind for damage in each.damages}
        else:
            ref, kinds = each.ref, set()
            log = LogScrub(log=ref.name, log_id=ref.log_id or "", trouble=str(each.error))
        async with room:
            lost = DamageKind.MANIFEST_MISSING in kinds
            return None if await _is_dropped(root, ref, lost=lost) else log

    return [log for log in await asyncio.gather(*map(look, found)) if log is not None]


async def _is_dropped(root: Store, ref: LogRef, *, lost: bool) -> bool:
    """Whether the herd has let go of a log since it was found.

    A log that is destroyed loses its manifest last. One that was found without it has ``lost`` it.
    """
    try:
        found, store = await resolve(root, LogRef(ref.name) if ref.name else ref)
        if ref.log_id is not None and found.log_id != ref.log_id:
            return True
        return is_being_destroyed((await load_any_manifest(store))[0])
    except NotFound as error:
        return error.path != MANIFEST_PATH or not lost
    except StratalogError:
        return False


def _audit(scrubbed: HerdScrub, started_us: int, ended_us: int, parts: Sequence[str]) -> Audit:
    return Audit(
        run=scrubbed.run,
        started_us=started_us,
        ended_us=ended_us,
        logs=len(scrubbed.logs),
        fragments=scrubbed.fragments,
        records=scrubbed.records,
        num_bytes=scrubbed.num_bytes,
        damages=scrubbed.damages,
        troubles=len(scrubbed.troubles),
        expected_sum=scrubbed.expected_sum,
        actual_sum=scrubbed.actual_sum,
        collected_sum=scrubbed.collected_sum,
        parts=tuple(sorted(parts)),
    )
