"""The first half of a herd's scrub, in a Spark task: walk the trees of a share of the logs.

It is the scrub of the library, with an examiner that only lists the fragments that there are. So
everything but the records is compared here. Spark shuffles the fragments, which divides a huge log
and mixes small ones, and gives them to ``scrub_examine_tasks``.
"""

import asyncio
import pickle
from collections.abc import AsyncGenerator, Iterator, Sequence

import pyarrow as pa

from stratalog.blocking import Pull, loop_thread
from stratalog.errors import StratalogError
from stratalog.objectlog import ScrubOptions
from stratalog.objectlog.check import Examined, scrub
from stratalog.objectlog.stored import Fragment, Manifest
from stratalog.pipeline.check.scrub_rows import WALKED, Walked, compared_manifest
from stratalog.pipeline.jobs import LogRef, resolve
from stratalog.pipeline.spark import batch_of, whole_errors
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import CountedStore, PatientStore, Store, open_store

LOGS_AT_ONCE = 16
WALK_BATCHES_AHEAD = 16
WALK_BATCH_FRAGMENTS = 512
WALK_BYTES_MAX = 1 << 60


def walk(root_url: str, refs: Sequence[LogRef], timeout_s: float) -> Iterator[pa.RecordBatch]:
    """All fragments of these logs, one row each, and one row with a note for each log."""
    with whole_errors():
        for rows in Pull(loop_thread(), _walk(root_url, refs, timeout_s), at_once=1):
            yield batch_of(rows, WALKED)


_WalkRow = tuple[str, str | None, bool, int, bytes | None, bytes | None]


async def _walk(
    root_url: str, refs: Sequence[LogRef], timeout_s: float
) -> AsyncGenerator[list[_WalkRow], None]:
    counted = CountedStore(open_store(root_url))
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
        manifest = await compared_manifest(store)
        options = ScrubOptions(processes=0, bytes_max=WALK_BYTES_MAX, timeout_s=timeout_s)
        report = await scrub(store, options=options, examiner=_Lister(ref, manifest, rows))
        current = await compared_manifest(store)
    except StratalogError as error:
        return Walked(ref, error=error)
    if manifest is None:
        return Walked(ref, report)
    ref = LogRef(ref.name or manifest.name, ref.log_id)
    if current is not None and current.compacted != manifest.compacted:
        # What was walked is not what the first manifest adds up, and each part was compared.
        return Walked(ref, report)
    collected = manifest.collected if isinstance(manifest.collected, Setsum) else EMPTY
    return Walked(
        ref,
        report,
        manifest.count,
        manifest.setsum - collected,
        collected,
        manifest.first_offset,
    )


class _Lister:
    """An examiner that reads no fragment, but passes it on to be examined elsewhere.

    Fragments that were appended after the manifest was read are examined, but are no part of its
    sum.
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
            await self._rows.put([self._row(entry) for entry in batch])
        return Examined()

    def _row(self, entry: Fragment) -> _WalkRow:
        counts = self._first <= entry.start.offset and entry.limit.offset <= self._limit
        return self._log_id, self._name, counts, entry.num_bytes, entry.to_json(), None

    async def close(self) -> None:
        """Nothing is kept open."""
