"""Any bytes give a value or ``Corrupt``: never another error, never a value that is not stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import make
from stratalog import Fragment, Manifest, Snapshot
from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.holds.cursor import StoredCursor
from stratalog.objectlog.holds.stored_pin import StoredPin
from stratalog.objectlog.holds.upload_guard import StoredUploadGuard
from stratalog.objectlog.stored.fragment import decode_fragment, encode_fragment
from stratalog.objectlog.stored.manifest import decode_manifest
from stratalog.objectlog.stored.plan import GARBAGE_PATH, Garbage, PlanState
from stratalog.objectlog.stored.policy import Policy
from stratalog.objectlog.stored.stored_json import StoredObject, decode_document
from stratalog.setsum import EMPTY

T = TypeVar("T")

VALID: list[tuple[type[StoredObject], bytes]] = [
    (Manifest, make.manifest().to_json()),
    (Manifest, make.wal3_manifest()),
    (Snapshot, make.snapshot().to_json()),
    (StoredCursor, make.cursor(deleted=True, held=99).to_json()),
    (StoredUploadGuard, make.stage().to_json()),
    (StoredPin, make.pin().to_json()),
    (StoredPin, make.pin(released=True).to_json()),
    (Policy, make.policy().to_json()),
    (Policy, make.policy(by_query=True).to_json()),
    (Manifest, make.sealed_manifest().to_json()),
    (Manifest, make.forked_manifest().to_json()),
    (Manifest, make.copied_manifest().to_json()),
    (Snapshot, make.forked_snapshot().to_json()),
    (Garbage, make.plan().to_json()),
    (Garbage, Garbage.empty("golden", "ba9876543210").to_json()),
    (Garbage, make.wal3_empty_plan()),
]
KINDS: list[type[StoredObject]] = [
    Manifest,
    Snapshot,
    StoredCursor,
    StoredUploadGuard,
    StoredPin,
    Policy,
    Garbage,
]

ENCODED = encode_fragment(make.FIRST_OFFSET, make.TIMESTAMP_US, make.BODIES)
LARGER_BODIES = [bytes(range(256)) * 3, b"", b"x" * 700]
LARGER = encode_fragment(make.FIRST_OFFSET, make.TIMESTAMP_US, LARGER_BODIES)
FRAGMENTS: list[tuple[bytes, Fragment, list[bytes]]] = [
    (ENCODED.data, make.entry(1, 100, 3, ENCODED.setsum), make.BODIES),
    (LARGER.data, make.entry(1, 100, 3, LARGER.setsum), LARGER_BODIES),
    (make.relative_fragment(), make.entry(1, 100, 3, make.relative_setsum()), make.BODIES),
]


def check_json(cls: type[StoredObject], data: bytes) -> None:
    """A value that can be stored and comes back, or the one error, with the path."""
    value, refusal = attempt(lambda: cls.from_json(data, "a/path"))
    if value is None:
        assert refusal == "a/path"
    else:
        assert cls.from_json(value.to_json()) == value
        assert cls.from_json(value.to_json()).to_json() == value.to_json()


def attempt(decode: Callable[[], T]) -> tuple[T | None, str | None]:
    """The value, or the path of the object that was refused as corrupt."""
    try:
        return decode(), None
    except Corrupt as error:
        return None, error.path


@st.composite
def damaged(draw: st.DrawFn, original: bytes) -> bytes:
    """Valid bytes with bits flipped, parts cut out, repeated, inserted, or the end cut off."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(1, 12))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "repeat", "truncate", "set"]))
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set" and at < len(data):
            data[at] = draw(st.sampled_from([0, 0x7F, 0x80, 0xFF, *b'{}[]",:\\-1e0']))
        elif kind == "cut":
            del data[at : at + size]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif kind == "repeat":
            data[at:at] = data[at : at + size]
        elif kind == "truncate":
            del data[at:]
    return bytes(data)


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from([2**63 - 1, 2**63, 2**64, -1, "0" * 64, "\ud800", EMPTY.hexdigest()]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_random_bytes_as_json(cls: type[StoredObject], data: bytes) -> None:
    check_json(cls, data)


@given(st.data())
def test_damaged_json(data: st.DataObject) -> None:
    cls, valid = data.draw(st.sampled_from(VALID))
    check_json(cls, data.draw(damaged(valid)))


@given(st.data(), st.booleans())
def test_well_formed_json_with_any_values_in_any_place(
    data: st.DataObject, ascii_only: bool
) -> None:
    cls, valid = data.draw(st.sampled_from(VALID))
    stored = json.loads(valid)
    place: Any = stored
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(ANY_JSON)
        break
    text = json.dumps(stored, ensure_ascii=ascii_only)
    check_json(cls, text.encode(errors="surrogatepass"))


@given(st.data())
def test_damaged_manifests_are_whole_or_refused(data: st.DataObject) -> None:
    damage = data.draw(damaged(make.manifest().to_json()))
    try:
        manifest, _ = attempt(lambda: decode_manifest(damage))
    except Invalid as error:
        # Damage may look like a newer format, which is refused as such.
        assert error.hint == "Upgrade stratalog."  # noqa: PT017
    else:
        assert manifest is None or manifest == Manifest.from_json(damage)


@given(st.data())
def test_damaged_plans_are_read_or_refused_and_what_is_read_can_be_judged(
    data: st.DataObject,
) -> None:
    _, valid = data.draw(st.sampled_from([each for each in VALID if each[0] is Garbage]))
    damage = data.draw(damaged(valid))
    manifest, _ = make.tree_to_collect()
    try:
        plan, refusal = attempt(lambda: decode_document(Garbage, damage, GARBAGE_PATH))
    except Invalid as error:
        # Damage may look like a newer format, which is refused as such.
        assert error.hint == "Upgrade stratalog."  # noqa: PT017
        return
    if plan is None:
        assert refusal == GARBAGE_PATH
    else:
        assert plan.is_empty is (plan.state(manifest) is PlanState.EMPTY)
        assert not plan.is_empty or (plan.records, plan.fragment_bytes) == (0, 0)


@pytest.mark.parametrize("cls", KINDS)
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"fragments":[', b'{"position":{"a":'])
def test_deep_nesting_is_corrupt(cls: type[StoredObject], opening: bytes) -> None:
    with pytest.raises(Corrupt):
        cls.from_json(opening * 100_000)


def check_fragment(data: bytes, entry: Fragment, bodies: list[bytes]) -> None:
    """Verified, damage is noticed or did no harm; unverified, it is no other error."""
    for verify in (True, False):
        batch, refusal = attempt(partial(decode_fragment, data, entry, verify=verify))
        if batch is None:
            assert refusal == entry.path
        else:
            assert batch.num_rows == entry.count
            batch.validate(full=True)
            assert not verify or batch.column(2).to_pylist() == bodies


@given(st.binary(max_size=500))
def test_random_bytes_as_a_fragment(data: bytes) -> None:
    for framed in (data, b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1"):
        with pytest.raises(Corrupt):
            decode_fragment(framed, FRAGMENTS[0][1])


@given(st.data())
def test_damaged_fragments(data: st.DataObject) -> None:
    valid, entry, bodies = data.draw(st.sampled_from(FRAGMENTS))
    check_fragment(data.draw(damaged(valid)), entry, bodies)


@pytest.mark.parametrize("case", range(len(FRAGMENTS)))
def test_truncated_fragments_at_every_length(case: int) -> None:
    valid, entry, _ = FRAGMENTS[case]
    for length in range(len(valid)):
        with pytest.raises(Corrupt):
            decode_fragment(valid[:length], entry)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(FRAGMENTS)))
def test_every_single_bit_of_a_fragment(case: int) -> None:
    valid, entry, bodies = FRAGMENTS[case]
    for bit in range(8 * len(valid)):
        flipped = bytearray(valid)
        flipped[bit // 8] ^= 1 << bit % 8
        check_fragment(bytes(flipped), entry, bodies)
