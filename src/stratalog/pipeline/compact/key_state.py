"""How far a compaction by key is with one log: what is new, and what its index knows."""

import logging
from dataclasses import dataclass

from stratalog.objectlog.stored import load_manifest
from stratalog.pipeline.compact.key_index import TIMEOUT_S, KeyIndex, load_index
from stratalog.pipeline.jobs import LogRef, check_alive
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, Store

log = logging.getLogger(__name__)

UNIT_ROWS = 1 << 18
GROWTH_MAX = 8
"""An index whose buckets have become so many times too large is made anew."""


@dataclass(frozen=True, slots=True)
class KeyState:
    ref: LogRef
    name: str | None
    first_offset: int
    up_to: int
    compacted: str | None
    epoch: int
    index: KeyIndex | None
    """Only if it matches the log."""

    etag: str | None
    """The version of the stored index, whether it can be used or not."""

    @property
    def start(self) -> int:
        """The first record that is not in the index."""
        return self.first_offset if self.index is None else max(self.first_offset, self.index.up_to)

    @property
    def is_empty(self) -> bool:
        return self.up_to <= self.first_offset


async def read_key_state(
    store: Store, ref: LogRef, rule: str, *, up_to: int | None = None, incremental: bool = True
) -> KeyState:
    """How far it is with a log, and the index if that is of any use. The manifest is read last.

    A run publishes its compaction before its index. So an index that is read first is never newer
    than the manifest.
    """
    store = PatientStore(store, DEFAULT_RUNTIME, TIMEOUT_S)
    index, etag = await load_index(store)
    manifest, _ = await load_manifest(store)
    manifest.check_writable()
    check_alive(manifest, f"at {store.url}")
    tail = manifest.tail.offset
    up_to = tail if up_to is None else min(up_to, tail)
    if index is not None:
        reason = index.why_not(manifest, rule)
        grown = index.rows + max(0, up_to - index.up_to)
        if reason is None and grown > GROWTH_MAX * UNIT_ROWS * index.buckets:
            reason = "the log has outgrown its buckets"
        if reason is not None or not incremental:
            log.info("%s is read from its beginning: %s", store.url, reason or "asked for")
            index = None
    return KeyState(
        ref=ref,
        name=ref.name or manifest.name,
        first_offset=manifest.first_offset,
        up_to=up_to,
        compacted=manifest.compacted,
        epoch=manifest.sweep_epoch,
        index=index,
        etag=etag,
    )
