"""Logs with a tree of any shape, made directly: every shape up to a size, and drawn ones.

A shape is a tuple: the root's children, each either ``LEAF`` (a fragment) or a tuple of children.
Children of one node are of one kind, and go from deep to shallow, as writers leave them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

from hypothesis import strategies as st

import stratalog as sl
from stratalog.hashing import digest_of
from stratalog.objectlog.stored.fragment import EncodedFragment, Fragment, encode_fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, Manifest
from stratalog.objectlog.stored.names import UploadNames
from stratalog.objectlog.stored.position import LogPosition
from stratalog.objectlog.stored.snapshot import Entry, Snapshot, SnapshotPointer
from stratalog.objectlog.tree.fold import make_snapshot
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY, Setsum

Shape: TypeAlias = "tuple[Shape, ...]"
LEAF: Shape = ()


def depth(shape: Shape) -> int:
    return 0 if shape == LEAF else 1 + depth(shape[0])


def leaves(shape: Shape) -> int:
    return 1 if shape == LEAF else sum(map(leaves, shape))


def shapes(fragments: int, fan_out: int) -> Iterator[Shape]:
    """Every root over so many fragments: snapshots from deep to shallow, then fragments."""
    for listed in _lists(fragments, fan_out, 99, fragments):
        if listed and listed[-1] == LEAF:
            yield listed


@cache
def _lists(fragments: int, fan_out: int, depth_max: int, length_max: int) -> tuple[Shape, ...]:
    """Every list of entries over so many fragments, from deep to shallow."""
    if fragments == 0:
        return ((),)
    if length_max == 0:
        return ()
    found: list[Shape] = []
    for first in range(1, fragments + 1):
        for head in _heads(first, fan_out):
            if depth(head) <= depth_max:
                rest = _lists(fragments - first, fan_out, depth(head), length_max - 1)
                found += [(head, *tail) for tail in rest]
    return tuple(found)


@cache
def _heads(fragments: int, fan_out: int) -> tuple[Shape, ...]:
    """A fragment, or every snapshot over so many of them, with 2 to ``fan_out`` children."""
    if fragments == 1:
        return (LEAF,)
    found: list[Shape] = []
    for first in range(1, fragments):
        for head in _heads(first, fan_out):
            rest = _lists(fragments - first, fan_out, depth(head), fan_out - 1)
            lists = [(head, *tail) for tail in rest]
            found += [each for each in lists if len({child == LEAF for child in each}) == 1]
    return tuple(found)


@st.composite
def drawn_shapes(draw: st.DrawFn, depth_max: int = 4) -> Shape:
    """A root of up to four levels, with nodes of 2 to 5 children."""

    def node(level: int) -> Shape:
        if level == 0:
            return LEAF
        return tuple(node(level - 1) for _ in range(draw(st.integers(2, 5 if level < 3 else 3))))

    levels = sorted(draw(st.lists(st.integers(1, depth_max), max_size=4)), reverse=True)
    fragments = draw(st.integers(1, 4))
    return (*map(node, levels), *(LEAF for _ in range(fragments)))


@dataclass
class MadeLog:
    """A log in memory: its manifest, its nodes, and the encoded fragments if asked for."""

    shape: Shape
    records: int = 1
    encoded: bool = False
    nodes: dict[str, Snapshot] = field(default_factory=dict)
    data: dict[str, bytes] = field(default_factory=dict)
    manifest: Manifest = field(init=False)

    def __post_init__(self) -> None:
        self._names = UploadNames(Runtime())
        self._offset = self._seq_no = 1
        entries = [self._entry(child) for child in self.shape]
        self.manifest = Manifest(
            setsum=Setsum.total(entry.setsum for entry in entries),
            collected=EMPTY,
            acc_bytes=sum(entry.num_bytes for entry in entries),
            writer="made",
            snapshots=tuple(e for e in entries if isinstance(e, SnapshotPointer)),
            fragments=tuple(e for e in entries if isinstance(e, Fragment)),
            format="1.0",
            write_id="made",
            linked={},
        )
        self.manifest.check()

    async def store(self, url: sl.Store) -> None:
        """Put everything that was made."""
        for path, data in self.data.items():
            await url.put_if_absent(path, data)
        for path, node in self.nodes.items():
            await url.put_if_absent(path, node.to_json())
        await url.put_if_absent(MANIFEST_PATH, self.manifest.to_json())

    def _entry(self, shape: Shape) -> Entry:
        if shape == LEAF:
            return self._fragment()
        children = [self._entry(child) for child in shape]
        path = self._names.snapshot(Setsum.total(child.setsum for child in children))
        node = make_snapshot(children, depth(shape), lambda _: path, "made")
        self.nodes[path] = node
        return node.pointer()

    def _fragment(self) -> Fragment:
        first, at_us = self._offset, 1_000 + self._seq_no
        bodies = [b"%d" % (first + number) for number in range(self.records)]
        path = self._names.fragment(self._seq_no)
        encoded = EncodedFragment(b"", Setsum.of(path.encode()), digest_of(b""))
        if self.encoded:
            encoded = encode_fragment(first, at_us, bodies, "none")
            self.data[path] = encoded.data
        self._offset += self.records
        self._seq_no += 1
        return Fragment(
            path=path,
            seq_no=self._seq_no - 1,
            start=LogPosition(first, at_us),
            limit=LogPosition(self._offset, at_us),
            num_bytes=len(encoded.data) or 100,
            setsum=encoded.setsum,
        )
