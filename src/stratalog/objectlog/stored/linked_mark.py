"""What a fragment says about the log in which it was begun: metadata of its Parquet footer.

    key      ``stratalog.linked``
    value    ``{number} {linker} {author}``: the highest sequence number that was linked when the
             fragment was begun, the incarnation that had linked it (``-`` if the manifest did not
             tell), and the incarnation under which the fragment was uploaded

A manifest in which that number is not linked is older than the fragment, so the sweep does not take
its word for what is unlinked (``collection.older_manifest``). A copy has the bytes of another log's
fragment under a name of its own, so the mark counts only under the author's name. Fragments of
format 1.0 have none. Persisted: keep stable.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.objectlog.stored.manifest import Manifest
from stratalog.objectlog.stored.ownership import own
from stratalog.store import Store

MARK_KEY = b"stratalog.linked"
TAIL_BYTES = 4096
FOOTER_BYTES_MAX = 1 << 20

_MAGIC = b"PAR1"
_LENGTH_BYTES = 4
_TEXT = re.compile(r"([0-9]{1,19}) (-|[0-9a-f]{1,64}) ([0-9a-f]{1,64})")


class LinkedMark(NamedTuple):
    """The end of the log as the author of a fragment knew it."""

    seq_no: int
    linker: str | None
    author: str

    @classmethod
    def of(cls, manifest: Manifest, author: str) -> LinkedMark:
        """The mark of what is begun under this manifest."""
        seq_no = manifest.last_seq_no
        linked = manifest.linked or {}
        linker = next(reversed(linked), None)
        return cls(seq_no, linker if linker and linked[linker] == seq_no else None, author)

    @property
    def text(self) -> str:
        return f"{self.seq_no} {self.linker or '-'} {self.author}"


def parse_mark(text: str) -> LinkedMark | None:
    """The mark that this is, or None: what was written by somebody else proves nothing."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    return LinkedMark(int(found[1]), None if found[2] == "-" else found[2], found[3])


async def read_mark(store: Store, path: str, size: int) -> LinkedMark | None:
    """What the fragment at this path says, from its footer. None if it says nothing."""
    tail = await store.get_range(path, max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
    needed = _footer_bytes(tail)
    if len(tail) < needed <= min(size, FOOTER_BYTES_MAX):
        tail = await store.get_range(path, size - needed, needed)
    mark = _mark_in(tail[-needed:]) if 0 < needed <= len(tail) else None
    found = own(path)
    return mark if mark and found is not None and found.incarnation == mark.author else None


def _footer_bytes(tail: bytes) -> int:
    """How long the end of a Parquet file is that its metadata, their length and its magic take."""
    end = _LENGTH_BYTES + len(_MAGIC)
    if len(tail) < end or not tail.endswith(_MAGIC):
        return 0
    return int.from_bytes(tail[-end : -len(_MAGIC)], "little") + end


def _mark_in(footer: bytes) -> LinkedMark | None:
    try:
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer)).metadata or {}
        return parse_mark(metadata.get(MARK_KEY, b"").decode())
    except (pa.ArrowException, OSError, ValueError):
        return None
