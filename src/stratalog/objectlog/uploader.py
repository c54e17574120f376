"""Turning a draft into a stored fragment: hash, encode, put under a fresh name."""

from __future__ import annotations

import asyncio

from stratalog.objectlog.committer import Committer, Upload
from stratalog.objectlog.fragment import EncodedFragment, encode_fragment
from stratalog.objectlog.options import KIB, WriterOptions
from stratalog.objectlog.stats import WriterCounters
from stratalog.objectlog.units import Draft
from stratalog.runtime import Runtime
from stratalog.store.cas import Patience, put_once
from stratalog.store.protocol import Store

ENCODE_INLINE_BYTES_MAX = 32 * KIB


class Uploader:
    """Stores drafts for one writer."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        options: WriterOptions,
        runtime: Runtime,
        counters: WriterCounters,
    ) -> None:
        self._store = store
        self._committer = committer
        self._options = options
        self._runtime = runtime
        self._counters = counters

    async def upload(self, draft: Draft, timestamp_us: int) -> None:
        """Store a draft. It may be linked only in the epoch in which this began."""
        names, epoch = self._committer.names, self._committer.manifest.sweep_epoch
        encoded = draft.encoded
        if encoded is None:
            encoded = draft.encoded = await self._encode(draft, timestamp_us)
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        path = await put_once(
            self._store,
            lambda: names.fragment(draft.seq_no),
            encoded.data,
            Patience(self._runtime, self._options.timeout_s),
        )
        self._counters.fragments.add(loop.time() - started_s, len(encoded.data))
        draft.upload = Upload(draft.stored(path, encoded, timestamp_us), epoch)

    async def _encode(self, draft: Draft, timestamp_us: int) -> EncodedFragment:
        """A small draft at once: to hand it to a thread would take longer than to encode it."""

        def encode() -> EncodedFragment:
            return encode_fragment(
                draft.first_offset, timestamp_us, draft.bodies, self._options.compression
            )

        if draft.size <= ENCODE_INLINE_BYTES_MAX:
            return encode()
        return await self._runtime.compute(encode)
