"""Reading outputs on Spark: the files that OUTPUT names, each checked against its hash."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from stratalog.blocking import loop_thread
from stratalog.errors import Corrupt, NotFound, StratalogError
from stratalog.ordered import gather_bounded
from stratalog.pipeline.jobs import LOGS_AT_ONCE, LogRef, find_logs, place_of, resolve
from stratalog.pipeline.outputs.output import Output, OutputFile, folder_of
from stratalog.pipeline.outputs.publish import Outputs
from stratalog.pipeline.read import OPEN_COST_BYTES, SPLIT_BYTES
from stratalog.pipeline.spark import frame_of, in_groups
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, Store, open_store

BATCH_ROWS = 1 << 14
FETCHES_AT_ONCE = 16
FETCH_BYTES = 64 << 20
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of an output, and where it is."""

    log: str
    folder: str
    file: OutputFile

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.file.path}"


@dataclass(frozen=True, slots=True)
class FileSplit:
    root_url: str
    files: tuple[StoredFile, ...]


def read_output(
    spark: SparkSession, root_url: str, job: str, logs: Sequence[str] | None = None
) -> DataFrame:
    """The rows that a job has published, of these logs or of all that it has an output of.

    What is read is decided now. The files stay until the second publication from now; a query that
    takes longer fails, and says so.
    """
    place = place_of(root_url)
    outputs = loop_thread().run(lambda: _load_all(place, job, logs))
    frame = frame_of_outputs(spark, place, job, outputs)
    if frame is None:
        raise NotFound(
            f"the job {job!r} has published no output in {place}",
            hint="Check the name of the job, or materialize first.",
        )
    return frame


async def _load_all(place: str, job: str, logs: Sequence[str] | None) -> list[Output]:
    root = PatientStore(open_store(place), DEFAULT_RUNTIME, TIMEOUT_S)
    outputs = Outputs(root, job)

    async def load(ref: LogRef) -> Output | None:
        try:
            found, _ = await resolve(root, ref)
            return await outputs.find(found.id)
        except NotFound:
            return None

    refs = await find_logs(root, names=logs)
    return [each for each in await gather_bounded(refs, load, LOGS_AT_ONCE) if each is not None]


def frame_of_outputs(
    spark: SparkSession, root_url: str, job: str, outputs: Sequence[Output]
) -> DataFrame | None:
    """The rows of these outputs, whose columns may differ. None if nothing was published."""
    published = [output for output in outputs if output.is_published]
    schema_of = attrgetter("schema_json")
    by_schema = groupby(sorted(published, key=schema_of), key=schema_of)
    whole: DataFrame | None = None
    for schema_json, some in by_schema:
        splits = splits_of(root_url, job, [*some])
        schema = StructType.fromJson(json.loads(schema_json))
        frame = frame_of(spark, splits, partial(rows_of, schema_json=schema_json), schema)
        whole = frame if whole is None else whole.unionByName(frame, allowMissingColumns=True)
    return whole


def splits_of(
    root_url: str, job: str, outputs: Sequence[Output], split_bytes: int = SPLIT_BYTES
) -> list[FileSplit]:
    """The files of these outputs, in splits of about as many bytes."""
    files = (
        StoredFile(output.log, folder_of(job, output.log_id), file)
        for output in outputs
        for file in output.files
    )
    groups = in_groups(files, lambda each: each.file.num_bytes + OPEN_COST_BYTES, split_bytes)
    return [FileSplit(root_url, tuple(some)) for some in groups]


def rows_of(split: FileSplit, schema_json: str) -> Iterator[pa.RecordBatch]:
    """The rows of a split, with the types that Spark expects. Runs in a task."""
    schema = to_arrow_schema(StructType.fromJson(json.loads(schema_json)), timezone="UTC")
    for stored, data in contents_of(split):
        try:
            file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
            for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                yield batch.cast(schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Corrupt(f"{stored.path} is not readable: {error}", path=stored.path) from None


def contents_of(split: FileSplit) -> Iterator[tuple[StoredFile, bytes]]:
    """The bytes of each file, a few of them fetched at a time."""
    fetch = partial(_fetch, PatientStore(open_store(split.root_url), DEFAULT_RUNTIME, TIMEOUT_S))
    size_of = attrgetter("file.num_bytes")
    for some in in_groups(split.files, size_of, FETCH_BYTES, FETCHES_AT_ONCE):
        fetched = loop_thread().run(partial(gather_bounded, some, fetch, FETCHES_AT_ONCE))
        yield from zip(some, fetched, strict=True)


async def _fetch(root: Store, stored: StoredFile) -> bytes:
    try:
        data = (await root.get(stored.path)).data
    except NotFound:
        raise await _missing(root, stored) from None
    found = hashlib.sha256(data).hexdigest()
    if found != stored.file.sha256:
        raise Corrupt(
            f"{stored.path} is not what was written",
            path=stored.path,
            expected=stored.file.sha256,
            actual=found,
        )
    return data


async def _missing(root: Store, stored: StoredFile) -> StratalogError:
    """Why a file is not there: newer versions took its place, or it was lost."""
    _, job, log_id = stored.folder.split("/")
    current = await Outputs(root, job).find(log_id)
    if current is not None and stored.file.path in current.names:
        return Corrupt(f"{stored.path} is missing although OUTPUT names it", path=stored.path)
    return NotFound(
        f"{stored.path} was replaced while it was read",
        path=stored.path,
        hint="Read the output again: newer versions were published.",
    )
