"""Scrub: read and hash the whole log, compare everything, and name every damage.

The tree is walked in log order; fragments are examined in batches, several at a time, in this
process or in others (``scrub_reading``, ``scrub_pool``). What the batches find is settled in log
order, so that at each moment everything below ``next_offset`` was examined: from there an
interrupted scrub goes on.

Beside a live writer and a collector nothing that they do is taken for damage. Objects never change,
so only a *missing* one needs a second look: the manifest is read again, and it is damage if that
still leads to it. Nothing is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import aclosing

from stratalog.errors import Corrupt, Denied, Invalid, NotFound
from stratalog.hashing import MAKER
from stratalog.objectlog.check.damage import Damage, DamageKind, about
from stratalog.objectlog.check.scrub_line import BatchLine, Done
from stratalog.objectlog.check.scrub_pool import WorkerPool, can_start, shared_url
from stratalog.objectlog.check.scrub_read import (
    EXAMINE_INLINE_BYTES_MAX,
    Examined,
    Examiner,
    LocalExaminer,
)
from stratalog.objectlog.check.scrub_report import ScrubReport
from stratalog.objectlog.check.scrub_walk import TreeWalk
from stratalog.objectlog.check.scrub_worker import Job
from stratalog.objectlog.check.tree_check import decode_leniently
from stratalog.objectlog.holds import CURSOR_PREFIX, PIN_PREFIX, StoredCursor, decode_pin
from stratalog.objectlog.options import MIB, ScrubOptions
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    MANIFEST_PATH,
    Fragment,
    Garbage,
    Kind,
    Manifest,
    check_offset,
    decode_document,
    load_manifest,
    own,
)
from stratalog.objectlog.tree import key_of
from stratalog.runtime import CPU_THREADS_MAX, DEFAULT_RUNTIME, Runtime, run_blocking
from stratalog.store import PatientStore, Store, StoreLike, open_store

DEFAULT_OPTIONS = ScrubOptions()
# To start processes takes about as long as to hash this much.
PROCESSES_FROM_BYTES = 256 * MIB
THREADS_FROM_FRAGMENT_BYTES = 4 * EXAMINE_INLINE_BYTES_MAX
FRAGMENT_PREFIX = "log/"

OnProgress = Callable[[ScrubReport], None]
"""Called with the report so far, which can be resumed from."""


async def scrub(
    url: StoreLike,
    *,
    options: ScrubOptions = DEFAULT_OPTIONS,
    on_progress: OnProgress | None = None,
    resume: ScrubReport | int | None = None,
    examiner: Examiner | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> ScrubReport:
    """Examine a whole log and report all that is wrong with it. ``NotFound`` if there is none.

    It ends where the log ended when it began. ``resume`` goes on where an earlier scrub stopped:
    give its report, as ``on_progress`` saw it last, or an offset. With ``examiner`` somebody else
    reads the fragments, and may look for more (``verification``).
    """
    store = PatientStore(open_store(url), runtime, options.timeout_s)
    work = _Scrub(store, options, on_progress, _begun(store, resume))
    manifest = await work.load()
    if manifest is None:
        await work.examine_beside(None)
        return work.report(finished=True)
    work.set_range(manifest)
    if examiner is None:
        size = work.bytes_left(manifest)
        examiner = await _examiner(url, store, options, manifest, size, runtime)
    try:
        await work.examine_beside(manifest)
        finished = await work.examine_records(manifest, examiner)
    finally:
        await examiner.close()
    return work.report(finished=finished)


def _begun(store: Store, resume: ScrubReport | int | None) -> ScrubReport:
    """The report to go on with."""
    if resume is None:
        return ScrubReport(url=store.url, next_offset=0)
    if isinstance(resume, ScrubReport):
        if resume.url != store.url:
            raise Invalid(
                f"this is the report of {resume.url}, not of {store.url}",
                hint="Resume with the report of this log, or begin anew.",
                expected=store.url,
                actual=resume.url,
            )
        return resume
    check_offset(resume)
    return ScrubReport(url=store.url, first_offset=resume, next_offset=resume)


async def _examiner(
    target: StoreLike,
    store: Store,
    options: ScrubOptions,
    manifest: Manifest,
    size: int,
    runtime: Runtime,
) -> Examiner:
    url = shared_url(target)
    processes = options.processes
    if processes is None:
        able = url is not None and can_start() and type(runtime) is Runtime
        worthwhile = options.bodies and size >= PROCESSES_FROM_BYTES
        processes = await _processes_worthwhile(manifest) if able and worthwhile else 0
    if processes == 0:
        return LocalExaminer(store, options.bodies, options.fragments_max, runtime)
    if url is None:
        raise Invalid(
            f"other processes cannot open {store.url} by URL",
            hint="Give the URL in place of a store object, or let processes be 0.",
        )
    job = Job(url, options.bodies, options.timeout_s)
    return await WorkerPool.start(job, processes, options.fragments_max)


async def _processes_worthwhile(manifest: Manifest) -> int:
    """None if threads hash on all cores at once, else one a core.

    Small fragments, of which the newest are a sample, are examined by the event loop's thread.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    sizes = [fragment.num_bytes for fragment in manifest.fragments]
    large = not sizes or sum(sizes) > THREADS_FROM_FRAGMENT_BYTES * len(sizes)
    if large and (cores or 1) <= CPU_THREADS_MAX and await run_blocking(MAKER.wait) is not None:
        return 0
    return cores or 0


def _place(damage: Damage) -> tuple[int, str, str]:
    """Damages are told in log order, those of the root and beside it first."""
    return (-1 if damage.start is None else damage.start, damage.path, damage.kind.value)


class _Scrub:
    """One run: what was found so far, and how it goes on."""

    def __init__(
        self,
        store: Store,
        options: ScrubOptions,
        on_progress: OnProgress | None,
        begun: ScrubReport,
    ) -> None:
        self._store = store
        self._options = options
        self._on_progress = on_progress
        self._begun = begun
        self._first = begun.first_offset
        self._next = begun.next_offset
        self._limit = begun.limit_offset
        self._fragments = begun.fragments
        self._snapshots = begun.snapshots
        self._records = begun.records
        self._num_bytes = begun.num_bytes
        self._found: dict[object, Damage] = {}
        self._told: tuple[tuple[Damage, ...], tuple[Damage, ...]] = ((), ())

    def note(self, damage: Damage) -> None:
        """Remember a damage; the same one is found again when the walk looks twice."""
        self._found.setdefault(damage.identity, damage)

    def report(self, *, finished: bool = False) -> ScrubReport:
        if len(self._found) != sum(map(len, self._told)):
            found = sorted(self._found.values(), key=_place)
            self._told = (
                tuple(each for each in found if not each.is_remark),
                tuple(each for each in found if each.is_remark),
            )
        damages, remarks = self._told
        return ScrubReport(
            url=self._begun.url,
            first_offset=self._first,
            next_offset=self._next,
            limit_offset=self._limit,
            fragments=self._fragments,
            snapshots=self._snapshots,
            records=self._records,
            num_bytes=self._num_bytes,
            damages=damages,
            remarks=remarks,
            finished=finished,
        )

    # The root and what stands beside it

    async def load(self) -> Manifest | None:
        """The manifest as it is, or None if it is too damaged to lead anywhere."""
        try:
            blob = await self._store.get(MANIFEST_PATH)
        except NotFound:
            async for row in self._store.list(FRAGMENT_PREFIX):
                kind, detail = DamageKind.MANIFEST_MISSING, f"there is {row.path}"
                self.note(Damage(kind=kind, path=MANIFEST_PATH, detail=detail))
                return None
            return (await load_manifest(self._store))[0]  # says what to do if there is none
        manifest, damages = decode_leniently(blob.data)
        for damage in damages:
            self.note(damage)
        return manifest

    def set_range(self, manifest: Manifest) -> None:
        """Where to begin and to end, and what is still to be told of an earlier run."""
        entries = manifest.entries
        first = min((entry.start.offset for entry in entries), default=manifest.first_offset)
        self._limit = max((entry.limit.offset for entry in entries), default=manifest.tail.offset)
        if not self._next:
            self._first = first
        self._next = max(self._next, first)
        for damage in (*self._begun.damages, *self._begun.remarks):
            # What concerns no offset was looked at anew; what lies below the start is gone.
            if damage.path != MANIFEST_PATH and damage.limit is not None and damage.limit > first:
                self.note(damage)

    async def examine_beside(self, manifest: Manifest | None) -> None:
        """The cursors, the pins and the plan of a collection."""
        await self._examine_cursors(0 if manifest is None else manifest.first_offset)
        await self._examine_pins()
        data = await self._read_beside(GARBAGE_PATH)
        try:
            if data is not None:
                decode_document(Garbage, data, GARBAGE_PATH)
        except Corrupt as error:
            kind, detail = DamageKind.PLAN_UNREADABLE, str(error)
            self.note(Damage(kind=kind, path=GARBAGE_PATH, detail=detail))

    async def _examine_cursors(self, first_offset: int) -> None:
        """Cursors are listed after the manifest was read: the start of a log only goes up."""
        async for row in self._store.list(CURSOR_PREFIX):
            name = own(row.path)
            if name is None or name.kind is not Kind.CURSOR:
                continue
            data = await self._read_beside(row.path)
            try:
                cursor = None if data is None else StoredCursor.from_json(data, row.path)
            except Corrupt as error:
                kind, detail = DamageKind.CURSOR_UNREADABLE, str(error)
                self.note(Damage(kind=kind, path=row.path, detail=detail))
                continue
            if cursor is None or cursor.deleted or cursor.position.offset >= first_offset:
                continue
            kind, offset = DamageKind.CURSOR_BELOW_START, cursor.position.offset
            self.note(Damage(kind=kind, path=row.path, expected=first_offset, actual=offset))

    async def _examine_pins(self) -> None:
        async for row in self._store.list(PIN_PREFIX):
            name = own(row.path)
            if name is None or name.kind is not Kind.PIN:
                continue
            data = await self._read_beside(row.path)
            try:
                if data is not None:
                    decode_pin(data, row.path)
            except Corrupt as error:
                kind, detail = DamageKind.PIN_UNREADABLE, str(error)
                self.note(Damage(kind=kind, path=row.path, detail=detail))

    async def _read_beside(self, path: str) -> bytes | None:
        """An object that stands beside the tree, and may come and go."""
        try:
            return (await self._store.get(path)).data
        except NotFound:
            pass
        except Denied as error:
            self.note(Damage(kind=DamageKind.OBJECT_REFUSED, path=path, detail=str(error)))
        return None

    # The records

    def bytes_left(self, manifest: Manifest) -> int:
        """How much there is to read, as far as the root tells."""
        return sum(each.num_bytes for each in manifest.entries if each.limit.offset > self._next)

    async def examine_records(self, manifest: Manifest, examiner: Examiner) -> bool:
        """Walk the tree and examine every fragment. False if it stopped at too much damage."""
        walk = TreeWalk(self._store, self.note, self.load)
        line = BatchLine(examiner, self._options.bytes_max)
        low = self._next if self._begun.next_offset else 0
        known, stopped = len(self._found), False
        try:
            async with aclosing(walk.fragments(manifest, low, self._limit)) as fragments:
                async for fragment in fragments:
                    await line.add(fragment, walk.snapshots)
                    while done := line.take():
                        await self._settle(done, examiner)
                    stopped = len(self._found) - known >= self._options.damages_max
                    if stopped:
                        break
            while done := await line.finish():
                await self._settle(done, examiner)
        finally:
            await line.close()
        if not stopped:
            self._snapshots = self._begun.snapshots + walk.snapshots
            self._next = max(self._next, self._limit)
        return not stopped

    async def _settle(self, done: Done, examiner: Examiner) -> None:
        """Take over what was found in a batch, and tell how far the scrub is."""
        missing = await self._note_examined(done.batch, done.examined)
        unread = {index for index, _ in done.examined.unread}
        read = [entry for index, entry in enumerate(done.batch) if index not in unread]
        self._fragments += len(read)
        self._records += sum(entry.count for entry in read)
        self._num_bytes += done.examined.num_bytes
        self._snapshots = self._begun.snapshots + done.snapshots
        while missing:
            missing = await self._look_again(missing, examiner)
        self._next = min(max(self._next, done.batch[-1].limit.offset), self._limit)
        if self._on_progress is not None:
            self._on_progress(self.report())

    async def _note_examined(self, batch: Sequence[Fragment], examined: Examined) -> list[Fragment]:
        """Note all damage of a batch. Gives the fragments that are missing."""
        for damage in examined.damages:
            self.note(damage)
        missing: list[Fragment] = []
        for index, error in examined.unread:
            entry = batch[index]
            if isinstance(error, NotFound):
                missing.append(entry)
            elif isinstance(error, Invalid):
                self.note(about(DamageKind.FRAGMENT_PATH, entry, detail=str(error)))
            else:
                await self.load()  # raises if the store gives nothing at all
                self.note(about(DamageKind.OBJECT_REFUSED, entry, detail=str(error)))
        return missing

    async def _look_again(self, missing: Sequence[Fragment], examiner: Examiner) -> list[Fragment]:
        """Fragments were missing: damage, unless the log has let go of them meanwhile.

        What took their place is examined. Gives what is missing of that.
        """
        manifest = await self.load()
        replacements: list[Fragment] = []
        for entry in missing:
            others = await self._others(manifest, entry) if manifest is not None else None
            if others is None:
                self.note(about(DamageKind.FRAGMENT_MISSING, entry))
            else:
                replacements += others
        return await self._note_examined(replacements, await examiner.examine(replacements))

    async def _others(self, manifest: Manifest, entry: Fragment) -> list[Fragment] | None:
        """What the manifest has in place of a fragment; None if it still counts on that one."""
        start, limit = entry.start.offset, entry.limit.offset
        if limit <= manifest.first_offset:
            return []
        walk = TreeWalk(self._store, self.note, self.load)
        low, high = min(start, limit - 1), max(limit, start + 1)
        found = [each async for each in walk.fragments(manifest, low, high)]
        if not found or any(key_of(each) == key_of(entry) for each in found):
            return None
        return found
