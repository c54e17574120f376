"""What a task of the sink does: upload the rows of its partition as fragments, to be linked later.

Each task uploads under a guard of its own, which the sweep heeds. If the batch was linked by an
earlier attempt, nothing is stored.
"""

import logging
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from stratalog.blocking import loop_thread
from stratalog.errors import Conflict, Invalid, StratalogError
from stratalog.objectlog import WriterOptions
from stratalog.objectlog.bulk import Batch, BulkUpload, UploadedFragment, is_linked, noted
from stratalog.pipeline.sink.options import Target

log = logging.getLogger(__name__)

UPLOADS_MAX = 3
RECORD_BYTES_MAX = WriterOptions.record_bytes_max


@dataclass
class Uploaded(WriterCommitMessage):
    fragments: tuple[UploadedFragment, ...] = ()
    query: str | None = None


def upload_rows(
    target: Target,
    batches: Iterator[pa.RecordBatch],
    number: int | None,
    *,
    in_order: bool = False,
) -> Uploaded:
    """Store the rows of one partition, in their order.

    ``in_order`` is for a query that repeats only its last batch.
    """
    upload: BulkUpload | None = None
    under_way: deque[Future[UploadedFragment]] = deque()
    fragments: list[UploadedFragment] = []
    try:
        for bodies in _bodies(batches, target.options.fragment_bytes):
            if upload is None:
                upload = loop_thread().run(lambda: _open(target, number))
                if _is_there(upload, target.query, number, in_order=in_order):
                    break
            if len(under_way) >= UPLOADS_MAX:
                fragments.append(under_way.popleft().result())
            under_way.append(loop_thread().relay(partial(upload.upload, bodies)))
        fragments += [each.result() for each in under_way]
    except BaseException:
        if upload is not None:
            _give_up(upload)
        raise
    return Uploaded(tuple(fragments), target.query)


async def _open(target: Target, number: int | None) -> BulkUpload:
    return await BulkUpload.open(
        target.url,
        query=target.query,
        batch=number,
        job=target.job,
        note="a task of Spark",
        compression=target.options.compression,
    )


def _is_there(upload: BulkUpload, query: str | None, number: int | None, *, in_order: bool) -> bool:
    """Whether the batch was linked by an earlier attempt, so that nothing need be stored."""
    if query is None or number is None:
        return False
    batch, manifest = Batch(query, number), upload.guard.manifest
    last = (manifest.sinks or {}).get(query, -1)
    if in_order and last > number:
        raise Conflict(
            f"the query {query!r} has written batch {last} to this log, and now comes with batch "
            f"{number}: its checkpoint is new, or older than the log",
            hint="Give a query that starts anew another queryId, or restore its checkpoint.",
            expected=last + 1,
            actual=number,
        )
    if last > number:
        log.warning("batch %d of %r is taken for written: the last one is %d", number, query, last)
    noted(manifest, batch)  # has room for the query
    return is_linked(manifest, batch)


def _give_up(upload: BulkUpload) -> None:
    try:
        loop_thread().run(upload.abandon)
    except StratalogError as error:
        log.info("an upload guard was not released: %s", error)


def _bodies(batches: Iterator[pa.RecordBatch], fragment_bytes: int) -> Iterator[pa.Array]:
    """The column of bodies in pieces that make a fragment each."""
    gathered: list[pa.Array] = []
    size = 0
    for batch in batches:
        for piece in _pieces(_checked(batch.column("body")), fragment_bytes):
            gathered.append(piece)
            size += piece.nbytes
            if size >= fragment_bytes:
                yield _joined(gathered)
                gathered, size = [], 0
    if gathered:
        yield _joined(gathered)


def _joined(pieces: list[pa.Array]) -> pa.Array:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _pieces(column: pa.Array, fragment_bytes: int) -> Iterator[pa.Array]:
    """A column that is larger than a fragment, evenly divided: as it is, a piece makes one."""
    count = min(len(column), max(1, column.nbytes // fragment_bytes))
    bounds = [len(column) * number // count for number in range(count + 1)] if count else [0]
    for low, high in pairwise(bounds):
        yield column.slice(low, high - low)


def _checked(column: pa.Array) -> pa.Array:
    """Bodies as binary. ``Invalid`` for what cannot be a record."""
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    if column.null_count:
        raise Invalid(
            "a body is missing (null)",
            hint="Leave such rows out (where body is not null); an empty body is X''.",
        )
    largest = pc.max(pc.binary_length(column)).as_py() or 0
    if largest > RECORD_BYTES_MAX:
        raise Invalid(
            f"a record of {largest} bytes is larger than {RECORD_BYTES_MAX}",
            hint="Store large values elsewhere, and their place here.",
            expected=RECORD_BYTES_MAX,
            actual=largest,
        )
    return column
