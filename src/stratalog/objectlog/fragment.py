"""A fragment: one immutable Parquet object with consecutive records.

    columns   offset u64, timestamp_us u64, body binary; all required
    variant   ``relative_offset`` (0, 1, 2, …) in place of ``offset``, for a fragment that was
              written before its position was known; its start comes from the manifest, and its
              rows are hashed with the relative value
    path      log/Bucket={seq // 4096 * 4096:016x}/Writer={incarnation}-{n}/FragmentSeqNo={seq:016x}.parquet
              wal3's own: log/Bucket={…}/FragmentSeqNo={…}.parquet and log/Uuid={uuid}.parquet

The manifest's entry for it is ``path, seq_no, start, limit, num_bytes, setsum``. ``num_bytes`` is
the size of the object. Ours carry one append time for all their rows. Persisted: keep stable.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.errors import Corrupt
from stratalog.objectlog.position import LogPosition
from stratalog.objectlog.stored_json import StoredObject
from stratalog.setsum import Setsum, sum_of_records

BUCKET_FRAGMENTS = 4096

Compression = Literal["zstd", "snappy", "none"]

RECORD_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.uint64(), nullable=False),
        pa.field("timestamp_us", pa.uint64(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
_RELATIVE_COLUMNS = ["relative_offset", "timestamp_us", "body"]
_WRITER_IN_PATH = re.compile(r"/Writer=([^/]+)-\d+/")


class Fragment(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The entry that links a fragment into a manifest or a snapshot."""

    what: ClassVar[str] = "fragment entry"

    path: str
    seq_no: int | str
    start: LogPosition
    limit: LogPosition
    num_bytes: int
    setsum: Setsum

    @property
    def count(self) -> int:
        """How many records it holds."""
        return self.limit.offset - self.start.offset

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the writer that uploaded it, if its path tells."""
        found = _WRITER_IN_PATH.search(self.path)
        return found.group(1) if found else None


@dataclass(frozen=True, slots=True)
class EncodedFragment:
    """The bytes of a fragment and the sum of its records."""

    data: bytes
    setsum: Setsum


def fragment_path(seq_no: int, incarnation: str, upload: int) -> str:
    """A name that is never used twice: ``upload`` counts the uploads of the incarnation."""
    bucket = seq_no // BUCKET_FRAGMENTS * BUCKET_FRAGMENTS
    return (
        f"log/Bucket={bucket:016x}/Writer={incarnation}-{upload}/FragmentSeqNo={seq_no:016x}.parquet"
    )


def encode_fragment(
    first_offset: int,
    timestamp_us: int,
    bodies: Sequence[bytes],
    compression: Compression = "zstd",
) -> EncodedFragment:
    """Hash and encode consecutive records that are appended at one time."""
    count = len(bodies)
    offsets = np.arange(first_offset, first_offset + count, dtype=np.uint64)
    timestamps = np.full(count, timestamp_us, dtype=np.uint64)
    setsum = sum_of_records(offsets, timestamps, bodies)
    table = pa.Table.from_arrays(
        [pa.array(offsets), pa.array(timestamps), pa.array(bodies, type=pa.binary())],
        schema=RECORD_SCHEMA,
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        RECORD_SCHEMA,
        compression=compression,
        use_dictionary=False,
        write_statistics=["offset", "timestamp_us"],
        column_encoding={
            "offset": "DELTA_BINARY_PACKED",
            "timestamp_us": "DELTA_BINARY_PACKED",
            "body": "PLAIN",
        },
        store_schema=False,
    ) as file:
        file.write_table(table, row_group_size=max(1, count))
    return EncodedFragment(sink.getvalue().to_pybytes(), setsum)


def decode_fragment(data: bytes, entry: Fragment, *, verify: bool = True) -> pa.RecordBatch:
    """The records of a fragment with absolute offsets, checked against the entry that links it."""
    try:
        table = pq.read_table(io.BytesIO(data) if not data else pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(
            f"{entry.path} is not readable as Parquet: {error}", path=entry.path
        ) from None
    relative = table.column_names[:1] == ["relative_offset"]
    expected = _RELATIVE_COLUMNS if relative else RECORD_SCHEMA.names
    if table.column_names[:3] != expected:
        raise Corrupt(
            f"{entry.path} has other columns than a fragment",
            path=entry.path,
            expected=expected,
            actual=table.column_names,
        )
    try:
        batch = _one_batch(table.select(expected).rename_columns(RECORD_SCHEMA.names))
    except (pa.ArrowException, ValueError) as error:
        raise Corrupt(f"{entry.path} has other column types: {error}", path=entry.path) from None
    stored = batch.column(0).to_numpy()
    start = 0 if relative else entry.start.offset
    if len(stored) != entry.count or not np.array_equal(
        stored, np.arange(start, start + entry.count, dtype=np.uint64)
    ):
        raise Corrupt(
            f"{entry.path} does not hold offsets {entry.start.offset} to {entry.limit.offset}",
            path=entry.path,
            expected=entry.count,
            actual=len(stored),
        )
    if verify:
        check_sum(batch, stored, entry)
    if relative:
        absolute = pa.array(stored + np.uint64(entry.start.offset), type=pa.uint64())
        batch = pa.RecordBatch.from_arrays(
            [absolute, batch.column(1), batch.column(2)], schema=RECORD_SCHEMA
        )
    return batch


def check_sum(batch: pa.RecordBatch, hashed: npt.NDArray[np.uint64], entry: Fragment) -> None:
    """Refuse a batch whose records do not add up to the sum in its entry."""
    found = sum_of_records(hashed, batch.column(1).to_numpy(), body_views(batch.column(2)))
    if found != entry.setsum:
        raise Corrupt(
            f"{entry.path} does not add up to its setsum",
            path=entry.path,
            expected=entry.setsum.hexdigest(),
            actual=found.hexdigest(),
        )


def body_views(column: pa.Array) -> list[memoryview]:
    """Each body of a binary column, without copying it."""
    _, bounds_buffer, data_buffer = column.buffers()
    if data_buffer is None:
        return [memoryview(b"")] * len(column)
    bounds = np.frombuffer(bounds_buffer, dtype=np.int32)[
        column.offset : column.offset + len(column) + 1
    ].tolist()
    data = memoryview(data_buffer)
    return [data[low:high] for low, high in zip(bounds, bounds[1:], strict=False)]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """One contiguous batch with our schema; refuses nulls, which the schema does not allow."""
    if any(column.null_count for column in table.columns):
        raise ValueError("a required column has nulls")
    arrays = [
        column.cast(field.type).combine_chunks()
        for column, field in zip(table.columns, RECORD_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in arrays],
        schema=RECORD_SCHEMA,
    )


def num_records(fragments: Sequence[Fragment]) -> int:
    """How many records these fragments hold together."""
    return sum(each.count for each in fragments)


