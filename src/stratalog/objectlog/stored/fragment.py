"""A fragment: one immutable Parquet object with consecutive records.

    columns   offset u64, timestamp_us u64, body binary; all required
    variant   ``relative_offset`` (0, 1, 2, …) in place of ``offset``, for a fragment that was
              written before its position was known; its start comes from the manifest, and its
              rows are hashed with the relative value and the time that are stored. If its entry has
              a time, that is the time of its rows: they were appended when they were linked
    path      log/Bucket={seq // 4096 * 4096:016x}/Writer={incarnation}-{n}/
              FragmentSeqNo={seq:016x}.parquet, or …/Staged.parquet for the variant, whose number
              is not known when it is named: its bucket is that of the next one at that time
              wal3's own: log/Bucket={…}/FragmentSeqNo={…}.parquet and log/Uuid={uuid}.parquet
    sparse    what a compaction left of neighbours: their live rows, ascending, with gaps. Its name
              ends in FragmentSeqNo={first:016x}-{last:016x}.parquet. A row that was hashed with
              another offset or time than it has (it came from the variant above) says so in two
              more columns, ``item_offset`` and ``item_timestamp_us``, so that its sum stays

The manifest's entry for it is ``path, seq_no, start, limit, num_bytes, setsum, xxh3, xxh3_of``.
``num_bytes`` is the size of the object, and the last two are its digest (``object_digest``). Those
of writers carry one append time for all their rows. ``base`` is the URL of the log that owns the
object, if that is another one (see ``objectlog.branch``). A sparse entry spans all that it
replaces: ``count`` is the number of its rows, and ``seq_first`` the first of the sequence numbers
of which ``seq_no`` is the last. Persisted: keep stable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.errors import Corrupt, Invalid
from stratalog.hashing import digest_of
from stratalog.objectlog.stored.compression import Compression, compression_for
from stratalog.objectlog.stored.decoded_size import (
    BODY_BYTES_MAX,
    encoded_bytes_max,
    read_bounded,
)
from stratalog.objectlog.stored.object_digest import check_bytes, with_digest
from stratalog.objectlog.stored.position import LogPosition, Natural
from stratalog.objectlog.stored.record_sums import check_sum, sum_of_records
from stratalog.objectlog.stored.stored_json import StoredObject
from stratalog.setsum import Setsum

BUCKET_FRAGMENTS = 4096

RECORD_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.uint64(), nullable=False),
        pa.field("timestamp_us", pa.uint64(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
Verify = bool | Literal["records"]
"""How a fragment is checked when it is read: its bytes (``True``), and its records where its entry
has no digest; both (``"records"``); or neither (``False``)."""

Numbers = npt.NDArray[np.uint64]

Metadata = Mapping[bytes, str] | None
"""What is written into the footer beside the columns: see ``linked_mark``."""

_NUMBERS = "DELTA_BINARY_PACKED"
_ITEM_COLUMNS = ["item_offset", "item_timestamp_us"]
_ITEM_SCHEMA = pa.schema(
    [*RECORD_SCHEMA, *(pa.field(name, pa.uint64(), nullable=False) for name in _ITEM_COLUMNS)]
)
_RELATIVE_SCHEMA = RECORD_SCHEMA.set(0, pa.field("relative_offset", pa.uint64(), nullable=False))
_RELATIVE_PATH = re.compile(r"log/(?:.+/Staged|Uuid=[^/]+)\.parquet")
_WRITER_IN_PATH = re.compile(r"/Writer=([^/]+)-\d+/")


class Fragment(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The entry that links a fragment into a manifest or a snapshot."""

    what: ClassVar[str] = "fragment entry"

    path: str
    seq_no: Natural | str
    start: LogPosition
    limit: LogPosition
    num_bytes: Natural
    setsum: Setsum
    base: str | None = None
    seq_first: Natural | None = None
    rows: Natural | None = msgspec.field(name="count", default=None)
    xxh3: str | None = None
    xxh3_of: str | None = None

    def linking(self, path: str, encoded: EncodedFragment) -> Fragment:
        """The same entry, for an object that was stored at this path."""
        linked = msgspec.structs.replace(
            self, path=path, num_bytes=len(encoded.data), setsum=encoded.setsum
        )
        return with_digest(linked, encoded.xxh3)

    @property
    def count(self) -> int:
        """How many records it holds."""
        return self.span if self.rows is None else self.rows

    @property
    def span(self) -> int:
        """How many offsets it stands for."""
        return self.limit.offset - self.start.offset

    @property
    def is_sparse(self) -> bool:
        """Whether offsets that it spans may be absent, and its rows of several times."""
        return self.rows is not None

    @property
    def offsets(self) -> range:
        """The offsets that it stands for."""
        return range(self.start.offset, self.limit.offset)

    @property
    def is_ours_to_change(self) -> bool:
        """Whether we know all that its entry says, and its numbers."""
        return self.unknown is None and isinstance(self.seq_no, int)

    @property
    def first_seq_no(self) -> int | str:
        """The first of the sequence numbers that it stands for."""
        return self.seq_no if self.seq_first is None else self.seq_first

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the writer that uploaded it, if its path tells."""
        found = _WRITER_IN_PATH.search(self.path)
        return found.group(1) if found else None


@dataclass(frozen=True, slots=True)
class EncodedFragment:
    """A fragment as it is to be put: its bytes, their digest, and the sum of its records."""

    data: bytes
    setsum: Setsum
    xxh3: str


def fragment_path(seq_no: int, incarnation: str, upload: int) -> str:
    """A name that is never used twice: ``upload`` counts the uploads of the incarnation."""
    bucket = seq_no // BUCKET_FRAGMENTS * BUCKET_FRAGMENTS
    folder = f"log/Bucket={bucket:016x}/Writer={incarnation}-{upload}"
    return f"{folder}/FragmentSeqNo={seq_no:016x}.parquet"


def compacted_path(first: int, last: int, incarnation: str, upload: int) -> str:
    """The same for what a compaction left of the fragments with these numbers."""
    folder = fragment_path(last, incarnation, upload).rpartition("/")[0]
    return f"{folder}/FragmentSeqNo={first:016x}-{last:016x}.parquet"


def staged_path(seq_no: int, incarnation: str, upload: int) -> str:
    """The same for a fragment with relative offsets. ``seq_no`` is the next one at this time."""
    folder = fragment_path(seq_no, incarnation, upload).rpartition("/")[0]
    return f"{folder}/Staged.parquet"


def is_relative(path: str) -> bool:
    """Whether the fragment at this path has relative offsets, as far as its name tells."""
    return _RELATIVE_PATH.fullmatch(path) is not None


def encode_fragment(
    first_offset: int,
    timestamp_us: int,
    bodies: Sequence[bytes],
    compression: Compression = "zstd",
    metadata: Metadata = None,
) -> EncodedFragment:
    """Hash and encode consecutive records that are appended at one time.

    Only bodies are compressed, and only if there is something to gain (``compression``): the other
    two columns are a few bytes already.
    """
    column = _body_column(bodies)
    return _encode(RECORD_SCHEMA, first_offset, timestamp_us, column, compression, metadata)


def encode_staged(
    timestamp_us: int,
    bodies: pa.Array,
    compression: Compression = "zstd",
    metadata: Metadata = None,
) -> EncodedFragment:
    """Hash and encode records whose position is not known yet, from a column of bodies."""
    return _encode(_RELATIVE_SCHEMA, 0, timestamp_us, bodies, compression, metadata)


def encode_sparse(
    columns: Sequence[pa.Array], setsum: Setsum, compression: Compression = "zstd"
) -> EncodedFragment:
    """Encode rows whose offsets may have gaps, and which add up to ``setsum``.

    The columns are those of a record, and those of its item if there are two more.
    """
    schema = _ITEM_SCHEMA if len(columns) > 3 else RECORD_SCHEMA
    return _write(columns, schema, setsum, compression, None)


def _encode(
    schema: pa.Schema,
    first_offset: int,
    timestamp_us: int,
    bodies: pa.Array,
    compression: Compression,
    metadata: Metadata,
) -> EncodedFragment:
    count = len(bodies)
    offsets = np.arange(first_offset, first_offset + count, dtype=np.uint64)
    timestamps = np.full(count, timestamp_us, dtype=np.uint64)
    setsum = sum_of_records(offsets, timestamps, bodies)
    columns = [pa.array(offsets), pa.array(timestamps), bodies]
    return _write(columns, schema, setsum, compression, metadata)


def _write(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    setsum: Setsum,
    compression: Compression,
    metadata: Metadata,
) -> EncodedFragment:
    bodies = columns[2]
    table = pa.Table.from_arrays(columns, schema=schema)
    numbers = [name for name in schema.names if name != "body"]
    room = pa.allocate_buffer(encoded_bytes_max(len(bodies), bodies.nbytes))
    sink = pa.FixedSizeBufferWriter(room)
    with pq.ParquetWriter(
        sink,
        schema,
        compression={"body": compression_for(bodies, compression)},
        use_dictionary=False,
        write_statistics=numbers[:2],
        column_encoding={**dict.fromkeys(numbers, _NUMBERS), "body": "PLAIN"},
        store_schema=False,
    ) as file:
        file.write_table(table, row_group_size=max(1, len(bodies)))
        if metadata:
            file.add_key_value_metadata(metadata)
    data = room.slice(0, sink.tell()).to_pybytes()
    return EncodedFragment(data, setsum, digest_of(data))


def _body_column(bodies: Sequence[bytes]) -> pa.Array:
    """The bodies as one Arrow column: joined at once, which is faster than one by one."""
    joined = b"".join(bodies)
    if len(joined) > BODY_BYTES_MAX:
        raise Invalid(
            f"a fragment cannot hold {len(joined)} bytes",
            hint="Lower WriterOptions.fragment_bytes and record_bytes_max.",
            expected=BODY_BYTES_MAX,
            actual=len(joined),
        )
    bounds = np.zeros(len(bodies) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, bodies), dtype=np.int32, count=len(bodies)), out=bounds[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(bodies), [None, pa.py_buffer(bounds), pa.py_buffer(joined)]
    )


def decode_fragment(data: bytes, entry: Fragment, *, verify: Verify = True) -> pa.RecordBatch:
    """The records of a fragment with absolute offsets, checked against the entry that links it."""
    return decode_items(data, entry, verify=verify)[0]


def decode_items(
    data: bytes, entry: Fragment, *, verify: Verify = True
) -> tuple[pa.RecordBatch, Numbers, Numbers]:
    """The same, and with which offset and which time each record was hashed.

    Bytes are compared before they are decoded, so that nothing damaged is interpreted.
    """
    hashes = verify is not False and (not check_bytes(data, entry) or verify == "records")
    table, relative = _read(data, entry), False
    items = table if entry.is_sparse and _ITEM_COLUMNS[0] in table.column_names else None
    if not table.schema.equals(RECORD_SCHEMA):
        table, relative = _conformed(table, entry)
    columns = [_whole(column, entry) for column in table.columns]
    stored = columns[0].to_numpy()
    if not spans(stored, entry, relative=relative):
        raise Corrupt(
            f"{entry.path} does not hold offsets {entry.start.offset} to {entry.limit.offset}",
            path=entry.path,
        )
    offsets, times_us = stored, columns[1].to_numpy()
    if items is not None:
        offsets, times_us = _stored_items(items, entry)
    if hashes:
        found = sum_of_records(offsets, times_us, columns[2])
        check_sum(found, entry.setsum, entry.path, entry.path)
    if relative:
        columns[0] = pa.array(stored + np.uint64(entry.start.offset))
        if entry.start.timestamp_us:
            columns[1] = pa.array(np.full(entry.count, entry.start.timestamp_us, dtype=np.uint64))
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), offsets, times_us


def _whole(column: pa.ChunkedArray, entry: Fragment) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        return column.combine_chunks()
    except pa.ArrowException as error:
        raise Corrupt(
            f"{entry.path} holds more than one column can: {error}", path=entry.path
        ) from None


def spans(stored: Numbers, entry: Fragment, *, relative: bool) -> bool:
    """Whether these are the offsets that the entry promises: all, or as many, ascending."""
    start = 0 if relative else entry.start.offset
    if len(stored) != entry.count:
        return False
    if relative or not entry.is_sparse:
        # Compared as bytes: NumPy would release the interpreter twice, and wait to get it back.
        dense = np.arange(start, start + len(stored), dtype=np.uint64)
        return stored.tobytes() == dense.tobytes()
    if not len(stored):
        return True
    ends = start <= int(stored[0]) and int(stored[-1]) < entry.limit.offset
    return ends and bool((stored[1:] > stored[:-1]).all())


def _stored_items(table: pa.Table, entry: Fragment) -> tuple[Numbers, Numbers]:
    try:
        offsets, times_us = (table.column(name).cast(pa.uint64()) for name in _ITEM_COLUMNS)
        return offsets.to_numpy(), times_us.to_numpy()
    except (KeyError, pa.ArrowException) as error:
        raise Corrupt(
            f"{entry.path} does not tell how its records were hashed: {error}", path=entry.path
        ) from None


def _read(data: bytes, entry: Fragment) -> pa.Table:
    """The stored columns, read by the calling thread: fetching is what runs in parallel.

    The number of rows and the decoded size are looked at before anything is decoded, so that a
    damaged footer cannot ask for more memory than the entry promises.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        count = file.metadata.num_rows
        table = read_bounded(data, file) if count == entry.count else None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(
            f"{entry.path} is not readable as Parquet: {error}", path=entry.path
        ) from None
    if table is None:
        raise Corrupt(
            f"{entry.path} holds {count} records, not {entry.count}",
            path=entry.path,
            expected=entry.count,
            actual=count,
        )
    return table


def _conformed(table: pa.Table, entry: Fragment) -> tuple[pa.Table, bool]:
    """A table of another writer or variant in our schema, and whether its offsets are relative."""
    try:
        names = table.column_names
        relative = names[:1] == ["relative_offset"]
        expected = (_RELATIVE_SCHEMA if relative else RECORD_SCHEMA).names
        if names[:3] != expected:
            raise ValueError(f"{', '.join(names)} in place of {', '.join(expected)}")
        columns = table.columns[:3]
        if any(column.null_count for column in columns):
            raise ValueError("nulls in a required column")
        casts = [
            column.cast(field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)
        ]
    except (pa.ArrowException, ValueError) as error:
        raise Corrupt(
            f"{entry.path} has other columns than a fragment: {error}", path=entry.path
        ) from None
    return pa.Table.from_arrays(casts, schema=RECORD_SCHEMA), relative
