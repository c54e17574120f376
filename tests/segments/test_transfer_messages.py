"""Messages of a copy: what is encoded is decoded; anything else is refused."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import Corrupt, Full, Invalid, NotFound, Unavailable
from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments import Entries
from stratalog.segments.format.checksum import crc32
from stratalog.segments.format.entries import NO_ENTRIES
from stratalog.segments.transfer.messages import (
    Ack,
    End,
    Failed,
    Has,
    Message,
    Offer,
    Put,
    StatePart,
    decode_message,
    encode_message,
)

SETS = st.sets(st.integers(1, 10_000), max_size=20).map(IndexSet.of)
NUMBERS = st.integers(0, INDEX_MAX)
CRCS = st.integers(0, 2**32 - 1)


@st.composite
def offers(draw: st.DrawFn) -> Offer:
    checkpoint = draw(st.integers(0, 10_000))
    last = draw(st.integers(checkpoint, 20_000))
    firsts = sorted(draw(st.sets(st.integers(1, last), max_size=5))) if last else []
    epochs = sorted(draw(st.sets(st.integers(1, 99), min_size=len(firsts), max_size=len(firsts))))
    return Offer(
        checkpoint=checkpoint,
        live=draw(SETS).limit(checkpoint),
        last=last,
        steps=tuple(zip(firsts, epochs, strict=True)),
        state_bytes=draw(NUMBERS) if checkpoint else 0,
        state_crc=draw(CRCS) if checkpoint else 0,
    )


@st.composite
def puts(draw: st.DrawFn) -> Put:
    previous = draw(st.integers(0, 1000))
    payloads = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
    entries = Entries.following(previous, draw(st.integers(1, 99)), payloads)
    return Put.of(draw(NUMBERS), previous, entries)


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    offers(),
    puts(),
    st.builds(
        Has,
        indexes=SETS,
        last=NUMBERS,
        wants_state=st.booleans(),
        cut_after=st.none() | NUMBERS,
    ),
    st.builds(StatePart, number=NUMBERS, start=NUMBERS, crc=CRCS, body=st.binary()),
    st.builds(End, number=NUMBERS),
    st.builds(Ack, number=NUMBERS),
    st.builds(Failed, kind=st.text(), message=st.text(), hint=st.text()),
)


@given(MESSAGES)
def test_a_message_comes_out_as_it_went_in(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(st.integers(0, 1000), st.lists(st.binary(max_size=20), min_size=1))
def test_entries_keep_their_heads_and_payloads(previous: int, payloads: list[bytes]) -> None:
    entries = Entries.following(previous, 3, payloads)
    message = decode_message(encode_message(Put.of(1, previous, entries)))
    assert isinstance(message, Put)
    assert message.entries() == entries


@given(st.binary() | st.binary().map(lambda data: b"SLT2" + data))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    with contextlib.suppress(Corrupt, Invalid):
        message = decode_message(data)
        if isinstance(message, Put):
            message.entries()


@given(MESSAGES.map(encode_message), st.data())
def test_a_changed_byte_is_found_by_whoever_uses_the_message(
    encoded: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(encoded) - 1))
    changed = bytearray(encoded)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        message = decode_message(bytes(changed))
        if isinstance(message, Put):
            message.entries()
    except (Corrupt, Invalid):
        return
    # Only the body of a state is left, whose checksum the replica carries on from part to part.
    assert isinstance(message, StatePart)
    assert at >= len(encoded) - len(message.body)


@given(MESSAGES.map(encode_message), st.data())
def test_a_message_that_is_cut_off_is_refused(encoded: bytes, data: st.DataObject) -> None:
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    try:
        message = decode_message(cut)
        if isinstance(message, Put):
            message.entries()
    except Corrupt:
        return
    assert isinstance(message, StatePart)


def test_more_than_a_message_is_refused() -> None:
    with pytest.raises(Corrupt, match="more than it describes"):
        decode_message(encode_message(Ack(number=1)) + b"x")


def test_a_message_of_a_newer_version_says_so() -> None:
    with pytest.raises(Invalid, match="version"):
        decode_message(b"SLT3" + encode_message(Ack(number=1))[4:])


@pytest.mark.parametrize(
    "impossible",
    [
        {"checkpoint": 6},
        {"checkpoint": -1},
        {"last": INDEX_MAX + 1},
        {"live": IndexSet.of([4])},
        {"live": IndexSet.of([0])},
        {"steps": ((0, 1),)},
        {"steps": ((6, 1),)},
        {"steps": ((1, 2), (2, 1))},
        {"steps": ((1, -1),)},
        {"state_bytes": -1},
        {"checkpoint": 0, "live": IndexSet()},
    ],
)
def test_an_offer_of_an_impossible_log_is_refused(impossible: dict[str, object]) -> None:
    offer = Offer(
        checkpoint=3, live=IndexSet.of([2]), last=5, steps=((1, 1),), state_bytes=9, state_crc=7
    )
    with pytest.raises(Corrupt):
        decode_message(encode_message(msgspec.structs.replace(offer, **impossible)))


@pytest.mark.parametrize(
    ("heads", "body", "previous"),
    [
        (NO_ENTRIES, b"", 0),
        (Entries.following(4, 1, [b"a"]), b"a", 5),
        (Entries.following(4, 1, [b"a"]), b"a", -1),
        (Entries.following(4, 1, [b"a"]), b"ab", 4),
        (Entries.following(4, 1, [b"a"]), b"b", 4),
    ],
)
def test_entries_that_are_none_are_refused(heads: Entries, body: bytes, previous: int) -> None:
    message = Put(number=1, previous=previous, heads=heads.heads.tobytes(), body=body)
    with pytest.raises(Corrupt):
        message.entries()


def test_a_failure_is_raised_at_the_other_side_as_what_it_was() -> None:
    told = Failed.of(Full("no room", hint="Free some space."))
    raised = told.error("the replica")
    assert isinstance(raised, Full)
    assert str(raised) == "the replica: no room"
    assert raised.hint == "Free some space."


def test_a_failure_that_is_no_business_of_the_other_side_means_that_nothing_comes() -> None:
    assert isinstance(Failed.of(NotFound("removed")).error("the source"), Unavailable)


def framed(description: bytes, body: bytes = b"") -> bytes:
    """What a peer can send that means harm: the checksum fits."""
    front = b"SLT2" + len(description).to_bytes(4, "little")
    return front + crc32(description).to_bytes(4, "little") + description + body


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(max_size=9) | st.integers(0, 99), inner)
    ),
    max_leaves=9,
)


def described(message: Message) -> bytes:
    encoded = encode_message(message)
    return encoded[12 : 12 + int.from_bytes(encoded[4:8], "little")]


def must_be_typed(message: bytes) -> None:
    with contextlib.suppress(Corrupt, Invalid):
        decode_message(message)


@given(st.binary(max_size=200), st.binary(max_size=9))
def test_any_description_with_a_checksum_that_fits_is_a_message_or_refused(
    description: bytes, body: bytes
) -> None:
    must_be_typed(framed(description, body))


@given(MESSAGES, ANYTHING, st.data())
def test_any_value_in_any_place_is_a_message_or_refused(
    message: Message, value: object, data: st.DataObject
) -> None:
    plain = msgspec.msgpack.decode(described(message), strict=False)
    plain[data.draw(st.sampled_from(sorted(plain)))] = value
    must_be_typed(framed(msgspec.msgpack.encode(plain)))


@given(MESSAGES, st.data())
def test_a_changed_byte_under_a_new_checksum_is_a_message_or_refused(
    message: Message, data: st.DataObject
) -> None:
    description = bytearray(described(message))
    at = data.draw(st.integers(0, len(description) - 1))
    description[at] = data.draw(st.integers(0, 255))
    must_be_typed(framed(bytes(description)))


def test_text_that_is_no_text_is_refused() -> None:
    failed = described(Failed(kind="full", message="abc", hint=""))
    with pytest.raises(Corrupt):
        decode_message(framed(failed.replace(b"abc", b"a\xffc")))


def test_a_message_that_nests_without_end_is_refused() -> None:
    deep = b"\x81\xa4type" + b"\x91" * 100_000 + b"\xc0"
    for description in (deep, b"\x82\xa4type\xa3ack\xa4more" + b"\x91" * 100_000 + b"\xc0"):
        with pytest.raises(Corrupt):
            decode_message(framed(description))
