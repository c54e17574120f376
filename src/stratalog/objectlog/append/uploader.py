"""Turning a draft into a stored fragment: hash, encode, put under a fresh name."""

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any

from stratalog.objectlog.append.committer import Committer, Upload
from stratalog.objectlog.append.context import WriterContext
from stratalog.objectlog.append.units import Draft
from stratalog.objectlog.options import KIB
from stratalog.objectlog.stored import MARK_KEY, LinkedMark, UploadNames, encode_fragment
from stratalog.store import put_made_once, put_once

ENCODE_INLINE_BYTES_MAX = 32 * KIB


async def upload(
    context: WriterContext, committer: Committer, draft: Draft, timestamp_us: int
) -> None:
    """Store a draft. It may be linked only in the epoch in which this began."""
    names, epoch = committer.names, committer.manifest.sweep_epoch
    mark = LinkedMark.of(committer.manifest, names.incarnation)
    storing = _store_draft(context, draft, timestamp_us, names, mark)
    if context.before_link is None:
        path = await storing
    else:
        end = draft.first_offset + len(draft.bodies)
        path = await _both(storing, context.before_link(end, epoch))
    assert draft.encoded is not None
    draft.upload = Upload(draft.stored(path, draft.encoded, timestamp_us), epoch)


async def _store_draft(
    context: WriterContext, draft: Draft, timestamp_us: int, names: UploadNames, mark: LinkedMark
) -> str:
    """Encode and put; gives its path.

    A small draft is encoded at once: to hand it to a thread would take longer. So is one that
    was encoded before and is stored again.
    """
    loop, begun_s = asyncio.get_running_loop(), [0.0]

    def encode() -> bytes:
        if draft.encoded is None:
            draft.encoded = encode_fragment(
                draft.first_offset,
                timestamp_us,
                draft.bodies,
                context.options.compression,
                {MARK_KEY: mark.text},
            )
        begun_s[0] = loop.time()
        return draft.encoded.data

    new_path, patience = partial(names.fragment, draft.seq_no), context.patience()
    if draft.encoded is not None or draft.size <= ENCODE_INLINE_BYTES_MAX:
        path = await put_once(context.store, new_path, encode(), patience)
    else:
        path = await put_made_once(context.store, new_path, encode, patience, context.runtime)
    assert draft.encoded is not None
    draft.put_s = loop.time() - begun_s[0]
    context.counters.fragments.add(draft.put_s, len(draft.encoded.data))
    return path


async def _both(storing: Coroutine[Any, Any, str], before_link: Awaitable[None]) -> str:
    """Both at the same time. If the other one fails, so does the upload."""
    stored = asyncio.ensure_future(storing)
    try:
        await before_link
    except BaseException:
        stored.cancel()
        await asyncio.gather(stored, return_exceptions=True)
        raise
    return await stored
