"""The second half of a herd's scrub, in a Spark task: read and hash a mixture of fragments.

Each is read, hashed and compared as the library does it. A row for each carries its setsum as eight
columns, which Spark adds up, and a row of the audit says what was found. What the walk has noted
(``scrub_walk_tasks``, the first half) is passed on.
"""

import contextlib
import gc
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from stratalog.blocking import loop_thread
from stratalog.errors import Corrupt, Invalid, NotFound, StratalogError
from stratalog.herd import log_store
from stratalog.objectlog.check import (
    Damage,
    DamageKind,
    TreeWalk,
    about,
    examine_read,
    read_object,
    replacements_of,
    tree_of,
)
from stratalog.objectlog.stored import Fragment, Manifest, load_any_manifest
from stratalog.objectlog.tree import Tree
from stratalog.ordered import OrderedTasks
from stratalog.pipeline.check.audit import LET_GO, OK, AuditRow, put_part
from stratalog.pipeline.check.findings import describe
from stratalog.pipeline.check.scrub_rows import EXAMINED, compared_manifest, examined_row
from stratalog.pipeline.spark import batch_of, whole_errors
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import CountedStore, PatientStore, Store, open_store

FRAGMENTS_AT_ONCE = 256
AHEAD_FRAGMENTS = 16
AHEAD_BYTES = 64 << 20
PART_ROWS_MAX = 100_000
NOTED_PER_LOG_MAX = 100
"""How many damaged fragments of a log a task notes. The audit table has all."""


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


_Read = tuple[dict[str, Any], Fragment, bytes | StratalogError]


class _Examination:
    """One task: the fragments that Spark has given it."""

    def __init__(self, root_url: str, run: str, timeout_s: float) -> None:
        self._counted = CountedStore(open_store(root_url))
        self._root = PatientStore(self._counted, DEFAULT_RUNTIME, timeout_s)
        self._run = run
        self._trees: dict[str, tuple[Store, Tree]] = {}
        self._noted: Counter[str] = Counter()
        self._audit: list[AuditRow] = []
        self._rows: list[tuple[object, ...]] = []

    async def examine(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        async with OrderedTasks[_Read](AHEAD_FRAGMENTS, AHEAD_BYTES) as ahead:
            for row in rows:
                if row["entry"] is None:
                    self._rows.append(examined_row(row["log_id"], note=row["note"]))
                    continue
                entry = Fragment.from_json(row["entry"])
                while not ahead.has_room(entry.num_bytes):
                    await self._settle(*await ahead.take())
                ahead.start(self._read(row, entry), entry.num_bytes)
            while ahead:
                await self._settle(*await ahead.take())
        if len(self._audit) >= PART_ROWS_MAX:
            await self._put_part()
        return self._taken()

    async def finish(self) -> pa.RecordBatch:
        if self._audit:
            await self._put_part()
        self._rows.append(examined_row(note=pickle.dumps(self._counted.usage)))
        return self._taken()

    def _taken(self) -> pa.RecordBatch:
        """What has gathered since it was taken last."""
        rows, self._rows = self._rows, []
        return batch_of(rows, EXAMINED)

    async def _put_part(self) -> None:
        path = await put_part(self._root, self._run, self._audit)
        self._rows.append(examined_row(note=pickle.dumps(path)))
        self._audit = []

    def _place(self, log_id: str) -> tuple[Store, Tree]:
        if log_id not in self._trees:
            store = log_store(self._root, log_id)
            self._trees[log_id] = (store, tree_of(store))
        return self._trees[log_id]

    async def _read(self, row: dict[str, Any], entry: Fragment) -> _Read:
        return row, entry, await read_object(self._place(row["log_id"])[1], entry)

    async def _settle(
        self, row: dict[str, Any], entry: Fragment, found: bytes | StratalogError
    ) -> None:
        """Compare what was read, or find out why there is nothing; one row for either."""
        log_id, counted = row["log_id"], row["counted"]
        is_read = not isinstance(found, StratalogError)
        if isinstance(found, StratalogError):
            damages, collected = await _look_again(*self._place(log_id), entry, found)
            num_bytes = 0
        else:
            damages, collected, num_bytes = examine_read(entry, found), False, len(found)
        actual = _actual_sum(entry, found, damages)
        hashed = entry.setsum if collected else actual
        out = examined_row(
            log_id,
            setsum=EMPTY if hashed is None or not counted else hashed,
            fragments=int(is_read),
            records=entry.count if is_read else 0,
            num_bytes=num_bytes,
            hashed=0 if hashed is None or not counted else entry.span,
            let_go=int(collected),
            note=self._note(log_id, damages),
        )
        self._rows.append(out)
        audited = AuditRow(
            object="fragment",
            log=row["log"],
            log_id=log_id,
            path=entry.path,
            start=entry.start.offset,
            limit=entry.limit.offset,
            records=entry.count,
            num_bytes=num_bytes,
            expected_sum=entry.setsum.hexdigest(),
            actual_sum=None if actual is None else actual.hexdigest(),
            verdict=LET_GO if collected else damages[0].kind.value if damages else OK,
            detail="; ".join(map(describe, damages)),
        )
        self._audit.append(audited)

    def _note(self, log_id: str, damages: Sequence[Damage]) -> bytes | None:
        if not damages or self._noted[log_id] >= NOTED_PER_LOG_MAX:
            return None
        self._noted[log_id] += 1
        return pickle.dumps(tuple(damages))


def _actual_sum(
    entry: Fragment, found: bytes | StratalogError, damages: Sequence[Damage]
) -> Setsum | None:
    """What the records that were read add up to, as far as they could be hashed."""
    if isinstance(found, StratalogError):
        return None
    if all(each.kind is DamageKind.FRAGMENT_DIGEST for each in damages):
        return entry.setsum  # the decoder has hashed every record, and refuses another sum
    sums = [each.actual for each in damages if each.kind is DamageKind.FRAGMENT_SUM]
    return Setsum.from_hexdigest(sums[0]) if sums and isinstance(sums[0], str) else None


async def _look_again(
    store: Store, tree: Tree, entry: Fragment, error: StratalogError
) -> tuple[tuple[Damage, ...], bool]:
    """Why the store gave nothing: damages, and whether a collection took the fragment meanwhile.

    What took its place is examined. What is missing of that is looked for in the same way.
    """
    if isinstance(error, Invalid):
        return (about(DamageKind.FRAGMENT_PATH, entry, detail=str(error)),), False
    try:
        manifest, _ = await load_any_manifest(store)  # raises if the store gives nothing at all
    except NotFound:
        return (), True
    except Corrupt:
        return (about(DamageKind.FRAGMENT_MISSING, entry),), False
    if not isinstance(error, NotFound):
        return (about(DamageKind.OBJECT_REFUSED, entry, detail=str(error)),), False
    damages: list[Damage] = []

    async def reload() -> Manifest | None:
        return await compared_manifest(store)

    others = await replacements_of(entry, manifest, TreeWalk(store, damages.append, reload))
    if others is None:
        return (about(DamageKind.FRAGMENT_MISSING, entry), *damages), False
    for other in others:
        found = await read_object(tree, other)
        if isinstance(found, StratalogError):
            damages += (await _look_again(store, tree, other, found))[0]
        else:
            damages += examine_read(other, found)
    return tuple(damages), True
