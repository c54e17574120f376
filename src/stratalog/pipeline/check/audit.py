"""The audit table: what a scrub of a herd has looked at, and what it found.

    path      audits/{run}/part-….parquet     rows
              audits/{run}/AUDIT              JSON, put last: without it the run has not ended
    run       the time of its beginning and random digits, so that runs sort by age
    rows      object, log, log_id, path, start, limit, records, num_bytes,
              expected_sum, actual_sum, verdict, detail

``object`` is ``fragment``, ``log`` (one row a log, with the sums of all its records) or ``other``
(a snapshot, cursor, pin, plan or manifest of which there is something to say). ``verdict`` is
``ok``, the name of a damage, ``let go`` for what a collection took meanwhile, or ``unread`` for a
log that could not be looked at.
The parts that count are those that AUDIT names: a task that Spark repeats leaves others behind.
Persisted: keep stable.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Corrupt, NotFound
from stratalog.objectlog.stored import FORMAT, Natural, StoredObject, decode_document
from stratalog.objectlog.tree import delete_surely
from stratalog.pipeline.jobs import place_of
from stratalog.pipeline.spark import frame_of, struct_of
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, PatientStore, Store, open_store, put_once

AUDITS_PREFIX = "audits/"
AUDIT = "AUDIT"
TIMEOUT_S = 60.0
UNENDED_S = 3 * 86_400

OK = "ok"
LET_GO = "let go"
UNREAD = "unread"

SCHEMA = pa.schema(
    [
        pa.field("object", pa.string(), nullable=False),
        pa.field("log", pa.string()),
        pa.field("log_id", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("start", pa.int64()),
        pa.field("limit", pa.int64()),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("num_bytes", pa.int64(), nullable=False),
        pa.field("expected_sum", pa.string()),
        pa.field("actual_sum", pa.string()),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    object: str
    log: str | None
    log_id: str
    path: str
    start: int | None = None
    limit: int | None = None
    records: int = 0
    num_bytes: int = 0
    expected_sum: str | None = None
    actual_sum: str | None = None
    verdict: str = OK
    detail: str = ""


class Audit(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """What AUDIT says of a run."""

    what: ClassVar[str] = "audit"

    run: str
    started_us: Natural
    ended_us: Natural
    logs: Natural
    fragments: Natural
    records: Natural
    num_bytes: Natural
    damages: Natural
    troubles: Natural
    expected_sum: str
    """What the manifests say that all records of all compared logs add up to."""

    actual_sum: str
    """What they do add up to."""

    collected_sum: str
    """What all records add up to that were collected, as the manifests say."""

    parts: tuple[str, ...]
    format: str | None = None
    partial: bool = False
    """Whether only some logs were asked for."""


def new_run(runtime: Runtime = DEFAULT_RUNTIME) -> str:
    """The name of a run that begins now."""
    return f"{_name_at(runtime.now_us())}-{runtime.new_id(6)}"


def _name_at(time_us: int) -> str:
    """What the names of runs begin with that begin at this time."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=max(0, time_us))
    return f"{moment:%Y%m%dT%H%M%S}{moment.microsecond // 1000:03d}Z"


async def put_part(
    root: Store, run: str, rows: Sequence[AuditRow], runtime: Runtime = DEFAULT_RUNTIME
) -> str:
    """Store rows; gives the path of the part."""
    table = pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data = sink.getvalue().to_pybytes()

    def path() -> str:
        return f"{AUDITS_PREFIX}{run}/part-{runtime.new_id()}.parquet"

    return await put_once(root, path, data, Patience(runtime, TIMEOUT_S))


async def put_audit(root: Store, audit: Audit, runtime: Runtime = DEFAULT_RUNTIME) -> None:
    """End the run: from now on it is there, with all its parts."""
    stated = msgspec.structs.replace(audit, format=FORMAT)
    path = _audit_path(audit.run)
    await put_once(root, lambda: path, stated.to_json(), Patience(runtime, TIMEOUT_S))


async def runs(root: Store) -> list[str]:
    """The runs that have ended, oldest first."""
    return [run async for run, name, _ in _objects(root) if name == AUDIT]


async def load_audit(root: Store, run: str | None = None) -> Audit:
    """What a run has found, or the newest one. ``NotFound`` if there is none."""
    if run is None:
        ended = await runs(root)
        run = ended[-1] if ended else ""
    path = _audit_path(run)
    try:
        data = (await root.get(path)).data if run else b""
    except NotFound:
        data = b""
    if not data:
        raise NotFound(
            f"there is no audit {run!r} of this herd" if run else "this herd was never audited",
            path=path,
            hint="Make one with `stratalog pipeline scrub`.",
        )
    return decode_document(Audit, data, path)


async def load_whole_audit(root: Store) -> Audit | None:
    """The newest audit of all logs, if there is one."""
    for run in reversed(await runs(root)):
        audit = await load_audit(root, run)
        if not audit.partial:
            return audit
    return None


async def tidy_audits(root: Store, keep: int, runtime: Runtime = DEFAULT_RUNTIME) -> int:
    """Keep the newest ``keep`` audits of all logs, and as many of some logs.

    Returns how many objects were deleted. A run that has not ended may be under way, so it stays
    for some days.
    """
    ended = await runs(root)
    if len(ended) <= keep:
        return 0
    audits = [await load_audit(root, run) for run in ended]
    whole = [each.run for each in audits if not each.partial]
    some = [each.run for each in audits if each.partial]
    stale = _name_at(runtime.now_us() - UNENDED_S * 1_000_000)
    kept, known = {*whole[-keep:], *some[-keep:]}, {*ended}
    to_delete = [
        path
        async for run, _, path in _objects(root)
        if run not in kept and (run in known or run < stale)
    ]
    to_delete.sort(key=lambda path: path.endswith(f"/{AUDIT}"), reverse=True)
    await delete_surely(root, to_delete, Patience(runtime, TIMEOUT_S))
    return len(to_delete)


def read_audit(spark: SparkSession, root_url: str, run: str | None = None) -> DataFrame:
    """The rows of an audit, by default of the newest one."""
    place = place_of(root_url)
    audit = loop_thread().run(lambda: load_audit(_root(place), run))

    def make(path: str) -> Iterator[pa.RecordBatch]:
        blob = loop_thread().run(lambda: _root(place).get(path))
        try:
            yield from pq.read_table(pa.BufferReader(blob.data)).cast(SCHEMA).to_batches()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Corrupt(f"{path} is no part of an audit: {error}", path=path) from None

    return frame_of(spark, audit.parts, make, struct_of(SCHEMA))


def _root(place: str) -> Store:
    return PatientStore(open_store(place), DEFAULT_RUNTIME, TIMEOUT_S)


def _audit_path(run: str) -> str:
    return f"{AUDITS_PREFIX}{run}/{AUDIT}"


async def _objects(root: Store) -> AsyncIterator[tuple[str, str, str]]:
    """Run, name and path of every object of every audit, oldest run first."""
    async for row in root.list(AUDITS_PREFIX):
        run, slash, name = row.path.removeprefix(AUDITS_PREFIX).partition("/")
        if slash:
            yield run, name, row.path
