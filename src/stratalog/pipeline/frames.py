"""Arrow batches that tasks make, as a DataFrame: one task for each item of a list.

Works on a local session, on a cluster and through Spark Connect alike. The function and the items
travel to the workers by pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")

RECORDS_DDL = "offset bigint not null, timestamp timestamp not null, body binary not null"
HERD_RECORDS_DDL = f"{RECORDS_DDL}, log string not null"


def frame_of(
    spark: SparkSession,
    items: Sequence[T],
    make: Callable[[T], Iterable[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """The batches of all items, in their order, each item in a task of its own."""
    held = tuple(items)

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from make(held[number])

    if not held:
        return spark.createDataFrame([], schema)
    return spark.range(0, len(held), 1, len(held)).mapInArrow(run, schema)
