"""The beginning of a tree, as the root of another log: everything before an offset.

    root   [ A B | f g ]        up to a record of B's child b2, which is in the fragment y
    B      [ b1 b2 b3 ]   b2 [ x y z ]
    gives  [ A b1 x | y ]       b1 and x would be made nodes if there were more of a kind

The root points to what is taken whole. Of the nodes on the way to the last record, the children
before it are gathered into new nodes, so that the root stays small. The last fragment is in the
root, as in every log. Pure functions over nodes that are loaded (``load_nodes``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stratalog.objectlog.stored import Entry, Fragment, Snapshot, in_base
from stratalog.objectlog.tree import Nodes, children_in, make_snapshot
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
