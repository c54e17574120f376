"""Scrub: read and hash the whole log, compare everything, and name every damage.

The tree is walked in log order; fragments are examined in batches, several at a time, in this
process or in others (``scrub_read``, ``scrub_pool``). Their results are settled in log order, so at
each moment everything below ``next_offset`` was examined. From there an interrupted scrub goes on.

What a live writer or collector does is not taken for damage. Objects never change, so only a
*missing* one needs a second look: the manifest is read again, and it is damage if that still leads
to the object. Read-only.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from stratalog.errors import Corrupt, Denied, Invalid, NotFound
from stratalog.hashing import MAKER
from stratalog.objectlog.check.damage import Damage, DamageKind, about
from stratalog.objectlog.check.scrub_pool import WorkerPool, can_start, shared_url
from stratalog.objectlog.check.scrub_read import (
    EXAMINE_INLINE_BYTES_MAX,
    BatchLine,
    Done,
    Examined,
    Examiner,
    LocalExaminer,
)
from stratalog.objectlog.check.scrub_report import ScrubReport
from stratalog.objectlog.check.scrub_walk import TreeWalk, replacements_of
from stratalog.objectlog.check.scrub_worker import Job
from stratalog.objectlog.check.tree_check import decode_leniently
from stratalog.objectlog.holds import (
    CURSOR_PREFIX,
    PIN_PREFIX,
    UPLOAD_GUARD_PREFIX,
    decode_cursor,
    decode_pin,
    decode_upload_guard,
)
from stratalog.objectlog.options import MIB, ScrubOptions
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    MANIFEST_PATH,
    POLICY_PATH,
    Fragment,
    Garbage,
    Kind,
    Manifest,
    Policy,
    check_offset,
    decode_document,
    load_manifest,
    open_certificate,
    own,
)
from stratalog.runtime import CPU_THREADS_MAX, DEFAULT_RUNTIME, Runtime, run_blocking
from stratalog.store import PatientStore, Store, StoreLike, open_json, open_store

T = TypeVar("T")

DEFAULT_OPTIONS = ScrubOptions()
# To start processes takes about as long as to hash this much.
PROCESSES_FROM_BYTES = 256 * MIB
THREADS_FROM_FRAGMENT_BYTES = 4 * EXAMINE_INLINE_BYTES_MAX
FRAGMENT_PREFIX = "log/"
CERTIFICATE_PREFIX = "certificate/"
INDEX_PATH = "live/INDEX.json"
_NO_CERTIFICATE = DamageKind.CERTIFICATE_UNREADABLE

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
    give the last report that ``on_progress`` got, or an offset. ``examiner`` reads the fragments in
    place of this function, and may look for more (``verify_log``).
    """
    store = PatientStore(open_store(url), runtime, options.timeout_s)
    work = _Scrub(store, options, on_progress, _begun(store, resume))
    manifest = await work.load()
    if manifest is None:
        await work.examine_beside(None)
        return work.report(finished=True)
    work.set_range(manifest)
    if examiner is None:
        examiner = await work.examiner(url, manifest, runtime)
    try:
        await work.examine_beside(manifest)
        finished = await work.examine_records(manifest, examiner)
    finally:
        await examiner.close()
    return work.report(finished=finished)


def _begun(store: Store, resume: ScrubReport | int | None) -> ScrubReport:
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


def _json_object(data: bytes, path: str) -> object:
    """Some document, of which a scrub knows no more than that it is one."""
    try:
        return msgspec.json.decode(open_json(data, path), type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"not a JSON object: {error}", path=path) from None


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
    """Damages are reported in log order, those of the root and beside it first."""
    return (-1 if damage.start is None else damage.start, damage.path, damage.kind.value)


@dataclass(eq=False)
class _Scrub:
    """One run: what was found so far, and how it goes on."""

    store: Store
    options: ScrubOptions
    on_progress: OnProgress | None
    begun: ScrubReport

    def __post_init__(self) -> None:
        self._so_far = self.begun
        self._found: dict[object, Damage] = {}
        self._sorted: tuple[tuple[Damage, ...], tuple[Damage, ...]] = ((), ())

    def note(self, damage: Damage) -> None:
        """Remember a damage; the same one is found again when the walk looks twice."""
        self._found.setdefault(damage.identity, damage)

    def report(self, *, finished: bool = False) -> ScrubReport:
        if len(self._found) != sum(map(len, self._sorted)):
            found = sorted(self._found.values(), key=_place)
            self._sorted = (
                tuple(each for each in found if not each.is_remark),
                tuple(each for each in found if each.is_remark),
            )
        damages, remarks = self._sorted
        return msgspec.structs.replace(
            self._so_far, damages=damages, remarks=remarks, finished=finished
        )

    # The root and what stands beside it

    async def load(self) -> Manifest | None:
        """The manifest as it is, or None if it is too damaged to lead anywhere."""
        try:
            blob = await self.store.get(MANIFEST_PATH)
        except NotFound:
            async for row in self.store.list(FRAGMENT_PREFIX):
                kind, detail = DamageKind.MANIFEST_MISSING, f"there is {row.path}"
                self.note(Damage(kind=kind, path=MANIFEST_PATH, detail=detail))
                return None
            return (await load_manifest(self.store))[0]  # says what to do if there is none
        manifest, damages = decode_leniently(blob.data)
        for damage in damages:
            self.note(damage)
        return manifest

    def set_range(self, manifest: Manifest) -> None:
        """Where to begin and to end, and what an earlier run has found that still counts."""
        entries = manifest.entries
        first = min((entry.start.offset for entry in entries), default=manifest.first_offset)
        so_far = self._so_far
        self._so_far = msgspec.structs.replace(
            so_far,
            first_offset=so_far.first_offset if so_far.next_offset else first,
            next_offset=max(so_far.next_offset, first),
            limit_offset=max((e.limit.offset for e in entries), default=manifest.tail.offset),
        )
        for damage in (*self.begun.damages, *self.begun.remarks):
            # What concerns no offset was looked at anew; what lies below the start is gone.
            if damage.path != MANIFEST_PATH and damage.limit is not None and damage.limit > first:
                self.note(damage)

    async def examine_beside(self, manifest: Manifest | None) -> None:
        """What is no part of the tree: what holds it, and what is about to change it."""
        await self._examine_cursors(0 if manifest is None else manifest.first_offset)
        listed: tuple[tuple[str, Kind, Callable[[bytes, str], object], DamageKind], ...] = (
            (PIN_PREFIX, Kind.PIN, decode_pin, DamageKind.PIN_UNREADABLE),
            (UPLOAD_GUARD_PREFIX, Kind.STAGE, decode_upload_guard, DamageKind.STAGE_UNREADABLE),
            (CERTIFICATE_PREFIX, Kind.CERTIFICATE, open_certificate, _NO_CERTIFICATE),
        )
        for prefix, kind, decode, unreadable in listed:
            async for path in self._listed(prefix, kind):
                await self._decoded(path, decode, unreadable)
        decode_plan, decode_policy = (partial(decode_document, each) for each in (Garbage, Policy))
        await self._decoded(GARBAGE_PATH, decode_plan, DamageKind.PLAN_UNREADABLE)
        await self._decoded(POLICY_PATH, decode_policy, DamageKind.POLICY_UNREADABLE)
        await self._decoded(INDEX_PATH, _json_object, DamageKind.INDEX_UNREADABLE)

    async def _examine_cursors(self, first_offset: int) -> None:
        """Cursors are listed after the manifest was read: the start of a log only goes up."""
        async for path in self._listed(CURSOR_PREFIX, Kind.CURSOR):
            cursor = await self._decoded(path, decode_cursor, DamageKind.CURSOR_UNREADABLE)
            if cursor is None or cursor.deleted or cursor.position.offset >= first_offset:
                continue
            kind, offset = DamageKind.CURSOR_BELOW_START, cursor.position.offset
            self.note(Damage(kind=kind, path=path, expected=first_offset, actual=offset))

    async def _listed(self, prefix: str, kind: Kind) -> AsyncIterator[str]:
        async for row in self.store.list(prefix):
            name = own(row.path)
            if name is not None and name.kind is kind:
                yield row.path

    async def _decoded(
        self, path: str, decode: Callable[[bytes, str], T], unreadable: DamageKind
    ) -> T | None:
        """An object beside the tree. None if it is gone or cannot be decoded, which is damage."""
        try:
            return decode((await self.store.get(path)).data, path)
        except NotFound:
            return None
        except Corrupt as error:
            self.note(Damage(kind=unreadable, path=path, detail=str(error)))
        except Denied as error:
            self.note(Damage(kind=DamageKind.OBJECT_REFUSED, path=path, detail=str(error)))
        return None

    # The records

    async def examiner(self, target: StoreLike, manifest: Manifest, runtime: Runtime) -> Examiner:
        """One that suits what there is to read, as far as the root shows."""
        options, url, first = self.options, shared_url(target), self._so_far.next_offset
        processes = options.processes
        if processes is None:
            size = sum(each.num_bytes for each in manifest.entries if each.limit.offset > first)
            able = url is not None and can_start() and type(runtime) is Runtime
            worthwhile = options.bodies and size >= PROCESSES_FROM_BYTES
            processes = await _processes_worthwhile(manifest) if able and worthwhile else 0
        if processes == 0:
            return LocalExaminer(self.store, options.bodies, options.fragments_max, runtime)
        if url is None:
            raise Invalid(
                f"other processes cannot open {self.store.url} by URL",
                hint="Give the URL in place of a store object, or let processes be 0.",
            )
        job = Job(url, options.bodies, options.timeout_s)
        return await WorkerPool.start(job, processes, options.fragments_max)

    async def examine_records(self, manifest: Manifest, examiner: Examiner) -> bool:
        """Walk the tree and examine every fragment. False if it stopped at too much damage."""
        walk = TreeWalk(self.store, self.note, self.load)
        line = BatchLine(examiner, self.options.bytes_max)
        limit = self._so_far.limit_offset
        low = self._so_far.next_offset if self.begun.next_offset else 0
        known, stopped = len(self._found), False
        try:
            async with aclosing(walk.fragments(manifest, low, limit)) as fragments:
                async for fragment in fragments:
                    await line.add(fragment, walk.snapshots)
                    while done := await line.take():
                        await self._settle(done, examiner)
                    stopped = len(self._found) - known >= self.options.damages_max
                    if stopped:
                        break
            while done := await line.finish():
                await self._settle(done, examiner)
        finally:
            await line.close()
        if not stopped:
            self._so_far = msgspec.structs.replace(
                self._so_far,
                snapshots=self.begun.snapshots + walk.snapshots,
                next_offset=max(self._so_far.next_offset, limit),
            )
        return not stopped

    async def _settle(self, done: Done, examiner: Examiner) -> None:
        """Take over what was found in a batch, and report how far the scrub is."""
        missing = await self._note_examined(done.batch, done.examined)
        unread = {index for index, _ in done.examined.unread}
        read = [entry for index, entry in enumerate(done.batch) if index not in unread]
        while missing:
            missing = await self._look_again(missing, examiner)
        so_far = self._so_far
        self._so_far = msgspec.structs.replace(
            so_far,
            fragments=so_far.fragments + len(read),
            records=so_far.records + sum(entry.count for entry in read),
            num_bytes=so_far.num_bytes + done.examined.num_bytes,
            snapshots=self.begun.snapshots + done.snapshots,
            next_offset=min(
                max(so_far.next_offset, done.batch[-1].limit.offset), so_far.limit_offset
            ),
        )
        if self.on_progress is not None:
            self.on_progress(self.report())

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
        """Fragments were missing: damage, unless the newest manifest does without them.

        What took their place is examined. Gives what is missing of that.
        """
        manifest = await self.load()
        replacements: list[Fragment] = []
        for entry in missing:
            others = None
            if manifest is not None:
                walk = TreeWalk(self.store, self.note, self.load)
                others = await replacements_of(entry, manifest, walk)
            if others is None:
                self.note(about(DamageKind.FRAGMENT_MISSING, entry))
            else:
                replacements += others
        return await self._note_examined(replacements, await examiner.examine(replacements))
