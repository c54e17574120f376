"""The linked state of a log, and the one task that changes it.

A committer holds the newest manifest it knows and its etag. ``commit`` links fragments under it
with one conditional put, and settles the outcome before it returns:

    LINKED           they are in the log
    TAIL_MOVED       another writer's records are there: they are not in the log and never will be
    EPOCH_MOVED      a sweep began since their upload: they may be gone, upload them again
    raises Sealed    the log takes no more records
    raises Unknown   the store did not answer in time

When only the past changed (a collection, say), it rebases on what is stored and goes on.

Folds run beside it (``fold_task.py``) and never add a round trip. Only a root that would outgrow
its bound waits for them.
"""

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.objectlog.append.context import WriterContext
from stratalog.objectlog.append.fold_task import FoldTask
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    Fragment,
    Manifest,
    UploadNames,
    decode_manifest,
    encode_manifest,
    load_manifest,
    sealed,
)
from stratalog.objectlog.tree import (
    Change,
    Tree,
    check_amendment,
    has_happened,
    is_version,
    link,
    only_the_past_changed,
    overtaken_by,
    put_linked,
)
from stratalog.store import Landed, Overtaken, PatientStore, swap

ROOT_BYTES_MAX = 32_000
# A writer that wins so often, and for so long, lets others have a turn. Not more often: a fast
# store would otherwise be idle for a tenth of the time.
WINS_IN_A_ROW_MAX = 32
WINNING_S_MIN = 0.5
ROOM_S_MAX = 2.0
SNAPSHOT_CACHE_BYTES = 512 * 1024


class CommitOutcome(enum.Enum):
    LINKED = "linked"
    TAIL_MOVED = "the tail moved"
    EPOCH_MOVED = "a sweep began"


@dataclass(frozen=True, slots=True)
class Upload:
    """A stored fragment that waits to be linked, and the epoch in which its upload began."""

    fragment: Fragment
    sweep_epoch: int


class Committer:
    def __init__(self, context: WriterContext, manifest: Manifest, etag: str) -> None:
        self._context = context
        self._store = context.store
        self._runtime = context.runtime
        self._counters = context.counters
        self._reads = PatientStore(context.store, context.runtime, context.options.timeout_s)
        self._tree = Tree(self._reads, SNAPSHOT_CACHE_BYTES, context.counters.snapshot_reads)
        self._etag = etag
        self._wins_in_a_row = 0
        self._winning_since_s = 0.0
        self._round_trip_s = self.put_s = 0.0
        self._fold_task = FoldTask(context, self._tree)
        self._turn = asyncio.Lock()
        self.manifest = manifest
        self.names = UploadNames(context.runtime)

    async def commit(self, uploads: Sequence[Upload]) -> CommitOutcome:
        """Link these fragments, in order, all or none."""
        async with self._turn:
            return await self._commit(uploads)

    async def amend(self, change: Change) -> bool:
        """Put a change of the past between two commits. False if it is not there afterwards.

        One attempt on top of what is known here. If that is not the newest manifest, the next
        commit finds out as always.
        """
        async with self._turn:
            changed = change(self.manifest)
            if changed is None:
                return False
            check_amendment(self.manifest, changed)
            settled = await swap(
                self._store,
                MANIFEST_PATH,
                encode_manifest(changed),
                self._etag,
                is_version(changed),
                self._context.patience(),
            )
            if not isinstance(settled, Landed) or settled.newer is not None:
                return False
            self.manifest, self._etag = changed, settled.etag
            return True

    async def _commit(self, uploads: Sequence[Upload]) -> CommitOutcome:
        fragments = [upload.fragment for upload in uploads]
        await self._leave_room()
        while True:
            if self.manifest.seal is not None:
                raise sealed(self.manifest)
            if any(upload.sweep_epoch != self.manifest.sweep_epoch for upload in uploads):
                return CommitOutcome.EPOCH_MOVED
            candidate, data, folds = await self._candidate(fragments)
            outcome = await self._put(candidate, data, fragments)
            if outcome is CommitOutcome.LINKED:
                self._fold_task.forget(folds)
                self._fold_task.consider(self.manifest, self.names)
            if outcome is not None:
                return outcome
            self._counters.rebases += 1

    async def refresh(self) -> bool:
        """Load the stored manifest. True if its tail is the one that we knew."""
        stored, etag = await load_manifest(self._reads)
        same_tail = only_the_past_changed(self.manifest, stored)
        self.manifest, self._etag = stored, etag
        return same_tail

    def take_over(self) -> None:
        """Begin again as a new incarnation, on the newest manifest that we know."""
        self.names = UploadNames(self._runtime)
        self._wins_in_a_row = 0

    async def close(self) -> None:
        """Stop the fold. The sweep deletes what it stored and did not link."""
        await self._fold_task.close()

    async def _put(
        self, candidate: Manifest, data: bytes, fragments: Sequence[Fragment]
    ) -> CommitOutcome | None:
        """One conditional put, settled. None: only the past changed, so try again on top of it."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        patience, incarnation = self._context.patience(), self.names.incarnation
        settled = await put_linked(self._store, data, self._etag, fragments, incarnation, patience)
        took_s = loop.time() - started_s
        if isinstance(settled, Overtaken):
            self._counters.manifest_conflicts += 1
            self._wins_in_a_row = 0
            return await self._after_refusal(settled, fragments)
        self._counters.manifests.add(took_s, len(data))
        self.put_s = took_s
        self._round_trip_s += (took_s - self._round_trip_s) / 4
        self._etag = settled.etag
        self.manifest = candidate if settled.newer is None else decode_manifest(settled.newer.data)
        self._wins_in_a_row = self._wins_in_a_row + 1 if settled.newer is None else 0
        return CommitOutcome.LINKED

    async def _after_refusal(
        self, refusal: Overtaken, fragments: Sequence[Fragment]
    ) -> CommitOutcome | None:
        stored, etag = overtaken_by(refusal, self._store.url)
        happened = await has_happened(
            self._tree, stored, fragments, self.names.incarnation, "append happened"
        )
        past_only = only_the_past_changed(self.manifest, stored)
        self.manifest, self._etag = stored, etag
        if happened:
            return CommitOutcome.LINKED
        return None if past_only else CommitOutcome.TAIL_MOVED

    async def _candidate(self, fragments: Sequence[Fragment]) -> tuple[Manifest, bytes, int]:
        """The next manifest, its bytes, and how many folds it links.

        A root that would be too large waits for folds, as long as these make progress.
        """
        while True:
            base, folds = self._fold_task.apply(self.manifest)
            write_id = self._runtime.new_id()
            manifest = link(base, fragments, self.names.incarnation, self._context.writer, write_id)
            data = encode_manifest(manifest)
            if len(data) <= ROOT_BYTES_MAX or not self._fold_task.consider(
                self.manifest, self.names
            ):
                return manifest, data, folds
            if not await self._fold_task.wait(folds):
                return manifest, data, folds

    async def _leave_room(self) -> None:
        """After many wins in a row, leave the time in which another can read, upload and put.

        The other finds out at any moment of its own cycle that it lost, so it gets two of them.
        """
        now_s = asyncio.get_running_loop().time()
        if self._wins_in_a_row == 0:
            self._winning_since_s = now_s
        if self._wins_in_a_row < WINS_IN_A_ROW_MAX:
            return
        if now_s - self._winning_since_s < WINNING_S_MIN:
            return
        self._wins_in_a_row = 0
        self._counters.pauses_for_others += 1
        upload_s = self._counters.fragments.timing().mean_s
        await asyncio.sleep(min(2 * (upload_s + 2 * self._round_trip_s), ROOM_S_MAX))
        self._winning_since_s = asyncio.get_running_loop().time()
