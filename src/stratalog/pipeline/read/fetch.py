"""Reading a split inside of a Spark task: objects ahead of time, records as Arrow batches.

Stores are opened here, in the process of the task: the client of a bucket does not survive the fork
that Spark's workers are made by. Objects are fetched by the loop's thread while the task decodes
the one before.
"""

from collections.abc import AsyncGenerator, Iterator
from typing import NoReturn

import pyarrow as pa

from stratalog.blocking import Pull, loop_thread
from stratalog.errors import Corrupt, NotFound, Trimmed
from stratalog.objectlog.stored import (
    ByteCache,
    Fragment,
    Verify,
    decode_fragment,
    load_manifest,
)
from stratalog.objectlog.tree import Tree, Window, cut, missing
from stratalog.ordered import OrderedTasks
from stratalog.pipeline.read.splits import Part, Split
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, Store, open_store

AHEAD_FRAGMENTS = 4
AHEAD_BYTES = 64 << 20
READ_TIMEOUT_S = 60.0

RECORDS = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
HERD_RECORDS = RECORDS.append(pa.field("log", pa.string(), nullable=False))

Fetched = tuple[Part, Fragment, bytes]


def records_of(split: Split, *, verify: Verify = True) -> Iterator[pa.RecordBatch]:
    """The records of a split, a batch for each fragment; with the log's name if it has one.

    What is checked of an object before it is believed: see ``ReaderOptions.verify``.
    """
    for part, fragment, data in Pull(loop_thread(), _ahead(split), at_once=1):
        batch = cut(_decoded(data, fragment, verify), fragment, part.window)
        if batch.num_rows:
            yield as_spark(batch, part.log)


def check_objects(split: Split) -> int:
    """Read the objects of a split for nothing but to check them. How many bytes they have.

    ``Corrupt`` for one that is not what its entry says.
    """
    checked = 0
    for _, fragment, data in Pull(loop_thread(), _ahead(split), at_once=1):
        _decoded(data, fragment, verify=True)
        checked += len(data)
    return checked


def check_size(fragment: Fragment, size: int) -> None:
    """Refuse an object that has another size than its entry says."""
    if size != fragment.num_bytes:
        raise Corrupt(
            f"{fragment.path} has {size} bytes, not {fragment.num_bytes}",
            path=fragment.path,
            expected=fragment.num_bytes,
            actual=size,
        )


def _decoded(data: bytes, fragment: Fragment, verify: Verify) -> pa.RecordBatch:
    if verify is not False:
        check_size(fragment, len(data))
    return decode_fragment(data, fragment, verify=verify)


def as_spark(batch: pa.RecordBatch, log: str | None) -> pa.RecordBatch:
    """The same rows with the types that Spark knows, without a copy."""
    offset, timestamp_us, body = batch.columns
    columns = [offset.view(pa.int64()), timestamp_us.view(RECORDS.field(1).type), body]
    if log is None:
        return pa.RecordBatch.from_arrays(columns, schema=RECORDS)
    names = pa.repeat(pa.scalar(log), batch.num_rows)
    return pa.RecordBatch.from_arrays([*columns, names], schema=HERD_RECORDS)


async def _ahead(split: Split) -> AsyncGenerator[Fetched, None]:
    """The objects in their order, a few of them fetched before they are asked for."""
    async with OrderedTasks[Fetched](AHEAD_FRAGMENTS, AHEAD_BYTES) as ahead:
        for part in split.parts:
            source = _Source(part)
            for fragment in part.fragments:
                while not ahead.has_room(fragment.num_bytes):
                    yield await ahead.take()
                ahead.start(source.fetch(fragment), fragment.num_bytes)
        while ahead:
            yield await ahead.take()


class _Source:
    """Where the fragments of one part lie."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._store = PatientStore(open_store(part.url), DEFAULT_RUNTIME, READ_TIMEOUT_S)
        self._tree = Tree(self._store, ByteCache(0))

    async def fetch(self, fragment: Fragment) -> Fetched:
        try:
            blob = await self._tree.store_of(fragment).get(fragment.path)
        except NotFound:
            await explain_missing(self._store, fragment)
        return self._part, fragment, blob.data


async def explain_missing(store: Store, fragment: Fragment) -> NoReturn:
    """Why an object of a log is not there: the log went, its past went, or it was lost."""
    try:
        manifest, _ = await load_manifest(store)
    except NotFound:
        raise NotFound(
            f"the log at {store.url} was deleted while it was read",
            path=fragment.path,
            hint="Plan the query again, if the log is there again.",
        ) from None
    first = manifest.first_offset
    if fragment.limit.offset <= first:
        raise Trimmed(
            f"records before {first} were collected while they were read",
            first_offset=first,
            hint="Read with a pin (the default), or with one that lasts longer.",
        ) from None
    window = Window(fragment.start.offset, fragment.limit.offset)
    tree = Tree(store, ByteCache(0))
    linked = [each.path async for each in tree.walk(manifest, window)]
    if fragment.path in linked:
        raise missing(fragment.path)
    raise NotFound(
        f"{fragment.path} was replaced while it was read",
        path=fragment.path,
        hint="Read with a pin (the default), or plan the query again.",
    ) from None
