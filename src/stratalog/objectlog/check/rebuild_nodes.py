"""Repair of what can be proven: an inner node is rebuilt from the fragments that it led to.

A snapshot holds nothing that its fragments do not show, and the pointer to it says what they add up
to. A lost or damaged snapshot can therefore be made again if the store has fragments where its
children were, whose records are hashed anew, and whose range, sum and bytes are exactly those of
the pointer. Otherwise nothing is changed, and the report says why. Other damage is left to a
person: a record that is gone cannot be computed.

The new node has a new name, so the nodes above it are written anew too. One conditional put of the
manifest links them all, in the epoch in which they were uploaded. What was replaced is left to the
sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from stratalog.errors import Corrupt, NotFound
from stratalog.invariants import invariant
from stratalog.objectlog.check.damage import Damage
from stratalog.objectlog.check.evidence import Unproven, children_of
from stratalog.objectlog.check.scrub_report import ScrubReport
from stratalog.objectlog.check.tree_check import examine_node
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    Entry,
    Fragment,
    Manifest,
    Snapshot,
    SnapshotPointer,
    UploadNames,
    load_manifest,
    writer_label,
)
from stratalog.objectlog.tree import Tree, amend, evenly, make_snapshot
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.store import Patience, PatientStore, Store, StoreLike, open_store, put_once

ATTEMPTS_MAX = 8
NODE_ENTRIES = 64
TIMEOUT_S = 60.0


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was rebuilt, and its new name."""

    path: str
    new_path: str
    start: int
    limit: int
    fragments: int


class NotRepaired(msgspec.Struct, frozen=True, kw_only=True):
    """An object that was left as it is, and why."""

    path: str
    kind: str
    reason: str


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was repaired, and what was not."""

    repaired: tuple[Repaired, ...] = ()
    not_repaired: tuple[NotRepaired, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is left that the scrub has found."""
        return not self.not_repaired

    def to_dict(self) -> dict[str, object]:
        """Everything, ready for JSON."""
        return {
            "repaired": [msgspec.structs.asdict(each) for each in self.repaired],
            "not_repaired": [msgspec.structs.asdict(each) for each in self.not_repaired],
        }


async def repair(
    url: StoreLike,
    report: ScrubReport,
    *,
    writer: str | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> RepairReport:
    """Rebuild the damaged snapshots of a report, where that can be proven to be right.

    ``Corrupt`` if the manifest is damaged, ``Invalid`` if the log was made by another program.
    """
    store = PatientStore(open_store(url), runtime, TIMEOUT_S)
    work = _Repair(store, writer_label(writer), runtime)
    repaired: list[Repaired] = []
    reasons: dict[str, str] = {}
    nodes = {
        each.path: each
        for each in report.damages
        if each.kind.value.startswith("snapshot-") and each.base is None
    }
    # A node that spans more comes first: what is below it is rebuilt along with it. Repeated as
    # long as it helps: a neighbour that was rebuilt shows where to look.
    todo = sorted(nodes.values(), key=lambda each: (each.start or 0) - (each.limit or 0))
    tried = len(todo) + 1
    while len(todo) < tried:
        tried = len(todo)
        for damage in [*todo]:
            try:
                outcome = await work.rebuild(damage)
            except Unproven as error:
                reasons[damage.path] = str(error)
                continue
            todo.remove(damage)
            repaired += [] if outcome is None else [outcome]
    solved = nodes.keys() - {damage.path for damage in todo}
    return RepairReport(
        repaired=tuple(repaired),
        not_repaired=tuple(
            NotRepaired(path=each.path, kind=each.kind.value, reason=_reason(each, reasons))
            for each in report.damages
            if each.path not in solved and not _is_below(each, repaired)
        ),
    )


def _is_below(damage: Damage, repaired: Iterable[Repaired]) -> bool:
    """Whether it lies below a node that was rebuilt: all records there were hashed for that."""
    if damage.start is None or damage.limit is None or damage.path == MANIFEST_PATH:
        return False
    return any(each.start <= damage.start and damage.limit <= each.limit for each in repaired)


def _reason(damage: Damage, reasons: Mapping[str, str]) -> str:
    if damage.base is not None:
        return f"it belongs to the log at {damage.base}: repair that one"
    return reasons.get(damage.path, damage.kind.remedy)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a pointer is: the nodes above it, from the root down, and the pointer itself."""

    above: tuple[tuple[SnapshotPointer, Snapshot], ...]
    pointer: SnapshotPointer


class _Repair:
    def __init__(self, store: Store, writer: str, runtime: Runtime) -> None:
        self._store = store
        self._writer = writer
        self._runtime = runtime
        self._names = UploadNames(runtime)
        self._tree = Tree(store)

    async def rebuild(self, damage: Damage) -> Repaired | None:
        """Rebuild one node. None if the log does not need it any more. Raises ``Unproven``."""
        for _ in range(ATTEMPTS_MAX):
            # Before anything is uploaded: what a sweep lists may not be linked after it.
            manifest, _ = await load_manifest(self._store)
            manifest.check_writable()
            place = await self._locate(manifest, damage)
            if place is None or await self._is_good(place.pointer):
                return None
            fragments = await children_of(
                self._store, self._tree, manifest, place.pointer, self._runtime
            )
            nodes = self._nodes(fragments, place.pointer)
            rebuilt = _leading_to(nodes[-1], place.pointer)
            root_before, root_after, above = self._above(place, rebuilt)
            for node in (*nodes, *above):
                patience = Patience(self._runtime, TIMEOUT_S)
                await put_once(self._store, partial(str, node.path), node.to_json(), patience)
            if await self._link(manifest.sweep_epoch, root_before, root_after):
                return Repaired(
                    path=damage.path,
                    new_path=rebuilt.path,
                    start=rebuilt.start.offset,
                    limit=rebuilt.limit.offset,
                    fragments=len(fragments),
                )
        raise Unproven("the log changes too fast: try again when it is quieter")

    async def _locate(self, manifest: Manifest, damage: Damage) -> _Place | None:
        """The way from the root to a damaged node, or None if the log does without it."""
        offset = max(damage.start or 0, manifest.first_offset)
        entries: Sequence[Entry] = manifest.entries
        above: list[tuple[SnapshotPointer, Snapshot]] = []
        while True:
            pointer = _pointer_at(entries, offset)
            if pointer is None:
                return None
            if pointer.path == damage.path:
                return _Place(tuple(above), pointer)
            try:
                node = await self._tree.snapshot(pointer)
            except (NotFound, Corrupt) as error:
                raise Unproven(f"a node above it is damaged as well: {error}") from None
            above.append((pointer, node))
            entries = node.entries

    async def _is_good(self, pointer: SnapshotPointer) -> bool:
        """Whether the node is as it should be after all: it may have been restored."""
        try:
            node = await self._tree.snapshot(pointer)
        except (NotFound, Corrupt):
            return False
        return not any(not found.is_remark for found in examine_node(node, pointer))

    def _nodes(self, fragments: Sequence[Fragment], pointer: SnapshotPointer) -> list[Snapshot]:
        """New nodes over these fragments, children first, the top one in the pointer's place."""
        nodes: list[Snapshot] = []

        def node_over(part: Sequence[Fragment], depth: int) -> SnapshotPointer:
            children: Sequence[Entry] = part
            if depth > 1:
                count = min(max(2, -(-len(part) // NODE_ENTRIES ** (depth - 1))), NODE_ENTRIES)
                children = [node_over(each, depth - 1) for each in evenly(part, count)]
            nodes.append(make_snapshot(children, depth, self._names.snapshot, self._writer))
            return nodes[-1].pointer()

        # Each node has two children at least, so few fragments fill few levels.
        top = node_over(fragments, min(pointer.depth, len(fragments).bit_length() - 1))
        invariant(
            (top.setsum, top.num_bytes) == (pointer.setsum, pointer.num_bytes),
            "a rebuilt node is what its pointer promises",
        )
        return nodes

    def _above(
        self, place: _Place, rebuilt: SnapshotPointer
    ) -> tuple[SnapshotPointer, SnapshotPointer, list[Snapshot]]:
        """The root's entry before and after, and the new nodes between it and the rebuilt one."""
        made: list[Snapshot] = []
        before, after = place.pointer, rebuilt
        for pointer, node in reversed(place.above):
            copy = msgspec.structs.replace(
                node,
                path=self._names.snapshot(node.setsum),
                writer=self._writer,
                snapshots=_replaced(node.snapshots, before, after),
            )
            made.append(copy)
            before, after = pointer, _leading_to(copy, pointer)
        return before, after, made

    async def _link(self, epoch: int, before: SnapshotPointer, after: SnapshotPointer) -> bool:
        """Exchange the root's entry. False if the root is not what the nodes were made for."""

        def change(manifest: Manifest) -> Manifest | None:
            if manifest.sweep_epoch != epoch or before not in manifest.snapshots:
                return None
            return msgspec.structs.replace(
                manifest,
                snapshots=_replaced(manifest.snapshots, before, after),
                write_id=self._runtime.new_id(),
            )

        stored = await amend(self._store, change, Patience(self._runtime, TIMEOUT_S))
        return after in stored.snapshots


def _leading_to(node: Snapshot, pointer: SnapshotPointer) -> SnapshotPointer:
    """The pointer with another node behind it, which holds the same."""
    made = node.pointer()
    return msgspec.structs.replace(
        pointer,
        path_to_snapshot=made.path_to_snapshot,
        depth=made.depth,
        xxh3=made.xxh3,
        xxh3_of=made.xxh3_of,
    )


def _pointer_at(entries: Iterable[Entry], offset: int) -> SnapshotPointer | None:
    for entry in entries:
        if isinstance(entry, SnapshotPointer) and entry.start.offset <= offset < entry.limit.offset:
            return entry
    return None


def _replaced(
    pointers: Iterable[SnapshotPointer], before: SnapshotPointer, after: SnapshotPointer
) -> tuple[SnapshotPointer, ...]:
    return tuple(after if pointer == before else pointer for pointer in pointers)
