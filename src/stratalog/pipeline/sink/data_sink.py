"""The sink: rows of a DataFrame become records of one log, all of them or none, and once.

    upload_rows    in each task: store what it gets, and report that to the driver
    link_once      on the driver: link all of it with one manifest

The manifest carries the query and the number of the batch. A batch that is repeated after a crash,
or after a lost answer, is recognised by that.

A stream takes both from Spark: the id of a query lies in its checkpoint, and comes to the tasks
with them. A batch has them if it was given them (``queryId``, ``batchId``); otherwise it is written
as often as it is called. Spark makes a new object for each batch and another for its commit, so
nothing is kept here: what the driver must know travels in the messages of the tasks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid
from stratalog.objectlog.bulk import Batch
from stratalog.pipeline.sink.link_once import link_once, locate, release_guards, uploaded
from stratalog.pipeline.sink.options import Target, parse_sink
from stratalog.pipeline.sink.upload_rows import Uploaded, upload_rows
from stratalog.pipeline.spark import whole_errors

GIVEN_ANEW = ("offset", "timestamp")
"""Columns that a log shows and gives by itself: they may come along, and are not stored."""

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


class BatchSink(DataSourceArrowWriter):
    """The writer of ``df.write``. Made by Spark on the driver."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Uploaded:
        with whole_errors():
            return upload_rows(self._target, iterator, self._target.options.batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options, batch = self._target.options, None
        if options.query is not None and options.batch is not None:
            batch = Batch(options.query, options.batch)
        with whole_errors():
            link_once(self._target, messages, batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Release the guards of a write without a number: nothing else will."""
        if self._target.job is not None:
            release_guards(self._target, [])


class StreamSink(DataSourceStreamArrowWriter):
    """The writer of ``df.writeStream``. Made by Spark on the driver, for each batch."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Uploaded:
        with whole_errors():
            task = TaskContext.get()
            query = self._target.query or _property(task, QUERY_PROPERTY)
            number = _property(task, BATCH_PROPERTY)
            if query is None or number is None:
                raise Invalid(
                    "this is not a micro-batch of a stream: it has no query and no number",
                    hint="Use df.write with the options queryId and batchId.",
                )
            target = replace(self._target, query=query)
            return upload_rows(target, iterator, int(number), in_order=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with whole_errors():
            queries = {each.query for each in uploaded(messages) if each.query is not None}
            if queries:
                link_once(self._target, messages, Batch(min(queries), batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: the guards are removed when the batch is repeated and linked."""


def _property(task: TaskContext | None, name: str) -> str | None:
    return None if task is None else task.getLocalProperty(name)


def target_of(
    options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool
) -> Target:
    """Where the rows of a write go, if it is one that a log can take."""
    with whole_errors():
        parsed = parse_sink(options, streaming=streaming)
        _check_rows(schema, overwrite)
        is_numbered = streaming or parsed.query is not None
        return loop_thread().run(lambda: locate(parsed, is_numbered=is_numbered))


def _check_rows(schema: StructType, overwrite: bool) -> None:
    """Refuse what a log cannot take, before any task runs."""
    if overwrite:
        raise Invalid(
            "a log is never overwritten",
            hint='Append: .mode("append") of a write, .outputMode("append") of a stream.',
        )
    types = {field.name: field.dataType for field in schema.fields}
    if len(types) < len(schema.fields):
        raise Invalid(
            f"two columns have the same name: {', '.join(schema.names)}",
            hint="Give each column a name of its own.",
        )
    body = types.get("body")
    if not isinstance(body, BinaryType | StringType):
        raise Invalid(
            f"rows need a column body of binary or string; they have {', '.join(types) or 'none'}",
            hint='For example: df.select(to_json(struct("*")).alias("body")).',
        )
    others = [name for name in types if name not in ("body", *GIVEN_ANEW)]
    if others:
        raise Invalid(
            f"a record is its body; there is no place for {', '.join(others)}",
            hint='Put all into the body: df.select(to_json(struct("*")).alias("body")).',
        )
