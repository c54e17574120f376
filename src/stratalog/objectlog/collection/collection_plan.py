"""The plan of a collection: which entries go, which nodes are made anew.

    root  [ A(d2) B(d2) | f ]          cut inside A's child a2
    A     [ a1 a2 a3 ]  a2 [ x y z ]   y is the first to keep
    drop  a1, x     replace A, a2     make a2' [ y z ], A' [ a2' a3 ]     root [ A' B | f ]

A node with a single child is never made: the child moves up. Where its right neighbour is deeper
than it, it joins the leftmost node of that neighbour that fits, so that a list of entries always
goes from deep to shallow. At most two paths through the tree are read and written, however much is
below the entries that go.

``trim`` is pure; ``plan_collection`` loads the nodes that it asks for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stratalog.objectlog.stored import (
    FIRST_SEQ_NO,
    FORMAT,
    Entry,
    Fragment,
    Garbage,
    LogPosition,
    Manifest,
    Snapshot,
    SnapshotPointer,
    UploadNames,
    depth_of,
)
from stratalog.objectlog.tree import Nodes, Tree, children_in, make_snapshot, with_nodes
from stratalog.runtime import Runtime
from stratalog.setsum import Setsum


@dataclass(frozen=True, slots=True)
class Trim:
    """What to do with a tree so that it begins at ``first_to_keep``."""

    dropped: tuple[Entry, ...]
    replaced: tuple[SnapshotPointer, ...]
    made: tuple[Snapshot, ...]
    root_before: tuple[str, ...]
    root_after: Entry | None
    first_to_keep: LogPosition
    first_seq_no_to_keep: int

    @property
    def discarded(self) -> Setsum:
        return Setsum.total(entry.setsum for entry in self.dropped)


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


def trim(
    manifest: Manifest, cut: int, nodes: Nodes, name: Callable[[Setsum], str], writer: str
) -> Trim | None:
    """Drop every fragment that ends at or before ``cut``. None if there is none."""
    work = _Trim(cut, nodes, name, writer)
    entries = manifest.entries
    kept = work.without_the_past(entries)
    if not work.dropped:
        return None
    untouched = 0
    while (
        untouched < min(len(kept), len(entries)) and kept[-1 - untouched] is entries[-1 - untouched]
    ):
        untouched += 1
    changed = kept[: len(kept) - untouched]
    assert len(changed) <= 1, "only the first entry changes"
    first = work.first_fragment(kept)
    position = manifest.tail if first is None else first.start
    seq_no = manifest.next_seq_no if first is None else first.first_seq_no
    if isinstance(seq_no, str):  # of a log that this one was forked from
        seq_no = manifest.numbered_from
    return Trim(
        dropped=tuple(work.dropped),
        replaced=tuple(work.replaced),
        made=tuple(work.made),
        root_before=tuple(entry.path for entry in entries[: len(entries) - untouched]),
        root_after=changed[0] if changed else None,
        first_to_keep=LogPosition(position.offset, position.timestamp_us),
        first_seq_no_to_keep=seq_no,
    )


@dataclass(slots=True)
class _Trim:
    cut: int
    nodes: Nodes
    name: Callable[[Setsum], str]
    writer: str
    dropped: list[Entry] = field(default_factory=list)
    replaced: list[SnapshotPointer] = field(default_factory=list)
    made: list[Snapshot] = field(default_factory=list)

    def without_the_past(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """What is left of neighbours once everything before the cut is gone."""
        gone = 0
        while gone < len(entries) and entries[gone].limit.offset <= self.cut:
            gone += 1
        self.dropped += entries[:gone]
        if gone == len(entries):
            return ()
        first, after = entries[gone], tuple(entries[gone + 1 :])
        if isinstance(first, Fragment) or first.start.offset >= self.cut:
            return (first, *after)
        before = children_in(self.nodes, first)
        children = self.without_the_past(before)
        if children == before:
            return (first, *after)
        self.replaced.append(first)
        if len(children) > 1:
            return (self._make(children, first.depth), *after)
        return self._placed(children[0], after)

    def _placed(self, entry: Entry, after: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """An entry that moved up, before its new neighbours or inside of the first of them."""
        if after and isinstance(after[0], SnapshotPointer) and after[0].depth > depth_of(entry):
            return (self._joined(entry, after[0]), *after[1:])
        return (entry, *after)

    def _joined(self, entry: Entry, host: SnapshotPointer) -> SnapshotPointer:
        self.replaced.append(host)
        return self._make(self._placed(entry, children_in(self.nodes, host)), host.depth)

    def _make(self, children: Sequence[Entry], depth: int) -> SnapshotPointer:
        node = make_snapshot(children, depth, self.name, self.writer)
        self.made.append(node)
        return node.pointer()

    def first_fragment(self, entries: Sequence[Entry]) -> Fragment | None:
        made = {node.path: node.entries for node in self.made}
        while entries:
            first = entries[0]
            if isinstance(first, Fragment):
                return first
            entries = made.get(first.path) or children_in(self.nodes, first)
        return None
