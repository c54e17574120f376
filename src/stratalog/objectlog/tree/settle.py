"""Settling a lost compare-and-swap of the manifest: what became of an attempt to link fragments?

A put whose answer was lost, or that was refused, may have happened. The stored manifest tells:

    1  ``linked`` names this incarnation: it happened if the number is high enough.
    2  ``linked`` remembers all incarnations that there were and does not name this one, or the
       tail has not passed the first offset: it did not happen.
    3  Otherwise the fragment that holds the first offset now shows who has written it. It is in
       the root, or the tree is walked. A fragment that was rewritten does not show it.

If it did not happen and only the past of the log changed, the same fragments can be linked again.
"""

import enum
import logging
from collections.abc import Sequence

from stratalog.errors import Corrupt, Invalid, NotFound, StratalogError, Unknown
from stratalog.objectlog.stored import (
    LINKED_MAX,
    MANIFEST_PATH,
    Fragment,
    Manifest,
    decode_manifest,
)
from stratalog.objectlog.tree.seek_window import Window
from stratalog.objectlog.tree.walk import Tree
from stratalog.store import Blob, Landed, Overtaken, Patience, Store, swap

log = logging.getLogger(__name__)


class Verdict(enum.Enum):
    """What a stored manifest says about fragments that one incarnation tried to link."""

    HAPPENED = "happened"
    DID_NOT = "did not happen"
    OPEN = "cannot be told from the root alone"


def judge(stored: Manifest, fragments: Sequence[Fragment], incarnation: str) -> Verdict:
    """Whether an attempt to link ``fragments`` happened.

    Valid once the version that the attempt would have replaced is gone: then it can no longer land.
    """
    linked = stored.linked or {}
    last = fragments[-1].seq_no
    assert isinstance(last, int)
    highest = linked.get(incarnation)
    if highest is not None:
        return Verdict.HAPPENED if highest >= last else Verdict.DID_NOT
    start = fragments[0].start.offset
    if len(linked) < LINKED_MAX or stored.tail.offset <= start:
        return Verdict.DID_NOT
    for entry in stored.fragments:
        if entry.start.offset <= start < entry.limit.offset:
            return judge_owner(entry, incarnation)
    return Verdict.OPEN


def judge_owner(owner: Fragment, incarnation: str) -> Verdict:
    """The same from the fragment that holds the first offset now, unless it was rewritten."""
    if owner.incarnation is None or owner.is_sparse or owner.unknown is not None:
        return Verdict.OPEN
    return Verdict.HAPPENED if owner.incarnation == incarnation else Verdict.DID_NOT


def only_the_past_changed(before: Manifest, after: Manifest) -> bool:
    """Whether fragments built to continue ``before`` also continue ``after``."""
    return before.tail.offset == after.tail.offset and before.next_seq_no == after.next_seq_no


async def put_linked(
    store: Store,
    data: bytes,
    etag: str,
    fragments: Sequence[Fragment],
    incarnation: str,
    patience: Patience,
) -> Landed | Overtaken:
    """Put a manifest that links these fragments. It is known again, also below newer ones."""

    def is_ours(blob: Blob) -> bool:
        try:
            stored = decode_manifest(blob.data)
        except (Corrupt, Invalid) as error:
            reason = f"the manifest became unreadable: {error}"
            raise Unknown(reason, path=MANIFEST_PATH) from error
        return judge(stored, fragments, incarnation) is Verdict.HAPPENED

    return await swap(store, MANIFEST_PATH, data, etag, is_ours, patience)


def overtaken_by(refusal: Overtaken, url: str) -> tuple[Manifest, str]:
    """The manifest that is there instead, with its etag."""
    if refusal.current is None:
        gone = NotFound if refusal.answered else Unknown
        raise gone(f"the log at {url} is gone", path=MANIFEST_PATH)
    return decode_manifest(refusal.current.data), refusal.current.etag


async def has_happened(
    tree: Tree, stored: Manifest, fragments: Sequence[Fragment], incarnation: str, what: str
) -> bool:
    """What ``judge`` says, or else the owner of the first offset. ``Unknown`` if neither does."""
    verdict = judge(stored, fragments, incarnation)
    if verdict is Verdict.OPEN:
        verdict = await _judge_by_owner(tree, stored, fragments, incarnation)
    if verdict is Verdict.OPEN:
        raise Unknown(
            f"the manifest changed too often to tell whether the {what}", path=MANIFEST_PATH
        )
    return verdict is Verdict.HAPPENED


async def _judge_by_owner(
    tree: Tree, stored: Manifest, fragments: Sequence[Fragment], incarnation: str
) -> Verdict:
    """The verdict from the fragment that holds the first offset of these, if it can be read."""
    start = fragments[0].start.offset
    if stored.first_offset > start:
        return Verdict.OPEN
    try:
        async for owner in tree.walk(stored, Window(start, start + 1)):
            return judge_owner(owner, incarnation)
    except StratalogError as error:
        log.warning("cannot look up who owns offset %d: %s", start, error)
    return Verdict.OPEN
