"""A blank: an offset without a record, so that what was the newest fragment is not any more.

A compaction never rewrites the newest fragment of a log. If a record in it has to go, the erasure
first gives the log another newest fragment: an entry that spans one offset and holds nothing. It
reads as a record that was compacted. The tail moves, so an open writer is fenced, as it would be by
the append of another writer.

A blank that was uploaded and not linked (a crash, a lost race) lies beyond the tail, and its name
is that of a compacted fragment. So it has the mark of a fragment that a writer began
(``linked_mark``), and the sweep takes it for what it is.
"""

from stratalog.errors import NotFound, Unknown
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    MARK_KEY,
    Fragment,
    LinkedMark,
    LogPosition,
    Manifest,
    UploadNames,
    decode_manifest,
    encode_fragment,
    encode_manifest,
    load_manifest,
    sealed,
    writer_label,
)
from stratalog.objectlog.tree import Verdict, judge, link
from stratalog.runtime import Runtime
from stratalog.store import Blob, Landed, Patience, Store, put_once, swap


async def append_blank(
    store: Store, *, after: Fragment, writer: str | None, timeout_s: float, runtime: Runtime
) -> Manifest:
    """See to it that ``after`` is not the newest fragment; gives the manifest in which it is not.

    A put that loses against another append is enough: then that is the newest one.
    """
    names, patience = UploadNames(runtime), Patience(runtime, timeout_s)
    manifest, etag = await load_manifest(store)
    while manifest.newest == after:
        manifest.check_writable()
        blank = await _uploaded(store, manifest, names, patience, runtime)
        candidate = link(
            manifest, [blank], names.incarnation, writer_label(writer), runtime.new_id()
        )
        candidate.check()

        def is_ours(blob: Blob, blank: Fragment = blank) -> bool:
            stored = decode_manifest(blob.data)
            return judge(stored, [blank], names.incarnation) is Verdict.HAPPENED

        data = encode_manifest(candidate)
        settled = await swap(store, MANIFEST_PATH, data, etag, is_ours, patience)
        if isinstance(settled, Landed) and settled.newer is None:
            return candidate
        current = settled.newer if isinstance(settled, Landed) else settled.current
        if current is None:
            raise NotFound(f"the log at {store.url} is gone", path=MANIFEST_PATH)
        manifest, etag = decode_manifest(current.data), current.etag
        if manifest.newest == after and not await patience.pause():
            raise Unknown("the manifest changes too fast", path=MANIFEST_PATH)
    return manifest


async def _uploaded(
    store: Store,
    manifest: Manifest,
    names: UploadNames,
    patience: Patience,
    runtime: Runtime,
) -> Fragment:
    """The entry of a blank at the end of this log. Its object is stored in the epoch of the log."""
    if manifest.seal is not None:
        raise sealed(manifest)
    tail, seq_no = manifest.tail, manifest.next_seq_no
    time_us = max(runtime.now_us(), tail.timestamp_us)
    mark = LinkedMark.of(manifest, names.incarnation)
    empty = encode_fragment(tail.offset, time_us, [], "none", {MARK_KEY: mark.text})
    path = await put_once(store, lambda: names.compacted(seq_no, seq_no), empty.data, patience)
    entry = Fragment(
        path=path,
        seq_no=seq_no,
        seq_first=seq_no,
        start=LogPosition(tail.offset, time_us),
        limit=LogPosition(tail.offset + 1, time_us),
        num_bytes=len(empty.data),
        setsum=empty.setsum,
        rows=0,
    )
    return entry.linking(path, empty)
