"""The golden fixtures: what each version wrote is what this version writes and reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import xxhash

from fixtures import make, make_disk
from stratalog import Manifest, Snapshot
from stratalog.objectlog.collection.plan_check import check_plan
from stratalog.objectlog.holds.cursor import StoredCursor
from stratalog.objectlog.holds.stored_pin import StoredPin
from stratalog.objectlog.holds.upload_guard import StoredUploadGuard
from stratalog.objectlog.stored.fragment import RECORD_SCHEMA, decode_fragment
from stratalog.objectlog.stored.manifest import decode_manifest
from stratalog.objectlog.stored.object_digest import check_bytes
from stratalog.objectlog.stored.plan import GARBAGE_PATH, Garbage, PlanState
from stratalog.objectlog.stored.policy import Policy
from stratalog.objectlog.stored.stored_json import StoredObject, decode_document
from stratalog.store import closed

HERE = Path(make.__file__).parent

JSON: dict[str, tuple[type[StoredObject], StoredObject]] = {
    "manifest.json": (Manifest, make.manifest()),
    "manifest-wal3.json": (Manifest, Manifest.from_json(make.wal3_manifest())),
    "snapshot.json": (Snapshot, make.snapshot()),
    "cursor.json": (StoredCursor, make.cursor()),
    "cursor-deleted.json": (StoredCursor, make.cursor(deleted=True)),
    "cursor-moved-back.json": (StoredCursor, make.cursor(held=99)),
    "stage.json": (StoredUploadGuard, make.stage()),
    "pin.json": (StoredPin, make.pin()),
    "pin-cleared.json": (StoredPin, make.pin(released=True)),
    "policy.json": (Policy, make.policy()),
    "policy-by-query.json": (Policy, make.policy(by_query=True)),
    "policy-removed.json": (Policy, make.removed_policy()),
    "manifest-sealed.json": (Manifest, make.sealed_manifest()),
    "manifest-fork.json": (Manifest, make.forked_manifest()),
    "manifest-fork-of-wal3.json": (Manifest, make.forked_manifest(of_wal3=True)),
    "manifest-copy.json": (Manifest, make.copied_manifest()),
    "snapshot-fork.json": (Snapshot, make.forked_snapshot()),
    "garbage.json": (Garbage, make.plan()),
    "garbage-empty.json": (Garbage, make.empty_plan()),
    "garbage-wal3.json": (Garbage, Garbage.from_json(make.wal3_empty_plan())),
    "garbage-wal3-older.json": (Garbage, Garbage.from_json(make.wal3_empty_plan(uuids=""))),
}


@pytest.mark.parametrize("name", JSON)
def test_json_is_stable_byte_for_byte(name: str) -> None:
    stored = (HERE / name).read_bytes()
    cls, value = JSON[name]
    assert value.to_json() == stored
    assert cls.from_json(stored).to_json() == stored


DOCUMENTS_1_1 = make.documents_1_1()


@pytest.mark.parametrize("name", DOCUMENTS_1_1)
def test_a_document_of_1_1_is_stable_byte_for_byte_and_ends_with_its_digest(name: str) -> None:
    stored, value = (HERE / name).read_bytes(), DOCUMENTS_1_1[name]
    assert closed(value) == stored
    assert decode_document(type(value), stored, name) == value
    covered, _, end = stored.rpartition(b',"xxh3":"')
    assert end == xxhash.xxh3_128_hexdigest(covered).encode() + b'"}'
    assert covered.endswith(b',"xxh3_of":"' + value.write_id.encode() + b'"')


@pytest.mark.parametrize("name", ["manifest.json", "manifest-1.1.json"])
def test_the_manifest_and_its_snapshot_belong_together(name: str) -> None:
    manifest = decode_manifest((HERE / name).read_bytes())
    data = (HERE / "snapshot.json").read_bytes()
    assert check_bytes(data, manifest.snapshots[0]) is (name != "manifest.json")
    snapshot = Snapshot.from_json(data)
    snapshot.check(manifest.snapshots[0])
    assert (manifest.first_offset, manifest.tail.offset, manifest.next_seq_no) == (1, 103, 4)


@pytest.mark.parametrize("name", ["manifest.json", "manifest-1.1.json"])
def test_the_manifest_links_the_fragment(name: str) -> None:
    manifest = decode_manifest((HERE / name).read_bytes())
    data = (HERE / "fragment.parquet").read_bytes()
    assert check_bytes(data, manifest.fragments[0]) is (name != "manifest.json")
    batch = decode_fragment(data, manifest.fragments[0], verify="records")
    assert batch.schema == RECORD_SCHEMA
    assert [row["body"] for row in batch.to_pylist()] == make.BODIES
    assert len(data) == manifest.fragments[0].num_bytes


def test_the_relative_fragment_reads_at_any_start() -> None:
    data = (HERE / "fragment-relative.parquet").read_bytes()
    for start in (1, 500):
        batch = decode_fragment(data, make.entry(1, start, 3, make.relative_setsum()))
        assert batch.column(0).to_pylist() == [start, start + 1, start + 2]


def test_the_manifest_of_wal3_is_whole_and_is_not_ours_to_write() -> None:
    manifest = decode_manifest((HERE / "manifest-wal3.json").read_bytes())
    assert manifest.write_id is None
    assert manifest.tail.offset == 3


@pytest.mark.parametrize(
    ("name", "point"),
    [("garbage.json", make.without_digest), ("garbage-1.1.json", make.with_its_digest)],
)
def test_the_plan_is_one_for_its_tree(name: str, point: make.Point) -> None:
    manifest, nodes = make.tree_to_collect(point)
    plan = decode_document(Garbage, (HERE / name).read_bytes(), GARBAGE_PATH)
    check_plan(plan, manifest, {node.path: node for node in nodes})
    assert plan.state(manifest) is PlanState.LIVE
    assert (plan.records, plan.fragments, plan.fragment_bytes) == (30, 3, 3 * 1092)
    after = plan.apply(manifest, "ba9876543213")
    after.check()
    assert (after.first_offset, after.initial_seq_no, after.collected) == (
        31,
        4,
        plan.setsum_to_discard,
    )
    assert plan.state(after) is PlanState.PUBLISHED


@pytest.mark.parametrize("name", [name for name in JSON if name.startswith("garbage-")])
def test_an_empty_plan_is_empty_whoever_wrote_it(name: str) -> None:
    plan = decode_document(Garbage, (HERE / name).read_bytes(), GARBAGE_PATH)
    manifest, _ = make.tree_to_collect()
    assert plan.is_empty
    assert plan.state(manifest) is PlanState.EMPTY
    assert plan.first_to_keep.offset == 1


def test_nothing_else_lies_among_the_fixtures() -> None:
    names = {path.name for path in HERE.iterdir() if path.is_file()}
    made = {"fragment.parquet", "fragment-relative.parquet", *make_disk.files()}
    assert names == {
        *JSON,
        *DOCUMENTS_1_1,
        *made,
        "make.py",
        "make_disk.py",
        "disks-before-spans.zip",
    }
