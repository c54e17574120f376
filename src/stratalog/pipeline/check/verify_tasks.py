"""What a herd's verification looks at in one log: manifest, tree, cursor, output.

Writers, collectors and workers may change all of it meanwhile. What only moves forward is read
from behind (cursor, output, manifest), and a log in which something does not fit is looked at
again: only what does not fit each time becomes a finding.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from stratalog.errors import Corrupt, NotFound, StratalogError
from stratalog.herd import log_store
from stratalog.objectlog.check import (
    Damage,
    DamageKind,
    about,
    decode_leniently,
    examine_node_bytes,
    read_object,
    tree_of,
    verify,
)
from stratalog.objectlog.holds import CursorStore
from stratalog.objectlog.stored import (
    MANIFEST_PATH,
    Entry,
    Manifest,
    SnapshotPointer,
    load_any_manifest,
)
from stratalog.objectlog.tree import Tree
from stratalog.pipeline.check.findings import Finding
from stratalog.pipeline.jobs import LogRef, check_alive, has_lost_manifest
from stratalog.pipeline.outputs import Output, OutputFile, Outputs, bytes_of, folder_of
from stratalog.store import PrefixedStore, Store

LOOKS_MAX = 3
PAUSE_S = 0.05
PIECE_BYTES = 8 << 20

Odd = tuple[str, str]
"""The kind of a finding about a log, and its detail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogVerify:
    """What was seen of one log."""

    log: str | None
    log_id: str
    first_offset: int = 0
    tail: int = 0
    num_bytes: int = 0
    compacted_upto: int = 0
    """Where its compaction cursor is, or where the log begins if it has none."""

    output_rows: int = 0
    output_bytes: int = 0
    findings: tuple[Finding, ...]

    @property
    def records(self) -> int:
        return self.tail - self.first_offset

    @property
    def waiting(self) -> int:
        """How many records lie after the cursor."""
        return max(0, self.tail - self.compacted_upto)


@dataclass(frozen=True, slots=True)
class LookAtLog:
    cursor: str
    job: str | None
    records: bool
    outputs: bool = True

    async def __call__(self, root: Store, ref: LogRef) -> LogVerify:
        try:
            return await self._looked(root, ref)
        except NotFound as error:
            is_manifest = (error.path or "").endswith(MANIFEST_PATH)
            if not is_manifest or not await has_lost_manifest(root, ref):
                raise
        detail = "its name is taken and objects of it are there, but no manifest"
        lost = _findings(ref, [(DamageKind.MANIFEST_MISSING.value, detail)])
        return LogVerify(log=ref.name, log_id=ref.id, findings=lost)

    async def _looked(self, root: Store, ref: LogRef) -> LogVerify:
        seen = await self._look(root, ref)
        for _ in range(LOOKS_MAX - 1):
            if not seen.findings:
                break
            await asyncio.sleep(PAUSE_S)
            before, seen = seen, await self._look(root, ref)
            kinds = {each.kind for each in before.findings}
            kept = tuple(each for each in seen.findings if each.kind in kinds)
            seen = replace(seen, findings=kept)
        if not self.records or seen.findings:
            return seen
        return replace(seen, findings=_findings(ref, await _of_records(root, ref)))

    async def _look(self, root: Store, ref: LogRef) -> LogVerify:
        store = log_store(root, ref.id)
        manifest, damages = await _manifest_of(store)
        if manifest is None:
            findings = _findings(ref, _of_damages(damages))
            return LogVerify(log=ref.name, log_id=ref.id, findings=findings)
        check_alive(manifest, ref.label)
        damages += await _damages_at_the_ends(tree_of(store), manifest)
        cursor = await offset_of(store, self.cursor)
        output = None if self.job is None else await Outputs(root, self.job).find(ref.id)
        newest = (await _manifest_of(store))[0] or manifest
        found = [
            *_of_damages(damages),
            *_of_cursor(cursor, manifest.first_offset, newest.tail.offset),
            *_of_output(output, cursor, newest.tail.offset),
            *await self._of_files(root, ref, output),
        ]
        return LogVerify(
            log=ref.name or manifest.name,
            log_id=ref.id,
            first_offset=manifest.first_offset,
            tail=manifest.tail.offset,
            num_bytes=bytes_of(manifest),
            compacted_upto=manifest.first_offset if cursor is None else cursor,
            output_rows=0 if output is None else output.rows,
            output_bytes=0 if output is None else output.num_bytes,
            findings=_findings(ref, found),
        )

    async def _of_files(self, root: Store, ref: LogRef, output: Output | None) -> list[Odd]:
        """What is wrong with the files of an output: by their sizes, then by their bytes."""
        if output is None or self.job is None:
            return []
        folder, found = PrefixedStore(root, folder_of(self.job, ref.id)), []
        sizes = {row.path: row.size async for row in folder.list()}
        for file in output.files:
            size = sizes.get(file.path)
            if size is None:
                found.append(f"{file.path} is missing")
            elif size != file.num_bytes:
                found.append(f"{file.path} has {size} bytes, not {file.num_bytes}")
            elif self.outputs and await _digest_of(folder, file) != file.sha256:
                found.append(f"{file.path} does not hold the bytes that were written")
        return [("output-file", detail) for detail in found]


def _findings(ref: LogRef, found: Iterable[Odd]) -> tuple[Finding, ...]:
    return tuple(Finding(kind=kind, log=ref.label, detail=detail) for kind, detail in found)


async def _digest_of(folder: Store, file: OutputFile) -> str | None:
    """The hash of a file, read piece by piece. None if it is gone."""
    digest = hashlib.sha256()
    try:
        for start in range(0, file.num_bytes, PIECE_BYTES):
            length = min(PIECE_BYTES, file.num_bytes - start)
            piece = await folder.get_range(file.path, start, length)
            await asyncio.to_thread(digest.update, piece)
    except NotFound:
        return None
    return digest.hexdigest()


async def offset_of(store: Store, cursor: str) -> int | None:
    try:
        return (await CursorStore(store).load(cursor)).offset
    except NotFound:
        return None


async def _manifest_of(store: Store) -> tuple[Manifest | None, list[Damage]]:
    """The manifest even if it does not add up, and what is wrong with it."""
    try:
        return decode_leniently((await store.get(MANIFEST_PATH)).data)
    except NotFound:
        await load_any_manifest(store)  # raises that there is no log
        raise


async def _damages_at_the_ends(tree: Tree, manifest: Manifest) -> list[Damage]:
    """What does not hold in the first and the last node of each level."""
    snapshots = manifest.snapshots
    if not snapshots:
        return []
    first = await _damages_below(tree, snapshots[0], 0)
    last = await _damages_below(tree, snapshots[-1], -1)
    return [*{each.identity: each for each in (*first, *last)}.values()]


async def _damages_below(tree: Tree, entry: Entry, end: int) -> list[Damage]:
    """Down along one edge of the tree, to its first or its last leaf."""
    damages: list[Damage] = []
    depth = None
    while isinstance(entry, SnapshotPointer) and (depth is None or entry.depth < depth):
        depth = entry.depth
        data = await read_object(tree, entry)
        if isinstance(data, NotFound):
            return [*damages, about(DamageKind.SNAPSHOT_MISSING, entry)]
        if isinstance(data, StratalogError):
            raise data
        try:
            node, found = examine_node_bytes(data, entry)
        except Corrupt as error:
            return [*damages, about(DamageKind.SNAPSHOT_UNREADABLE, entry, detail=str(error))]
        damages += found
        if not node.entries:
            break
        entry = (node if entry.base is None else node.in_base(entry.base)).entries[end]
    return damages


def _of_damages(damages: Iterable[Damage]) -> Iterator[Odd]:
    for each in damages:
        if not each.is_remark:
            yield each.kind.value, f"{each.path}: {each.detail}" if each.detail else each.path


def _of_cursor(cursor: int | None, first: int, tail: int) -> Iterator[Odd]:
    """``first`` was read before the cursor and ``tail`` after it: all of them only go up."""
    if cursor is not None and not first <= cursor <= tail:
        yield "cursor-out-of-range", f"it is at {cursor}, and the log goes from {first} to {tail}"


def _of_output(output: Output | None, cursor: int | None, tail: int) -> Iterator[Odd]:
    """The cursor was read before the output, and the tail after it."""
    if output is None:
        return
    holds = f"it holds records up to {output.upto}"
    if output.upto > tail:
        yield "output-ahead", f"{holds}, and the log ends at {tail}"
    if cursor is not None and output.upto < cursor:
        yield "output-behind", f"{holds}, and the cursor is at {cursor}"


async def _of_records(root: Store, ref: LogRef) -> list[Odd]:
    """What is found by reading everything."""
    report = await verify(log_store(root, ref.id))
    if report.proven:
        return []
    odd = [("record", f"{each.kind}: {each.detail or each.meaning}") for each in report.oddities]
    broken = ", ".join(check.evidence for check in report.checks if not check.held)
    return [*_of_damages(report.damages), *odd] or [("record", broken)]
