"""What a task does with its split: give its records to Spark, and tell all if that fails."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from stratalog.pipeline.source.fetch import records_of
from stratalog.pipeline.source.splits import Split
from stratalog.pipeline.spark import whole_errors


def records_in_task(split: Split, *, verify: bool) -> Iterator[pa.RecordBatch]:
    """The records of a split, for a process whose errors reach the driver as text."""
    with whole_errors():
        yield from records_of(split, verify=verify)
