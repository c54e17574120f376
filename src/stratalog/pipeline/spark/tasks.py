"""The same work for each item of a list, in Spark tasks: what it gives comes back to the caller."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from stratalog.pipeline.spark.errors import readable_spark_errors, whole_errors
from stratalog.pipeline.spark.frames import frame_of
from stratalog.pipeline.spark.progress import OnProgress, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

PICKLED_DDL = "pickled binary"


def in_tasks(
    spark: SparkSession,
    items: Sequence[T],
    work: Callable[[T], R],
    on_progress: OnProgress | None = None,
) -> list[R]:
    """What ``work`` gives for each item, each in a task of its own. All of it travels by pickle."""

    def make(item: T) -> Iterator[pa.RecordBatch]:
        with whole_errors():
            done = work(item)
        yield pickled_batch([done])

    with readable_spark_errors(), watched(spark, on_progress):
        rows = frame_of(spark, items, make, PICKLED_DDL).toArrow()
    return cast(list[R], unpickled(rows))


def pickled_batch(objects: Sequence[object]) -> pa.RecordBatch:
    """Objects as the rows of ``PICKLED_DDL``."""
    pickled = pa.array([pickle.dumps(each) for each in objects], pa.binary())
    return pa.RecordBatch.from_arrays([pickled], ["pickled"])


def unpickled(rows: pa.Table) -> list[object]:
    """The objects in the rows of all tasks."""
    return [pickle.loads(each) for each in rows.column("pickled").to_pylist()]
