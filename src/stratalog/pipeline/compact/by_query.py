"""Compacting a log by a query: Spark finds what lives, and the log drops the rest.

The query sees the log as it was at one moment, and everything up to there is judged; what is
appended meanwhile is not. Each task turns the offsets that it finds into ranges, so the driver
gets sets, not rows. Much of a log is rewritten by tasks as well (``rewrite_tasks``).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid
from stratalog.indexset import EMPTY, IndexSet
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import DEFAULT_OPTIONS, Compacted, Compactor, OnProgress
from stratalog.objectlog.stored import load_manifest
from stratalog.pipeline.compact.key_rule import asked_of
from stratalog.pipeline.compact.policy_sql import VIEW, asked_query
from stratalog.pipeline.compact.rewrite_tasks import rewriting_in_tasks
from stratalog.pipeline.read import Place, pinned_log
from stratalog.pipeline.spark import absolute_url, readable_spark_errors
from stratalog.store import open_store

WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")

_SETS = pa.schema([pa.field("live", pa.binary(), nullable=False)])


def compact_log(
    spark: SparkSession,
    url: Place,
    live: str | DataFrame | IndexSet,
    *,
    up_to: int | None = None,
    on_progress: OnProgress | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
) -> Compacted:
    """Drop what does not live among the records before offset ``up_to``.

    ``live`` is a query over the view ``log`` (``offset, timestamp, body``) whose one column is the
    offsets that live, or a DataFrame of them, or the set itself. A query is asked about all records
    that are there now, or those before ``up_to``; a DataFrame or a set says nothing about where its
    owner stopped reading, so there ``up_to`` is needed. A query may use all that the session has:
    it is the caller's own. That of a stored policy may not (``compact_herd``).
    """
    place = absolute_url(url)
    if isinstance(live, str):
        up_to = tail_of(place) if up_to is None else min(up_to, tail_of(place))
        found = live_by_query(spark, place, live, up_to, trusted=True)
    elif up_to is None:
        raise Invalid(
            "up_to says where the owner of this set stopped reading",
            hint="Give the offset after the last record that was judged.",
        )
    else:
        found = live if isinstance(live, IndexSet) else live_set(live)
    compactor = Compactor(
        place,
        found,
        up_to,
        on_progress=on_progress,
        rewrite=rewriting_in_tasks(spark, place, options),
        options=options,
    )
    return loop_thread().run(compactor.run)


def live_set(frame: DataFrame) -> IndexSet:
    """The offsets in the one column of a frame."""
    (kind,) = [kind for _, kind in frame.dtypes] if len(frame.dtypes) == 1 else [""]
    if kind not in WHOLE_NUMBERS:
        raise Invalid(
            f"what lives is one column of offsets, not {frame.dtypes!r}",
            hint="For example: SELECT max(offset) FROM log GROUP BY …",
        )
    with readable_spark_errors():
        rows = frame.mapInArrow(_as_sets, "live binary").collect()
    return IndexSet.union(IndexSet.from_bytes(bytes(row["live"])) for row in rows)


def live_by_query(
    spark: SparkSession, place: str, query: str, up_to: int, *, trusted: bool
) -> IndexSet:
    """What lives before ``up_to``, as a query over the view ``log`` says.

    One that is not ``trusted``, since it was stored by somebody else, may use what a policy may.
    """
    # Through the library: what damaged bytes say must not decide what lives.
    with pinned_log(spark, place, via="arrow", to_offset=up_to) as records:
        records.createOrReplaceTempView(VIEW)
        try:
            with readable_spark_errors(), asked_of("the query does not say what lives"):
                return live_set(asked_query(spark, query, trusted=trusted))
        finally:
            spark.catalog.dropTempView(VIEW)


def _as_sets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: all its offsets as one set."""
    found = EMPTY
    for batch in batches:
        found |= IndexSet.of(batch.column(0).drop_null())
    yield pa.RecordBatch.from_arrays([pa.array([found.to_bytes()])], schema=_SETS)


def tail_of(place: str) -> int:
    store = open_store(place)
    manifest, _ = loop_thread().run(lambda: load_manifest(store))
    return manifest.tail.offset
