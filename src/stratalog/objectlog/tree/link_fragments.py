"""What the next manifest should be, and what became of the last one.

Pure functions over manifests: linking fragments, and judging from a stored manifest whether a
write whose answer was lost has happened.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from stratalog.invariants import invariant
from stratalog.objectlog.stored import LINKED_MAX, Fragment, Manifest
from stratalog.setsum import Setsum


class Verdict(enum.Enum):
    """What a stored manifest tells about fragments that one incarnation tried to link."""

    HAPPENED = "happened"
    DID_NOT = "did not happen"
    OPEN = "cannot be told from the root alone"


def link(
    manifest: Manifest,
    fragments: Sequence[Fragment],
    incarnation: str,
    writer: str,
    write_id: str,
) -> Manifest:
    """The manifest with these fragments at its end."""
    last = fragments[-1].seq_no
    assert isinstance(last, int), "we number our fragments"
    invariant(fragments[0].start.offset == manifest.tail.offset, "fragments continue the log")
    invariant(fragments[0].seq_no == manifest.next_seq_no, "sequence numbers are dense")
    return msgspec.structs.replace(
        manifest,
        setsum=Setsum.total([manifest.setsum, *(each.setsum for each in fragments)]),
        acc_bytes=manifest.acc_bytes + sum(each.num_bytes for each in fragments),
        writer=writer,
        fragments=(*manifest.fragments, *fragments),
        write_id=write_id,
        linked=note_linked(manifest.linked or {}, incarnation, last),
    )


def note_linked(linked: dict[str, int], incarnation: str, seq_no: int) -> dict[str, int]:
    """The table of linked sequence numbers, newest incarnation last, the oldest dropped."""
    table = {name: highest for name, highest in linked.items() if name != incarnation}
    table[incarnation] = seq_no
    for oldest in list(table)[: max(0, len(table) - LINKED_MAX)]:
        del table[oldest]
    return table


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
    """The same from the fragment that holds the first offset now. A rewritten one tells nothing."""
    if owner.incarnation is None or owner.is_sparse or owner.unknown is not None:
        return Verdict.OPEN
    return Verdict.HAPPENED if owner.incarnation == incarnation else Verdict.DID_NOT


def only_the_past_changed(before: Manifest, after: Manifest) -> bool:
    """Whether fragments built to continue ``before`` also continue ``after``."""
    return before.tail.offset == after.tail.offset and before.next_seq_no == after.next_seq_no
