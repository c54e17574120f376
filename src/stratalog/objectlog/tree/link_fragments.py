"""Linking fragments: the next manifest, with new fragments at its end. Pure."""

from collections.abc import Sequence

import msgspec

from stratalog.invariants import invariant
from stratalog.objectlog.stored import LINKED_MAX, Fragment, Manifest
from stratalog.setsum import Setsum


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
