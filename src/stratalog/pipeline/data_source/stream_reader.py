"""The streaming half of the data source: Spark's calls, translated for ``LogStream``.

Offsets are ``{"offset": n}``, the next record to be read. One process beside the driver keeps the
reader of a query and makes all calls but ``read``, which runs in tasks. Spark ends that process
with SIGTERM and without calling ``stop``, so the reader sees to it that it is called.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import NoReturn, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from stratalog.blocking import loop_thread
from stratalog.objectlog import Limits
from stratalog.pipeline.data_source.data_source import SplitPartition, records_in
from stratalog.pipeline.read import LogStream, StreamOptions, split_evenly
from stratalog.pipeline.spark import whole_errors

T = TypeVar("T")

OFFSET = "offset"
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads one log for one streaming query. Made by Spark."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._stream: LogStream | None = None

    def __reduce__(self) -> tuple[type[LogStreamReader], tuple[StreamOptions]]:
        return LogStreamReader, (self._options,)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {OFFSET: self._run(lambda stream: stream.start())}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """If both options are given, Spark knows of one, and the other is applied as well."""
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._run(lambda stream: stream.stop_at_tail())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        limits = self._limits(limit)
        return {OFFSET: self._run(lambda stream: stream.upto(start[OFFSET], limits))}

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        return None if self._stream is None else {OFFSET: self._stream.tail}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        options = self._options
        parts = self._run(lambda stream: stream.plan(start[OFFSET], end[OFFSET]))
        splits = split_evenly(parts, options.split_bytes, options.splits_min)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return records_in(partition, verify=self._options.verify)

    def commit(self, end: dict[str, int]) -> None:
        self._run(lambda stream: stream.done(end[OFFSET]))

    def stop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            loop_thread().run(stream.close)

    def _limits(self, limit: ReadLimit) -> Limits:
        given = Limits(max_records=self._options.max_records, max_bytes=self._options.max_bytes)
        match limit:
            case ReadAllAvailable():
                return Limits()
            case ReadMaxRows():
                return replace(given, max_records=limit.max_rows)
            case ReadMaxBytes():
                return replace(given, max_bytes=limit.max_bytes)
            case ReadMaxFiles():
                return replace(given, max_files=limit.max_files)
            case _:
                return given

    def _run(self, work: Callable[[LogStream], Awaitable[T]]) -> T:
        with whole_errors():
            if self._stream is None:
                _become_stoppable()
                self._stream = loop_thread().run(lambda: LogStream.open(self._options))
            stream = self._stream
            return loop_thread().run(lambda: work(stream))


def _become_stoppable() -> None:
    """In the process that Spark keeps for a query: end properly, and be heard."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(spec, "name", None) != RUNNER:
        return
    logging.basicConfig(level=logging.WARNING)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes more than once
    raise SystemExit
