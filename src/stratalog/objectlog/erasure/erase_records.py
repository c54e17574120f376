"""Erasure: taking records out of a log for good, and a certificate that says so.

    look         which of them the log has, and who else holds them     (holding)
    begin        write the certificate: from here on it is known         (certificate)
    step over    a blank behind the newest fragment, if one is in it     (blank)
    rewrite      a compaction of the fragments that have them; what goes is noted in the
                 certificate before it is published                      (compacting)
    tidy         what released pins held, and what nothing links         (collector, sweep)
    look again   no such record is there, no such object is stored
    end          the certificate, with all that stands against it

An erasure that was cut short is finished by the next one: what it wanted is in its certificate, and
whether it has happened is read off the log. ``docs/design/013-erasure.md`` has the protocol.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from stratalog.errors import Conflict, Invalid, NotFound, StratalogError
from stratalog.indexset import IndexSet
from stratalog.objectlog.collection import Collector, OnLeft, SweepReport, sweep_noting
from stratalog.objectlog.compaction import STAGE_NOTE, Compactor, Intent, OnProgress, Rewrite
from stratalog.objectlog.erasure.blank import append_blank
from stratalog.objectlog.erasure.certificate import (
    Certificate,
    Versions,
    certificate_document,
    hash_of_query,
    list_certificates,
)
from stratalog.objectlog.erasure.find_holders import (
    Holder,
    Present,
    pins_that_hold,
    present,
    stored_of,
    stored_with,
)
from stratalog.objectlog.holds import StoredUploadGuard, UploadGuardStore
from stratalog.objectlog.options import MIB, CollectorOptions, CompactOptions, SweepOptions
from stratalog.objectlog.stored import (
    FORMAT,
    ByteCache,
    Fragment,
    Kind,
    Manifest,
    Snapshot,
    check_note,
    load_manifest,
    own,
    writer_label,
)
from stratalog.objectlog.tree import DELETE_BATCH, Tree, delete_surely
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import (
    Document,
    Patience,
    PatientStore,
    Store,
    StoreLike,
    open_store,
    redact,
    sibling,
)

log = logging.getLogger(__name__)

DEFAULT_OPTIONS = CompactOptions()
SNAPSHOT_CACHE_BYTES = 8 * MIB
NAMED_MAX = 5
INDEX_PREFIX = "live/"
ID_LENGTH: Final = 16


async def erase(
    url: StoreLike,
    doomed: IndexSet,
    *,
    despite_holders: bool = False,
    query: str = "",
    note: str = "",
    on_progress: OnProgress | None = None,
    writer: str | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Certificate | None:
    """Take these records out of the log, delete the objects that had them, and certify it.

    None if neither the log nor a pin has any of them. ``Conflict`` if pins, forks or the log that
    this one was forked from hold some, unless ``despite_holders``: then the certificate names them
    and says that the erasure is not complete. Of ``query`` only a hash is kept; ``note`` is kept as
    it is. What an earlier erasure has left undone is done first.
    """
    eraser = Eraser(url, on_progress, writer, options, runtime)
    return await eraser.erase(doomed, despite_holders, query, note)


@dataclass(frozen=True, slots=True)
class _Tidied:
    """What was found and deleted beside the log itself."""

    stages: tuple[Holder, ...]
    swept: int
    left: tuple[Fragment, ...]
    """What the sweep has left to pins, as far as it may have a record that was to go."""


@dataclass(frozen=True, slots=True)
class Erasable:
    """What an erasure would find."""

    offsets: IndexSet
    """Which of the records the log has."""

    holders: tuple[Holder, ...]
    """Who else holds some."""


async def preview_erasure(
    url: StoreLike, doomed: IndexSet, *, runtime: Runtime = DEFAULT_RUNTIME
) -> Erasable:
    """What ``erase`` would take out now, and who stands in its way.

    Nothing is written, but that pins are released whose expiry is past.
    """
    return await Eraser(url, runtime=runtime).preview(doomed)


async def finish_erasures(
    url: StoreLike,
    *,
    on_progress: OnProgress | None = None,
    writer: str | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> list[Certificate]:
    """Finish the erasures that were cut short, and look again at those that were not complete.

    Gives their certificates as they are now.
    """
    eraser = Eraser(url, on_progress, writer, options, runtime)
    return await eraser.finish()


class Eraser:
    """Erases from one log. ``rewrite`` reads and stores elsewhere what this process would."""

    def __init__(
        self,
        url: StoreLike,
        on_progress: OnProgress | None = None,
        writer: str | None = None,
        options: CompactOptions = DEFAULT_OPTIONS,
        runtime: Runtime = DEFAULT_RUNTIME,
        rewrite: Rewrite | None = None,
    ) -> None:
        self._url = open_store(url)
        self._store: Store = PatientStore(self._url, runtime, options.timeout_s)
        self._on_progress = on_progress
        self._writer = writer_label(writer)
        self._options = options
        self._runtime = runtime
        self._rewrite_elsewhere = rewrite

    async def erase(
        self, doomed: IndexSet, despite_holders: bool, query: str, note: str
    ) -> Certificate | None:
        """See ``erase``."""
        check_note(note)
        _check_set(doomed)
        await self._collector().clear_pins()
        await self._finish([each async for each in self._left()], tolerant=True)
        # What will be written at such an offset one day is not meant.
        tail = (await load_manifest(self._store))[0].tail.offset
        doomed = doomed.within(range(tail))
        found = await self.preview(doomed)
        if not found.offsets and not found.holders:
            return None
        if found.holders and not despite_holders:
            raise _held(found.holders)
        (made,) = await self._finish([await self._begin(doomed, query, note)])
        return made

    async def finish(self) -> list[Certificate]:
        """See ``finish_erasures``."""
        return await self._finish([each async for each in self._left(also_incomplete=True)])

    async def preview(self, doomed: IndexSet) -> Erasable:
        """See ``preview_erasure``."""
        _check_set(doomed)
        there = await self._present(doomed)
        for fragment, _ in there.fragments:
            if not fragment.is_ours_to_change:
                raise Invalid(
                    f"{fragment.path} was written by another program, or by a newer version",
                    path=fragment.path,
                    hint="It cannot be rewritten here. Copy the log, and erase from the copy.",
                )
        pins = await pins_that_hold(self._tree(), self._store, doomed, self._runtime)
        return Erasable(there.offsets, (*pins.holders, *there.sources))

    async def _left(self, *, also_incomplete: bool = False) -> AsyncIterator[Certificate]:
        """The certificates that are not done, or not complete."""
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()

        def tell(error: StratalogError) -> None:
            log.warning("a certificate cannot be read: %s", error)

        for each in await list_certificates(self._store, on_damage=tell):
            if each.state != "done" or (also_incomplete and not each.complete):
                yield each

    # The steps

    async def _begin(self, doomed: IndexSet, query: str, note: str) -> Certificate:
        manifest, _ = await load_manifest(self._store)
        made = self._runtime.new_id(ID_LENGTH)
        certificate = Certificate(
            id=made,
            log=redact(self._url.url),
            state="begun",
            begun_us=self._runtime.now_us(),
            first_offset=manifest.first_offset,
            up_to=manifest.tail.offset,
            offsets=tuple((each.start, each.stop) for each in doomed.ranges()),
            query=hash_of_query(made, query) if query else "",
            note=note,
            writer=self._writer,
            format=FORMAT,
        )
        return (await self._document(made).put(None, certificate)).value

    async def _finish(
        self, certificates: Sequence[Certificate], *, tolerant: bool = False
    ) -> list[Certificate]:
        """Whatever is left to do, from wherever an earlier run has stopped.

        One that fails does not keep the others from being finished. It is raised in the end, unless
        it is somebody else's.
        """
        taken_out: list[Certificate] = []
        failures: list[StratalogError] = []
        for each in certificates:
            try:
                await self._take_out(each)
                taken_out.append(each)
            except StratalogError as error:
                log.warning("the erasure %s could not be finished: %s", each.id, error)
                failures.append(error)
        ended: list[Certificate] = []
        if taken_out:
            tidied = await self._tidy(IndexSet.union(each.erased for each in taken_out))
            ended = [await self._end(each, tidied) for each in taken_out]
        if failures and not tolerant:
            raise failures[0]
        return ended

    async def _take_out(self, certificate: Certificate) -> None:
        """See to it that the log has none of the records any more."""
        found = await self._present(certificate.erased)
        there, manifest = found.offsets, found.manifest
        if not there:
            return
        newest = manifest.newest
        if newest is not None and there.overlaps(newest.offsets):
            manifest = await append_blank(
                self._store,
                after=newest,
                writer=self._writer,
                timeout_s=self._options.timeout_s,
                runtime=self._runtime,
            )
        await self._rewrite(certificate.id, there, manifest.tail.offset)
        left = (await self._present(certificate.erased)).offsets
        if left:
            raise _changed(certificate.path)

    async def _rewrite(self, certificate_id: str, there: IndexSet, up_to: int) -> None:
        async def note(intent: Intent) -> None:
            async def noted(certificate: Certificate) -> Certificate:
                if certificate.state == "done" or intent.dropped != there:
                    raise _changed(certificate.path)
                return msgspec.structs.replace(
                    certificate,
                    state="erasing",
                    plan_id=intent.plan_id,
                    tail=intent.tail,
                    records=len(intent.dropped),
                    setsum_before=intent.before,
                    setsum_removed=intent.removed,
                    setsum_after=intent.after,
                    collected=intent.collected,
                    objects=tuple(dict.fromkeys((*certificate.objects, *intent.objects))),
                    foreign=tuple(dict.fromkeys((*certificate.foreign, *intent.foreign))),
                )

            await self._change(certificate_id, noted)

        await Compactor(
            self._url,
            IndexSet(range(up_to)) - there,
            up_to,
            pressing=there,
            narrow=True,
            on_progress=self._on_progress,
            witness=note,
            rewrite=self._rewrite_elsewhere,
            writer=self._writer,
            options=self._options,
            runtime=self._runtime,
        ).run()

    async def _tidy(self, wanted: IndexSet) -> _Tidied:
        """Delete what released pins held, and what nothing links: it may be a copy of a record.

        A compaction that is under way may have read one. Those are listed before the sweep: what
        one has stored that has ended until then is there to be swept. A load may have uploaded one
        twice, and the sweep spares what it has not linked. A pin may be let go until the end, or
        point elsewhere, so that is looked at again. The key index of the log is a cache, and may
        know a record.
        """
        collector = self._collector()
        await collector.clear_pins()
        listed = await UploadGuardStore(self._url, runtime=self._runtime).list()
        left: list[Fragment] = []

        def note(fragment: Fragment) -> None:
            if wanted.overlaps(fragment.offsets):
                left.append(fragment)

        swept = await self._sweep(collector, note)
        await collector.clear_pins()
        await self._forget_index()
        may_have_read = [each for each in listed if _is_compacting(each)]
        may_repeat = [each for each in swept.sparing if each.batch is None]
        stages = {each.incarnation: each for each in (*may_have_read, *may_repeat)}
        holders = tuple(_holder(each) for each in stages.values())
        return _Tidied(holders, swept.deleted.objects, tuple(left))

    async def _forget_index(self) -> None:
        paths = [row.path async for row in self._store.list(INDEX_PREFIX)]
        doomed = [path for path in paths if (o := own(path)) is not None and o.kind is Kind.INDEX]
        for start in range(0, len(doomed), DELETE_BATCH):
            await delete_surely(self._store, doomed[start : start + DELETE_BATCH], self._patience())

    async def _sweep(self, collector: Collector, on_left: OnLeft) -> SweepReport:
        options = SweepOptions(timeout_s=self._options.timeout_s)
        for attempts_left in reversed(range(self._options.attempts_max)):
            try:
                return await sweep_noting(self._url, on_left, options, self._runtime)
            except Conflict:
                if attempts_left == 0:
                    raise
            with contextlib.suppress(NotFound):  # somebody else was faster
                await collector.finish()
        raise AssertionError("the last attempt returns or raises")

    async def _end(self, begun: Certificate, tidied: _Tidied) -> Certificate:
        async def ended(certificate: Certificate) -> Certificate | None:
            if certificate.complete:
                return None
            found = await self._present(certificate.erased)
            if found.offsets:
                raise _changed(certificate.path)
            if certificate.setsum_before is None:  # the log itself had none of them
                certificate = _about_nothing(certificate, found.manifest)
            pins = await pins_that_hold(
                self._tree(), self._store, certificate.erased, self._runtime, also_released=True
            )
            holders = (*pins.holders, *tidied.stages)
            let_go = [each for each in tidied.left if each.path not in pins.paths]
            left = await stored_with(self._tree(), self._store, certificate.erased, let_go)
            objects = tuple(dict.fromkeys((*certificate.objects, *left)))
            kept = await stored_of(self._store, objects)
            owned = await self._owned_elsewhere(certificate.foreign)
            versions = await self._versions(certificate.path)
            reasons = _reasons(kept, owned, holders, versions)
            return msgspec.structs.replace(
                certificate,
                state="done",
                done_us=self._runtime.now_us(),
                objects=objects,
                kept=kept,
                swept=certificate.swept + tidied.swept,
                holders=holders,
                versions=versions,
                complete=not reasons,
                reasons=reasons,
            ).sealed_as(self._runtime.new_id())

        return await self._change(begun.id, ended)

    # What the steps are made of

    async def _present(self, wanted: IndexSet) -> Present:
        return await present(self._tree(), self._store, wanted)

    async def _owned_elsewhere(self, foreign: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """The logs that still have one of these objects of theirs."""
        found: list[str] = []
        for url in dict.fromkeys(base for base, _ in foreign):
            paths = [path for base, path in foreign if base == url]
            if await stored_of(sibling(self._store, url), paths):
                found.append(redact(url))
        return tuple(found)

    async def _versions(self, path: str) -> Versions:
        """Told from an object that was just written."""
        version = (await self._store.head(path)).version
        if version is None:
            return "none"
        return "unknown" if self._url.url.startswith("gs://") else "kept"

    async def _change(
        self,
        certificate_id: str,
        change: Callable[[Certificate], Awaitable[Certificate | None]],
    ) -> Certificate:
        """The certificate, changed by CAS, or as it is if nothing is left to change."""
        return (await self._document(certificate_id).change(change)).value

    def _document(self, certificate_id: str) -> Document[Certificate]:
        return certificate_document(
            self._store, certificate_id, self._runtime, self._options.timeout_s
        )

    def _collector(self) -> Collector:
        options = CollectorOptions(
            interval_s=self._options.interval_s, timeout_s=self._options.timeout_s
        )
        return Collector(self._url, writer=self._writer, options=options, runtime=self._runtime)

    def _tree(self) -> Tree:
        return Tree(self._store, ByteCache[Snapshot](SNAPSHOT_CACHE_BYTES))

    def _patience(self) -> Patience:
        return Patience(self._runtime, self._options.timeout_s)


def _is_compacting(stage: StoredUploadGuard) -> bool:
    return stage.state == "live" and stage.note == STAGE_NOTE


def _holder(stage: StoredUploadGuard) -> Holder:
    note = f"{stage.note or 'a job'}, by {stage.owner}"
    return Holder(kind="stage", name=stage.incarnation, note=note)


def _about_nothing(certificate: Certificate, manifest: Manifest) -> Certificate:
    """That nothing went: whoever holds a record, the log did not have it."""
    there = Setsum.total(entry.setsum for entry in manifest.entries)
    return msgspec.structs.replace(
        certificate,
        tail=manifest.tail.offset,
        records=0,
        setsum_before=there,
        setsum_removed=EMPTY,
        setsum_after=there,
        collected=manifest.collected_sum,
    )


def _reasons(
    kept: Sequence[str], owned: Sequence[str], holders: Sequence[Holder], versions: Versions
) -> tuple[str, ...]:
    """What stands against saying that the records are gone."""
    reasons = [f"still held by {holder}" for holder in holders]
    if kept:
        reasons.append(f"old objects are still there: {kept[0]}" + _and_more(len(kept) - 1))
    reasons += [f"the log that this one was forked from still has them: {url}" for url in owned]
    if versions == "kept":
        reasons.append("the bucket keeps older versions of its objects, deleted ones too")
    if versions == "unknown":
        reasons.append("the store does not tell whether it keeps deleted objects")
    return tuple(reasons)


def _check_set(doomed: IndexSet) -> None:
    if not isinstance(doomed, IndexSet):
        raise Invalid("what goes is an IndexSet", hint="Make one with IndexSet.of(offsets).")


def _changed(path: str) -> Conflict:
    return Conflict(
        "the log changed while records were erased from it",
        path=path,
        hint="Erase again: what was begun is finished then.",
    )


def _held(holders: Sequence[Holder]) -> Conflict:
    named = "; ".join(map(str, holders[:NAMED_MAX])) + _and_more(len(holders) - NAMED_MAX)
    return Conflict(
        f"the records are held by others as well: {named}",
        hint="Release them (`stratalog pin release URL NAME`, or destroy the fork), or erase "
        "`--despite-holders`: the certificate will say that the erasure is not complete.",
    )


def _and_more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""
