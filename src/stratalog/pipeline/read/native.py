"""Fragments as Spark's own Parquet reader sees them, with the manifest as the table.

Spark is not asked to look for the files: listing ten thousand of them takes it minutes. It is given
a list in the form in which its file sink leaves one behind, a folder ``_spark_metadata``, and takes
names and sizes from there. What the list calls the time of modification is in truth a number,
``note``: it comes back with each row as ``_metadata.file_modification_time``, and a small table
that is joined by it has what a file does not know of itself. That is the name of its log, and
for fragments with relative offsets their start and their append time.

Spark shows unsigned numbers as decimals unless the schema calls them ``bigint``; then filters on
``offset`` reach the files as well. It cannot do so where they are encoded by a dictionary, as wal3
does, so what wal3 wrote is read as decimals. No record is checked against its sum.
"""

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from stratalog.objectlog.stored import Fragment, is_relative
from stratalog.objectlog.tree import Window
from stratalog.pipeline.read.splits import Part
from stratalog.pipeline.spark import absolute_url, batch_of, is_cloud, is_remote, without_options

S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
LIST_FOLDER = "_spark_metadata"
LIST_VERSION = "v1"
READ_OPTIONS = {
    "recursiveFileLookup": "true",  # folders of files are no columns
    "__globPaths__": "false",  # a folder may have a star in its name
    "ignoreMissingFiles": "false",  # whatever the session says: no row goes missing
    "ignoreCorruptFiles": "false",
}
NOTES_SCHEMA = pa.schema(
    [
        pa.field("note", pa.int64(), nullable=False),
        pa.field("start", pa.int64()),
        pa.field("time_us", pa.int64()),
        pa.field("log", pa.string()),
    ]
)

_SAFE = re.compile(r"[A-Za-z0-9/=._-]+")
"""What is the same when it is encoded."""

Note = tuple[int | None, int | None, str | None]
"""What a file does not know: its start, its append time, its log."""


def why_not_native(spark: SparkSession, url: str) -> str | None:
    """Why Spark cannot read these files by itself, or None if it can."""
    if is_remote(spark):
        return "a session of Spark Connect does not tell what its server can read"
    if not is_cloud(url):
        return None
    if not re.match(r"s3a?://", url, re.IGNORECASE):
        return "of buckets, only those of S3 are read natively"
    if without_options(url)[1]:
        return "Spark's S3 client does not know the options in the URL"
    if not _jvm(spark).org.apache.spark.util.Utils.classIsLoadable(S3A_CLASS):
        return f"{S3A_CLASS} is not on Spark's class path"
    return None


def native_frame(spark: SparkSession, parts: Sequence[Part], window: Window) -> DataFrame | None:
    """The records of these parts that lie in the window, with their log if the parts name it.

    None if Spark does not take the list of files, which a setting may forbid.
    """
    frames: list[DataFrame] = []
    for files in _alike(spark, parts):
        frame = files.read(spark)
        if frame is None:
            return None
        frames.append(files.within(frame, window))
    return reduce(lambda one, other: one.unionAll(other), frames)


@dataclass
class _Files:
    """Files that are treated alike, what is noted of them, and how they are read."""

    relative: bool
    foreign: bool
    """Whether wal3 wrote them, which is when their entries have no time."""

    several_times: bool
    """Whether their entries do not have the time of each row."""

    listed: list[tuple[str, int, int]] = field(default_factory=list)
    notes: dict[Note, int] = field(default_factory=dict)

    def add(self, location: str, fragment: Fragment, log: str | None) -> None:
        note: Note = (None, None, log)
        if self.relative:
            note = (fragment.start.offset, fragment.start.timestamp_us or None, log)
        number = self.notes.setdefault(note, len(self.notes))
        self.listed.append((location, fragment.num_bytes, number))

    @property
    def has_notes(self) -> bool:
        return any(part is not None for note in self.notes for part in note)

    def read(self, spark: SparkSession) -> DataFrame | None:
        """The rows with the columns of a log."""
        first = "relative_offset" if self.relative else "offset"
        number = "decimal(20,0)" if self.foreign else "bigint"
        ddl = f"{first} {number}, timestamp_us {number}, body binary"
        frame = _read_listed(spark, self.listed, ddl)
        if frame is None:
            return None
        offset, time_us = sf.col(first), sf.col("timestamp_us")
        if self.foreign:
            offset, time_us = offset.cast("bigint"), time_us.cast("bigint")
        if not self.has_notes:
            return frame.select(offset.alias("offset"), _timestamp(time_us), "body")
        note = sf.unix_millis(sf.col("_metadata.file_modification_time")).alias("note")
        rows = [(place, *known) for known, place in self.notes.items()]
        noted = spark.createDataFrame(pa.Table.from_batches([batch_of(rows, NOTES_SCHEMA)]))
        joined = frame.select("*", note).join(sf.broadcast(noted), "note", "left")
        stray = sf.raise_error(sf.lit("a row is of a file that was not planned"))
        if self.relative:
            offset = sf.coalesce(sf.col("start") + offset, stray.cast("bigint"))
            time_us = sf.coalesce(sf.col("time_us"), time_us)
        columns = [offset.alias("offset"), _timestamp(time_us), sf.col("body")]
        if any(log is not None for _, _, log in self.notes):
            columns.append(sf.coalesce(sf.col("log"), stray.cast("string")).alias("log"))
        return joined.select(*columns)

    def within(self, frame: DataFrame, window: Window) -> DataFrame:
        """The rows that belong to the window. An entry with a time was already chosen by it."""
        if window.from_offset:
            frame = frame.where(sf.col("offset") >= window.from_offset)
        if window.to_offset is not None:
            frame = frame.where(sf.col("offset") < window.to_offset)
        if self.several_times and window.from_timestamp_us is not None:
            frame = frame.where(sf.col("timestamp") >= _timestamp(sf.lit(window.from_timestamp_us)))
        if self.several_times and window.to_timestamp_us is not None:
            frame = frame.where(sf.col("timestamp") < _timestamp(sf.lit(window.to_timestamp_us)))
        return frame


def _alike(spark: SparkSession, parts: Iterable[Part]) -> list[_Files]:
    """The fragments in groups of those that are read in the same way.

    A list names a file once, so one that two logs share (a fork) is in two groups.
    """
    groups: dict[tuple[bool, bool, bool, int], _Files] = {}
    times_listed: Counter[str] = Counter()
    folders = _Folders(spark)
    for part in parts:
        for fragment in part.fragments:
            location = folders.locate(part, fragment)
            relative, foreign = is_relative(fragment.path), not fragment.limit.timestamp_us
            alike = (relative, foreign, foreign or fragment.is_sparse)
            kind = (*alike, times_listed[location])
            groups.setdefault(kind, _Files(*alike)).add(location, fragment, part.log)
            times_listed[location] += 1
    return [*groups.values()]


class _Folders:
    """Where files are in Spark's words: encoded as only Spark knows, which is asked rarely."""

    def __init__(self, spark: SparkSession) -> None:
        self._path: Any = _jvm(spark).org.apache.hadoop.fs.Path
        self._known: dict[str, str] = {}

    def locate(self, part: Part, fragment: Fragment) -> str:
        folder = fragment.base or part.url
        if folder not in self._known:
            self._known[folder] = self._encoded(hadoop_path(folder))
        if _SAFE.fullmatch(fragment.path):
            return f"{self._known[folder]}/{fragment.path}"
        return self._encoded(f"{hadoop_path(folder)}/{fragment.path}")

    def _encoded(self, path: str) -> str:
        """Of the thousands of logs of a herd, only the folder that they share is asked for."""
        parent, _, name = path.rpartition("/")
        if not parent.rpartition(":")[2].strip("/") or not _SAFE.fullmatch(name):
            return str(self._path(path).toUri().toString())
        if parent not in self._known:
            self._known[parent] = str(self._path(parent).toUri().toString())
        return f"{self._known[parent]}/{name}"


def hadoop_path(url: str) -> str:
    """A place as Spark names it, not encoded."""
    if is_cloud(url):
        return "s3a://" + without_options(url)[0].partition("://")[2].rstrip("/")
    place = url if url.startswith("file:///") else absolute_url(url)
    return "file:" + unquote(place.removeprefix("file://")).rstrip("/")


def _read_listed(
    spark: SparkSession, files: Sequence[tuple[str, int, int]], ddl: str
) -> DataFrame | None:
    """A frame over exactly these files. None if Spark does not take the list."""
    folder = Path(tempfile.mkdtemp(prefix="stratalog-files-"))
    try:
        (folder / LIST_FOLDER).mkdir()
        lines = [LIST_VERSION, *map(_line, files)]
        (folder / LIST_FOLDER / "0").write_text("\n".join(lines), encoding="utf-8")
        reader = spark.read.schema(ddl).options(**READ_OPTIONS)
        frame = reader.parquet(f"file:{folder}")
        taken = len(cast(Any, frame)._jdf.inputFiles())
        return frame if taken == len({name for name, _, _ in files}) else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(file: tuple[str, int, int]) -> str:
    name, size, note = file
    return json.dumps(
        {
            "path": name,
            "size": size,
            "isDir": False,
            "modificationTime": note,
            "blockReplication": 1,
            "blockSize": max(1, size),
            "action": "add",
        }
    )


def _timestamp(time_us: Column) -> Column:
    return sf.timestamp_micros(time_us).alias("timestamp")


def _jvm(spark: SparkSession) -> Any:
    """The other half of a classic session."""
    return spark._jvm
