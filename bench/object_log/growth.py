"""A tree of very many fragments, made cheaply by the writer's own committer.

Only the data of the fragments is left out: their entries are as large as real ones, and only the
few that are read afterwards exist. Nodes that a fold replaced are deleted at once, as the sweep
would do later.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from bench.object_log.counting import CountingStore
from bench.object_log.workload import FRAGMENT_BYTES, WRITER, make_bodies
from stratalog import Fragment, LogPosition, Manifest, Setsum, Snapshot, WriterOptions
from stratalog.hashing import digest_of
from stratalog.objectlog.append.committer import CommitOutcome, Committer, Upload
from stratalog.objectlog.append.context import WriterContext
from stratalog.objectlog.stored.fragment import encode_fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, encode_manifest
from stratalog.objectlog.stored.object_digest import with_digest
from stratalog.runtime import DEFAULT_RUNTIME

FIRST_SEQ_NO = 1_000_000
FIRST_OFFSET = 10**12
FIRST_TIMESTAMP_US = 1_700_000_000_000_000
TIME_PER_FRAGMENT_US = 20_000
RECORDS_PER_FRAGMENT = 16
FRAGMENTS_PER_MANIFEST = WriterOptions().manifest_fragments_max
INCARNATIONS = 128


def first_offset_of(index: int) -> int:
    """The first offset of the fragment with this index, counted from 0."""
    return FIRST_OFFSET + index * RECORDS_PER_FRAGMENT


class Growth:
    """Links fragments until there are ``fragments`` of them; those ``with_data`` can be read."""

    def __init__(
        self, store: CountingStore, fragments: int, with_data: Collection[int] = ()
    ) -> None:
        self._store = store
        self._fragments = fragments
        self._with_data = with_data
        self._bodies = make_bodies(RECORDS_PER_FRAGMENT, 1024)
        self._setsums = [Setsum.of(b"%d" % number) for number in range(1009)]
        self.root_bytes: dict[int, int] = {}
        """The largest root since the last entry, by how many fragments there were."""

    async def run(self) -> Manifest:
        """Grow the log; returns the last manifest. Now and then the incarnation changes, as after
        a restart.
        """
        committer = await self._start()
        per_incarnation = max(FRAGMENTS_PER_MANIFEST, self._fragments // INCARNATIONS)
        restart_at = per_incarnation
        for first in range(0, self._fragments, FRAGMENTS_PER_MANIFEST):
            indexes = range(first, min(first + FRAGMENTS_PER_MANIFEST, self._fragments))
            before = committer.manifest
            uploads = [Upload(await self._entry(each, committer), 0) for each in indexes]
            outcome = await committer.commit(uploads)
            assert outcome is CommitOutcome.LINKED, "nobody else writes here"
            await self._delete_replaced(before, committer.manifest)
            if indexes.stop >= restart_at:
                restart_at += per_incarnation
                self.root_bytes[indexes.stop] = self._store.largest_swap_lately
                self._store.largest_swap_lately = 0
                committer.take_over()
        await committer.close()
        return committer.manifest

    async def _start(self) -> Committer:
        manifest = msgspec.structs.replace(
            Manifest.empty(WRITER, DEFAULT_RUNTIME.new_id()),
            initial_offset=LogPosition(FIRST_OFFSET, FIRST_TIMESTAMP_US),
            initial_seq_no=FIRST_SEQ_NO,
        )
        etag = await self._store.put_if_absent(MANIFEST_PATH, encode_manifest(manifest))
        context = WriterContext(self._store, WRITER, WriterOptions(), DEFAULT_RUNTIME)
        return Committer(context, manifest, etag)

    async def _entry(self, index: int, committer: Committer) -> Fragment:
        seq_no = FIRST_SEQ_NO + index
        path = committer.names.fragment(seq_no)
        timestamp_us = FIRST_TIMESTAMP_US + index * TIME_PER_FRAGMENT_US
        num_bytes, xxh3 = FRAGMENT_BYTES + index % 5000, digest_of(path.encode())
        setsum = self._setsums[index % len(self._setsums)]
        if index in self._with_data:
            encoded = encode_fragment(first_offset_of(index), timestamp_us, self._bodies)
            num_bytes, setsum, xxh3 = len(encoded.data), encoded.setsum, encoded.xxh3
            await self._store.put_if_absent(path, encoded.data)
        entry = Fragment(
            path=path,
            seq_no=seq_no,
            start=LogPosition(first_offset_of(index), timestamp_us),
            limit=LogPosition(first_offset_of(index + 1), timestamp_us),
            num_bytes=num_bytes,
            setsum=setsum,
        )
        return with_digest(entry, xxh3)

    async def _delete_replaced(self, before: Manifest, after: Manifest) -> None:
        """Delete nodes that left the root, unless a new node leads to them."""
        old = {node.path for node in before.snapshots}
        new = {node.path for node in after.snapshots}
        if old == new:
            return
        kept: set[str] = set()
        fresh = list(new - old)
        while fresh:
            path = fresh.pop()
            node = Snapshot.from_json((await self._store.get(path)).data)
            below = {child.path for child in node.snapshots}
            kept |= below
            fresh.extend(below - old)
        await self._store.delete_many([path for path in old - new if path not in kept])
