"""Linking what many tasks have uploaded, all at once: one compare-and-swap of the manifest.

    task ── register a guard, upload ──┐
    task ── register a guard, upload ──┼──► positions, time, nodes ──► one put of the manifest
    task ── register a guard, upload ──┘

The put gives all fragments their positions and one append time, in the order of the list, and
notes ``(query, batch)`` in ``sinks``. An attempt to link a batch that is noted there, or an older
one of the same query, finds that it is there already. So a batch is in the log once, however often
its job is killed and repeated, and however many others write to the log.

If the tail moved meanwhile, the same fragments get other positions and the put is tried again:
they do not know theirs. A lost answer is settled as that of any append (``link_fragments``).

Uploads of an epoch that has passed are linked only if their guard is still live, which is looked
up between reading the manifest and the put: see ``upload_guard``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from stratalog.errors import Conflict, Full
from stratalog.objectlog.append import BeforeLink
from stratalog.objectlog.bulk.upload import Batch, UploadedFragment
from stratalog.objectlog.holds import UploadGuardStore
from stratalog.objectlog.stored import (
    Fragment,
    LogPosition,
    Manifest,
    Snapshot,
    Span,
    UploadNames,
    encode_manifest,
    load_manifest,
    sealed,
    with_digest,
    writer_label,
)
from stratalog.objectlog.tree import (
    Tree,
    Verdict,
    amend,
    graft,
    has_happened,
    judge,
    link,
    overtaken_by,
    put_linked,
)
from stratalog.ordered import gather_bounded
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Landed, Patience, PatientStore, Store, StoreLike, open_store, put_once

SINKS_MAX = 256
LINK_TIMEOUT_S = 60.0
AT_ONCE = 32
TREE_CACHE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Linked:
    """What became of a batch: it is in the log."""

    span: Span | None
    """Where it is. None if it had no records, or if an earlier attempt had linked it."""

    repeated: bool = False
    """Whether an earlier attempt had linked it. What was uploaded for this one is left over."""


async def link_uploaded(
    url: StoreLike,
    uploads: Sequence[UploadedFragment],
    *,
    batch: Batch | None = None,
    writer: str | None = None,
    before_link: BeforeLink | None = None,
    timeout_s: float = LINK_TIMEOUT_S,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> Linked:
    """Append what was uploaded, all of it or nothing, in this order.

    With a ``batch`` it happens once, however often it is tried. ``before_link`` is awaited before
    each attempt with the end that it would give the log, and the epoch. ``Conflict`` if an upload
    may be gone: upload it again.
    """
    linking = _Linking(
        open_store(url), uploads, batch, writer_label(writer), before_link, timeout_s, runtime
    )
    return await linking.run()


async def forget_query(url: StoreLike, query: str, *, runtime: Runtime = DEFAULT_RUNTIME) -> bool:
    """Make room for another query. Whoever still runs this one may link a batch twice.

    False if the log knows nothing of it.
    """
    store = PatientStore(open_store(url), runtime, LINK_TIMEOUT_S)
    known = False

    def change(manifest: Manifest) -> Manifest | None:
        nonlocal known
        manifest.check_writable()
        sinks = dict(manifest.sinks or {})
        if sinks.pop(query, None) is None:
            return None
        known = True
        return msgspec.structs.replace(manifest, sinks=sinks or None, write_id=runtime.new_id())

    await amend(store, change, Patience(runtime, LINK_TIMEOUT_S))
    return known


@dataclass
class _Linking:
    _store: Store
    _uploads: Sequence[UploadedFragment]
    _batch: Batch | None
    _writer: str
    _before_link: BeforeLink | None
    _timeout_s: float
    _runtime: Runtime

    def __post_init__(self) -> None:
        self._reads = PatientStore(self._store, self._runtime, self._timeout_s)
        self._tree = Tree(self._reads, TREE_CACHE_BYTES)
        self._names = UploadNames(self._runtime)

    async def run(self) -> Linked:
        manifest, etag = await load_manifest(self._reads)
        while True:
            manifest.check_writable()
            if self._batch is not None and is_linked(manifest, self._batch):
                return Linked(None, repeated=True)
            if not self._uploads:
                return Linked(None)
            if manifest.seal is not None:
                raise sealed(manifest)
            await self._check_guards(manifest)
            fragments = placed(self._uploads, manifest, self._runtime.now_us())
            candidate = await self._prepared(manifest, fragments)
            if self._before_link is not None:
                await self._before_link(candidate.tail.offset, manifest.sweep_epoch)
            newer = await self._put(candidate, etag, fragments)
            if newer is None:
                return Linked(Span(fragments[0].start, fragments[-1].limit.offset))
            manifest, etag = newer

    async def _check_guards(self, manifest: Manifest) -> None:
        """Uploads of this epoch are there. Those of another one are, if their guard is live."""
        doubtful = {
            each.incarnation for each in self._uploads if each.sweep_epoch != manifest.sweep_epoch
        }
        guards = UploadGuardStore(self._reads, runtime=self._runtime)

        async def check(incarnation: str) -> None:
            if not await guards.is_live(incarnation):
                raise Conflict(
                    f"the upload guard {incarnation} is not live; its uploads may be gone",
                    hint="Write the batch again.",
                )

        await gather_bounded(sorted(doubtful), check, AT_ONCE)

    async def _prepared(self, manifest: Manifest, fragments: Sequence[Fragment]) -> Manifest:
        """The manifest to put. The nodes that it links are stored before."""
        incarnation = self._uploads[0].incarnation
        linked = link(manifest, fragments, incarnation, self._writer, self._runtime.new_id())
        linked = msgspec.structs.replace(linked, sinks=noted(manifest, self._batch))
        grafted, made = await graft(linked, self._tree, self._names, self._writer)

        async def store(node: Snapshot) -> None:
            patience = Patience(self._runtime, self._timeout_s)
            await put_once(self._store, lambda: node.path, node.to_json(), patience)

        await gather_bounded(made, store, AT_ONCE)
        grafted.check()
        return grafted

    async def _put(
        self, candidate: Manifest, etag: str, fragments: Sequence[Fragment]
    ) -> tuple[Manifest, str] | None:
        """None if it happened, or the manifest on top of which to try again."""
        incarnation = self._uploads[0].incarnation
        patience = Patience(self._runtime, self._timeout_s)
        settled = await put_linked(
            self._store, encode_manifest(candidate), etag, fragments, incarnation, patience
        )
        if isinstance(settled, Landed):
            return None
        stored, etag = overtaken_by(settled, self._store.url)
        if self._batch is not None:  # what a verdict leaves open, ``is_linked`` tells
            happened = judge(stored, fragments, incarnation) is Verdict.HAPPENED
        else:
            happened = await has_happened(
                self._tree, stored, fragments, incarnation, "batch was linked"
            )
        return None if happened else (stored, etag)


def is_linked(manifest: Manifest, batch: Batch) -> bool:
    """Whether this batch of its query, or a later one, is in the log."""
    return (manifest.sinks or {}).get(batch.query, -1) >= batch.number


def noted(manifest: Manifest, batch: Batch | None) -> dict[str, int] | None:
    """The table of last batches with this one in it. ``Full`` if it has no room for a query."""
    if batch is None:
        return manifest.sinks
    sinks = {**(manifest.sinks or {}), batch.query: batch.number}
    if len(sinks) > SINKS_MAX:
        raise Full(
            f"{SINKS_MAX} queries have written to this log, and it remembers no more",
            hint="Forget one that is gone for good: `stratalog sinks forget URL QUERY`.",
            expected=SINKS_MAX,
        )
    return sinks


def placed(uploads: Sequence[UploadedFragment], manifest: Manifest, now_us: int) -> list[Fragment]:
    """The entries of uploaded fragments at the end of this log, with one append time."""
    time_us = max(now_us, manifest.tail.timestamp_us)
    offset, seq_no = manifest.tail.offset, manifest.next_seq_no
    fragments: list[Fragment] = []
    for each in uploads:
        start = LogPosition(offset, time_us)
        offset += each.count
        entry = Fragment(
            path=each.path,
            seq_no=seq_no,
            start=start,
            limit=LogPosition(offset, time_us),
            num_bytes=each.num_bytes,
            setsum=each.setsum,
        )
        fragments.append(with_digest(entry, each.xxh3))
        seq_no += 1
    return fragments
