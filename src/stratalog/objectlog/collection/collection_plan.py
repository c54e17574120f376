"""From a cut to a plan: the few nodes on the cut are read, and what goes is listed.

``trim_tree`` decides what to do; this loads the nodes that it asks for and puts the answer into
the form that is stored.
"""

from stratalog.objectlog.collection.trim_tree import Trim, trim
from stratalog.objectlog.stored import (
    FIRST_SEQ_NO,
    FORMAT,
    Fragment,
    Garbage,
    Manifest,
    SnapshotPointer,
    UploadNames,
)
from stratalog.objectlog.tree import Nodes, Tree, with_nodes
from stratalog.runtime import Runtime


async def plan_collection(
    tree: Tree, manifest: Manifest, cut: int, writer: str, runtime: Runtime
) -> Garbage | None:
    """The plan that drops every fragment before the cut. None if there is none."""
    names = UploadNames(runtime)

    def find(nodes: Nodes) -> Trim | None:
        return trim(manifest, cut, nodes, names.snapshot, writer)

    found = await with_nodes(tree, find)
    return None if found is None else _plan_of(found, manifest, writer, runtime)


def _plan_of(found: Trim, manifest: Manifest, writer: str, runtime: Runtime) -> Garbage:
    after = found.root_after
    return Garbage(
        snapshots_to_drop=tuple(e for e in found.dropped if isinstance(e, SnapshotPointer)),
        snapshots_to_make=found.made,
        snapshot_for_root=after if isinstance(after, SnapshotPointer) else None,
        fragments_to_drop_start=manifest.initial_seq_no or FIRST_SEQ_NO,
        fragments_to_drop_limit=found.first_seq_no_to_keep,
        fragments_are_uuids=False,
        setsum_to_discard=found.discarded,
        first_to_keep=found.first_to_keep,
        format=FORMAT,
        write_id=runtime.new_id(),
        writer=writer,
        plan_id=runtime.new_id(),
        fragments_to_drop=tuple(e for e in found.dropped if isinstance(e, Fragment)),
        snapshots_to_replace=found.replaced,
        fragment_for_root=after if isinstance(after, Fragment) else None,
        root_before=found.root_before,
        first_seq_no_to_keep=found.first_seq_no_to_keep,
        sweep_epoch=manifest.sweep_epoch,
    )
