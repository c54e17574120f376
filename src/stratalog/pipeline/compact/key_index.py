"""The key index of a log, as it is stored: what a compaction by key remembers of its records.

    path      live/INDEX.json
    fields    up_to, rule, compacted, epoch, buckets, parts, format, write_id,
              then when set: gone
    parts     live/{incarnation}-{n}.parquet, each with path, bucket, rows, num_bytes, sha256
              columns: key (binary, null for none), offset, timestamp_us, tombstone
    gone      live/{incarnation}-{n}.ixs, an IndexSet, with path, members, num_bytes

The rows of all parts, without those whose offset is ``gone`` or below the beginning of the log, are
the records before ``up_to`` that the log has. ``rule`` is a digest of the expressions that gave the
keys. ``compacted`` is that of the manifest after the run that wrote this: if the manifest has
another, somebody else has dropped records, and the index is useless. ``epoch`` is the sweep's;
it only rises, and a log that was created anew begins elsewhere. A key is in the bucket that its
CRC-32 modulo ``buckets`` tells, a record without a key in that of its offset.

It is a cache. A run that cannot read it, or finds that it is about something else, reads the log.

A version is published in this order:

    1  read INDEX.json      what the next version is made from
    2  upload parts         under names of their own; nobody reads them yet
    3  compact the log
    4  list, put INDEX      by CAS from the version that was read: one of two runs loses here
    5  delete               what was listed and is not named

What is deleted in (5) was uploaded by a run that read INDEX.json before (4), and so loses.
Persisted: keep stable.
"""

import hashlib
import io
import logging
from itertools import count
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.errors import Corrupt, Invalid, NotFound, StratalogError
from stratalog.indexset import EMPTY, IndexSet
from stratalog.objectlog.stored import (
    FORMAT,
    INCARNATION_LENGTH,
    Kind,
    Manifest,
    Natural,
    StoredObject,
    decode_document,
    own,
)
from stratalog.objectlog.tree import delete_surely
from stratalog.runtime import Runtime
from stratalog.store import Document, Patience, Store, Superseded, Version, put_once, read_version

log = logging.getLogger(__name__)

INDEX_PREFIX = "live/"
INDEX_PATH = "live/INDEX.json"
TIMEOUT_S = 60.0
EPOCHS_MAX = 1_000_000
"""An index of an epoch further back than this is that of another log, which was here before."""

ROWS = pa.schema(
    [
        pa.field("key", pa.large_binary()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_us", pa.int64(), nullable=False),
        pa.field("tombstone", pa.bool_(), nullable=False),
    ]
)
NO_ROWS = ROWS.empty_table()


class IndexPart(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """Some rows of one bucket."""

    what: ClassVar[str] = "part of a key index"

    path: str
    bucket: Natural
    rows: Natural
    num_bytes: Natural
    sha256: str


class GoneSet(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """Offsets of rows that were dropped from the log since they were written."""

    what: ClassVar[str] = "set of dropped offsets"

    path: str
    members: Natural
    num_bytes: Natural


class KeyIndex(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """One version of the index."""

    what: ClassVar[str] = "key index"

    up_to: Natural
    rule: str
    compacted: str | None
    epoch: Natural
    buckets: Natural
    parts: tuple[IndexPart, ...]
    format: str
    write_id: str
    gone: GoneSet | None = None

    @property
    def entries(self) -> tuple[IndexPart | GoneSet, ...]:
        return self.parts if self.gone is None else (*self.parts, self.gone)

    @property
    def rows(self) -> int:
        """How many rows its parts have, also of records that are gone."""
        return sum(part.rows for part in self.parts)

    @property
    def names(self) -> frozenset[str]:
        """The objects that it consists of."""
        return frozenset(each.path for each in self.entries)

    def why_not(self, manifest: Manifest, rule: str) -> str | None:
        """Why it does not describe this log, or None if it does."""
        if self.rule != rule:
            return "it is of another rule"
        if self.compacted != manifest.compacted:
            return "records were dropped that it does not know of"
        if not 0 <= manifest.sweep_epoch - self.epoch < EPOCHS_MAX:
            return "it is of another log, which was here before"
        if self.up_to > manifest.tail.offset:
            return "it goes further than the log"
        return None


UNREADABLE = KeyIndex(
    up_to=0, rule="", compacted=None, epoch=0, buckets=1, parts=(), format=FORMAT, write_id=""
)
"""What stands for an index that cannot be used: it knows nothing."""


def decode_index(data: bytes) -> KeyIndex:
    """Decode a stored INDEX. ``Corrupt`` or ``Invalid`` if it is none that can be used."""
    index = decode_document(KeyIndex, data, INDEX_PATH)
    strangers = [name for name in index.names if not _is_ours(name) or name == INDEX_PATH]
    if strangers:
        raise Corrupt(f"a key index names {strangers[0]!r}", path=INDEX_PATH)
    if not index.buckets or any(part.bucket >= index.buckets for part in index.parts):
        raise Corrupt("a key index has a part in no bucket", path=INDEX_PATH)
    return index


async def load_index(store: Store) -> tuple[KeyIndex | None, str | None]:
    """The index if there is one that can be read, and its etag if there is any."""
    found = await read_version(store, INDEX_PATH, _decode_leniently)
    if found is None:
        return None, None
    if found.value is UNREADABLE:
        log.info("the key index of %s cannot be read", store.url)
        return None, found.etag
    return found.value, found.etag


def _decode_leniently(data: bytes, _path: str) -> KeyIndex:
    try:
        return decode_index(data)
    except (Corrupt, Invalid) as error:
        log.debug("a key index cannot be read: %s", error)
        return UNREADABLE


async def replace_index(
    store: Store, index: KeyIndex, etag: str | None, patience: Patience
) -> bool:
    """Put a version in place of the one that was read, then delete what no version names.

    False if another run came first. What was uploaded for this version is then for that run, or the
    one after it, to delete.
    """
    listed = [row.path async for row in store.list(INDEX_PREFIX)]
    document = Document(
        store,
        INDEX_PATH,
        _decode_leniently,
        label="key index",
        runtime=patience.runtime,
        timeout_s=TIMEOUT_S,
    )
    before = None if etag is None else Version(UNREADABLE, etag)
    if isinstance(await document.try_put(before, index, patience=patience), Superseded):
        return False
    kept = index.names | {INDEX_PATH}
    to_delete = [path for path in listed if path not in kept and _is_ours(path)]
    try:
        await delete_surely(store, to_delete, patience)
    except StratalogError as error:
        log.info("parts of a former key index were not deleted: %s", error)
    return True


class IndexNames:
    """Names for the uploads of one run or of one attempt at a task, none of them used twice."""

    def __init__(self, runtime: Runtime) -> None:
        self._incarnation = runtime.new_id(INCARNATION_LENGTH)
        self._numbers = count(1)

    def next(self, ending: str) -> str:
        return f"{INDEX_PREFIX}{self._incarnation}-{next(self._numbers)}.{ending}"


def encode_rows(rows: pa.Table) -> bytes:
    """Rows as the bytes of a part."""
    sink = io.BytesIO()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=["key"],
        column_encoding={
            "offset": "DELTA_BINARY_PACKED",
            "timestamp_us": "DELTA_BINARY_PACKED",
        },
        write_statistics=False,
        store_schema=False,
    )
    return sink.getvalue()


async def store_part(
    store: Store, rows: pa.Table, bucket: int, names: IndexNames, patience: Patience
) -> IndexPart:
    data = encode_rows(rows)
    path = await put_once(store, lambda: names.next("parquet"), data, patience)
    return IndexPart(
        path=path,
        bucket=bucket,
        rows=rows.num_rows,
        num_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )


async def store_gone(
    store: Store, offsets: IndexSet, names: IndexNames, patience: Patience
) -> GoneSet | None:
    """Upload the offsets of rows that are gone, if there are any."""
    if not offsets:
        return None
    data = offsets.to_bytes()
    path = await put_once(store, lambda: names.next("ixs"), data, patience)
    return GoneSet(path=path, members=len(offsets), num_bytes=len(data))


async def fetch_part(store: Store, part: IndexPart) -> pa.Table:
    """The rows of a part. ``Corrupt`` if it is missing or not what was written."""
    data = await _fetch(store, part.path)
    _check_written(part.path, part.sha256, hashlib.sha256(data).hexdigest())
    try:
        return pq.read_table(pa.BufferReader(data), use_threads=False).cast(ROWS)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(f"{part.path} is not readable: {error}", path=part.path) from None


async def fetch_gone(store: Store, gone: GoneSet | None) -> IndexSet:
    """The offsets of rows that are gone. ``Corrupt`` if they cannot be read."""
    if gone is None:
        return EMPTY
    data = await _fetch(store, gone.path)
    try:
        found = IndexSet.from_bytes(data)
    except Corrupt as error:
        raise Corrupt(f"{gone.path} is not readable: {error}", path=gone.path) from None
    _check_written(gone.path, gone.members, len(found))
    return found


def is_about_the_index(error: StratalogError) -> bool:
    """Whether a failure was met in an object of the index, so that a full run does without."""
    return isinstance(error, Corrupt) and (error.path or "").startswith(INDEX_PREFIX)


def _check_written(path: str, expected: str | int, actual: str | int) -> None:
    if actual != expected:
        raise Corrupt(
            f"{path} is not what was written", path=path, expected=expected, actual=actual
        )


async def _fetch(store: Store, path: str) -> bytes:
    try:
        return (await store.get(path)).data
    except NotFound:
        raise Corrupt(f"{path} is missing although an index names it", path=path) from None


def _is_ours(path: str) -> bool:
    found = own(path)
    return found is not None and found.kind is Kind.INDEX
