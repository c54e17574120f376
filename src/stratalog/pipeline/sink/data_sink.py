"""The sink: rows of a DataFrame become records of one log, all of them or none, and once.

Tasks stage what they get (``objectlog.staging``), each under a stage of its own, and tell the
driver what they have stored. The driver links all of it with one manifest (``objectlog.sinking``),
in the order of the partitions, which carries the query and the number of the batch. A batch that
is repeated after a crash, or after an answer that was lost, is recognised by that.

A stream takes both from Spark: the id of a query lies in its checkpoint, and comes to the tasks
with them. A batch has them if it was given them (``queryId``, ``batchId``); otherwise it is written
as often as it is called. Spark makes a new object for each batch and another for its commit, so
nothing is kept here: what the driver must know travels in the messages of the tasks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from stratalog.blocking import loop_thread
from stratalog.errors import Conflict, Invalid, StratalogError
from stratalog.herd import CATALOGUE_TIMEOUT_S, Catalogue, Herd, Mark, log_store
from stratalog.objectlog import WriterOptions
from stratalog.objectlog.append import create_log
from stratalog.objectlog.holds import UploadGuard, UploadGuardStore
from stratalog.objectlog.load import (
    Batch,
    Linked,
    StagedFragment,
    Staging,
    is_linked,
    link_staged,
    noted,
)
from stratalog.objectlog.stored import load_manifest
from stratalog.pipeline.sink.options import SinkOptions, parse_sink
from stratalog.pipeline.spark import below, whole_errors
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, open_store

log = logging.getLogger(__name__)

T = TypeVar("T")

UPLOADS_MAX = 3
LET_GO_TIMEOUT_S = 10.0
RECORD_BYTES_MAX = WriterOptions.record_bytes_max
GIVEN_ANEW = ("offset", "timestamp")
"""Columns that a log shows and gives by itself: they may come along, and are not stored."""

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the rows go, as every process of the job sees it."""

    url: str
    options: SinkOptions
    query: str | None = None
    """Who writes, if the writes are numbered."""

    job: str | None = None
    """If they are not: the stage of the whole job, to which those of the tasks belong."""

    log_id: str | None = None
    """In a herd: the id of the log."""


@dataclass
class Staged(WriterCommitMessage):
    """What one task has stored."""

    fragments: tuple[StagedFragment, ...] = ()
    query: str | None = None


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of ``df.write``. Called by Spark on the driver."""
    with whole_errors():
        parsed = parse_sink(options, streaming=False)
        _check_rows(schema, overwrite)
        return BatchSink(_run(lambda: _located(parsed, is_numbered=parsed.query is not None)))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of ``df.writeStream``. Called by Spark on the driver, for each batch."""
    with whole_errors():
        parsed = parse_sink(options, streaming=True)
        _check_rows(schema, overwrite)
        return StreamSink(_run(lambda: _located(parsed, is_numbered=True)))


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        with whole_errors():
            return _stage(self._target, iterator, self._target.options.batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._target.options
        batch = None
        if options.query is not None and options.batch is not None:
            batch = Batch(options.query, options.batch)
        with whole_errors():
            _link(self._target, messages, batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Of a write without a number nobody else knows that it is over."""
        if self._target.job is not None:
            _let_go(self._target, [])


class StreamSink(DataSourceStreamArrowWriter):
    """Writes one micro-batch of a stream."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
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
            return _stage(target, iterator, int(number), in_order=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        with whole_errors():
            queries = {each.query for each in _told(messages) if each.query is not None}
            if queries:
                _link(self._target, messages, Batch(min(queries), batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: the stages are over when the batch is repeated and linked."""


# In a task


def _stage(
    target: Target,
    batches: Iterator[pa.RecordBatch],
    number: int | None,
    *,
    in_order: bool = False,
) -> Staged:
    """Store the rows of one partition, in their order.

    ``in_order`` is for a query that repeats none but its last batch.
    """
    staging: Staging | None = None
    under_way: deque[Future[StagedFragment]] = deque()
    fragments: list[StagedFragment] = []
    try:
        for bodies in _bodies(batches, target.options.fragment_bytes):
            if staging is None:
                staging = _run(lambda: _open(target, number))
                if _is_there(staging, target.query, number, in_order=in_order):
                    break
            if len(under_way) >= UPLOADS_MAX:
                fragments.append(under_way.popleft().result())
            under_way.append(_begin(staging, bodies))
        fragments += [each.result() for each in under_way]
    except BaseException:
        if staging is not None:
            _give_up(staging)
        raise
    return Staged(tuple(fragments), target.query)


async def _open(target: Target, number: int | None) -> Staging:
    return await Staging.open(
        target.url,
        query=target.query,
        batch=number,
        job=target.job,
        note="a task of Spark",
        compression=target.options.compression,
    )


def _is_there(staging: Staging, query: str | None, number: int | None, *, in_order: bool) -> bool:
    """Whether the batch was linked by an earlier attempt, so that nothing need be stored."""
    if query is None or number is None:
        return False
    batch, manifest = Batch(query, number), staging.stage.manifest
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


def _begin(staging: Staging, bodies: pa.Array) -> Future[StagedFragment]:
    return loop_thread().relay(lambda: staging.upload(bodies))


def _give_up(staging: Staging) -> None:
    try:
        _run(staging.abandon)
    except StratalogError as error:
        log.info("a stage was not released: %s", error)


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


def _property(task: TaskContext | None, name: str) -> str | None:
    return None if task is None else task.getLocalProperty(name)


# On the driver


async def _located(options: SinkOptions, *, is_numbered: bool) -> Target:
    """The log that was meant, created if that was asked for, and the stage of the job."""
    url, log_id = await _place_of(options)
    if is_numbered:
        return Target(url, options, query=options.query, log_id=log_id)
    stage = await UploadGuard.register(url, note="a write of Spark")
    return Target(url, options, job=stage.incarnation, log_id=log_id)


async def _place_of(options: SinkOptions) -> tuple[str, str | None]:
    """Where the log is, and its id if it belongs to a herd."""
    root = open_store(options.url)
    patient = PatientStore(root, DEFAULT_RUNTIME, CATALOGUE_TIMEOUT_S)
    if options.log is None:
        if options.create:
            await create_log(root, exist_ok=True)
        await load_manifest(patient)
        return options.url, None
    if options.create:
        async with Herd.open(root) as herd:
            log_id = await (await herd.create(options.log, exist_ok=True)).id()
    else:
        log_id = (await Catalogue(patient, DEFAULT_RUNTIME).find(options.log)).id
    return below(options.url, f"logs/{log_id}"), log_id


def _link(
    target: Target, messages: Sequence[WriterCommitMessage | None], batch: Batch | None
) -> None:
    fragments = [fragment for each in _told(messages) for fragment in each.fragments]
    linked = _run(lambda: _linked(target, fragments, batch))
    log.info("%d fragments for %s: %s", len(fragments), target.url, linked)
    _let_go(target, sorted({each.incarnation for each in fragments}))


def _let_go(target: Target, incarnations: Sequence[str]) -> None:
    """Remove the stages of what is linked, and let that of the whole job be over.

    Whatever happens here, the rows are written: what is left behind is for the sweep.
    """

    async def let_go() -> None:
        guards = UploadGuardStore(
            PatientStore(open_store(target.url), DEFAULT_RUNTIME, LET_GO_TIMEOUT_S)
        )
        if target.job is not None:
            await guards.release(target.job)
        own = [] if target.job is None else [target.job]
        await guards.remove([*incarnations, *own])

    try:
        _run(let_go)
    except StratalogError as error:
        log.info("stages of %s were not removed: %s", target.url, error)


async def _linked(
    target: Target, fragments: Sequence[StagedFragment], batch: Batch | None
) -> Linked:
    log_id = target.log_id
    if log_id is None:
        return await link_staged(target.url, fragments, batch=batch)
    async with Herd.open(target.options.url, server=target.options.server) as herd:

        async def mark(end: int, sweep_epoch: int) -> None:
            now_us = DEFAULT_RUNTIME.now_us()
            made = Mark(log_id=log_id, end=end, sweep_epoch=sweep_epoch, first_us=now_us)
            await herd.mark([made])

        store = log_store(herd.root, log_id)
        return await link_staged(store, fragments, batch=batch, beside=mark)


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [each for each in messages if isinstance(each, Staged)]


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


def _run(start: Callable[[], Awaitable[T]]) -> T:
    return loop_thread().run(start)
