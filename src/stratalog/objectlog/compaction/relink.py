"""Putting what a compaction has rewritten into the tree: new nodes, and the plan that links them.

Only the ways down to what has changed are read and written anew (``repack``). Nothing is linked
here: the compaction stores the nodes under the names of its upload guard, and the collector
publishes the plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from stratalog.errors import Conflict
from stratalog.indexset import IndexSet
from stratalog.objectlog.compaction.repack import Loose, opened, packed
from stratalog.objectlog.compaction.rewrite_groups import Group
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    Compaction,
    Entry,
    Fragment,
    Garbage,
    Manifest,
    Snapshot,
    SnapshotPointer,
    UploadNames,
)
from stratalog.objectlog.tree import Nodes, Tree, make_snapshot, with_nodes
from stratalog.ordered import gather_bounded
from stratalog.runtime import Runtime
from stratalog.setsum import Setsum

NODES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Replaced:
    """Neighbours, the entry that takes their place, and the sum and the offsets of what went."""

    group: Group
    entry: Fragment
    discarded: Setsum
    dropped: IndexSet


async def replant(
    manifest: Manifest, replaced: Sequence[Replaced], tree: Tree, names: UploadNames, writer: str
) -> tuple[list[Entry], list[Snapshot]]:
    """The tree with these in place. ``Conflict`` if what they replace is not there any more.

    Gives the entries of the new root, and the nodes that have to be stored before it.
    """
    rewritten = IndexSet(*(each.entry.offsets for each in replaced))
    made: list[Snapshot] = []

    def overlaps(entry: Entry) -> bool:
        return rewritten.overlaps(range(entry.start.offset, entry.limit.offset))

    def make(children: Sequence[Entry], depth: int) -> SnapshotPointer:
        made.append(make_snapshot(children, depth, names.snapshot, writer))
        return made[-1].pointer()

    def pack(nodes: Nodes) -> list[Entry]:
        made.clear()
        items = _with_replacements(opened(manifest.entries, nodes, overlaps), replaced)
        return packed(items, nodes, make)

    entries = await with_nodes(tree, pack, await _nodes_above(manifest, overlaps, tree))
    return entries, _reached(entries, made)


def plan_compaction(
    manifest: Manifest,
    after: Sequence[Entry],
    replaced: Sequence[Replaced],
    up_to: int,
    writer: str,
    runtime: Runtime,
) -> Garbage:
    """The plan that puts these entries into the root, in place of as few as possible."""
    before = manifest.entries
    same = 0
    while same < min(len(before), len(after)) and before[-1 - same] is after[-1 - same]:
        same += 1
    taken, given = before[: len(before) - same], after[: len(after) - same]
    kept = {entry.path for entry in given}
    dropped = [entry for entry in taken if entry.path not in kept]
    old = [fragment for each in replaced for fragment in each.group.fragments]
    num_bytes = sum(each.num_bytes for each in old) - sum(each.entry.num_bytes for each in replaced)
    return msgspec.structs.replace(
        Garbage.empty(writer, runtime.new_id()),
        snapshots_to_drop=tuple(e for e in dropped if isinstance(e, SnapshotPointer)),
        setsum_to_discard=Setsum.total(each.discarded for each in replaced),
        first_to_keep=taken[0].start,
        plan_id=runtime.new_id(),
        fragments_to_drop=tuple(e for e in dropped if isinstance(e, Fragment)),
        root_before=tuple(entry.path for entry in taken),
        sweep_epoch=manifest.sweep_epoch,
        compaction=Compaction(
            up_to=up_to,
            records=sum(len(each.dropped) for each in replaced),
            fragments=len(old),
            num_bytes=max(0, num_bytes),
        ),
        snapshots_for_root=tuple(e for e in given if isinstance(e, SnapshotPointer)),
        fragments_for_root=tuple(e for e in given if isinstance(e, Fragment)),
    )


async def _nodes_above(
    manifest: Manifest, overlaps: Callable[[Entry], bool], tree: Tree
) -> dict[str, Snapshot]:
    """The nodes that lead to what is replaced, level by level, some at a time."""
    nodes: dict[str, Snapshot] = {}
    level: Sequence[Entry] = manifest.entries
    while level:
        pointers = [e for e in level if isinstance(e, SnapshotPointer) and overlaps(e)]
        found = await gather_bounded(pointers, tree.snapshot, NODES_AT_ONCE)
        nodes.update(zip((each.path for each in pointers), found, strict=True))
        level = [entry for node in found for entry in node.entries]
    return nodes


def _with_replacements(items: Sequence[Loose], replaced: Sequence[Replaced]) -> list[Loose]:
    """Each group's entry where its fragments are. ``Conflict`` if they are not there any more."""
    found: list[Loose] = []
    waiting = {each.group.fragments[0].path: each for each in replaced}
    left = list(reversed(items))
    while left:
        item = left.pop()
        each = waiting.pop(item.entry.path, None)
        if each is None:
            found.append(item)
            continue
        is_opened = item.opened
        for place, fragment in enumerate(each.group.fragments):
            if place:
                if not left:
                    raise changed()
                item = left.pop()
                is_opened |= item.opened
            if item.entry != fragment:
                raise changed()
        found.append(Loose(each.entry, is_opened))
    if waiting:
        raise changed()
    return found


def _reached(entries: Sequence[Entry], made: Sequence[Snapshot]) -> list[Snapshot]:
    """The new nodes below these entries, children first: some were taken apart again."""
    by_path = {node.path: node for node in made}
    found: list[Snapshot] = []

    def visit(several: Sequence[Entry]) -> None:
        for entry in several:
            node = by_path.get(entry.path)
            if node is not None:
                visit(node.entries)
                found.append(node)

    visit(entries)
    return found


def changed() -> Conflict:
    """The tree has changed, so the plan must be made anew."""
    return Conflict(
        "what was to be compacted has changed meanwhile; nothing was lost",
        path=GARBAGE_PATH,
        hint="Compact again.",
    )
