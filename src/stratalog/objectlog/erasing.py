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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from stratalog.errors import Conflict, Invalid, NotFound
from stratalog.indexset import IndexSet
from stratalog.objectlog.blank import append_blank
from stratalog.objectlog.cache import ByteCache
from stratalog.objectlog.certificate import (
    Certificate,
    Versions,
    decode_certificate,
    hash_of_query,
    list_certificates,
    read_certificate,
)
from stratalog.objectlog.collector import Collector
from stratalog.objectlog.compacting import STAGE_NOTE, Compactor, Intent
from stratalog.objectlog.holding import Holder, holders_of, present, stored_of
from stratalog.objectlog.manifest import FORMAT, Manifest, load_manifest
from stratalog.objectlog.names import writer_label
from stratalog.objectlog.notes import check_note
from stratalog.objectlog.options import MIB, CollectorOptions, CompactOptions, SweepOptions
from stratalog.objectlog.rewriting import OnProgress, Rewrite
from stratalog.objectlog.snapshot import Snapshot
from stratalog.objectlog.sweep import SweepReport, sweep
from stratalog.objectlog.tree import Tree
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import StoreLike, open_store
from stratalog.store.cas import Landed, Patience, create, swap
from stratalog.store.patient import PatientStore
from stratalog.store.protocol import Blob, Store
from stratalog.store.redaction import redact

DEFAULT_OPTIONS = CompactOptions()
SNAPSHOT_CACHE_BYTES = 8 * MIB
NAMED_MAX = 5
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
    return await eraser.finish_all(also_incomplete=True)


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

    async def finish_all(self, *, also_incomplete: bool = False) -> list[Certificate]:
        manifest, _ = await load_manifest(self._store)
        manifest.check_writable()
        left = [
            each
            for each in await list_certificates(self._store)
            if each.state != "done" or (also_incomplete and not each.complete)
        ]
        return [await self._finish(each) for each in left]

    async def erase(
        self, doomed: IndexSet, despite_holders: bool, query: str, note: str
    ) -> Certificate | None:
        """See ``erase``."""
        check_note(note)
        await self.finish_all()
        found = await self.preview(doomed)
        if not found.offsets and not found.holders:
            return None
        if found.holders and not despite_holders:
            raise _held(found.holders)
        return await self._finish(await self._begin(doomed, query, note))

    async def preview(self, doomed: IndexSet) -> Erasable:
        if not isinstance(doomed, IndexSet):
            raise Invalid("what goes is an IndexSet", hint="Make one with IndexSet.of(offsets).")
        manifest, there = await present(self._tree(), self._store, doomed)
        return Erasable(there, await self._holders(manifest, doomed))

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
            write_id=self._runtime.new_id(),
        )
        await create(self._store, certificate.path, certificate.to_json(), self._patience())
        return certificate

    async def _finish(self, certificate: Certificate) -> Certificate:
        """Whatever is left to do, from wherever an earlier run has stopped."""
        doomed = certificate.erased
        manifest, there = await present(self._tree(), self._store, doomed)
        if there:
            newest = manifest.newest
            if newest is not None and there.overlaps(
                range(newest.start.offset, newest.limit.offset)
            ):
                manifest = await append_blank(
                    self._store,
                    after=newest,
                    writer=self._writer,
                    timeout_s=self._options.timeout_s,
                    runtime=self._runtime,
                )
            await self._rewrite(certificate.id, there, manifest.tail.offset)
            manifest, there = await present(self._tree(), self._store, doomed)
            if there:
                raise Conflict(
                    f"{len(there)} of the records are still there: the log changed meanwhile",
                    path=certificate.path,
                    hint="Erase again: what was begun is finished then.",
                )
        collecting = CollectorOptions(
            interval_s=self._options.interval_s, timeout_s=self._options.timeout_s
        )
        collector = Collector(
            self._url, writer=self._writer, options=collecting, runtime=self._runtime
        )
        await collector.clear_pins()
        swept = await self._sweep(collector)
        return await self._end(certificate.id, manifest, doomed, swept)

    async def _rewrite(self, certificate_id: str, there: IndexSet, up_to: int) -> None:
        async def note(intent: Intent) -> None:
            def noted(certificate: Certificate) -> Certificate | None:
                if certificate.state == "done":
                    return None  # by somebody else
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
                    objects=intent.objects,
                    foreign=intent.foreign,
                )

            await self._change(certificate_id, noted)

        everything = IndexSet(range(up_to))
        await Compactor(
            self._url,
            everything - there,
            up_to,
            pressing=there,
            on_progress=self._on_progress,
            witness=note,
            rewrite=self._rewrite_elsewhere,
            writer=self._writer,
            options=self._options,
            runtime=self._runtime,
        ).run()

    async def _sweep(self, collector: Collector) -> SweepReport:
        """Also what nothing links may be a copy of a record: an upload that was never linked."""
        options = SweepOptions(timeout_s=self._options.timeout_s)
        for attempts_left in reversed(range(self._options.attempts_max)):
            try:
                return await sweep(self._url, options=options, runtime=self._runtime)
            except Conflict:
                if attempts_left == 0:
                    raise
            await collector.finish()
        raise AssertionError("the last attempt returns or raises")

    async def _end(
        self, certificate_id: str, manifest: Manifest, doomed: IndexSet, swept: SweepReport
    ) -> Certificate:
        current, _ = await read_certificate(self._store, certificate_id)
        kept = await stored_of(self._store, current.objects)
        holders = [
            *await self._holders(manifest, doomed),
            *(
                Holder(kind="stage", name=stage.incarnation, note=f"by {stage.owner}")
                for stage in swept.stages
                if stage.note == STAGE_NOTE  # it may have read what was still there
            ),
        ]
        versions = await self._versions(current.path)
        there = Setsum.total(entry.setsum for entry in manifest.entries)

        def ended(certificate: Certificate) -> Certificate | None:
            if certificate.complete:
                return None
            if certificate.setsum_before is None:  # the log itself had none of them
                certificate = msgspec.structs.replace(
                    certificate,
                    tail=manifest.tail.offset,
                    records=0,
                    setsum_before=there,
                    setsum_removed=EMPTY,
                    setsum_after=there,
                    collected=manifest.collected_sum,
                )
            reasons = _reasons(certificate, kept, holders, versions)
            return msgspec.structs.replace(
                certificate,
                state="done",
                done_us=self._runtime.now_us(),
                kept=kept,
                swept=swept.deleted.objects,
                holders=tuple(holders),
                versions=versions,
                complete=not reasons,
                reasons=reasons,
            )

        return await self._change(certificate_id, ended, sealed=True)

    # What the steps are made of

    async def _holders(self, manifest: Manifest, doomed: IndexSet) -> tuple[Holder, ...]:
        return await holders_of(self._tree(), self._store, manifest, doomed, self._runtime)

    async def _versions(self, path: str) -> Versions:
        """Told from an object that was just written."""
        version = (await self._store.head(path)).version
        if version is None:
            return "none"
        return "unknown" if self._url.url.startswith("gs://") else "kept"

    async def _change(
        self,
        certificate_id: str,
        change: Callable[[Certificate], Certificate | None],
        sealed: bool = False,
    ) -> Certificate:
        """The certificate, changed by CAS, or as it is if nothing is left to change."""
        current, etag = await read_certificate(self._store, certificate_id)
        while True:
            changed = change(current)
            if changed is None:
                return current
            changed = msgspec.structs.replace(changed, write_id=self._runtime.new_id())
            changed = changed.sealed() if sealed else changed
            write_id, path = changed.write_id, changed.path

            def is_ours(blob: Blob, write_id: str | None = write_id, path: str = path) -> bool:
                return decode_certificate(blob.data, path).write_id == write_id

            settled = await swap(
                self._store, path, changed.to_json(), etag, is_ours, self._patience()
            )
            if isinstance(settled, Landed):
                return changed
            if settled.current is None:
                raise NotFound("the certificate is gone", path=path)
            current = decode_certificate(settled.current.data, path)
            etag = settled.current.etag

    def _tree(self) -> Tree:
        return Tree(self._store, ByteCache[Snapshot](SNAPSHOT_CACHE_BYTES))

    def _patience(self) -> Patience:
        return Patience(self._runtime, self._options.timeout_s)


def _reasons(
    certificate: Certificate, kept: Sequence[str], holders: Sequence[Holder], versions: Versions
) -> tuple[str, ...]:
    """What stands against saying that the records are gone."""
    reasons = [f"still held by {holder}" for holder in holders]
    if kept:
        reasons.append(f"old objects are still there: {kept[0]}" + _and_more(len(kept) - 1))
    if certificate.foreign:
        reasons.append("the log that this one was forked from still has the old objects")
    if versions == "kept":
        reasons.append("the bucket keeps older versions of its objects, deleted ones too")
    if versions == "unknown":
        reasons.append("the store does not tell whether it keeps deleted objects")
    return tuple(reasons)


def _held(holders: Sequence[Holder]) -> Conflict:
    named = "; ".join(map(str, holders[:NAMED_MAX])) + _and_more(len(holders) - NAMED_MAX)
    return Conflict(
        f"the records are held by others as well: {named}",
        hint="Release them (`stratalog pin release`, or destroy the fork), or erase despite them: "
        "the certificate will say that the erasure is not complete.",
    )


def _and_more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""
