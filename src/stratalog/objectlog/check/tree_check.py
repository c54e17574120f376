"""What a scrub compares in the tree: manifests, nodes and entries against what is promised of them.

Everything that does not hold is found, not only the first: a reader may stop at a damage, a scrub
may not. Pure functions; ``scrub_walk`` reads the nodes.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.check.damage import Damage, DamageKind, about
from stratalog.objectlog.stored import (
    BUCKET_FRAGMENTS,
    FIRST_OFFSET,
    MANIFEST_PATH,
    Entry,
    Fragment,
    Manifest,
    Snapshot,
    SnapshotPointer,
    check_bytes,
    decode_opened,
    depth_of,
    parse_manifest,
    with_digest,
)
from stratalog.setsum import Setsum

_NUMBERED = re.compile(
    r"log/Bucket=([0-9a-f]{16})/(?:Writer=[^/]+/)?"
    r"FragmentSeqNo=(?:([0-9a-f]{16})-)?([0-9a-f]{16})\.parquet"
)
_STAGED = re.compile(r"log/Bucket=([0-9a-f]{16})/Writer=[^/]+/Staged\.parquet")
_NAMED_BY_UUID = re.compile(r"log/Uuid=([0-9a-f-]{36})\.parquet")
_NAMED_BY_SUM = re.compile(r"snapshot/SNAPSHOT\.([0-9a-f]{64})(\.[^/]+)?")


def decode_leniently(data: bytes) -> tuple[Manifest | None, list[Damage]]:
    """A manifest even if its bytes, sums or ranges do not hold, and all that is wrong with it.

    ``Invalid`` for a newer format: what this version would say about it might be wrong.
    """
    damages: list[Damage] = []
    try:
        manifest = parse_manifest(data)
    except Corrupt as damaged:
        try:
            manifest = decode_opened(Manifest, data, MANIFEST_PATH)
        except (Corrupt, Invalid) as error:
            kind = DamageKind.MANIFEST_UNREADABLE
            return None, [Damage(kind=kind, path=MANIFEST_PATH, detail=str(error))]
        kind = DamageKind.MANIFEST_DIGEST
        damages.append(Damage(kind=kind, path=MANIFEST_PATH, detail=str(damaged)))
        manifest = msgspec.structs.replace(
            manifest,
            snapshots=tuple(with_digest(each, None) for each in manifest.snapshots),
            fragments=tuple(with_digest(each, None) for each in manifest.fragments),
        )
    found = [*examine_manifest(manifest)]
    if any(not each.is_remark for each in found):
        return manifest, found
    return manifest, [*damages, *found]


def examine_bytes(data: bytes, entry: Entry) -> Damage | None:
    """What does not hold if an object has other bytes than those that its entry promises."""
    try:
        check_bytes(data, entry)
    except Corrupt as error:
        is_node = isinstance(entry, SnapshotPointer)
        return about(
            DamageKind.SNAPSHOT_DIGEST if is_node else DamageKind.FRAGMENT_DIGEST,
            entry,
            expected=error.expected if isinstance(error.expected, str) else None,
            actual=error.actual if isinstance(error.actual, str) else None,
            detail=str(error),
        )
    return None


def examine_node_bytes(
    data: bytes, pointer: SnapshotPointer
) -> tuple[Snapshot, tuple[Damage, ...]]:
    """A stored node, and all that does not hold of it. ``Corrupt`` if it cannot be decoded.

    What its sums and ranges show tells more than that some byte was changed. Its entries may be
    what was changed, so their digests do not count any more.
    """
    node, changed = Snapshot.from_json(data, pointer.path), examine_bytes(data, pointer)
    found = (*examine_node(node, pointer),)
    if changed is None:
        return node, found
    node = msgspec.structs.replace(
        node,
        snapshots=tuple(with_digest(each, None) for each in node.snapshots),
        fragments=tuple(with_digest(each, None) for each in node.fragments),
    )
    return node, found if any(not each.is_remark for each in found) else (*found, changed)


def examine_manifest(manifest: Manifest) -> Iterator[Damage]:
    """What does not hold in the root itself."""
    entries = manifest.entries
    yield from _examine_neighbours(entries, None)
    yield from _examine_beginning(manifest)
    total = Setsum.total([manifest.collected_sum, *(entry.setsum for entry in entries)])
    if total != manifest.setsum:
        yield Damage(
            kind=DamageKind.MANIFEST_SUM,
            path=MANIFEST_PATH,
            expected=manifest.setsum.hexdigest(),
            actual=total.hexdigest(),
        )
    linked = sum(entry.num_bytes for entry in entries)
    if linked > manifest.acc_bytes:
        yield Damage(
            kind=DamageKind.MANIFEST_BYTES,
            path=MANIFEST_PATH,
            expected=linked,
            actual=manifest.acc_bytes,
        )


def _examine_beginning(manifest: Manifest) -> Iterator[Damage]:
    """A log begins where it says. For logs of wal3 it is enough not to begin before that."""
    if not manifest.entries:
        return
    stated = manifest.initial_offset.offset if manifest.initial_offset else FIRST_OFFSET
    first = manifest.first_offset
    if first < stated or (first > stated and manifest.write_id is not None):
        yield Damage(
            kind=DamageKind.MANIFEST_RANGE,
            path=MANIFEST_PATH,
            start=min(first, stated),
            limit=max(first, stated),
            expected=stated,
            actual=first,
            detail="the first entry does not begin where the log begins",
        )


def examine_node(node: Snapshot, pointer: SnapshotPointer) -> Iterator[Damage]:
    """What does not hold between a stored node and the pointer that leads to it."""
    children = node.entries
    if not children:
        yield about(DamageKind.SNAPSHOT_EMPTY, pointer, detail="nothing below it was examined")
        return
    yield from _examine_node_name(node, pointer)
    yield from _examine_node_totals(node, pointer)
    yield from _examine_neighbours(children, pointer)
    span = (children[0].start, children[-1].limit)
    if (span[0].offset, span[1].offset) != (pointer.start.offset, pointer.limit.offset):
        yield about(
            DamageKind.SNAPSHOT_RANGE,
            pointer,
            expected=f"{pointer.start.offset} to {pointer.limit.offset}",
            actual=f"{span[0].offset} to {span[1].offset}",
            detail="what its children do not cover was not examined",
        )
    promised_us = (pointer.start.timestamp_us, pointer.limit.timestamp_us)
    if (span[0].timestamp_us, span[1].timestamp_us) != promised_us:
        yield about(
            DamageKind.SNAPSHOT_TIME,
            pointer,
            expected="{} to {}".format(*promised_us),
            actual=f"{span[0].timestamp_us} to {span[1].timestamp_us}",
        )
    if len(children) == 1:
        yield about(DamageKind.SINGLE_CHILD, pointer)


def _examine_node_name(node: Snapshot, pointer: SnapshotPointer) -> Iterator[Damage]:
    named = _NAMED_BY_SUM.fullmatch(pointer.path)
    if node.path != pointer.path:
        yield about(DamageKind.SNAPSHOT_PATH, pointer, expected=pointer.path, actual=node.path)
    elif named is not None and named[1] != pointer.setsum.hexdigest():
        yield about(
            DamageKind.SNAPSHOT_PATH,
            pointer,
            expected=pointer.setsum.hexdigest(),
            actual=named[1],
            detail="it is named for another setsum",
        )
    # A node of wal3 with a single child shares that child's name, and so its depth.
    ours = named is not None and named[2] is not None
    deepest = max(map(depth_of, node.entries))
    if node.depth > pointer.depth or (ours and node.depth != pointer.depth):
        yield about(DamageKind.SNAPSHOT_DEPTH, pointer, expected=pointer.depth, actual=node.depth)
    elif deepest >= node.depth:
        yield about(
            DamageKind.SNAPSHOT_DEPTH,
            pointer,
            expected=node.depth - 1,
            actual=deepest,
            detail="its children are too deep",
        )


def _examine_node_totals(node: Snapshot, pointer: SnapshotPointer) -> Iterator[Damage]:
    total = Setsum.total(child.setsum for child in node.entries)
    if not total == node.setsum == pointer.setsum:
        own_sum_differs = total == pointer.setsum
        yield about(
            DamageKind.SNAPSHOT_SUM,
            pointer,
            expected=pointer.setsum.hexdigest(),
            actual=(node.setsum if own_sum_differs else total).hexdigest(),
            detail="it states another setsum" if own_sum_differs else "",
        )
    size = sum(child.num_bytes for child in node.entries)
    if size != pointer.num_bytes:
        yield about(DamageKind.SNAPSHOT_BYTES, pointer, expected=pointer.num_bytes, actual=size)


def _examine_neighbours(
    entries: Sequence[Entry], pointer: SnapshotPointer | None
) -> Iterator[Damage]:
    """Entries that are empty, overlap, leave a gap, go back in time, or get deeper.

    ``pointer`` leads to the node that they are in; None for the root.
    """
    range_kind, time_kind = DamageKind.MANIFEST_RANGE, DamageKind.MANIFEST_TIME
    if pointer is not None:
        range_kind, time_kind = DamageKind.SNAPSHOT_RANGE, DamageKind.SNAPSHOT_TIME

    def between(kind: DamageKind, start: int, limit: int, detail: str) -> Damage:
        path, base = (MANIFEST_PATH, None) if pointer is None else (pointer.path, pointer.base)
        return Damage(kind=kind, path=path, base=base, start=start, limit=limit, detail=detail)

    for entry in entries:
        start, limit = entry.start, entry.limit
        if start.offset >= limit.offset:
            detail = f"{entry.path} spans nothing"
            yield between(range_kind, start.offset, limit.offset, detail)
        if 0 < limit.timestamp_us < start.timestamp_us:
            detail = f"{entry.path} goes back in time"
            yield between(time_kind, start.offset, limit.offset, detail)
    for before, after in pairwise(entries):
        ends, starts = before.limit, after.start
        if ends.offset != starts.offset:
            detail = f"{before.path} ends at {ends.offset}, {after.path} starts at {starts.offset}"
            low, high = sorted((ends.offset, starts.offset))
            yield between(range_kind, low, high, detail)
        if 0 < starts.timestamp_us < ends.timestamp_us:
            detail = f"{after.path} is older than {before.path}"
            yield between(time_kind, before.start.offset, after.limit.offset, detail)
        if depth_of(before) < depth_of(after):
            detail = f"{after.path} is deeper than {before.path}"
            yield between(DamageKind.SHALLOW_FIRST, before.start.offset, after.limit.offset, detail)


def follows(before: Fragment | None, fragment: Fragment) -> Iterator[Damage]:
    """Numbers are dense where offsets are. An entry with strange fields may span several."""
    if before is None or before.limit.offset != fragment.start.offset:
        return
    if before.unknown is not None or fragment.unknown is not None:
        return
    number, following = before.seq_no, fragment.first_seq_no
    if isinstance(number, str) or isinstance(following, str):
        return
    if following != number + 1:
        yield about(DamageKind.SEQUENCE_GAP, fragment, expected=number + 1, actual=following)


def _is_within(named: range, entry: Fragment) -> bool:
    """Whether an entry stands for the numbers in its object's name.

    A sparse one may have absorbed neighbours of which nothing is left, and so stand for more.
    """
    if isinstance(entry.seq_no, str) or isinstance(entry.first_seq_no, str):
        return False
    if not entry.is_sparse:
        return named == range(entry.seq_no, entry.seq_no + 1)
    return entry.first_seq_no <= named.start and named.stop <= entry.seq_no + 1


def examine_entry(entry: Fragment) -> Iterator[Damage]:
    """Whether a fragment's name belongs to its number.

    This is what binds a fragment with relative offsets to its place: its sum does not.
    """
    numbered = _NUMBERED.fullmatch(entry.path)
    by_uuid = _NAMED_BY_UUID.fullmatch(entry.path)
    staged = _STAGED.fullmatch(entry.path)
    if not entry.path.startswith("log/"):
        yield about(DamageKind.FRAGMENT_PATH, entry, detail="it does not lie below log/")
    elif numbered is not None:
        bucket, seq_no = int(numbered[1], 16), int(numbered[3], 16)
        first = seq_no if numbered[2] is None else int(numbered[2], 16)
        if not _is_within(range(first, seq_no + 1), entry):
            yield about(DamageKind.FRAGMENT_PATH, entry, expected=entry.seq_no, actual=seq_no)
        elif bucket != seq_no // BUCKET_FRAGMENTS * BUCKET_FRAGMENTS:
            detail = f"fragment {seq_no} is not of bucket {bucket}"
            yield about(DamageKind.FRAGMENT_PATH, entry, detail=detail)
    elif staged is not None:
        if not isinstance(entry.seq_no, int) or int(staged[1], 16) > entry.seq_no:
            detail = f"it was named before fragment {entry.seq_no} could be its number"
            yield about(DamageKind.FRAGMENT_PATH, entry, detail=detail)
    elif by_uuid is not None and by_uuid[1] != entry.seq_no:
        yield about(DamageKind.FRAGMENT_PATH, entry, expected=entry.seq_no, actual=by_uuid[1])
