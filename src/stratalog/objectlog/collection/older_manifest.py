"""Has an older manifest been put back? What only a newer one can have let happen.

A manifest that a person restored from a copy is whole and good, and yet the objects that only the
newer one linked look unlinked, and a sweep would delete acknowledged records for good. So whatever
deletes by what the manifest does *not* say first looks for evidence of a newer one:

    hold        a cursor or a pin beyond the tail
    fragment    an unlinked one that was begun when more was linked than is now (``linked_mark``),
                or that a compaction made of numbers that are not linked yet; one that spans
                only the next number may be the blank of an erasure, and counts like a writer's
    gap         a linked object is gone: what took its place is linked by the newer manifest only

An unlinked fragment numbered beyond the tail is no evidence, for a writer that crashed leaves the
same; but it may be what the very last put linked. It is *ahead*, and is spared until the tail has
passed its number, unless its number can never have been linked. ``docs/design/018-digests.md`` has
the cases.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

from stratalog.errors import Corrupt
from stratalog.objectlog.holds import Cursor, Pin
from stratalog.objectlog.stored import MANIFEST_PATH, LinkedMark, Manifest
from stratalog.objectlog.tree import remembers_all

_NUMBERS = re.compile(
    r"/FragmentSeqNo=(?:(?P<first>[0-9a-f]{16})-)?(?P<last>[0-9a-f]{16})\.parquet"
)


class Standing(enum.Enum):
    """What an unlinked fragment tells about the manifest that does not link it."""

    LEFT_OVER = "nothing: it may go"
    AHEAD = "nothing, but a newer manifest may have linked it"
    NEWER = "a newer manifest has been there"


def standing(path: str, mark: LinkedMark | None, manifest: Manifest) -> Standing:
    """What the fragment at this path tells, which nothing in ``manifest`` links.

    The manifest must have been read after the fragment was seen.
    """
    tail = manifest.last_seq_no
    if mark is not None and _contradicts(mark, manifest):
        return Standing.NEWER
    numbers = _NUMBERS.search(path)
    if numbers is None:  # staged: it has no number until it is linked
        return Standing.AHEAD if mark is not None and mark.seq_no == tail else Standing.LEFT_OVER
    last = int(numbers["last"], 16)
    if last <= tail:
        return Standing.LEFT_OVER
    if numbers["first"] is not None and not tail + 1 == last == int(numbers["first"], 16):
        return Standing.NEWER
    if mark is not None and mark.seq_no < tail and _linker(manifest) not in (None, mark.author):
        # Its author meant to link the numbers between, and another has linked one of them.
        return Standing.LEFT_OVER
    return Standing.AHEAD


def _contradicts(mark: LinkedMark, manifest: Manifest) -> bool:
    """Whether what the mark saw linked is not linked here. Numbers only go up."""
    if mark.seq_no > manifest.last_seq_no:
        return True
    linked = manifest.linked or {}
    if mark.linker is None:
        return False
    if mark.linker not in linked:
        return remembers_all(linked)
    return linked[mark.linker] < mark.seq_no


def _linker(manifest: Manifest) -> str | None:
    """Who has linked the newest fragment, if the manifest tells."""
    linked = manifest.linked or {}
    newest = next(reversed(linked), None)
    return newest if newest is not None and linked[newest] == manifest.last_seq_no else None


def check_cursors(cursors: Iterable[Cursor], manifest: Manifest) -> None:
    """Refuse if one of these is beyond the tail of a manifest that was read after them."""
    tail = manifest.tail.offset
    for cursor in cursors:
        if cursor.offset > tail:
            raise older(f"the cursor {cursor.name!r} is at {cursor.offset}", tail)


def check_pins(pins: Iterable[Pin], manifest: Manifest) -> None:
    """Refuse if one of these points beyond the tail of a manifest that was read after them."""
    tail = manifest.tail.offset
    for pin in pins:
        end = max((entry.limit.offset for entry in pin.entries), default=0)
        if end > tail:
            raise older(f"the pin {pin.name!r} holds what ends at {end}", tail)


def older(evidence: str, tail: int) -> Corrupt:
    return Corrupt(
        f"the manifest is older than what lies beside it: the log ends at {tail}, but {evidence}",
        path=MANIFEST_PATH,
        hint="Put the newest manifest back (docs/operating.md). If the older one is there on "
        "purpose, go on with --older-manifest: what only the newer one linked is deleted.",
        actual=tail,
    )
