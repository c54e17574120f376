"""Manifests and snapshots refuse whatever breaks an invariant, and newer formats first of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fixtures import make
from stratalog import Fragment, LogPosition, Manifest, Setsum, SnapshotPointer
from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.stored.manifest import MANIFEST_PATH, decode_manifest
from stratalog.setsum import EMPTY

replace = msgspec.structs.replace


@st.composite
def manifests(draw: st.DrawFn, min_entries: int = 0) -> Manifest:
    """Any whole manifest: snapshots, then fragments, contiguous and balanced."""
    widths = draw(st.lists(st.integers(1, 1000), min_size=min_entries, max_size=8))
    inner = draw(st.integers(0, len(widths)))
    offset = first = draw(st.integers(1, 2**40))
    time_us = draw(st.integers(1, 2**50))
    seq_no = draw(st.integers(1, 2**30))
    snapshots: list[SnapshotPointer] = []
    fragments: list[Fragment] = []
    sums: list[Setsum] = []
    for index, width in enumerate(widths):
        start = LogPosition(offset, time_us)
        offset, time_us = offset + width, time_us + draw(st.integers(0, 10))
        limit, setsum = LogPosition(offset, time_us), Setsum.of(b"%d" % offset)
        sums.append(setsum)
        if index < inner:
            path = f"snapshot/SNAPSHOT.{setsum.hexdigest()}.abc-{index}"
            snapshots.append(
                SnapshotPointer(
                    setsum=setsum,
                    path_to_snapshot=path,
                    depth=draw(st.integers(1, 3)),
                    start=start,
                    limit=limit,
                    num_bytes=width,
                )
            )
        else:
            fragments.append(
                Fragment(
                    path=f"log/{index}.parquet",
                    seq_no=seq_no + index,
                    start=start,
                    limit=limit,
                    num_bytes=width,
                    setsum=setsum,
                )
            )
    collected = draw(st.sampled_from([EMPTY, Setsum.of(b"gone")]))
    return Manifest(
        setsum=Setsum.total([collected, *sums]),
        collected=collected,
        acc_bytes=sum(widths),
        writer="me",
        snapshots=tuple(snapshots),
        fragments=tuple(fragments),
        initial_offset=draw(st.sampled_from([None, LogPosition(first)])),
        initial_seq_no=draw(st.sampled_from([None, seq_no])),
        format="1.0",
        write_id="w",
        linked={},
    )


def changed(manifest: Manifest, index: int, **fields: Any) -> Manifest:
    """The same with one entry changed, and with sums that still add up."""
    before = manifest.entries[index]
    entry = replace(before, **fields)
    snapshots, fragments = list(manifest.snapshots), list(manifest.fragments)
    if isinstance(entry, Fragment):
        fragments[index - len(snapshots)] = entry
    else:
        snapshots[index] = entry
    return replace(
        manifest,
        snapshots=tuple(snapshots),
        fragments=tuple(fragments),
        setsum=manifest.setsum - before.setsum + entry.setsum,
    )


def without(manifest: Manifest, index: int) -> Manifest:
    entries = list(manifest.entries)
    gone = entries.pop(index)
    return replace(
        manifest,
        snapshots=tuple(each for each in entries if isinstance(each, SnapshotPointer)),
        fragments=tuple(each for each in entries if isinstance(each, Fragment)),
        setsum=manifest.setsum - gone.setsum,
    )


def refused(manifest: Manifest) -> Corrupt:
    with pytest.raises(Corrupt) as caught:
        manifest.check()
    assert caught.value.path == MANIFEST_PATH
    with pytest.raises(Corrupt):
        decode_manifest(manifest.to_json())
    return caught.value


@given(manifests())
def test_a_whole_manifest_passes_and_comes_back(manifest: Manifest) -> None:
    manifest.check()
    manifest.check_writable()
    assert decode_manifest(manifest.to_json()) == manifest
    assert manifest.count == manifest.tail.offset - manifest.first_offset


@given(manifests())
def test_a_sum_that_does_not_add_up_is_refused(manifest: Manifest) -> None:
    error = refused(replace(manifest, setsum=manifest.setsum + Setsum.of(b"more")))
    assert error.actual == manifest.setsum.hexdigest()
    refused(replace(manifest, collected=Setsum.of(b"other")))


@given(manifests(min_entries=1), st.data())
def test_a_changed_sum_of_an_entry_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(manifest.entries) - 1))
    other = changed(manifest, index, setsum=Setsum.of(b"other"))
    refused(replace(other, setsum=manifest.setsum))


@given(manifests(min_entries=3), st.data())
def test_a_gap_is_refused(manifest: Manifest, data: st.DataObject) -> None:
    refused(without(manifest, data.draw(st.integers(1, len(manifest.entries) - 2))))


@given(manifests(min_entries=2), st.data(), st.integers(-50, 50).filter(bool))
def test_an_overlap_or_a_hole_between_neighbours_is_refused(
    manifest: Manifest, data: st.DataObject, shift: int
) -> None:
    index = data.draw(st.integers(1, len(manifest.entries) - 1))
    start = manifest.entries[index].start
    assume(start.offset + shift >= 0)
    moved = LogPosition(start.offset + shift, start.timestamp_us)
    refused(changed(manifest, index, start=moved))


@given(manifests(min_entries=1), st.data(), st.integers(0, 5))
def test_an_entry_that_spans_nothing_is_refused(
    manifest: Manifest, data: st.DataObject, below: int
) -> None:
    index = data.draw(st.integers(0, len(manifest.entries) - 1))
    start = manifest.entries[index].start
    limit = LogPosition(max(0, start.offset - below), start.timestamp_us)
    refused(changed(manifest, index, limit=limit))


@given(manifests(min_entries=2), st.data())
def test_time_that_goes_back_between_entries_is_refused(
    manifest: Manifest, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(manifest.entries) - 2))
    limit = manifest.entries[index].limit
    later = LogPosition(limit.offset, manifest.entries[index + 1].start.timestamp_us + 1)
    refused(changed(manifest, index, limit=later))


@given(manifests(min_entries=1), st.data())
def test_time_that_goes_back_inside_an_entry_is_refused(
    manifest: Manifest, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(manifest.entries) - 1))
    entry = manifest.entries[index]
    start = LogPosition(entry.start.offset, entry.limit.timestamp_us + 1)
    refused(changed(manifest, index, start=start))


@given(manifests(min_entries=2), st.data())
def test_a_skipped_or_repeated_sequence_number_is_refused(
    manifest: Manifest, data: st.DataObject
) -> None:
    assume(len(manifest.fragments) >= 2)
    index = data.draw(st.integers(1, len(manifest.fragments) - 1))
    seq_no = manifest.fragments[index].seq_no
    assert isinstance(seq_no, int)
    other = data.draw(st.integers(0, 2**40).filter(lambda number: number != seq_no))
    refused(changed(manifest, len(manifest.snapshots) + index, seq_no=other))


@given(manifests(min_entries=1))
def test_entries_before_the_initial_offset_are_refused(manifest: Manifest) -> None:
    refused(replace(manifest, initial_offset=LogPosition(manifest.first_offset + 1)))


# The format version


def versioned(version: object) -> bytes:
    stored = {**json.loads(Manifest.empty("me", "w").to_json()), "format": version}
    return json.dumps(stored).encode()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.999", "1"])
def test_newer_minor_versions_are_read_and_kept(version: str) -> None:
    data = versioned(version)[:-1] + b', "new": true}'
    manifest = decode_manifest(data)
    assert manifest.format == version
    again = json.loads(replace(manifest, writer="other").to_json())
    assert (again["format"], again["new"]) == (version, True)


@pytest.mark.parametrize("version", ["2.0", "2", "10.3", "9" * 5000 + ".0"])
def test_newer_major_versions_are_refused_with_a_hint(version: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode_manifest(versioned(version))
    assert "Upgrade" in caught.value.hint
    assert caught.value.actual == version


def test_a_newer_major_version_is_refused_before_its_fields_are_misread() -> None:
    with pytest.raises(Invalid):
        decode_manifest(b'{"format":"2.0","setsum":{"sha":"x"},"entries":7}')


@pytest.mark.parametrize("version", [1, 2, 2.5, ["2.0"], {"major": 2}])
def test_a_version_that_is_no_text_is_corrupt(version: object) -> None:
    with pytest.raises(Corrupt):
        decode_manifest(versioned(version))


# Snapshots

BROKEN_SNAPSHOTS: dict[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]] = {
    "no children": lambda: ({"fragments": ()}, {}),
    "a child too few": lambda: ({"fragments": make.snapshot().fragments[:1]}, {}),
    "another order": lambda: ({"fragments": make.snapshot().fragments[::-1]}, {}),
    "another sum": lambda: ({"setsum": Setsum.of(b"C")}, {}),
    "a pointer with another sum": lambda: ({}, {"setsum": Setsum.of(b"C")}),
    "a pointer with another start": lambda: ({}, {"start": LogPosition(2)}),
    "a pointer with another limit": lambda: ({}, {"limit": LogPosition(101)}),
    "deeper than its pointer": lambda: ({"depth": 2}, {}),
}


@pytest.mark.parametrize("name", BROKEN_SNAPSHOTS)
def test_a_snapshot_that_is_not_what_its_pointer_promises_is_refused(name: str) -> None:
    of_node, of_pointer = BROKEN_SNAPSHOTS[name]()
    pointer = replace(make.snapshot().pointer(), **of_pointer)
    node = replace(make.snapshot(), **of_node)
    with pytest.raises(Corrupt) as caught:
        node.check(pointer)
    assert caught.value.path == node.path


def test_a_pointer_may_be_deeper_than_its_node_as_wal3_makes_them() -> None:
    make.snapshot().check(replace(make.snapshot().pointer(), depth=3))


def test_a_child_as_deep_as_its_parent_is_refused() -> None:
    child = make.snapshot().pointer()
    parent = replace(make.snapshot(), depth=1, snapshots=(child,), fragments=())
    with pytest.raises(Corrupt, match="deeper"):
        parent.check(replace(parent.pointer(), depth=2))
