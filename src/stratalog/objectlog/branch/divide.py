"""Dividing a log at an offset: the beginning of a tree, and some records of a fragment.

    root   [ A B | f g ]        up to a record of B's child b2, which is in the fragment y
    B      [ b1 b2 b3 ]   b2 [ x y z ]
    gives  [ A b1 x | y ]       b1 and x would be made nodes if there were more of a kind

The root of the other log points to what is taken whole. Of the nodes on the way to the last record,
the children before it are gathered into new nodes, so that the root stays small. The last fragment
is in the root, as in every log.

Fragments are shared or copied byte for byte, but for the one that the offset divides. Its rows are
encoded anew with the offsets and the time that they have, so the hash of each stays the same. The
new sum is compared with the sum of the rows that it was made from.

Pure functions, over nodes that are loaded (``load_nodes``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from stratalog.errors import Invalid
from stratalog.objectlog.stored import (
    EncodedFragment,
    Entry,
    Fragment,
    LogPosition,
    Snapshot,
    decode_fragment,
    encode_fragment,
    in_base,
    sum_of_records,
    with_digest,
)
from stratalog.objectlog.tree import Nodes, Window, children_in, make_snapshot, survivors_of
from stratalog.setsum import Setsum


@dataclass(frozen=True, slots=True)
class Prefix:
    """The entries of the new root, the nodes made for it, and the fragment that they end with.

    ``last`` is in ``entries`` if it ends at the limit. Otherwise only its first records belong to
    the prefix, and the caller copies them.
    """

    entries: tuple[Entry, ...]
    made: tuple[Snapshot, ...]
    last: Fragment


def prefix_of(
    entries: Sequence[Entry],
    limit: int,
    base: str,
    nodes: Nodes,
    name: Callable[[Setsum], str],
    writer: str,
) -> Prefix:
    """What lies before offset ``limit``, which the entries span. All of it gets this base."""
    kept: list[Entry] = []
    made: list[Snapshot] = []
    level, depth = [in_base(entry, base) for entry in entries], 0
    while True:
        index = next(i for i, entry in enumerate(level) if limit <= entry.limit.offset)
        before, last = level[:index], level[index]
        if depth and len(before) > 1:
            node = make_snapshot(before, depth, name, writer)
            made.append(node)
            kept.append(node.pointer())
        else:
            kept += before
        if isinstance(last, Fragment):
            whole = (last,) if last.limit.offset == limit else ()
            return Prefix((*kept, *whole), tuple(made), last)
        level, depth = [in_base(e, last.base) for e in children_in(nodes, last)], last.depth


def encode_part(
    data: bytes, entry: Fragment, from_offset: int, to_offset: int
) -> tuple[EncodedFragment, Fragment]:
    """The records of a stored fragment from one offset up to, not including, another one.

    Gives their entry too, which has the times and numbers of the whole, and its path. It has no
    digest before it links an object of its own.
    """
    if entry.is_sparse:
        part = survivors_of(data, entry).within(Window(from_offset, to_offset))
        encoded = part.encode()
    else:
        part, encoded = None, _encode_dense(data, entry, from_offset, to_offset)
    return encoded, msgspec.structs.replace(
        with_digest(entry, None),
        start=LogPosition(from_offset, entry.start.timestamp_us),
        limit=LogPosition(to_offset, entry.limit.timestamp_us),
        num_bytes=len(encoded.data),
        setsum=encoded.setsum,
        rows=None if part is None else len(part),
        base=None,
    )


def _encode_dense(
    data: bytes, entry: Fragment, from_offset: int, to_offset: int
) -> EncodedFragment:
    rows = decode_fragment(data, entry).slice(
        from_offset - entry.start.offset, to_offset - from_offset
    )
    offsets, times_us, bodies = rows.columns
    encoded = encode_fragment(from_offset, times_us[0].as_py(), bodies.to_pylist())
    if encoded.setsum != sum_of_records(offsets.to_numpy(), times_us.to_numpy(), bodies):
        raise Invalid(
            f"{entry.path} holds records of several times and cannot be divided",
            hint=f"Choose offset {entry.start.offset} or {entry.limit.offset} instead.",
            path=entry.path,
        )
    return encoded
