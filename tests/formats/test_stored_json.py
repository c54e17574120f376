"""Stored JSON: wal3's forms byte for byte, the order of fields, and fields that we do not know."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import make
from stratalog import Fragment, LogPosition, Manifest, Setsum, Snapshot, SnapshotPointer
from stratalog.errors import Corrupt
from stratalog.objectlog.holds.cursor import StoredCursor
from stratalog.objectlog.stored.manifest import decode_manifest
from stratalog.objectlog.stored.plan import Garbage
from stratalog.objectlog.stored.stored_json import StoredObject
from stratalog.setsum import EMPTY

ZEROS = "0" * 64
A, B = Setsum.of(b"A").hexdigest(), Setsum.of(b"B").hexdigest()
UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

FRESH = (
    f'{{"setsum":"{ZEROS}","collected":"{ZEROS}","acc_bytes":0,"writer":"test",'
    '"snapshots":[],"fragments":[]}'
)
FRAGMENT = (
    '{"path":"log/Bucket=0000000000000000/FragmentSeqNo=0000000000000002.parquet",'
    '"seq_no":2,"start":{"offset":2},"limit":{"offset":3},"num_bytes":1092,'
    f'"setsum":"{B}"}}'
)
SNAPSHOT = (
    f'{{"path":"snapshot/SNAPSHOT.{B}","depth":1,"setsum":"{B}","writer":"log writer",'
    f'"snapshots":[],"fragments":[{FRAGMENT}]}}'
)
CURSOR = '{"position":{"offset":42},"epoch_us":1700000000000000,"writer":"…"}'
WITH_UUID = (
    f'{{"setsum":"{B}","collected":"{ZEROS}","acc_bytes":1092,"writer":"test","snapshots":[],'
    f'"fragments":[{{"path":"log/Uuid={UUID}.parquet","seq_no":"{UUID}",'
    f'"start":{{"offset":1}},"limit":{{"offset":2}},"num_bytes":1092,"setsum":"{B}"}}],'
    f'"initial_offset":{{"offset":1}},"initial_seq_no":"{UUID}"}}'
)
WITHOUT_COLLECTED = FRESH.replace(f'"collected":"{ZEROS}",', "")

OF_WAL3: dict[str, tuple[type[StoredObject], str]] = {
    "fresh manifest": (Manifest, FRESH),
    "manifest": (Manifest, make.wal3_manifest().decode()),
    "manifest with UUIDs": (Manifest, WITH_UUID),
    "manifest without collected": (Manifest, WITHOUT_COLLECTED),
    "snapshot": (Snapshot, SNAPSHOT),
    "cursor": (StoredCursor, CURSOR),
    "empty plan": (Garbage, make.wal3_empty_plan().decode()),
    "older empty plan": (Garbage, make.wal3_empty_plan(uuids="").decode()),
}
OURS: dict[str, tuple[type[StoredObject], str]] = {
    "our manifest": (Manifest, make.manifest().to_json().decode()),
    "our snapshot": (Snapshot, make.snapshot().to_json().decode()),
    "our cursor": (StoredCursor, make.cursor(deleted=True).to_json().decode()),
    "our node of a fork": (Snapshot, make.forked_snapshot().to_json().decode()),
    "our plan": (Garbage, make.plan().to_json().decode()),
    "our empty plan": (Garbage, Garbage.empty("golden", "ba9876543210").to_json().decode()),
}
ALL = {**OF_WAL3, **OURS}


@pytest.mark.parametrize("name", ALL)
def test_a_stored_form_comes_back_byte_for_byte(name: str) -> None:
    cls, text = ALL[name]
    assert cls.from_json(text.encode()).to_json() == text.encode()


@pytest.mark.parametrize("name", ALL)
def test_fields_are_written_in_their_order_whatever_order_they_came_in(name: str) -> None:
    cls, text = ALL[name]
    backwards = json.dumps(reversed_fields(json.loads(text)), ensure_ascii=True)
    assert cls.from_json(backwards.encode()).to_json() == text.encode()


def reversed_fields(value: object) -> object:
    if isinstance(value, dict):
        return {name: reversed_fields(part) for name, part in reversed(value.items())}
    if isinstance(value, list):
        return [reversed_fields(part) for part in value]
    return value


def test_the_fields_of_a_manifest_in_order() -> None:
    assert (
        list(json.loads(make.manifest().to_json()))
        == (
            "setsum collected acc_bytes writer snapshots fragments initial_offset initial_seq_no "
            "format write_id linked sweep_epoch seal"
        ).split()
    )


def test_the_fields_of_a_plan_in_order() -> None:
    assert (
        list(json.loads(make.plan().to_json()))
        == (
            "snapshots_to_drop snapshots_to_make snapshot_for_root fragments_to_drop_start "
            "fragments_to_drop_limit fragments_are_uuids setsum_to_discard first_to_keep format "
            "write_id writer plan_id fragments_to_drop snapshots_to_replace root_before "
            "first_seq_no_to_keep sweep_epoch published_us"
        ).split()
    )


def test_a_sequence_number_may_be_a_uuid() -> None:
    manifest = decode_manifest(WITH_UUID.encode())
    assert manifest.fragments[0].seq_no == UUID == manifest.initial_seq_no


def test_absent_collected_counts_as_nothing_and_stays_absent() -> None:
    manifest = decode_manifest(WITHOUT_COLLECTED.encode())
    assert manifest.collected is msgspec.UNSET
    changed = msgspec.structs.replace(manifest, writer="other")
    assert b"collected" not in changed.to_json()
    collected = msgspec.structs.replace(manifest, collected=EMPTY)
    assert collected.to_json() == FRESH.encode()


def test_null_in_place_of_an_optional_field_is_the_same_as_none_with_and_without_strangers() -> (
    None
):
    for stranger in ("", ',"stranger":1'):
        data = f'{FRESH[:-1]},"initial_offset":null,"linked":null{stranger}}}'.encode()
        manifest = Manifest.from_json(data)
        assert manifest.initial_offset is None
        assert manifest.linked is None


# Fields that we do not know

UNKNOWN_NAMES = st.one_of(
    st.sampled_from(
        ["unknown", "<unknown>", "later", "count", "seq_first", "sinks", "ä", "", "\n"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
UNKNOWN_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
KNOWN_NAMES = {
    field.encode_name
    for cls in (Manifest, Snapshot, SnapshotPointer, Fragment, LogPosition, StoredCursor, Garbage)
    for field in msgspec.structs.fields(cls)
    if field.name != "unknown"
}


def objects_in(value: Any, name: str = "") -> Iterator[dict[str, Any]]:
    """Every stored object inside of one, itself included. Free-form parts are none."""
    if isinstance(value, dict) and name not in ("linked", "seal"):
        yield value
        for part_name, part in value.items():
            yield from objects_in(part, part_name)
    elif isinstance(value, list):
        for part in value:
            yield from objects_in(part)


@st.composite
def strange(draw: st.DrawFn) -> tuple[type[StoredObject], dict[str, Any]]:
    """A stored object with unknown fields at any levels."""
    cls, text = ALL[draw(st.sampled_from(sorted(ALL)))]
    value = json.loads(text)
    places = list(objects_in(value))
    for index in draw(st.lists(st.integers(0, len(places) - 1), min_size=1, max_size=4)):
        name = draw(UNKNOWN_NAMES.filter(lambda name: name not in KNOWN_NAMES))
        places[index][name] = draw(UNKNOWN_VALUES)
    return cls, value


@given(strange(), st.booleans(), st.booleans())
def test_unknown_fields_at_every_level_survive_a_change_of_a_known_one(
    case: tuple[type[StoredObject], dict[str, Any]], ascii_only: bool, spaced: bool
) -> None:
    cls, stored = case
    data = json.dumps(stored, ensure_ascii=ascii_only, indent=1 if spaced else None).encode()
    changed: Any = msgspec.structs.replace(cls.from_json(data), writer="another")
    expected = copy.deepcopy(stored)
    expected["writer"] = "another"
    assert json.loads(changed.to_json()) == expected
    assert cls.from_json(changed.to_json()) == changed


def test_a_position_keeps_its_unknown_fields_and_is_still_a_position() -> None:
    data = CURSOR.replace('"offset":42', '"offset":42,"node":7').encode()
    cursor = StoredCursor.from_json(data)
    assert isinstance(cursor.position, LogPosition)
    assert cursor.position.offset == 42
    assert cursor.to_json() == data


def test_a_field_that_comes_twice_counts_once() -> None:
    for stranger in ("", ',"stranger":1,"stranger":2'):
        data = FRESH.replace('"acc_bytes":0', f'"acc_bytes":7,"acc_bytes":9{stranger}')
        manifest = Manifest.from_json(data.encode())
        assert manifest.acc_bytes == 9
        assert manifest.to_json().count(b"acc_bytes") == 1
        assert manifest.to_json().count(b"stranger") == (1 if stranger else 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("acc_bytes", "-1"),
        ("acc_bytes", "1.5"),
        ("acc_bytes", "1e3"),
        ("acc_bytes", "9223372036854775808"),
        ("acc_bytes", "9" * 5000),
        ("acc_bytes", "NaN"),
        ("acc_bytes", "Infinity"),
        ("acc_bytes", "true"),
        ("acc_bytes", '"1"'),
        ("acc_bytes", "null"),
        ("setsum", '"00"'),
        ("setsum", f'"{"f" * 64}"'),
        ("setsum", "0"),
        ("writer", "1"),
        ("writer", '"\\ud800"'),
        ("writer", '"\\udc00\\ud800"'),
        ("fragments", "{}"),
        ("fragments", "[1]"),
        ("fragments", "[null]"),
        ("fragments", "null"),
        ("initial_offset", "3"),
        ("initial_offset", '{"offset":-1}'),
        ("initial_offset", '{"offset":null}'),
        ("initial_offset", '{"timestamp_us":1}'),
        ("linked", '{"a":-1}'),
        ("linked", "[]"),
        ("seal", "{"),
        ("seal", "[" * 100_000 + "]" * 100_000),
        ("later", "[" * 100_000 + "]" * 100_000),
        ("later", '{"a":' * 100_000 + "1" + "}" * 100_000),
        ("later", "01"),
    ],
)
@pytest.mark.parametrize("stranger", ["", ',"stranger":{}'])
def test_a_wrong_value_is_corrupt_with_the_path(field: str, value: str, stranger: str) -> None:
    start = FRESH[:-1] + stranger
    data = f'{start},"{field}":{value}}}'.encode()
    with pytest.raises(Corrupt) as caught:
        Manifest.from_json(data, "manifest/MANIFEST")
    assert caught.value.path == "manifest/MANIFEST"


@pytest.mark.parametrize("field", ["setsum", "acc_bytes", "writer", "snapshots", "fragments"])
@pytest.mark.parametrize("stranger", [{}, {"stranger": 1}])
def test_a_missing_field_is_corrupt(field: str, stranger: dict[str, int]) -> None:
    stored = {**json.loads(FRESH), **stranger}
    del stored[field]
    with pytest.raises(Corrupt, match=field):
        Manifest.from_json(json.dumps(stored).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b"7",
        b'"text"',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        FRESH.encode()[:-1],
        FRESH.encode() + b"}",
        FRESH.encode() + FRESH.encode(),
        FRESH.encode().replace(b'"test"', b'"\xff"'),
        FRESH.encode()[:-1] + b',"later":"\xff"}',
        FRESH.encode()[:-1] + b',"seal":"\xff"}',
        FRESH.encode()[:-1] + b',"\xff":1}',
        FRESH.encode()[:-1] + b',"later":"\xed\xa0\x80"}',
        FRESH.encode().decode().encode("utf-16"),
    ],
)
def test_what_is_not_the_object_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        Manifest.from_json(data)
    with pytest.raises(Corrupt):
        decode_manifest(data)
