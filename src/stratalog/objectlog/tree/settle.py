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

from stratalog.errors import StratalogError
from stratalog.objectlog.stored import LINKED_MAX, Fragment, Manifest
from stratalog.objectlog.tree.seek_window import Window
from stratalog.objectlog.tree.walk import Tree

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


async def judge_by_owner(
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
