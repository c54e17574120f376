"""Erasure: taking records out of a log for good, and a certificate that says so.

    look         which of them the log has, and what else holds them     (find_holders)
    begin        write the certificate, which makes the erasure known    (certificate)
    step over    a blank behind the newest fragment, if one is in it     (blank)
    rewrite      a compaction of the fragments that have them; what goes is noted in the
                 certificate before it is published                      (compact_log)
    copies       what released pins held, and what nothing links         (delete_copies)
    look again   no such record is there, no such object is stored
    end          the certificate, with all that stands against it

The next erasure finishes one that was cut short: its certificate says what was to go, and the log
shows whether it has gone. ``docs/design/013-erasure.md`` has the protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from stratalog.errors import Conflict, Invalid, StratalogError
from stratalog.indexset import IndexSet
from stratalog.objectlog.collection import Collector
from stratalog.objectlog.compaction import Compactor, Intent, OnProgress, Rewrite
from stratalog.objectlog.erasure.blank import append_blank
from stratalog.objectlog.erasure.certificate import (
    Certificate,
    certificate_document,
    hash_of_query,
    list_certificates,
)
from stratalog.objectlog.erasure.delete_copies import Copies, delete_copies
from stratalog.objectlog.erasure.find_holders import (
    Holder,
    Present,
    and_more,
    logs_with,
    pins_that_hold,
    present,
    reasons_against,
    stored_of,
    stored_with,
    versions_of,
)
from stratalog.objectlog.options import MIB, CollectorOptions, CompactOptions
from stratalog.objectlog.stored import (
    FORMAT,
    Manifest,
    check_note,
    load_manifest,
    writer_label,
)
from stratalog.objectlog.tree import Tree
from stratalog.renamed import renamed_parameters
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Document, PatientStore, Store, StoreLike, open_store, redact

log = logging.getLogger(__name__)

DEFAULT_OPTIONS = CompactOptions()
SNAPSHOT_CACHE_BYTES = 8 * MIB
NAMED_MAX = 5
ID_LENGTH: Final = 16


@renamed_parameters(doomed="offsets")
async def erase(
    url: StoreLike,
    offsets: IndexSet,
    *,
    despite_holders: bool = False,
    older_manifest: bool = False,
    query: str = "",
    note: str = "",
    on_progress: OnProgress | None = None,
    writer: str | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Certificate | None:
    """Take these records out of the log, delete the objects that had them, and certify it.

    None if neither the log nor a pin has any of them. ``Conflict`` if pins, forks or the log that
    this one was forked from hold some. With ``despite_holders`` the certificate names these and
    says that the erasure is not complete. Only a hash of ``query`` is kept; ``note`` is kept as it
    is. Erasures that were cut short are finished first. ``Corrupt`` if the manifest is older than
    what lies beside it, as from ``sweep``, unless ``older_manifest`` says that it is there on
    purpose.
    """
    eraser = Eraser(url, on_progress, writer, options, runtime, older_manifest=older_manifest)
    return await eraser.erase(offsets, despite_holders, query, note)


@dataclass(frozen=True, slots=True)
class Erasable:
    """What an erasure would find."""

    offsets: IndexSet
    """Which of the records the log has."""

    holders: tuple[Holder, ...]
    """What else holds some of them."""


@renamed_parameters(doomed="offsets")
async def preview_erasure(
    url: StoreLike, offsets: IndexSet, *, runtime: Runtime = DEFAULT_RUNTIME
) -> Erasable:
    """What ``erase`` would take out now, and which holders stand in its way.

    Read-only, except that expired pins are released.
    """
    return await Eraser(url, runtime=runtime).preview(offsets)


async def finish_erasures(
    url: StoreLike,
    *,
    older_manifest: bool = False,
    on_progress: OnProgress | None = None,
    writer: str | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> list[Certificate]:
    """Finish the erasures that were cut short, and look again at those that were not complete.

    Gives their certificates as they are now. ``older_manifest`` is that of ``erase``.
    """
    eraser = Eraser(url, on_progress, writer, options, runtime, older_manifest=older_manifest)
    return await eraser.finish()


@dataclass(eq=False)
class Eraser:
    """Erases from one log. ``rewrite`` reads and stores elsewhere what this process would."""

    url: StoreLike
    on_progress: OnProgress | None = None
    writer: str | None = None
    options: CompactOptions = DEFAULT_OPTIONS
    runtime: Runtime = DEFAULT_RUNTIME
    rewrite: Rewrite | None = None
    older_manifest: bool = False

    def __post_init__(self) -> None:
        self._url = open_store(self.url)
        self._store: Store = PatientStore(self._url, self.runtime, self.options.timeout_s)
        self._writer = writer_label(self.writer)

    async def erase(
        self, offsets: IndexSet, despite_holders: bool, query: str, note: str
    ) -> Certificate | None:
        check_note(note)
        _check_set(offsets)
        await self._collector().clear_pins()
        await self._finish(await self._left(), tolerant=True)
        # Records that will be written at such an offset later are not meant.
        tail = (await load_manifest(self._store))[0].tail.offset
        offsets = offsets.within(range(tail))
        found = await self.preview(offsets)
        if not found.offsets and not found.holders:
            return None
        if found.holders and not despite_holders:
            raise _held(found.holders)
        (made,) = await self._finish([await self._begin(offsets, query, note)])
        return made

    async def finish(self) -> list[Certificate]:
        return await self._finish(await self._left(also_incomplete=True))

    async def preview(self, offsets: IndexSet) -> Erasable:
        _check_set(offsets)
        there = await self._present(offsets)
        for fragment, _ in there.fragments:
            if not fragment.is_ours_to_change:
                raise Invalid(
                    f"{fragment.path} was written by another program, or by a newer version",
                    path=fragment.path,
                    hint="It cannot be rewritten here. Copy the log, and erase from the copy.",
                )
        pins = await pins_that_hold(self._tree(), self._store, offsets, self.runtime)
        return Erasable(there.offsets, (*pins.holders, *there.sources))

    async def _left(self, *, also_incomplete: bool = False) -> list[Certificate]:
        """The certificates that are not done, or not complete."""
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()
        warn = partial(log.warning, "a certificate cannot be read: %s")
        return [
            each
            for each in await list_certificates(self._store, on_damage=warn)
            if each.state != "done" or (also_incomplete and not each.complete)
        ]

    # The steps

    async def _begin(self, offsets: IndexSet, query: str, note: str) -> Certificate:
        manifest, _ = await load_manifest(self._store)
        made = self.runtime.new_id(ID_LENGTH)
        certificate = Certificate(
            id=made,
            log=redact(self._url.url),
            state="begun",
            begun_us=self.runtime.now_us(),
            first_offset=manifest.first_offset,
            up_to=manifest.tail.offset,
            offsets=tuple((each.start, each.stop) for each in offsets.ranges()),
            query=hash_of_query(made, query) if query else "",
            note=note,
            writer=self._writer,
            format=FORMAT,
        )
        return (await self._document(made).put(None, certificate)).value

    async def _finish(
        self, certificates: Sequence[Certificate], *, tolerant: bool = False
    ) -> list[Certificate]:
        """What is left to do of each, from where an earlier run has stopped.

        A failure does not keep the others from being finished. Unless ``tolerant``, the first one
        is raised in the end.
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
            copies = await self._delete_copies(IndexSet.union(each.erased for each in taken_out))
            ended = [await self._end(each, copies) for each in taken_out]
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
                timeout_s=self.options.timeout_s,
                runtime=self.runtime,
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

            await self._document(certificate_id).change(noted)

        await Compactor(
            self._url,
            IndexSet(range(up_to)) - there,
            up_to,
            must_drop=there,
            narrow=True,
            on_progress=self.on_progress,
            witness=note,
            rewrite=self.rewrite,
            writer=self._writer,
            options=self.options,
            runtime=self.runtime,
        ).run()

    async def _delete_copies(self, wanted: IndexSet) -> Copies:
        return await delete_copies(
            self._url,
            self._store,
            self._collector(),
            wanted,
            self.options,
            self.runtime,
            older_manifest=self.older_manifest,
        )

    async def _end(self, begun: Certificate, copies: Copies) -> Certificate:
        async def ended(certificate: Certificate) -> Certificate | None:
            if certificate.complete:
                return None
            found = await self._present(certificate.erased)
            if found.offsets:
                raise _changed(certificate.path)
            if certificate.setsum_before is None:  # the log itself had none of them
                certificate = _nothing_erased(certificate, found.manifest)
            pins = await pins_that_hold(
                self._tree(), self._store, certificate.erased, self.runtime, also_released=True
            )
            holders = (*pins.holders, *copies.stages)
            released = [each for each in copies.left if each.path not in pins.paths]
            left = await stored_with(self._tree(), self._store, certificate.erased, released)
            objects = tuple(dict.fromkeys((*certificate.objects, *left)))
            kept = await stored_of(self._store, objects)
            owned = await logs_with(self._store, certificate.foreign)
            versions = await versions_of(self._store, certificate.path)
            reasons = reasons_against(kept, owned, holders, versions)
            return msgspec.structs.replace(
                certificate,
                state="done",
                done_us=self.runtime.now_us(),
                objects=objects,
                kept=kept,
                swept=certificate.swept + copies.swept,
                holders=holders,
                versions=versions,
                complete=not reasons,
                reasons=reasons,
            ).sealed_as(self.runtime.new_id())

        return (await self._document(begun.id).change(ended)).value

    # What the steps are made of

    async def _present(self, wanted: IndexSet) -> Present:
        return await present(self._tree(), self._store, wanted)

    def _document(self, certificate_id: str) -> Document[Certificate]:
        """The certificate, to be changed by CAS."""
        return certificate_document(
            self._store, certificate_id, self.runtime, self.options.timeout_s
        )

    def _collector(self) -> Collector:
        options = CollectorOptions(
            interval_s=self.options.interval_s,
            timeout_s=self.options.timeout_s,
            older_manifest=self.older_manifest,
        )
        return Collector(self._url, writer=self._writer, options=options, runtime=self.runtime)

    def _tree(self) -> Tree:
        return Tree(self._store, SNAPSHOT_CACHE_BYTES)


def _nothing_erased(certificate: Certificate, manifest: Manifest) -> Certificate:
    """The certificate of an erasure of records that the log itself did not have."""
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


def _check_set(offsets: IndexSet) -> None:
    if not isinstance(offsets, IndexSet):
        raise Invalid("what goes is an IndexSet", hint="Make one with IndexSet.of(offsets).")


def _changed(path: str) -> Conflict:
    return Conflict(
        "the log changed while records were erased from it",
        path=path,
        hint="Erase again: what was begun is finished then.",
    )


def _held(holders: Sequence[Holder]) -> Conflict:
    named = "; ".join(map(str, holders[:NAMED_MAX])) + and_more(len(holders) - NAMED_MAX)
    return Conflict(
        f"the records are held by others as well: {named}",
        hint="Release them (`stratalog pin release URL NAME`, or destroy the fork), or erase "
        "`--despite-holders`: the certificate will say that the erasure is not complete.",
    )
