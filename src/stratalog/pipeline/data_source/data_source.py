"""The data source ``stratalog``: a log, or the logs of a herd, as a DataFrame of Spark.

    spark.read.format("stratalog").load("s3://bucket/orders")
    spark.read.format("stratalog").option("herd", "true").load("s3://bucket/herd")
    spark.readStream.format("stratalog").option("cursor", "totals").load("s3://bucket/orders")

Spark makes these objects in processes of its own: the source and the plan beside the driver, the
reading in the tasks. What goes from one to the other is options and splits; each process opens the
stores that it uses. A plan is made once for a DataFrame, and pinned (``pinned_plan``).
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid
from stratalog.objectlog.stored import Verify
from stratalog.pipeline.data_source.filter_push_down import narrowed
from stratalog.pipeline.read import (
    HERD_RECORDS,
    RECORDS,
    Hold,
    Planned,
    ReadOptions,
    Split,
    is_herd,
    parse_read,
    parse_stream,
    plan_herd,
    plan_log,
    records_of,
    split_evenly,
)
from stratalog.pipeline.spark import struct_of, whole_errors

FORMAT_NAME = "stratalog"

RECORDS_TYPE = struct_of(RECORDS)
HERD_RECORDS_TYPE = struct_of(HERD_RECORDS)


def register(spark: SparkSession) -> None:
    """Make the format known to a session that does not find it by itself."""
    spark.dataSource.register(StratalogSource)


class SplitPartition(InputPartition):
    def __init__(self, split: Split) -> None:
        self.split = split


def records_in(partition: InputPartition, *, verify: Verify) -> Iterator[pa.RecordBatch]:
    """The records of a partition. Spark makes up an empty one where there is none."""
    if isinstance(partition, SplitPartition):
        with whole_errors():
            yield from records_of(partition.split, verify=verify)


class StratalogSource(DataSource):
    """The data source. Made by Spark."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def schema(self) -> StructType:
        with whole_errors():
            return HERD_RECORDS_TYPE if is_herd(self.options) else RECORDS_TYPE

    def reader(self, schema: StructType) -> DataSourceReader:
        with whole_errors():
            options = parse_read(self.options)
            _check_schema(schema, HERD_RECORDS_TYPE if options.herd else RECORDS_TYPE)
        return PushingReader(options) if options.push_filters else PlannedReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from stratalog.pipeline.data_source.stream_reader import LogStreamReader

        with whole_errors():
            options = parse_stream(self.options)
            _check_schema(schema, RECORDS_TYPE)
        return LogStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from stratalog.pipeline.sink import BatchSink, target_of

        return BatchSink(target_of(self.options, schema, overwrite, streaming=False))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from stratalog.pipeline.sink import StreamSink, target_of

        return StreamSink(target_of(self.options, schema, overwrite, streaming=True))


class PlannedReader(DataSourceReader):
    """Plans a read from the manifest, and pins what it planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._window = options.window

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with whole_errors():
            planned = loop_thread().run(self._plan)
        splits = split_evenly(planned.parts, options.split_bytes, options.splits_min)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return records_in(partition, verify=self._options.verify)

    async def _plan(self) -> Planned:
        options, hold = self._options, Hold.lasting(self._options.pin_s)
        if options.herd:
            return await plan_herd(options.url, options.logs, self._window, hold)
        required = options.window.from_offset
        return await plan_log(options.url, self._window, hold, required_from=required)


class PushingReader(PlannedReader):
    """The same, which plans only what Spark's filters leave.

    Spark plans once for a DataFrame, with the filters of its first use, and reuses that plan for
    all others. So this is only for a DataFrame that is used once.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._window = narrowed(self._options.window, filters)
        return filters


def _check_schema(asked: StructType, ours: StructType) -> None:
    """Refuse another schema than ours: its columns are what they are."""
    if asked != ours:
        raise Invalid(
            f"a log has the columns {ours.simpleString()}, not {asked.simpleString()}",
            hint="Leave out .schema(…), and select or cast afterwards.",
        )
