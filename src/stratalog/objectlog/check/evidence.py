"""What proves the children of a lost node: fragments that fill its place exactly.

The pointer to the node says which offsets it spans, what its records add up to, and how many bytes
they are stored in. Fragments carry their number in their name, offsets and times in their rows. The
fragments between the node's neighbours are listed and read, and each entry is made anew from what
is stored. The entries are the children if they follow each other without a gap and match the
pointer in range, sum and bytes. Fragments that were uploaded and never linked may lie between them;
a sum of 256 bits distinguishes them. The digests that the node had are lost with it, so an entry
gets that of the bytes that are there: their records are proven, and from now on so is the rest.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from stratalog.errors import Corrupt, NotFound
from stratalog.hashing import digest_of
from stratalog.objectlog.stored import (
    BUCKET_FRAGMENTS,
    RECORD_SCHEMA,
    Fragment,
    Kind,
    LogPosition,
    Manifest,
    SnapshotPointer,
    decode_fragment,
    own,
    sum_of_records,
    with_digest,
)
from stratalog.objectlog.tree import Tree, Window
from stratalog.ordered import gather_bounded
from stratalog.runtime import Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import Store

READS_AT_ONCE = 8
STEPS_MAX = 1_000_000

_NUMBER = re.compile(r"/FragmentSeqNo=([0-9a-f]{16})\.parquet")


class Unproven(Exception):
    """It cannot be shown what the node was. The message says why."""


async def children_of(
    store: Store, tree: Tree, manifest: Manifest, pointer: SnapshotPointer, runtime: Runtime
) -> tuple[Fragment, ...]:
    """The fragments below a node that cannot be read, proven; or ``Unproven``."""
    before, after = await _neighbours(tree, manifest, pointer)

    async def read(row: tuple[str, int]) -> Fragment | None:
        path, seq_no = row
        try:
            data = (await store.get(path)).data
        except NotFound:
            return None
        return await runtime.compute(lambda: entry_of(path, seq_no, data))

    listed = [row async for row in _listed(store, before, after)]
    found = await gather_bounded(listed, read, READS_AT_ONCE)
    candidates = [
        each
        for each in found
        if each is not None
        and pointer.start.offset <= each.start.offset
        and each.limit.offset <= pointer.limit.offset
    ]
    return prove(candidates, pointer)


async def _neighbours(tree: Tree, manifest: Manifest, pointer: SnapshotPointer) -> tuple[int, int]:
    """The numbers of the fragments before and after a node, or the widest that they can be.

    Every fragment holds a record at least, so a node has no more of them than records.
    """
    start, limit = pointer.start.offset, pointer.limit.offset
    before = await _number_at(tree, manifest, start - 1)
    after = await _number_at(tree, manifest, limit)
    most = limit - start
    if after is not None:
        return max(0, after - most - 1) if before is None else before, after
    if before is not None:
        return before, before + most + 1
    raise Unproven("its neighbours cannot be read either, so its fragments have no number")


async def _number_at(tree: Tree, manifest: Manifest, offset: int) -> int | None:
    """The number of the fragment that holds an offset, if the tree leads there."""
    try:
        async for fragment in tree.walk(manifest, Window(offset, offset + 1)):
            return fragment.seq_no if isinstance(fragment.seq_no, int) else None
    except (NotFound, Corrupt):
        pass
    return None


async def _listed(store: Store, before: int, after: int) -> AsyncIterator[tuple[str, int]]:
    """The stored fragments whose number lies between the two."""
    first = (before + 1) // BUCKET_FRAGMENTS * BUCKET_FRAGMENTS
    for bucket in range(first, after, BUCKET_FRAGMENTS):
        async for row in store.list(f"log/Bucket={bucket:016x}/"):
            name, number = own(row.path), _NUMBER.search(row.path)
            if name is None or name.kind is not Kind.FRAGMENT or number is None:
                continue
            seq_no = int(number[1], 16)
            if before < seq_no < after:
                yield row.path, seq_no


def entry_of(path: str, seq_no: int, data: bytes) -> Fragment | None:
    """The entry that links these bytes, from the bytes alone. None if they are no fragment."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        if file.schema_arrow.names != RECORD_SCHEMA.names or not file.metadata.num_rows:
            return None
        ends = file.read(RECORD_SCHEMA.names[:2], use_threads=False)
        first, last = ends.slice(0, 1).to_pylist()[0], ends.slice(len(ends) - 1).to_pylist()[0]
        entry = Fragment(
            path=path,
            seq_no=seq_no,
            start=LogPosition(first["offset"], first["timestamp_us"]),
            limit=LogPosition(first["offset"] + len(ends), last["timestamp_us"]),
            num_bytes=len(data),
            setsum=EMPTY,
        )
        batch = decode_fragment(data, entry, verify=False)
    except (Corrupt, pa.ArrowException, OSError, ValueError, TypeError):
        return None
    offsets, times_us = batch.column(0).to_numpy(), batch.column(1).to_numpy()
    setsum = sum_of_records(offsets, times_us, batch.column(2))
    return with_digest(msgspec.structs.replace(entry, setsum=setsum), digest_of(data))


def prove(candidates: Sequence[Fragment], pointer: SnapshotPointer) -> tuple[Fragment, ...]:
    """The candidates that are the children of the pointer's node, or ``Unproven``."""
    by_start: dict[int, list[Fragment]] = defaultdict(list)
    for candidate in candidates:
        by_start[candidate.start.offset].append(candidate)
    gap_free = False
    for chain in _chains(by_start, pointer):
        gap_free = True
        if _matches(chain, pointer):
            if len(chain) == 1:
                raise Unproven("it had a single child, and such a node is not written")
            return chain
    if gap_free:
        raise Unproven("the fragments in its place do not add up to what it held")
    reached = max((each.limit.offset for each in candidates), default=pointer.start.offset)
    raise Unproven(
        f"not all of its fragments can be read: {len(candidates)} were found between offsets "
        f"{pointer.start.offset} and {pointer.limit.offset}, the last ends at {reached}"
    )


def _chains(
    by_start: Mapping[int, Sequence[Fragment]], pointer: SnapshotPointer
) -> Iterator[tuple[Fragment, ...]]:
    """Every row of fragments that follow each other and span what the pointer spans."""
    chain: list[Fragment] = []
    choices = [iter(by_start.get(pointer.start.offset, ()))]
    for _ in range(STEPS_MAX):
        fragment = next(choices[-1], None)
        if fragment is None:
            choices.pop()
            if not choices:
                return
            chain.pop()
        elif not chain or fragment.seq_no == _following(chain[-1]):
            chain.append(fragment)
            if fragment.limit.offset == pointer.limit.offset:
                yield tuple(chain)
                chain.pop()
            else:
                choices.append(iter(by_start.get(fragment.limit.offset, ())))
    raise Unproven("too many fragments in its place were uploaded and never linked")


def _following(fragment: Fragment) -> int:
    assert isinstance(fragment.seq_no, int), "candidates are numbered by their name"
    return fragment.seq_no + 1


def _matches(chain: Sequence[Fragment], pointer: SnapshotPointer) -> bool:
    return (
        Setsum.total(each.setsum for each in chain) == pointer.setsum
        and sum(each.num_bytes for each in chain) == pointer.num_bytes
        and chain[0].start.timestamp_us == pointer.start.timestamp_us
        and chain[-1].limit.timestamp_us == pointer.limit.timestamp_us
    )
