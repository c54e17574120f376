"""One damage of each kind, planted into a small log that is otherwise good.

    root   [ deep | flat | f8 f9 ]
    deep   depth 2, over two nodes with fragments 1 2 3 and 4 5
    flat   depth 1, over fragments 6 7

Each fragment holds three records. A planter changes what is stored and gives exactly what a scrub
must find: kinds and paths.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import stratalog as sl
from objectlog.trees import LEAF, MadeLog
from objectlog.whole_log import replace_bytes
from stratalog.hashing import digest_of
from stratalog.objectlog.check.damage import DamageKind
from stratalog.objectlog.holds.cursor import StoredCursor
from stratalog.objectlog.stored.fragment import encode_fragment, fragment_path
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, encode_manifest
from stratalog.objectlog.stored.object_digest import with_digest
from stratalog.objectlog.stored.plan import GARBAGE_PATH
from stratalog.objectlog.stored.policy import POLICY_PATH
from stratalog.objectlog.stored.record_sums import sum_of_records
from stratalog.objectlog.stored.snapshot import Entry, snapshot_path
from stratalog.setsum import Setsum
from stratalog.store import closed

SHAPE = (((LEAF, LEAF, LEAF), (LEAF, LEAF)), (LEAF, LEAF), LEAF, LEAF)
FRAGMENTS = 9
SNAPSHOTS = 4
RECORDS = 27

replace = msgspec.structs.replace

Expected = set[tuple[DamageKind, str]]
Planter = Callable[["Victim"], Awaitable[Expected]]


class Victim:
    """A small log on a store, and ways to change what it has stored."""

    def __init__(self, store: sl.Store) -> None:
        self.store = store
        self.made = MadeLog(SHAPE, records=3, encoded=True)
        self.manifest = self.made.manifest

    @classmethod
    async def make(cls, store: sl.Store) -> Victim:
        victim = cls(store)
        await victim.made.store(store)
        return victim

    @property
    def deep(self) -> sl.SnapshotPointer:
        return self.manifest.snapshots[0]

    @property
    def flat(self) -> sl.SnapshotPointer:
        return self.manifest.snapshots[1]

    def node(self, pointer: sl.SnapshotPointer) -> sl.Snapshot:
        return self.made.nodes[pointer.path]

    def below(self, pointer: sl.SnapshotPointer) -> list[sl.Fragment]:
        """All fragments below a node, oldest first."""
        node = self.node(pointer)
        return [*(each for child in node.snapshots for each in self.below(child)), *node.fragments]

    @property
    def fragments(self) -> list[sl.Fragment]:
        """All fragments that were made, oldest first."""
        root = self.made.manifest
        return [*self.below(root.snapshots[0]), *self.below(root.snapshots[1]), *root.fragments]

    async def put(self, path: str, data: bytes) -> None:
        await replace_bytes(self.store, path, data)

    async def put_manifest(self, **changes: object) -> None:
        self.manifest = replace(self.manifest, **changes)
        await self.put(MANIFEST_PATH, self.manifest.to_json())

    async def put_node(self, pointer: sl.SnapshotPointer, **changes: object) -> None:
        await self.put(pointer.path, replace(self.node(pointer), **changes).to_json())

    async def change_last(self, **changes: object) -> sl.Fragment:
        """Another entry for the newest fragment, in a root that adds up."""
        *before, last = self.manifest.fragments
        changed = replace(last, **changes)
        entries: list[Entry] = [*self.manifest.snapshots, *before, changed]
        await self.put_manifest(
            fragments=(*before, changed), setsum=Setsum.total(each.setsum for each in entries)
        )
        return changed


def records(first: int, times_us: Sequence[int], bodies: Sequence[bytes]) -> tuple[bytes, Setsum]:
    """A fragment whose records have times of their own."""
    offsets = np.arange(first, first + len(bodies), dtype=np.uint64)
    times = np.array(times_us, dtype=np.uint64)
    table = pa.table({"offset": offsets, "timestamp_us": times, "body": pa.array(bodies)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes(), sum_of_records(offsets, times, pa.array(bodies))


def bomb(first: int, at_us: int, rows: int, body_bytes: int) -> bytes:
    """A small fragment whose rows share one large body of zeros, which is stored once."""
    body = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array([bytes(body_bytes)], pa.binary())
    )
    table = pa.table(
        {
            "offset": pa.array(range(first, first + rows), pa.uint64()),
            "timestamp_us": pa.array([at_us] * rows, pa.uint64()),
            "body": body,
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=["body"],
        dictionary_pagesize_limit=body_bytes * 2,
        write_statistics=False,
        store_schema=False,
        column_encoding=dict.fromkeys(("offset", "timestamp_us"), "DELTA_BINARY_PACKED"),
    )
    return bytes(sink.getvalue())


PLANTERS: dict[str, tuple[DamageKind, Planter]] = {}


def plants(kind: DamageKind) -> Callable[[Planter], Planter]:
    def register(planter: Planter) -> Planter:
        PLANTERS[planter.__name__.replace("_", " ")] = (kind, planter)
        return planter

    return register


# The manifest


@plants(DamageKind.MANIFEST_MISSING)
async def a_deleted_manifest(log: Victim) -> Expected:
    await log.store.delete_many([MANIFEST_PATH])
    return {(DamageKind.MANIFEST_MISSING, MANIFEST_PATH)}


@plants(DamageKind.MANIFEST_UNREADABLE)
async def a_manifest_that_is_none(log: Victim) -> Expected:
    await log.put(MANIFEST_PATH, b"{}")
    return {(DamageKind.MANIFEST_UNREADABLE, MANIFEST_PATH)}


@plants(DamageKind.MANIFEST_SUM)
async def a_manifest_with_another_sum(log: Victim) -> Expected:
    await log.put_manifest(setsum=Setsum.of(b"other"))
    return {(DamageKind.MANIFEST_SUM, MANIFEST_PATH)}


@plants(DamageKind.MANIFEST_RANGE)
async def a_manifest_with_a_gap(log: Victim) -> Expected:
    total = Setsum.total([log.deep.setsum, *(each.setsum for each in log.manifest.fragments)])
    await log.put_manifest(snapshots=(log.deep,), setsum=total)
    return {(DamageKind.MANIFEST_RANGE, MANIFEST_PATH)}


@plants(DamageKind.MANIFEST_RANGE)
async def a_manifest_without_its_beginning(log: Victim) -> Expected:
    total = Setsum.total([log.flat.setsum, *(each.setsum for each in log.manifest.fragments)])
    await log.put_manifest(snapshots=(log.flat,), setsum=total)
    return {(DamageKind.MANIFEST_RANGE, MANIFEST_PATH)}


@plants(DamageKind.MANIFEST_TIME)
async def an_entry_that_goes_back_in_time(log: Victim) -> Expected:
    last = log.manifest.fragments[-1]
    await log.change_last(start=sl.LogPosition(last.start.offset, 1))
    return {(DamageKind.MANIFEST_TIME, MANIFEST_PATH)}


@plants(DamageKind.MANIFEST_BYTES)
async def a_manifest_that_counts_too_few_bytes(log: Victim) -> Expected:
    await log.put_manifest(acc_bytes=1)
    return {(DamageKind.MANIFEST_BYTES, MANIFEST_PATH)}


@plants(DamageKind.SEQUENCE_GAP)
async def a_number_that_is_skipped(log: Victim) -> Expected:
    data = log.made.data[log.manifest.fragments[-1].path]
    moved = await log.change_last(seq_no=11, path=fragment_path(11, "0123456789ab", 1))
    await log.put(moved.path, data)
    return {(DamageKind.SEQUENCE_GAP, moved.path)}


@plants(DamageKind.SHALLOW_FIRST)
async def a_shallow_node_before_a_deep_one(log: Victim) -> Expected:
    """The deep node's children take its place, and a node over the flat one that of the flat."""
    first, second = log.node(log.deep).snapshots
    children = (log.flat, log.manifest.fragments[0])
    total = Setsum.total(child.setsum for child in children)
    above = sl.Snapshot(
        path=snapshot_path(total, "0123456789ab", 1),
        depth=2,
        setsum=total,
        writer="planted",
        snapshots=children[:1],
        fragments=children[1:],
    )
    await log.store.put_if_absent(above.path, above.to_json())
    await log.put_manifest(
        snapshots=(first, second, above.pointer()), fragments=log.manifest.fragments[1:]
    )
    return {(DamageKind.SHALLOW_FIRST, MANIFEST_PATH)}


@plants(DamageKind.MANIFEST_DIGEST)
async def a_manifest_that_remembers_another_batch(log: Victim) -> Expected:
    """Nothing of it enters a sum or a range."""
    data = encode_manifest(replace(log.manifest, sinks={"query": 7}))
    await log.put(MANIFEST_PATH, data.replace(b'"query":7', b'"query":8'))
    return {(DamageKind.MANIFEST_DIGEST, MANIFEST_PATH)}


# Snapshots


@plants(DamageKind.SNAPSHOT_MISSING)
async def a_missing_snapshot(log: Victim) -> Expected:
    await log.store.delete_many([log.flat.path])
    return {(DamageKind.SNAPSHOT_MISSING, log.flat.path)}


@plants(DamageKind.SNAPSHOT_MISSING)
async def a_missing_snapshot_below_another(log: Victim) -> Expected:
    path = log.node(log.deep).snapshots[1].path
    await log.store.delete_many([path])
    return {(DamageKind.SNAPSHOT_MISSING, path)}


@plants(DamageKind.SNAPSHOT_UNREADABLE)
async def a_truncated_snapshot(log: Victim) -> Expected:
    await log.put(log.deep.path, log.node(log.deep).to_json()[:-20])
    return {(DamageKind.SNAPSHOT_UNREADABLE, log.deep.path)}


@plants(DamageKind.SNAPSHOT_EMPTY)
async def a_snapshot_without_children(log: Victim) -> Expected:
    await log.put_node(log.flat, fragments=())
    return {(DamageKind.SNAPSHOT_EMPTY, log.flat.path)}


@plants(DamageKind.SNAPSHOT_SUM)
async def a_snapshot_that_states_another_sum(log: Victim) -> Expected:
    await log.put_node(log.flat, setsum=Setsum.of(b"other"))
    return {(DamageKind.SNAPSHOT_SUM, log.flat.path)}


@plants(DamageKind.SNAPSHOT_SUM)
async def a_child_with_another_sum(log: Victim) -> Expected:
    first, second = log.node(log.flat).fragments
    await log.put_node(log.flat, fragments=(replace(first, setsum=Setsum.of(b"other")), second))
    return {
        (DamageKind.SNAPSHOT_SUM, log.flat.path),
        (DamageKind.FRAGMENT_SUM, first.path),
    }


@plants(DamageKind.SNAPSHOT_RANGE)
async def children_with_a_gap(log: Victim) -> Expected:
    first, second = log.node(log.flat).fragments
    shorter = replace(first, limit=sl.LogPosition(first.limit.offset - 1, first.limit.timestamp_us))
    await log.put_node(log.flat, fragments=(shorter, second))
    return {
        (DamageKind.SNAPSHOT_RANGE, log.flat.path),
        (DamageKind.FRAGMENT_COUNT, first.path),
    }


@plants(DamageKind.SNAPSHOT_RANGE)
async def a_child_that_was_dropped(log: Victim) -> Expected:
    pointer = log.node(log.deep).snapshots[0]
    await log.put_node(pointer, fragments=log.node(pointer).fragments[1:])
    return {
        (DamageKind.SNAPSHOT_RANGE, pointer.path),
        (DamageKind.SNAPSHOT_SUM, pointer.path),
        (DamageKind.SNAPSHOT_BYTES, pointer.path),
        (DamageKind.SNAPSHOT_TIME, pointer.path),
    }


@plants(DamageKind.SNAPSHOT_RANGE)
async def children_in_another_order(log: Victim) -> Expected:
    first, second = log.node(log.flat).fragments
    await log.put_node(log.flat, fragments=(second, first))
    return {
        (DamageKind.SNAPSHOT_RANGE, log.flat.path),
        (DamageKind.SNAPSHOT_TIME, log.flat.path),
    }


@plants(DamageKind.SNAPSHOT_TIME)
async def a_pointer_with_another_time(log: Victim) -> Expected:
    start = sl.LogPosition(log.flat.start.offset, log.flat.start.timestamp_us - 1)
    await log.put_manifest(snapshots=(log.deep, replace(log.flat, start=start)))
    return {(DamageKind.SNAPSHOT_TIME, log.flat.path)}


@plants(DamageKind.SNAPSHOT_DEPTH)
async def a_snapshot_of_another_depth(log: Victim) -> Expected:
    await log.put_node(log.flat, depth=7)
    return {(DamageKind.SNAPSHOT_DEPTH, log.flat.path)}


@plants(DamageKind.SNAPSHOT_DEPTH)
async def a_child_as_deep_as_its_parent(log: Victim) -> Expected:
    """It is not followed, so that the walk ends."""
    first, second = log.node(log.deep).snapshots
    await log.put_node(log.deep, snapshots=(replace(first, depth=2), second))
    return {
        (DamageKind.SNAPSHOT_DEPTH, log.deep.path),
        (DamageKind.SNAPSHOT_DEPTH, first.path),
    }


@plants(DamageKind.SNAPSHOT_PATH)
async def a_snapshot_with_another_name_inside(log: Victim) -> Expected:
    await log.put_node(log.flat, path="snapshot/other")
    return {(DamageKind.SNAPSHOT_PATH, log.flat.path)}


@plants(DamageKind.SNAPSHOT_PATH)
async def a_snapshot_named_for_another_sum(log: Victim) -> Expected:
    path = snapshot_path(Setsum.of(b"other"), "0123456789ab", 1)
    await log.store.put_if_absent(path, replace(log.node(log.flat), path=path).to_json())
    moved = replace(log.flat, path_to_snapshot=path)
    await log.put_manifest(snapshots=(log.deep, moved))
    return {(DamageKind.SNAPSHOT_PATH, path)}


@plants(DamageKind.SNAPSHOT_PATH)
async def a_pointer_to_no_legal_name(log: Victim) -> Expected:
    await log.put_manifest(snapshots=(log.deep, replace(log.flat, path_to_snapshot="../elsewhere")))
    return {(DamageKind.SNAPSHOT_PATH, "../elsewhere")}


@plants(DamageKind.SNAPSHOT_BYTES)
async def a_pointer_with_another_size(log: Victim) -> Expected:
    larger = replace(log.flat, num_bytes=log.flat.num_bytes + 1)
    await log.put_manifest(snapshots=(log.deep, larger), acc_bytes=log.manifest.acc_bytes + 1)
    return {(DamageKind.SNAPSHOT_BYTES, log.flat.path)}


@plants(DamageKind.SINGLE_CHILD)
async def a_snapshot_with_a_single_child(log: Victim) -> Expected:
    """As wal3 leaves them: a node over a node, with the same sum."""
    above = replace(
        log.node(log.flat),
        path=snapshot_path(log.flat.setsum, "0123456789ab", 1),
        depth=2,
        fragments=(),
        snapshots=(log.flat,),
    )
    await log.store.put_if_absent(above.path, above.to_json())
    await log.put_manifest(snapshots=(log.deep, above.pointer()))
    return {(DamageKind.SINGLE_CHILD, above.path)}


@plants(DamageKind.SNAPSHOT_DIGEST)
async def a_snapshot_of_another_writer(log: Victim) -> Expected:
    await log.put_node(log.flat, writer="other")
    return {(DamageKind.SNAPSHOT_DIGEST, log.flat.path)}


# Fragments


@plants(DamageKind.FRAGMENT_MISSING)
async def a_missing_fragment(log: Victim) -> Expected:
    path = log.fragments[1].path
    await log.store.delete_many([path])
    return {(DamageKind.FRAGMENT_MISSING, path)}


@plants(DamageKind.FRAGMENT_SIZE)
async def an_entry_with_another_size(log: Victim) -> Expected:
    last = log.manifest.fragments[-1]
    await log.put_manifest(acc_bytes=log.manifest.acc_bytes + 1)
    await log.change_last(num_bytes=last.num_bytes + 1)
    return {(DamageKind.FRAGMENT_SIZE, last.path)}


@plants(DamageKind.FRAGMENT_SIZE)
async def a_truncated_fragment(log: Victim) -> Expected:
    path = log.fragments[2].path
    await log.put(path, log.made.data[path][:-9])
    return {(DamageKind.FRAGMENT_SIZE, path), (DamageKind.FRAGMENT_UNREADABLE, path)}


@plants(DamageKind.FRAGMENT_UNREADABLE)
async def a_fragment_of_zeros(log: Victim) -> Expected:
    path = log.fragments[3].path
    await log.put(path, bytes(len(log.made.data[path])))
    return {(DamageKind.FRAGMENT_UNREADABLE, path)}


@plants(DamageKind.FRAGMENT_COLUMNS)
async def a_fragment_with_other_columns(log: Victim) -> Expected:
    path = log.fragments[4].path
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2, 3]}), sink)
    await log.put(path, sink.getvalue().to_pybytes())
    return {(DamageKind.FRAGMENT_SIZE, path), (DamageKind.FRAGMENT_COLUMNS, path)}


@plants(DamageKind.FRAGMENT_COLUMNS)
async def a_fragment_with_nulls(log: Victim) -> Expected:
    entry = log.fragments[4]
    sink = pa.BufferOutputStream()
    offsets = pa.array(range(entry.start.offset, entry.limit.offset), pa.uint64())
    table = {"offset": offsets, "timestamp_us": pa.array([None, 1, 2], pa.uint64())}
    pq.write_table(pa.table({**table, "body": pa.array([b"", b"", b""])}), sink)
    await log.put(entry.path, sink.getvalue().to_pybytes())
    return {(DamageKind.FRAGMENT_SIZE, entry.path), (DamageKind.FRAGMENT_COLUMNS, entry.path)}


@plants(DamageKind.FRAGMENT_COUNT)
async def a_fragment_with_fewer_records(log: Victim) -> Expected:
    entry = log.fragments[5]
    shorter = encode_fragment(entry.start.offset, entry.start.timestamp_us, [b"a", b"b"], "none")
    await log.put(entry.path, shorter.data)
    return {(DamageKind.FRAGMENT_SIZE, entry.path), (DamageKind.FRAGMENT_COUNT, entry.path)}


@plants(DamageKind.FRAGMENT_OFFSETS)
async def two_exchanged_fragments(log: Victim) -> Expected:
    first, second = log.fragments[5:7]
    data = log.made.data
    await log.put(first.path, data[second.path])
    await log.put(second.path, data[first.path])
    pair = (first, second)
    resized = {each for each in pair if len(data[first.path]) != len(data[second.path])}
    return {
        *((DamageKind.FRAGMENT_OFFSETS, each.path) for each in pair),
        *((DamageKind.FRAGMENT_TIME, each.path) for each in pair),
        *((DamageKind.FRAGMENT_SIZE, each.path) for each in resized),
    }


@plants(DamageKind.FRAGMENT_TIME)
async def records_with_several_times(log: Victim) -> Expected:
    """Their sum is right: only the entry promises one time for all."""
    last = log.manifest.fragments[-1]
    at_us = last.start.timestamp_us
    data, setsum = records(last.start.offset, [at_us, at_us, at_us + 1], [b"a", b"b", b"c"])
    await log.put(last.path, data)
    await log.put_manifest(acc_bytes=log.manifest.acc_bytes + len(data))
    await log.change_last(num_bytes=len(data), setsum=setsum)
    return {(DamageKind.FRAGMENT_TIME, last.path)}


@plants(DamageKind.FRAGMENT_TIME)
async def records_that_go_back_in_time(log: Victim) -> Expected:
    last = log.manifest.fragments[-1]
    at_us = last.start.timestamp_us
    data, setsum = records(last.start.offset, [at_us, at_us + 2, at_us + 1], [b"a", b"b", b"c"])
    await log.put(last.path, data)
    await log.put_manifest(acc_bytes=log.manifest.acc_bytes + len(data))
    limit = sl.LogPosition(last.limit.offset, at_us + 2)
    await log.change_last(num_bytes=len(data), setsum=setsum, limit=limit)
    return {(DamageKind.FRAGMENT_TIME, last.path)}


@plants(DamageKind.FRAGMENT_TIME)
async def records_with_another_time(log: Victim) -> Expected:
    entry = log.fragments[6]
    good = await log.store.get(entry.path)
    written = [b"%d" % offset for offset in range(entry.start.offset, entry.limit.offset)]
    other = encode_fragment(entry.start.offset, entry.start.timestamp_us + 1, written, "none")
    assert len(other.data) == len(good.data)
    await log.put(entry.path, other.data)
    return {(DamageKind.FRAGMENT_TIME, entry.path), (DamageKind.FRAGMENT_SUM, entry.path)}


@plants(DamageKind.FRAGMENT_SUM)
async def a_flipped_bit_of_a_body(log: Victim) -> Expected:
    entry = log.fragments[7]
    bad = bytearray(log.made.data[entry.path])
    bad[bad.index(b"%d" % entry.start.offset)] ^= 1
    await log.put(entry.path, bytes(bad))
    return {(DamageKind.FRAGMENT_SUM, entry.path)}


@plants(DamageKind.FRAGMENT_DIGEST)
async def a_flipped_bit_of_a_statistic(log: Victim) -> Expected:
    """No record is changed, but a filtering reader of Parquet would leave out rows."""
    last = log.manifest.fragments[-1]
    data = log.made.data[last.path]
    await log.put_manifest(
        fragments=(*log.manifest.fragments[:-1], with_digest(last, digest_of(data)))
    )
    place = data.rindex(last.start.offset.to_bytes(8, "little"))
    bad = data[:place] + bytes([data[place] ^ 32]) + data[place + 1 :]
    assert pq.ParquetFile(pa.BufferReader(bad)).read() == pq.read_table(pa.BufferReader(data))
    await log.put(last.path, bad)
    return {(DamageKind.FRAGMENT_DIGEST, last.path)}


@plants(DamageKind.FRAGMENT_DECODED_SIZE)
async def a_fragment_that_stands_for_far_more(log: Victim) -> Expected:
    """One large body, to which a hundred rows refer."""
    last = log.manifest.fragments[-1]
    data = bomb(last.start.offset, last.start.timestamp_us, rows=100, body_bytes=1 << 20)
    assert len(data) < 2_000
    await log.put(last.path, data)
    limit = sl.LogPosition(last.start.offset + 100, last.limit.timestamp_us)
    await log.put_manifest(acc_bytes=log.manifest.acc_bytes + len(data))
    await log.change_last(num_bytes=len(data), limit=limit)
    return {(DamageKind.FRAGMENT_DECODED_SIZE, last.path)}


@plants(DamageKind.FRAGMENT_PATH)
async def a_name_of_another_number(log: Victim) -> Expected:
    data = log.made.data[log.manifest.fragments[-1].path]
    moved = await log.change_last(path=fragment_path(99, "0123456789ab", 1))
    await log.put(moved.path, data)
    return {(DamageKind.FRAGMENT_PATH, moved.path)}


@plants(DamageKind.FRAGMENT_PATH)
async def a_name_of_another_bucket(log: Victim) -> Expected:
    data = log.made.data[log.manifest.fragments[-1].path]
    name = log.manifest.fragments[-1].path.replace("Bucket=0000000000000000", "Bucket=" + "1" * 16)
    await log.change_last(path=name)
    await log.put(name, data)
    return {(DamageKind.FRAGMENT_PATH, name)}


@plants(DamageKind.FRAGMENT_PATH)
async def an_entry_with_no_legal_name(log: Victim) -> Expected:
    await log.change_last(path="log/../elsewhere")
    return {(DamageKind.FRAGMENT_PATH, "log/../elsewhere")}


# Beside the tree


@plants(DamageKind.CURSOR_UNREADABLE)
async def a_cursor_that_is_none(log: Victim) -> Expected:
    await log.put("cursor/broken.json", b"[]")
    return {(DamageKind.CURSOR_UNREADABLE, "cursor/broken.json")}


@plants(DamageKind.CURSOR_BELOW_START)
async def a_cursor_below_the_start(log: Victim) -> Expected:
    stale = StoredCursor(position=sl.LogPosition(0), epoch_us=1, writer="planted")
    await log.put("cursor/stale.json", stale.to_json())
    await log.put("cursor/deleted.json", replace(stale, deleted=True).to_json())
    return {(DamageKind.CURSOR_BELOW_START, "cursor/stale.json")}


@plants(DamageKind.PIN_UNREADABLE)
async def a_pin_that_is_none(log: Victim) -> Expected:
    await log.put("pin/broken.json", b"[]")
    return {(DamageKind.PIN_UNREADABLE, "pin/broken.json")}


@plants(DamageKind.PLAN_UNREADABLE)
async def a_plan_that_is_none(log: Victim) -> Expected:
    await log.put(GARBAGE_PATH, json.dumps({"snapshots_to_drop": 1}).encode())
    return {(DamageKind.PLAN_UNREADABLE, GARBAGE_PATH)}


@plants(DamageKind.POLICY_UNREADABLE)
async def a_policy_with_a_flipped_bit(log: Victim) -> Expected:
    stored = closed(sl.Policy(retain=sl.Retention(bytes=1), writer="w", write_id="planted"))
    await log.put(POLICY_PATH, stored.replace(b'"bytes":1', b'"bytes":3'))
    return {(DamageKind.POLICY_UNREADABLE, POLICY_PATH)}


@plants(DamageKind.STAGE_UNREADABLE)
async def an_upload_guard_of_another_job(log: Victim) -> Expected:
    path = "stage/0123456789ab.json"
    await log.put(path, b"{}")
    return {(DamageKind.STAGE_UNREADABLE, path)}


@plants(DamageKind.CERTIFICATE_UNREADABLE)
async def a_certificate_without_its_hash(log: Victim) -> Expected:
    path = f"certificate/{'0' * 16}.json"
    await log.put(path, b'{"state":"done"}')
    return {(DamageKind.CERTIFICATE_UNREADABLE, path)}


@plants(DamageKind.INDEX_UNREADABLE)
async def a_key_index_that_is_none(log: Victim) -> Expected:
    await log.put("live/INDEX.json", b"[]")
    return {(DamageKind.INDEX_UNREADABLE, "live/INDEX.json")}
