"""The same work for each item of a list, in a Spark task of its own.

Works on a local session, on a cluster and through Spark Connect alike. The function and the items
travel to the workers by pickle. Few or small items go along with the function to every task, which
unpickles none but its own. Many large ones are rows, and each goes to its task alone: that takes
Spark another stage, but does not grow with the square of their number.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from stratalog.pipeline.spark.errors import readable_spark_errors, whole_errors
from stratalog.pipeline.spark.progress import OnProgress, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
R = TypeVar("R")

RECORDS_DDL = "offset bigint not null, timestamp timestamp not null, body binary not null"
HERD_RECORDS_DDL = f"{RECORDS_DDL}, log string not null"

ITEMS_DDL = "number int, item binary"
PICKLED_DDL = "pickled binary"
CLOSURE_BYTES_MAX = 4 << 20
"""Items that are larger altogether go as rows."""


def frame_of(
    spark: SparkSession,
    items: Sequence[T],
    make: Callable[[T], Iterable[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """The batches of all items, in their order, each item in a task of its own.

    An error that ``make`` raises comes to the driver whole.
    """
    from pyspark.sql import functions as sf

    pickled = tuple(map(pickle.dumps, items))
    if not pickled:
        return spark.createDataFrame([], schema)
    is_large = sum(map(len, pickled)) > CLOSURE_BYTES_MAX
    held = () if is_large else pickled

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with whole_errors():
            for batch in batches:
                for item in batch.column(0).to_pylist():
                    yield from make(pickle.loads(held[item] if held else item))

    if not is_large:
        return spark.range(0, len(pickled), 1, len(pickled)).mapInArrow(run, schema)
    rows = spark.createDataFrame([*enumerate(map(bytearray, pickled))], ITEMS_DDL)
    apart = rows.repartitionById(len(pickled), sf.col("number")).select("item")
    return apart.mapInArrow(run, schema)


def struct_of(schema: pa.Schema) -> StructType:
    """The same columns as Spark calls them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def batch_of(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_tasks(
    spark: SparkSession,
    items: Sequence[T],
    work: Callable[[T], R],
    on_progress: OnProgress | None = None,
) -> list[R]:
    """What ``work`` gives for each item, each in a task of its own. All of it travels by pickle."""
    with readable_spark_errors(), watched(spark, on_progress):
        frame = frame_of(spark, items, lambda item: [pickled_batch([work(item)])], PICKLED_DDL)
        return cast(list[R], unpickled(frame.toArrow()))


def pickled_batch(objects: Sequence[object]) -> pa.RecordBatch:
    """Objects as the rows of ``PICKLED_DDL``."""
    pickled = pa.array([pickle.dumps(each) for each in objects], pa.binary())
    return pa.RecordBatch.from_arrays([pickled], ["pickled"])


def unpickled(rows: pa.Table) -> list[object]:
    return [pickle.loads(each) for each in rows.column("pickled").to_pylist()]


def in_groups(
    items: Iterable[T],
    size_of: Callable[[T], float],
    size_max: float,
    count_max: int | None = None,
    *,
    evenly: bool = False,
) -> Iterator[list[T]]:
    """Neighbours in groups of at most this size, and of one item at least.

    ``evenly``: of about this size, since up to half of the last item may be too much.
    """
    share = 0.5 if evenly else 1.0
    group: list[T] = []
    size = 0.0
    for item in items:
        if group and (size + share * size_of(item) > size_max or len(group) == count_max):
            yield group
            group, size = [], 0.0
        group.append(item)
        size += size_of(item)
    if group:
        yield group
