"""Linking fragments: the next manifest, with new fragments at its end.

Many at once get nodes of their own (``graft``), so that the root stays small:

    root    [ d1 d1 | f1 f2 f3 ] + g1 … g200
    leaves  [ d1 d1 (f1 f2 f3 g1 … g47) (g48 …) (…) (… g199) | g200 ]       evenly filled
    then    folds, as a writer does them, until none is due

A few new fragments simply join the root, and a fold follows when it is due. The newest fragment
stays in the root, and no node has a single child. Nothing is stored here.
"""

from collections.abc import Mapping, Sequence

import msgspec

from stratalog.errors import StratalogError
from stratalog.invariants import invariant
from stratalog.objectlog.options import WriterOptions
from stratalog.objectlog.stored import LINKED_MAX, Fragment, Manifest, Snapshot, UploadNames
from stratalog.objectlog.tree.fold import (
    Fold,
    FoldPlan,
    apply_fold,
    children_of,
    evenly,
    make_snapshot,
    plan_fold,
)
from stratalog.objectlog.tree.walk import Tree
from stratalog.setsum import Setsum

FOLD_ENTRIES = WriterOptions.rollup_entries
NODE_ENTRIES_MAX = WriterOptions.snapshot_entries_max


def link(
    manifest: Manifest,
    fragments: Sequence[Fragment],
    incarnation: str,
    writer: str,
    write_id: str,
) -> Manifest:
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


def remembers_all(linked: Mapping[str, int]) -> bool:
    """Whether the table has every incarnation that ever linked: none was dropped yet."""
    return len(linked) < LINKED_MAX


async def graft(
    manifest: Manifest, tree: Tree, names: UploadNames, writer: str
) -> tuple[Manifest, list[Snapshot]]:
    """Move what the root has too much of into nodes, which have to be stored before it."""
    made: dict[str, Snapshot] = {}
    if len(manifest.fragments) > NODE_ENTRIES_MAX:
        old = manifest.fragments[:-1]
        parts = evenly(old, -(-len(old) // NODE_ENTRIES_MAX))
        leaves = [make_snapshot(part, 1, names.snapshot, writer) for part in parts]
        made = {leaf.path: leaf for leaf in leaves}
        manifest = msgspec.structs.replace(
            manifest,
            snapshots=(*manifest.snapshots, *(leaf.pointer() for leaf in leaves)),
            fragments=manifest.fragments[-1:],
        )
    while (plan := plan_fold(manifest, FOLD_ENTRIES, NODE_ENTRIES_MAX)) is not None:
        host = await _host(plan, tree, made)
        children, replaced = children_of(plan, host, NODE_ENTRIES_MAX)
        node = make_snapshot(children, plan.depth, names.snapshot, writer)
        folded = apply_fold(manifest, Fold(node.pointer(), replaced, manifest.sweep_epoch))
        if folded is None:
            break
        manifest, made[node.path] = folded, node
        if plan.host is not None and plan.host.path in replaced:
            made.pop(plan.host.path, None)
    return manifest, list(made.values())


async def _host(plan: FoldPlan, tree: Tree, made: dict[str, Snapshot]) -> Snapshot | None:
    """The node that may lend its children. A fold does without one that cannot be read."""
    if plan.host is None:
        return None
    if plan.host.path in made:
        return made[plan.host.path]
    try:
        return await tree.snapshot(plan.host)
    except StratalogError:
        return None
