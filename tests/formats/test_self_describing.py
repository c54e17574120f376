"""The record of a soak: stable bytes, and an answer for any bytes at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.stored.self_describing import (
    HEADER_BYTES,
    MAGIC,
    SelfDescribed,
    decode_described,
    encode_described,
)

SMALL = SelfDescribed("00112233445566ff", 7, 12345, 40)
GOLDEN = (
    "93534f414b0d0a01"  # magic
    "00112233445566ff"  # run
    "00000007"  # writer
    "0000000000003039"  # number
    "00000028"  # length
)

RUNS = st.binary(min_size=8, max_size=8).map(bytes.hex)


def test_the_stored_bytes_are_stable() -> None:
    body = encode_described(SMALL)
    assert body.hex() == GOLDEN + "83fce473" + "7060a597"


@given(RUNS, st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(36, 3000))
def test_what_is_written_is_read(run: str, writer: int, number: int, length: int) -> None:
    described = SelfDescribed(run, writer, number, length)
    body = encode_described(described)
    assert len(body) == length
    assert decode_described(body) == decode_described(memoryview(body)) == described


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_of_another_kind_or_refused(data: bytes, begins_like_one: bool) -> None:
    data = MAGIC + data if begins_like_one else data
    try:
        found = decode_described(data)
    except Corrupt:
        assert data.startswith(MAGIC)
        return
    if found is None:
        assert not data.startswith(MAGIC)
    else:
        assert encode_described(found)[: HEADER_BYTES - 4] == data[: HEADER_BYTES - 4]


@given(st.integers(0, 59), st.integers(1, 255))
def test_a_flipped_byte_is_noticed(index: int, change: int) -> None:
    body = bytearray(encode_described(SelfDescribed("ab" * 8, 1, 2, 60)))
    body[index] ^= change
    if index < len(MAGIC):
        assert decode_described(bytes(body)) is None
    else:
        with pytest.raises(Corrupt):
            decode_described(bytes(body))


@pytest.mark.parametrize("size", [8, 35, 39, 41])
def test_another_length_than_stated_is_noticed(size: int) -> None:
    with pytest.raises(Corrupt):
        decode_described((encode_described(SMALL) + b"more")[:size])


@pytest.mark.parametrize("length", [0, 35, 2**32])
def test_a_length_that_no_such_record_has_is_refused(length: int) -> None:
    with pytest.raises(Invalid):
        encode_described(SMALL._replace(length=length))
