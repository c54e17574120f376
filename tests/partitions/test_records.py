"""Records come back as they were, and any bytes give records or `Undecodable`."""

from __future__ import annotations

import gzip
import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import Invalid
from stratalog.partitions import (
    DEFAULT_LIMITS,
    Batch,
    Codec,
    NewRecord,
    Undecodable,
    check_batch,
    decode_records,
    encode_batch,
)
from stratalog.partitions.batch import HEAD, HEAD_BYTES, checksum
from stratalog.partitions.compression import compress, decompress

LIMIT = 1 << 20
blobs = st.none() | st.binary(max_size=40)
records = st.builds(
    NewRecord,
    key=blobs,
    value=blobs,
    time_ms=st.integers(-1, 1 << 50),
    headers=st.lists(st.tuples(st.binary(max_size=5), blobs), max_size=3).map(tuple),
)


def with_body(body: bytes, count: int = 1, codec: int = 0, *, first: int = 0) -> Batch:
    """A batch with any body, whose checksum is right."""
    data = bytearray(HEAD_BYTES) + body
    length = len(data) - 12
    HEAD.pack_into(data, 0, 0, length, 0, 2, 0, codec, count - 1, first, first, -1, -1, -1, count)
    struct.pack_into(">I", data, 17, checksum(data))
    return Batch.over(data)


@given(st.lists(records, min_size=1, max_size=20), st.sampled_from(Codec), st.integers(0, 2**62))
def test_records_come_back_as_they_were(
    written: list[NewRecord], codec: Codec, base_offset: int
) -> None:
    batch = Batch.over(encode_batch(written, codec))
    found = list(decode_records(batch, base_offset))
    assert [record.offset for record in found] == [base_offset + n for n in range(len(written))]
    assert [(r.key, r.value, r.time_ms, r.headers) for r in found] == [
        (r.key, r.value, r.time_ms, r.headers) for r in written
    ]


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("size", [0, 1, 1000, 65536, 300_000])
def test_every_codec_gives_back_what_it_took(codec: Codec, size: int) -> None:
    for data in (bytes(size), random.Random(size).randbytes(size)):
        packed = compress(data, codec)
        assert decompress(memoryview(packed), codec, size) == data


def test_what_other_libraries_write_is_read() -> None:
    data = b"the same again and again " * 5000
    assert decompress(memoryview(gzip.compress(data)), Codec.GZIP, LIMIT) == data
    two = gzip.compress(data[:1000]) + gzip.compress(data[1000:])
    assert decompress(memoryview(two), Codec.GZIP, LIMIT) == data
    raw = pa.Codec("snappy").compress(data, asbytes=True)
    assert decompress(memoryview(raw), Codec.SNAPPY, LIMIT) == data
    for codec, name in ((Codec.LZ4, "lz4"), (Codec.ZSTD, "zstd")):
        framed = pa.Codec(name).compress(data, asbytes=True)
        assert decompress(memoryview(framed), codec, LIMIT) == data


@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.name.lower())
def test_a_batch_that_swells_beyond_the_limit_is_not_decoded(codec: Codec) -> None:
    packed = memoryview(compress(bytes(LIMIT + 1), codec))
    assert len(packed) < LIMIT / 10
    with pytest.raises(Undecodable):
        decompress(packed, codec, LIMIT)
    assert len(decompress(packed, codec, LIMIT + 1)) == LIMIT + 1


def test_snappy_that_claims_a_lot_is_not_believed() -> None:
    claims = b"\xff\xff\xff\x3f" + bytes(20)
    with pytest.raises(Undecodable):
        decompress(memoryview(claims), Codec.SNAPPY, 1 << 40)


@pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.name.lower())
def test_every_cut_inside_of_a_codec_is_noticed(codec: Codec) -> None:
    data = random.Random(1).randbytes(200)
    packed = compress(data, codec)
    for size in range(len(packed)):
        try:
            found = decompress(memoryview(packed[:size]), codec, LIMIT)
        except Undecodable:
            continue
        assert found != data or size >= len(packed) - 4  # the end mark of a frame says nothing


@given(st.binary(max_size=80), st.integers(0, 7), st.integers(1, 40))
def test_any_body_gives_records_or_undecodable(body: bytes, codec: int, count: int) -> None:
    try:
        found = list(decode_records(with_body(body, count, codec), 5, LIMIT))
    except Undecodable:
        return
    assert len(found) == count
    assert all(5 <= record.offset < 5 + count for record in found)


@given(
    st.lists(records, min_size=1, max_size=4),
    st.sampled_from(Codec),
    st.integers(0, 10_000),
    st.integers(1, 255),
)
def test_any_damage_to_a_body_gives_records_or_undecodable(
    written: list[NewRecord], codec: Codec, place: int, by: int
) -> None:
    data = encode_batch(written, codec)
    data[HEAD_BYTES + place % (len(data) - HEAD_BYTES)] ^= by
    try:
        found = list(decode_records(Batch.over(data), 0, LIMIT))
    except Undecodable:
        return
    assert len(found) == len(written)


RECORD = bytes(encode_batch([NewRecord(b"k", b"v", 0, ((b"h", b"x"),))]))[HEAD_BYTES:]
WRONG = {
    "no record": b"",
    "a record too few": RECORD,
    "bytes behind the records": RECORD + RECORD + b"\0",
    "the same offset delta again": RECORD + RECORD,
    "a length beyond the end": b"\x7e" + RECORD[1:] + RECORD,
    "a number without an end": b"\xff" * 20,
    "a record shorter than it says": bytes([RECORD[0] + 2]) + RECORD[1:] + b"\0",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_body_that_is_not_what_its_head_says_is_undecodable(what: str) -> None:
    batch = with_body(WRONG[what], 2)
    check_batch(batch.data, DEFAULT_LIMITS, 0) if len(WRONG[what]) >= 14 else None
    with pytest.raises(Undecodable):
        list(decode_records(batch, 0))


def test_a_time_outside_of_64_bits_is_undecodable() -> None:
    (last,) = decode_records(with_body(RECORD, first=2**63 - 1), 0)
    assert last.time_ms == 2**63 - 1
    later = bytes(encode_batch([NewRecord(None, None, 0), NewRecord(None, None, 5)]))[HEAD_BYTES:]
    with pytest.raises(Undecodable):
        list(decode_records(with_body(later, 2, first=2**63 - 3), 0))


def test_a_batch_without_records_is_not_made() -> None:
    with pytest.raises(Invalid):
        encode_batch([])


def test_many_members_of_gzip_in_pieces_of_any_size_are_read() -> None:
    parts = [random.Random(size).randbytes(size) for size in (0, 0, 1, 20_000, 0, 50_000, 7)] * 20
    packed = memoryview(b"".join(map(gzip.compress, parts)))
    assert decompress(packed, Codec.GZIP, LIMIT * 10) == b"".join(parts)
    for cut in (1, 7, 20_011):
        with pytest.raises(Undecodable):
            decompress(packed[:-cut], Codec.GZIP, LIMIT * 10)
