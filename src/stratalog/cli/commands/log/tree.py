"""The snapshot tree as a value for programs and as a picture for people.

The tree of a log with a million fragments is too large to show whole. So each node shows its
oldest and newest children, fewer of them further down, and how many lie between; only the very
first and the very last child are opened. Only what is opened is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from rich.tree import Tree as Picture

from stratalog.cli import output
from stratalog.objectlog.stored import (
    ByteCache,
    Entry,
    Fragment,
    Manifest,
    Snapshot,
    load_any_manifest,
)
from stratalog.objectlog.tree import Tree, on_newest_tree
from stratalog.store import Store

SHOWN_AT_EACH_END = 3  # in the root; one less on each level below, and at least one
SETSUM_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Branch:
    """Children of one node: the oldest, how many are left out, and the newest."""

    first: tuple[Node, ...]
    omitted: int
    last: tuple[Node, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "first": [node.as_json() for node in self.first],
            "omitted": self.omitted,
            "last": [node.as_json() for node in self.last],
        }


@dataclass(frozen=True, slots=True)
class Node:
    """An entry of the tree and what is below it, if that was opened."""

    entry: Entry
    below: Branch | None

    def as_json(self) -> dict[str, object]:
        entry = self.entry
        facts: dict[str, object] = {
            "kind": "fragment" if isinstance(entry, Fragment) else "snapshot",
            "path": entry.path,
            "first_offset": entry.start.offset,
            "limit_offset": entry.limit.offset,
            "first_timestamp_us": entry.start.timestamp_us,
            "last_timestamp_us": entry.limit.timestamp_us,
            "bytes": entry.num_bytes,
            "setsum": entry.setsum.hexdigest(),
        }
        if isinstance(entry, Fragment):
            facts["seq_no"] = entry.seq_no
        else:
            facts["depth"] = entry.depth
        if self.below is not None:
            facts["children"] = self.below.as_json()
        return facts


async def load_tree(store: Store, *, everything: bool = False) -> tuple[Manifest, Branch]:
    tree = Tree(store, ByteCache[Snapshot](0))

    async def load(manifest: Manifest) -> tuple[Manifest, Branch]:
        return manifest, await _branch(tree, manifest.entries, everything)

    return await on_newest_tree(store, load, load=load_any_manifest)


async def _branch(tree: Tree, entries: Sequence[Entry], everything: bool, level: int = 0) -> Branch:
    ends = max(1, SHOWN_AT_EACH_END - level)
    # One more line would be needed to say that a single child is left out.
    if everything or len(entries) <= 2 * ends + 1:
        first, last = entries, entries[:0]
    else:
        first, last = entries[:ends], entries[-ends:]

    async def opened(entry: Entry) -> Node:
        if isinstance(entry, Fragment) or not (
            everything or entry is entries[0] or entry is entries[-1]
        ):
            return Node(entry, None)
        snapshot = await tree.snapshot(entry)
        return Node(entry, await _branch(tree, snapshot.entries, everything, level + 1))

    return Branch(
        tuple([await opened(entry) for entry in first]),
        len(entries) - len(first) - len(last),
        tuple([await opened(entry) for entry in last]),
    )


def picture(manifest: Manifest, branch: Branch) -> Picture:
    root = Text.assemble(
        ("manifest", "bold"),
        f"  offsets {manifest.first_offset} to {manifest.tail.offset - 1}"
        if manifest.count
        else "  no records",
        (f"  setsum {manifest.setsum.hexdigest()[:SETSUM_DIGITS]}…", "dim"),
    )
    drawn = Picture(root, guide_style="dim")
    _draw(drawn, branch)
    return drawn


def _draw(parent: Picture, branch: Branch) -> None:
    for node in branch.first:
        _draw_node(parent, node)
    if branch.omitted:
        parent.add(f"… {branch.omitted:,} more", style="dim")
    for node in branch.last:
        _draw_node(parent, node)


def _draw_node(parent: Picture, node: Node) -> None:
    drawn = parent.add(_label(node.entry))
    if node.below is not None:
        _draw(drawn, node.below)


def _label(entry: Entry) -> Text:
    if isinstance(entry, Fragment):
        name, style = f"fragment {entry.seq_no}", "green"
    else:
        name, style = f"snapshot of depth {entry.depth}", "bold cyan"
    start, limit = entry.start, entry.limit
    records = output.count(limit.offset - start.offset, "record")
    times = output.moment(start.timestamp_us)
    if limit.timestamp_us != start.timestamp_us:
        times += f" to {output.moment(limit.timestamp_us)}"
    return Text.assemble(
        (name, style),
        f"  offsets {start.offset} to {limit.offset - 1}  {records}  ",
        f"{output.size(entry.num_bytes)}",
        (f"  {times}  setsum {entry.setsum.hexdigest()[:SETSUM_DIGITS]}…", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )
