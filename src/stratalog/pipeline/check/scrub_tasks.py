"""The two halves of a herd's scrub that run in tasks: walking trees, and examining fragments.

    walk       a share of the logs: the scrub of the library, with an examiner that only notes which
               fragments there are. So everything but the records is compared here.
    examine    a mixture of fragments of all logs: read, hashed and compared as the library does

What lies between them is a shuffle by Spark, which divides a huge log and mixes small ones. The
rows of ``examine`` carry each fragment's setsum as eight columns; Spark adds them up.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from stratalog.blocking import Pull, loop_thread
from stratalog.errors import Corrupt, Invalid, NotFound, StratalogError
from stratalog.herd import log_store
from stratalog.objectlog import ScrubOptions
from stratalog.objectlog.check import (
    Damage,
    DamageKind,
    Examined,
    ScrubReport,
    TreeWalk,
    about,
    examine_read,
    read_object,
    replacements_of,
    scrub,
    tree_of,
)
from stratalog.objectlog.stored import Fragment, Manifest, load_any_manifest
from stratalog.objectlog.tree import Tree
from stratalog.ordered import OrderedTasks
from stratalog.pipeline.check.audit import LET_GO, OK, AuditRow, put_part
from stratalog.pipeline.jobs import LogRef, open_root, resolve
from stratalog.pipeline.spark import whole_errors
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import CountedStore, PatientStore, Store, Usage

LOGS_AT_ONCE = 16
WALK_BATCHES_AHEAD = 16
WALK_BATCH_FRAGMENTS = 512
WALK_BYTES_MAX = 1 << 60
FRAGMENTS_AT_ONCE = 256
AHEAD_FRAGMENTS = 16
AHEAD_BYTES = 64 << 20
PART_ROWS_MAX = 100_000
TOLD_PER_LOG_MAX = 100
"""How many damaged fragments of a log a task tells of. The audit table has all."""

COLUMNS = tuple(f"c{number}" for number in range(8))
COUNTS = ("fragments", "records", "num_bytes", "hashed", "let_go")

WALKED = pa.schema(
    [
        ("log_id", pa.string()),
        ("log", pa.string()),
        ("counted", pa.bool_()),
        ("num_bytes", pa.int64()),
        ("entry", pa.binary()),
        ("note", pa.binary()),
    ]
)
WALKED_DDL = (
    "log_id string, log string, counted boolean, num_bytes bigint, entry binary, note binary"
)
EXAMINED = pa.schema(
    [
        ("log_id", pa.string()),
        *((name, pa.int64()) for name in (*COLUMNS, *COUNTS)),
        ("note", pa.binary()),
    ]
)
EXAMINED_DDL = ", ".join(
    ["log_id string", *(f"{name} bigint" for name in (*COLUMNS, *COUNTS)), "note binary"]
)


@dataclass(frozen=True, slots=True)
class Walked:
    """What is known of a log when its tree was walked."""

    ref: LogRef
    report: ScrubReport | None = None
    """All but what the records themselves would tell. None if the log could not be read."""

    count: int = 0
    """How many records the manifest has whose sum is compared."""

    expected: Setsum | None = None
    """What these records add up to, as the manifest says: its setsum without what was collected."""

    collected: Setsum = EMPTY
    """What all records add up to that were collected, as the manifest says."""

    first_offset: int = 0
    """Where that manifest began. What is walked may begin later, if a collection came between."""

    error: StratalogError | None = None


Note = Walked | Usage | str | tuple[Damage, ...]
"""What a task says besides numbers: a log that was walked, what the store was asked for, the path
of a part of the audit, damages of a fragment. Travels pickled, with a row."""


# Walking


def walk(root_url: str, refs: Sequence[LogRef], timeout_s: float) -> Iterator[pa.RecordBatch]:
    """All fragments of these logs, one row each, and one row with a note for each log."""
    with whole_errors():
        for rows in Pull(loop_thread(), _walk(root_url, refs, timeout_s), at_once=1):
            columns = zip(*rows, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(each, kind.type) for each, kind in zip(columns, WALKED, strict=True)],
                schema=WALKED,
            )


_WalkRow = tuple[str, str | None, bool, int, bytes | None, bytes | None]


async def _walk(
    root_url: str, refs: Sequence[LogRef], timeout_s: float
) -> AsyncGenerator[list[_WalkRow], None]:
    counted = CountedStore(open_root(root_url))
    root = PatientStore(counted, DEFAULT_RUNTIME, timeout_s)
    rows: asyncio.Queue[list[_WalkRow] | None] = asyncio.Queue(WALK_BATCHES_AHEAD)
    room = asyncio.Semaphore(LOGS_AT_ONCE)

    async def one(ref: LogRef) -> None:
        async with room:
            walked = await _walk_log(root, ref, timeout_s, rows)
        key = walked.ref.log_id or f"the name {walked.ref.name}"
        await rows.put([(key, walked.ref.name, False, 0, None, pickle.dumps(walked))])

    async def all_of_them() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for ref in refs:
                    group.create_task(one(ref))
        finally:
            await rows.put(None)

    walking = asyncio.ensure_future(all_of_them())
    try:
        while (some := await rows.get()) is not None:
            yield some
        await walking
        yield [("", None, False, 0, None, pickle.dumps(counted.usage))]
    finally:
        walking.cancel()
        await asyncio.gather(walking, return_exceptions=True)


async def _walk_log(
    root: Store, ref: LogRef, timeout_s: float, rows: asyncio.Queue[list[_WalkRow] | None]
) -> Walked:
    try:
        ref, store = await resolve(root, ref)
        manifest = await _manifest_of(store)
        options = ScrubOptions(processes=0, bytes_max=WALK_BYTES_MAX, timeout_s=timeout_s)
        noting = _Noting(ref, manifest, rows)
        report = await scrub(store, options=options, examiner=noting)
        current = await _manifest_of(store)
    except StratalogError as error:
        return Walked(ref, error=error)
    if manifest is None:
        return Walked(ref, report)
    if current is not None and current.compacted != manifest.compacted:
        # What was walked is not what the first manifest adds up, and each part was compared.
        return Walked(LogRef(ref.name or manifest.name, ref.log_id), report)
    collected = manifest.collected if isinstance(manifest.collected, Setsum) else EMPTY
    ref = LogRef(ref.name or manifest.name, ref.log_id)
    return Walked(
        ref,
        report,
        manifest.count,
        manifest.setsum - collected,
        collected,
        manifest.first_offset,
    )


async def _manifest_of(store: Store) -> Manifest | None:
    """The manifest whose sum is compared. None if it is damaged, which the scrub tells better."""
    try:
        return (await load_any_manifest(store))[0]
    except (Corrupt, NotFound):
        return None


class _Noting:
    """Takes the place of whoever would read the fragments, and passes them on.

    Those that were appended after the manifest was read are examined, but are no part of its sum.
    """

    batch_fragments = WALK_BATCH_FRAGMENTS
    batches = 1

    def __init__(
        self,
        ref: LogRef,
        manifest: Manifest | None,
        rows: asyncio.Queue[list[_WalkRow] | None],
    ) -> None:
        self._log_id = ref.log_id or ""
        self._name = ref.name or (manifest.name if manifest is not None else None)
        self._first = 0 if manifest is None else manifest.first_offset
        self._limit = 0 if manifest is None else manifest.tail.offset
        self._rows = rows

    async def examine(self, batch: Sequence[Fragment]) -> Examined:
        if batch:
            await self._rows.put(
                [
                    (
                        self._log_id,
                        self._name,
                        self._counts(entry),
                        entry.num_bytes,
                        entry.to_json(),
                        None,
                    )
                    for entry in batch
                ]
            )
        return Examined()

    def _counts(self, entry: Fragment) -> bool:
        return self._first <= entry.start.offset and entry.limit.offset <= self._limit

    async def close(self) -> None:
        """Nothing is kept open."""


# Examining


def examine(
    root_url: str, run: str, timeout_s: float, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows for Spark to add up: one a fragment. What the walk has noted is passed on."""
    with whole_errors(), _counting_references():
        task = _Examination(root_url, run, timeout_s)
        for batch in batches:
            for start in range(0, batch.num_rows, FRAGMENTS_AT_ONCE):
                rows = batch.slice(start, FRAGMENTS_AT_ONCE).to_pylist()
                yield loop_thread().run(partial(task.examine, rows))
        yield loop_thread().run(task.finish)


@contextlib.contextmanager
def _counting_references() -> Iterator[None]:
    """What comes is freed by counting references: looking for cycles would only take time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_Read = tuple[dict[str, object], Fragment, bytes | StratalogError]


class _Examination:
    """One task: the fragments that Spark has given it."""

    def __init__(self, root_url: str, run: str, timeout_s: float) -> None:
        self._counted = CountedStore(open_root(root_url))
        self._root = PatientStore(self._counted, DEFAULT_RUNTIME, timeout_s)
        self._run = run
        self._trees: dict[str, tuple[Store, Tree]] = {}
        self._told: Counter[str] = Counter()
        self._audit: list[AuditRow] = []
        self._out = _Rows()

    async def examine(self, rows: Sequence[dict[str, object]]) -> pa.RecordBatch:
        async with OrderedTasks[_Read](AHEAD_FRAGMENTS, AHEAD_BYTES) as ahead:
            for row in rows:
                data = row["entry"]
                if data is None:
                    note = row["note"]
                    assert isinstance(note, bytes)
                    self._out.add(str(row["log_id"]), note=note)
                    continue
                assert isinstance(data, bytes)
                entry = Fragment.from_json(data)
                while not ahead.has_room(entry.num_bytes):
                    await self._settle(*await ahead.take())
                ahead.start(self._read(row, entry), entry.num_bytes)
            while ahead:
                await self._settle(*await ahead.take())
        if len(self._audit) >= PART_ROWS_MAX:
            await self._put_part()
        return self._out.take()

    async def finish(self) -> pa.RecordBatch:
        if self._audit:
            await self._put_part()
        self._out.add(note=pickle.dumps(self._counted.usage))
        return self._out.take()

    async def _put_part(self) -> None:
        self._out.add(note=pickle.dumps(await put_part(self._root, self._run, self._audit)))
        self._audit = []

    def _place(self, log_id: str) -> tuple[Store, Tree]:
        if log_id not in self._trees:
            store = log_store(self._root, log_id)
            self._trees[log_id] = (store, tree_of(store))
        return self._trees[log_id]

    async def _read(self, row: dict[str, object], entry: Fragment) -> _Read:
        return row, entry, await read_object(self._place(str(row["log_id"]))[1], entry)

    async def _settle(
        self, row: dict[str, object], entry: Fragment, found: bytes | StratalogError
    ) -> None:
        """Compare what was read, or find out why there is nothing; one row for either."""
        log_id, counted = str(row["log_id"]), bool(row["counted"])
        if isinstance(found, StratalogError):
            again = await _look_again(*self._place(log_id), entry, found)
            damages, let_go, num_bytes = again.damages, again.let_go, 0
        else:
            damages, let_go, num_bytes = examine_read(entry, found), False, len(found)
        actual = _actual_sum(entry, found, damages)
        is_read = not isinstance(found, StratalogError)
        self._out.add(
            log_id=log_id,
            setsum=(entry.setsum if let_go else actual) if counted else None,
            fragments=int(is_read),
            records=entry.count if is_read else 0,
            num_bytes=num_bytes,
            hashed=entry.span if counted and (let_go or actual is not None) else 0,
            let_go=int(let_go),
            note=self._tell(log_id, damages),
        )
        name = row["log"]
        assert name is None or isinstance(name, str)
        self._audit.append(_audit_row(name, log_id, entry, actual, damages, let_go, num_bytes))

    def _tell(self, log_id: str, damages: Sequence[Damage]) -> bytes | None:
        if not damages or self._told[log_id] >= TOLD_PER_LOG_MAX:
            return None
        self._told[log_id] += 1
        return pickle.dumps(tuple(damages))


def _actual_sum(
    entry: Fragment, found: bytes | StratalogError, damages: Sequence[Damage]
) -> Setsum | None:
    """What the records that were read add up to, as far as they could be hashed."""
    if isinstance(found, StratalogError):
        return None
    if not damages:
        return entry.setsum  # the decoder has hashed every record, and refuses another sum
    sums = [each.actual for each in damages if each.kind is DamageKind.FRAGMENT_SUM]
    return Setsum.from_hexdigest(sums[0]) if sums and isinstance(sums[0], str) else None


def _audit_row(
    name: str | None,
    log_id: str,
    entry: Fragment,
    actual: Setsum | None,
    damages: Sequence[Damage],
    let_go: bool,
    num_bytes: int,
) -> AuditRow:
    return AuditRow(
        object="fragment",
        log=name,
        log_id=log_id,
        path=entry.path,
        start=entry.start.offset,
        limit=entry.limit.offset,
        records=entry.count,
        num_bytes=num_bytes,
        expected_sum=entry.setsum.hexdigest(),
        actual_sum=None if actual is None else actual.hexdigest(),
        verdict=LET_GO if let_go else damages[0].kind.value if damages else OK,
        detail="; ".join(map(describe, damages)),
    )


def describe(damage: Damage) -> str:
    """A damage in one line."""
    parts = [damage.kind.value, damage.detail]
    if damage.expected is not None or damage.actual is not None:
        parts.append(f"expected {damage.expected}, found {damage.actual}")
    return ": ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class _Again:
    damages: tuple[Damage, ...] = ()
    let_go: bool = False


async def _look_again(store: Store, tree: Tree, entry: Fragment, error: StratalogError) -> _Again:
    """Why the store gave nothing: damage, or the log has let go of the fragment meanwhile.

    What took its place is examined. What is missing of that is looked for in the same way.
    """
    if isinstance(error, Invalid):
        return _Again((about(DamageKind.FRAGMENT_PATH, entry, detail=str(error)),))
    try:
        manifest, _ = await load_any_manifest(store)  # raises if the store gives nothing at all
    except NotFound:
        return _Again(let_go=True)
    except Corrupt:
        return _Again((about(DamageKind.FRAGMENT_MISSING, entry),))
    if not isinstance(error, NotFound):
        return _Again((about(DamageKind.OBJECT_REFUSED, entry, detail=str(error)),))
    damages: list[Damage] = []

    async def reload() -> Manifest | None:
        return await _manifest_of(store)

    others = await replacements_of(entry, manifest, TreeWalk(store, damages.append, reload))
    if others is None:
        return _Again((about(DamageKind.FRAGMENT_MISSING, entry), *damages))
    for other in others:
        found = await read_object(tree, other)
        if isinstance(found, StratalogError):
            damages += (await _look_again(store, tree, other, found)).damages
        else:
            damages += examine_read(other, found)
    return _Again(tuple(damages), let_go=True)


class _Rows:
    """Rows of ``examine`` on their way to Spark."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._log_ids: list[str] = []
        self._sums: list[bytes] = []
        self._counts: list[tuple[int, ...]] = []
        self._notes: list[bytes | None] = []

    def add(
        self,
        log_id: str = "",
        *,
        setsum: Setsum | None = None,
        fragments: int = 0,
        records: int = 0,
        num_bytes: int = 0,
        hashed: int = 0,
        let_go: int = 0,
        note: bytes | None = None,
    ) -> None:
        self._log_ids.append(log_id)
        self._sums.append((EMPTY if setsum is None else setsum).digest())
        self._counts.append((fragments, records, num_bytes, hashed, let_go))
        self._notes.append(note)

    def take(self) -> pa.RecordBatch:
        """What has gathered since it was taken last."""
        count = len(self._log_ids)
        sums = np.frombuffer(b"".join(self._sums), "<u4").reshape(count, len(COLUMNS))
        counts = np.array(self._counts, np.int64).reshape(count, len(COUNTS))
        numbers = np.ascontiguousarray(np.hstack([sums.astype(np.int64), counts]).T)
        arrays = [
            pa.array(self._log_ids, pa.string()),
            *map(pa.array, numbers),
            pa.array(self._notes, pa.binary()),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=EXAMINED)
