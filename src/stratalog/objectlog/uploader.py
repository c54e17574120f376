"""Turning a draft into a stored fragment: hash, encode, put under a fresh name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from stratalog.objectlog.committer import Committer, Upload
from stratalog.objectlog.fragment import EncodedFragment, encode_fragment
from stratalog.objectlog.options import KIB, WriterOptions
from stratalog.objectlog.stats import WriterCounters
from stratalog.objectlog.units import Draft
from stratalog.runtime import Runtime
from stratalog.store.cas import Patience, put_once
from stratalog.store.protocol import Store

ENCODE_INLINE_BYTES_MAX = 32 * KIB

Beside = Callable[[int, int], Awaitable[None]]
"""What else must be durable before a fragment may be linked. It is told the offset after the
fragment's last record, and the sweep epoch in which its upload began."""


class Uploader:
    """Stores drafts for one writer."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        options: WriterOptions,
        runtime: Runtime,
        counters: WriterCounters,
        beside: Beside | None = None,
    ) -> None:
        self._store = store
        self._beside = beside
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
        storing = self._put(lambda: names.fragment(draft.seq_no), encoded.data)
        if self._beside is None:
            path = await storing
        else:
            end = draft.first_offset + len(draft.bodies)
            path = await _both(storing, self._beside(end, epoch))
        draft.upload = Upload(draft.stored(path, encoded, timestamp_us), epoch)

    async def _put(self, new_path: Callable[[], str], data: bytes) -> str:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        patience = Patience(self._runtime, self._options.timeout_s)
        path = await put_once(self._store, new_path, data, patience)
        self._counters.fragments.add(loop.time() - started_s, len(data))
        return path

    async def _encode(self, draft: Draft, timestamp_us: int) -> EncodedFragment:
        """A small draft at once: to hand it to a thread would take longer than to encode it."""

        def encode() -> EncodedFragment:
            return encode_fragment(
                draft.first_offset, timestamp_us, draft.bodies, self._options.compression
            )

        if draft.size <= ENCODE_INLINE_BYTES_MAX:
            return encode()
        return await self._runtime.compute(encode)


async def _both(storing: Coroutine[Any, Any, str], beside: Awaitable[None]) -> str:
    """Both at the same time. If what is beside fails, it is as if the upload had."""
    stored = asyncio.ensure_future(storing)
    try:
        await beside
    except BaseException:
        stored.cancel()
        await asyncio.gather(stored, return_exceptions=True)
        raise
    return await stored
