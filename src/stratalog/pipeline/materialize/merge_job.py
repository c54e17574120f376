"""The Spark job of ``materialize``: read what is new in many logs, merge, write files.

    new records ─┐
                 ├─► merge ──► to the task of their log ──► files, one or more a log
    last output ─┘

One job for all logs: starting one takes longer than the work of a hundred small logs. The rows of a
log meet in one task, which writes them as one file. Those of a log that is too large for that are
spread over as many tasks as it needs, by a hash of the row.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from stratalog.errors import Denied, Invalid, StratalogError, Unavailable
from stratalog.herd import COMPACTION
from stratalog.invariants import invariant
from stratalog.objectlog.stored import Verify
from stratalog.pipeline.jobs import Trouble, check_job, require
from stratalog.pipeline.materialize.merge import Merge
from stratalog.pipeline.outputs import (
    FILE_BYTES,
    FILES,
    FileSplit,
    Output,
    OutputFile,
    OutputState,
    Target,
    contents_of,
    frame_of_outputs,
    splits_of,
    write_files,
)
from stratalog.pipeline.read import SPLIT_BYTES, Part, Split, records_of, split_evenly
from stratalog.pipeline.spark import (
    HERD_RECORDS_DDL,
    frame_of,
    in_groups,
    in_tasks,
    slots_of,
    struct_of,
    tidy_error,
)

BATCH_BYTES = 4 << 20
TASKS_MAX = 10_000
FAULTS_OF_DATA = ("22", "P0")
"""Classes of SQLSTATE: a value that does not fit an expression, an error that one raised."""


@dataclass(frozen=True, kw_only=True)
class MaterializeOptions:
    """How a job merges, and under which names."""

    job: str = "latest"
    """The name of the job: its outputs lie under it."""

    cursor: str = COMPACTION
    """The cursor that says up to where a log is merged. Each job needs one of its own."""

    split_bytes: int = SPLIT_BYTES
    """About how many bytes of a log a task reads."""

    file_bytes: int = FILE_BYTES
    """About how large a file of an output may be."""

    logs_at_once: int = 5000
    """How many logs share one Spark job at most."""

    verify: Verify = True
    """Whether the bytes of each fragment are compared with its digest, or its records hashed where
    it has none: what is merged may be collected from the log afterwards. ``"records"`` does both.
    """

    def __post_init__(self) -> None:
        check_job(self.job, self.cursor)
        require(self.split_bytes >= 1, "split_bytes is at least 1")
        require(self.file_bytes >= 1, "file_bytes is at least 1")
        require(self.logs_at_once >= 1, "logs_at_once is at least 1")


@dataclass(frozen=True, slots=True)
class Work:
    """A log with new records: how far it is merged, and where they are."""

    state: OutputState
    part: Part

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def last(self) -> Output | None:
        return self.state.output

    @property
    def num_bytes(self) -> int:
        """About how many bytes its output will have, at most."""
        return self.part.num_bytes + (0 if self.last is None else self.last.num_bytes)


@dataclass(frozen=True, slots=True)
class Merged:
    """What the tasks have uploaded: the files of each log that has rows, by its name."""

    schema_json: str
    files: dict[str, list[OutputFile]]


@dataclass(frozen=True, slots=True)
class MergeJob:
    spark: SparkSession
    place: str
    """The root of the herd, as every worker can open it."""

    merge: Merge
    options: MaterializeOptions

    def check(self) -> None:
        """Refuse a merge that Spark does not understand, or that loses the column ``log``."""
        self._merged(None, self.spark.createDataFrame([], HERD_RECORDS_DDL))

    def run(self, works: Sequence[Work]) -> Merged:
        """Merge and upload. Raises what Spark raises, but for a merge that does not fit."""
        last = frame_of_outputs(self.spark, self.place, self.options.job, _last_of(works))
        merged, schema = self._merged(last, self._added(works))
        ids = {work.name: work.state.log_id for work in works}
        target = Target(self.place, self.options.job, ids, self.options.file_bytes)
        write = partial(write_files, target=target)
        written = self._by_log(merged, schema, works).mapInArrow(write, struct_of(FILES))
        files: defaultdict[str, list[OutputFile]] = defaultdict(list)
        for log, path, rows, num_bytes, sha256 in written.collect():
            file = OutputFile(path=path, rows=rows, num_bytes=num_bytes, sha256=sha256)
            files[log].append(file)
        return Merged(schema.json(), files)

    def troubles_of(self, works: Sequence[Work]) -> list[Trouble]:
        """Read everything once more: which logs cannot be read, and why."""
        verify = self.options.verify
        items: list[Split | FileSplit] = [
            *self._splits(works),
            *splits_of(self.place, self.options.job, _last_of(works), self.options.split_bytes),
        ]
        found = in_tasks(self.spark, items, lambda item: [*troubles_in(item, verify)])
        return [*{each.log: each for some in found for each in some}.values()]

    def _splits(self, works: Sequence[Work]) -> list[Split]:
        parts = [work.part for work in works]
        splits = split_evenly(parts, self.options.split_bytes, slots_of(self.spark))
        planned = sum(len(part.fragments) for part in parts)
        read = sum(len(part.fragments) for split in splits for part in split.parts)
        invariant(planned == read, "every fragment that was planned is read once")
        return splits

    def _added(self, works: Sequence[Work]) -> DataFrame:
        verify = self.options.verify

        def read(split: Split) -> Iterator[pa.RecordBatch]:
            return _together(records_of(split, verify=verify))

        return frame_of(self.spark, self._splits(works), read, HERD_RECORDS_DDL)

    def _merged(self, last: DataFrame | None, added: DataFrame) -> tuple[DataFrame, StructType]:
        try:
            merged = self.merge(last, added)
            schema = merged.schema
        except PySparkException as error:
            raise Invalid(
                f"the merge cannot be done: {tidy_error(error)}",
                hint="Correct the expression or the function. A record has the columns offset, "
                "timestamp, body and log. Another merge than before needs another job name.",
            ) from None
        if "log" not in schema.names or not isinstance(schema["log"].dataType, StringType):
            raise Invalid(
                f"the merge gives {', '.join(schema.names)}, and must give the column `log`",
                hint="Keep the column `log` of each row as it is.",
            )
        return merged, schema

    def _by_log(self, merged: DataFrame, schema: StructType, works: Sequence[Work]) -> DataFrame:
        """The rows of a log together in one task; those of a large one in several."""
        sizes = {work.name: _ceil(work.num_bytes, self.options.file_bytes) for work in works}
        whole = _ceil(sum(work.num_bytes for work in works), self.options.file_bytes)
        tasks = min(TASKS_MAX, max(whole, min(len(works), slots_of(self.spark))))
        large = {name: min(size, tasks) for name, size in sizes.items() if size > 1}
        return merged.repartitionById(tasks, _task_of(schema, tasks, large)).sortWithinPartitions(
            "log"
        )


def is_fault_of_data(error: Exception) -> bool:
    """Whether Spark could not evaluate the merge for some record, as against the merge itself."""
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    return state is not None and state.startswith(FAULTS_OF_DATA)


def failure_of(error: Exception) -> tuple[StratalogError | None, bool]:
    """What an error of the job amounts to, if it is Spark's or ours, and whether it is of data."""
    failure, is_of_data = tidy_error(error), is_fault_of_data(error)
    if isinstance(failure, Unavailable) and is_of_data:
        failure = Invalid(
            f"the merge failed: {failure}",
            hint="Let the merge cope with such a record, or leave its log out.",
        )
    return failure, is_of_data


def troubles_in(item: Split | FileSplit, verify: Verify) -> Iterator[Trouble]:
    """The logs of a split that cannot be read. Runs in a task.

    A store that does not answer is waited for once, not once for each log.
    """
    given_up: StratalogError | None = None
    for log, attempt in _attempts(item, verify):
        try:
            if given_up is not None:
                raise given_up.copy()
            attempt()
        except StratalogError as error:
            yield Trouble(log, error)
            if isinstance(error, Unavailable | Denied):
                given_up = error


def _attempts(
    item: Split | FileSplit, verify: Verify
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each log of a split, and how it is read for nothing but its errors."""
    if isinstance(item, FileSplit):
        for stored in item.files:
            alone = FileSplit(item.root_url, (stored,))
            yield stored.log, lambda alone=alone: [*contents_of(alone)]  # type: ignore[misc]
        return
    for part in item.parts:
        batches = records_of(Split((part,)), verify=verify)
        yield part.log or "", lambda batches=batches: [*map(len, batches)]  # type: ignore[misc]


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: each costs Spark as much as a thousand rows."""
    for some in in_groups(batches, attrgetter("nbytes"), BATCH_BYTES):
        yield from pa.Table.from_batches(some).combine_chunks().to_batches()


def _last_of(works: Sequence[Work]) -> list[Output]:
    return [work.last for work in works if work.last is not None]


def _task_of(schema: StructType, tasks: int, large: dict[str, int]) -> Column:
    """The number of the task that a row goes to. ``large`` logs are spread over several.

    It depends on the row alone: should Spark repeat a task, each row goes where it went before.
    """
    first = sf.pmod(sf.xxhash64("log"), sf.lit(tasks))
    columns = [each.name for each in schema.fields if _can_be_hashed(each.dataType)]
    if large:
        known = sf.from_json(sf.lit(json.dumps(large)), "map<string, bigint>")
        count = sf.coalesce(sf.try_element_at(known, sf.col("log")), sf.lit(1))
        first = sf.pmod(first + sf.pmod(sf.xxhash64(*columns), count), sf.lit(tasks))
    return first.cast("int")


def _ceil(part: int, whole: int) -> int:
    return -(-part // whole)


def _can_be_hashed(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _can_be_hashed(kind.elementType)
    if isinstance(kind, StructType):
        return all(_can_be_hashed(each.dataType) for each in kind.fields)
    return not isinstance(kind, MapType | VariantType)
