"""What the door lets in: one batch that every consumer can read, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import Corrupt
from stratalog.partitions import (
    DEFAULT_LIMITS,
    Batch,
    BatchFault,
    BatchLimits,
    Codec,
    NewRecord,
    RefusedBatch,
    batches_in,
    check_batch,
    decode_records,
    encode_batch,
    set_append_time,
    time_of,
)
from stratalog.partitions.batch import HEAD, HEAD_BYTES, stamp_stored, write_base_offset

NOW_MS = 1_700_000_000_000
PLACES = {
    "base_offset": 0,
    "length": 1,
    "leader_epoch": 2,
    "magic": 3,
    "attributes": 5,
    "last_offset_delta": 6,
    "first_timestamp": 7,
    "max_timestamp": 8,
    "producer_id": 9,
    "producer_epoch": 10,
    "base_sequence": 11,
    "count": 12,
}


def batch(count: int = 3, codec: Codec = Codec.NONE) -> bytearray:
    return encode_batch([NewRecord(b"key", b"value", NOW_MS)] * count, codec)


def changed(data: bytearray, **fields: int) -> bytearray:
    """With other fields in its head, and the checksum that belongs to them."""
    head = list(HEAD.unpack_from(data))
    for name, value in fields.items():
        head[PLACES[name]] = value
    HEAD.pack_into(data, 0, *head)
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))
    return data


def refused(data: bytes | bytearray, limits: BatchLimits = DEFAULT_LIMITS) -> BatchFault:
    with pytest.raises(RefusedBatch) as caught:
        check_batch(data, limits, NOW_MS)
    assert caught.value.hint
    return caught.value.fault


def test_a_batch_has_the_fields_of_its_head_and_shares_its_memory() -> None:
    data = changed(batch(), producer_id=7, producer_epoch=2, base_sequence=40)
    found = check_batch(data, DEFAULT_LIMITS, NOW_MS)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 2, 40)
    assert (found.count, found.last_offset_delta, found.magic) == (3, 2, 2)
    assert (found.first_timestamp, found.max_timestamp) == (NOW_MS, NOW_MS)
    assert found.data.obj is data


def test_the_head_has_61_bytes_in_the_order_of_the_protocol() -> None:
    data = bytes(range(1, 62))
    found = Batch(memoryview(data), *HEAD.unpack_from(data))
    assert len(data) == HEAD_BYTES
    assert found.base_offset == 0x0102030405060708
    assert (found.length, found.leader_epoch, found.magic) == (0x090A0B0C, 0x0D0E0F10, 0x11)
    assert (found.crc, found.attributes) == (0x12131415, 0x1617)
    assert found.count == 0x3A3B3C3D


def test_every_flipped_bit_under_the_checksum_is_noticed() -> None:
    data = batch()
    for place in range(17, len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            assert refused(data) == BatchFault.CORRUPT
            data[place] ^= 1 << bit
    check_batch(data, DEFAULT_LIMITS, NOW_MS)


def test_every_cut_is_noticed() -> None:
    data = batch()
    for size in range(len(data)):
        refused(data[:size])


REFUSED: list[tuple[str, Callable[[], bytearray], BatchFault]] = [
    ("two batches", lambda: batch() + batch(), BatchFault.INVALID_RECORD),
    ("bytes behind it", lambda: batch() + b"x", BatchFault.INVALID_RECORD),
    ("a length beyond its memory", lambda: changed(batch(), length=1000), BatchFault.CORRUPT),
    ("a negative length", lambda: changed(batch(), length=-1), BatchFault.CORRUPT),
    ("the largest length", lambda: changed(batch(), length=2**31 - 1), BatchFault.CORRUPT),
    ("magic 1", lambda: changed(batch(), magic=1), BatchFault.UNSUPPORTED_FORMAT),
    ("magic 0", lambda: changed(batch(), magic=0), BatchFault.UNSUPPORTED_FORMAT),
    ("magic 3", lambda: changed(batch(), magic=3), BatchFault.UNSUPPORTED_FORMAT),
    ("no records", lambda: changed(batch(), count=0), BatchFault.INVALID_RECORD),
    ("fewer than none", lambda: changed(batch(), count=-1), BatchFault.INVALID_RECORD),
    (
        "no records and an empty range",
        lambda: changed(batch(), count=0, last_offset_delta=-1),
        BatchFault.INVALID_RECORD,
    ),
    ("a gap in offsets", lambda: changed(batch(), last_offset_delta=7), BatchFault.INVALID_RECORD),
    (
        "more records than bytes",
        lambda: changed(batch(), count=2**31 - 1, last_offset_delta=2**31 - 2),
        BatchFault.INVALID_RECORD,
    ),
    (
        "more compressed records than may ever be decoded",
        lambda: changed(batch(3, Codec.ZSTD), count=2**31 - 1, last_offset_delta=2**31 - 2),
        BatchFault.INVALID_RECORD,
    ),
    ("a base offset", lambda: changed(batch(), base_offset=1), BatchFault.INVALID_RECORD),
    ("codec 5", lambda: changed(batch(), attributes=5), BatchFault.UNSUPPORTED_COMPRESSION),
    ("a control batch", lambda: changed(batch(), attributes=0x20), BatchFault.INVALID_RECORD),
    ("a transaction", lambda: changed(batch(), attributes=0x10), BatchFault.TRANSACTIONAL),
    ("a delete horizon", lambda: changed(batch(), attributes=0x40), BatchFault.INVALID_RECORD),
    ("the append time", lambda: changed(batch(), attributes=0x08), BatchFault.INVALID_TIMESTAMP),
    (
        "a producer without an epoch",
        lambda: changed(batch(), producer_id=1, base_sequence=0),
        BatchFault.INVALID_RECORD,
    ),
    (
        "a producer without a sequence number",
        lambda: changed(batch(), producer_id=1, producer_epoch=0),
        BatchFault.INVALID_RECORD,
    ),
    (
        "a first time after the last",
        lambda: changed(batch(), first_timestamp=NOW_MS + 1),
        BatchFault.INVALID_TIMESTAMP,
    ),
    (
        "a time before there were any",
        lambda: changed(batch(), first_timestamp=-2),
        BatchFault.INVALID_TIMESTAMP,
    ),
]


@pytest.mark.parametrize(
    ("make", "fault"),
    [pytest.param(make, fault, id=what) for what, make, fault in REFUSED],
)
def test_a_batch_that_cannot_be_kept_is_refused(
    make: Callable[[], bytearray], fault: BatchFault
) -> None:
    assert refused(make()) == fault


def test_old_message_sets_are_told_apart_from_damage() -> None:
    old = struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(8)
    assert refused(old) == BatchFault.UNSUPPORTED_FORMAT
    assert refused(b"") == BatchFault.INVALID_RECORD
    assert refused(bytes(20)[:10]) == BatchFault.CORRUPT


def test_the_topic_says_how_large_a_batch_may_be() -> None:
    data = batch()
    assert refused(data, BatchLimits(bytes_max=len(data) - 1)) == BatchFault.TOO_LARGE
    check_batch(data, BatchLimits(bytes_max=len(data)), NOW_MS)


def test_the_topic_says_how_far_times_may_be_from_the_clock() -> None:
    limits = BatchLimits(before_ms_max=100, after_ms_max=10)
    for first, last, is_taken in (
        (NOW_MS - 100, NOW_MS + 10, True),
        (NOW_MS - 101, NOW_MS, False),
        (NOW_MS, NOW_MS + 11, False),
        (-1, -1, True),
        (NOW_MS, -1, True),
        (-1, NOW_MS, True),
    ):
        data = changed(batch(), first_timestamp=first, max_timestamp=last)
        if is_taken:
            assert check_batch(data, limits, NOW_MS).max_timestamp == last
        else:
            assert refused(data, limits) == BatchFault.INVALID_TIMESTAMP
        check_batch(data, replace(limits, uses_append_time=True), NOW_MS)


def test_clients_that_have_no_producer_id_may_number_as_they_like() -> None:
    for sequence in (-1, 0):
        check_batch(changed(batch(), base_sequence=sequence), DEFAULT_LIMITS, NOW_MS)


def test_the_append_time_takes_the_place_of_all_times() -> None:
    limits = BatchLimits(uses_append_time=True)
    found = set_append_time(check_batch(batch(), limits, NOW_MS), 123)
    assert found.has_append_time
    data = bytearray(found.data)
    assert google_crc32c.value(bytes(data[21:])) == found.crc
    assert [record.time_ms for record in decode_records(found, 0)] == [123] * 3


def test_what_lies_at_rest_differs_in_offset_and_epoch_alone() -> None:
    data = batch()
    sent = bytes(data)
    stamp_stored(data, NOW_MS * 1000 + 5, 9)
    assert Batch.over(data).stored_time_us == NOW_MS * 1000 + 5
    assert time_of("any", bytes(data)) == NOW_MS
    write_base_offset(data, 77)
    found = Batch.over(data)
    assert (found.base_offset, found.leader_epoch) == (77, 9)
    assert bytes(data)[16:] == sent[16:]
    assert bytes(data)[8:12] == sent[8:12]


def test_what_has_no_time_has_none() -> None:
    assert time_of("any", b"short") is None
    assert time_of("any", bytes(encode_batch([NewRecord(None, b"x")]))) is None
    assert time_of("any", bytes(encode_batch([NewRecord(None, b"x", 0)]))) == 0


def test_fetched_parts_are_taken_apart_wherever_they_were_divided() -> None:
    together = bytes(batch(1) + batch(2) + batch(3))
    for size in (1, 10, 61, len(together)):
        parts = [together[at : at + size] for at in range(0, len(together), size)]
        assert [found.count for found in batches_in(parts)] == [1, 2, 3]
    with pytest.raises(Corrupt):
        list(batches_in([together[:-1]]))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    for candidate in (data, data[:8] + (len(data) - 12 & 0xFFFF).to_bytes(4) + data[12:]):
        with pytest.raises(RefusedBatch):
            check_batch(candidate, DEFAULT_LIMITS, NOW_MS)


@given(st.data())
def test_any_head_with_the_right_checksum_is_coherent_or_refused(data: st.DataObject) -> None:
    """Each number of a head at its limits, checksum and length right: the door decides."""
    numbers = st.sampled_from([-(2**15), -2, -1, 0, 1, 2, 3, 7, 8, 16, 32, 64, 2**15 - 1])
    names = st.sampled_from([name for name in PLACES if name not in {"length", "magic"}])
    drawn = data.draw(st.dictionaries(names, numbers, max_size=4))
    try:
        found = check_batch(changed(batch(), **drawn), DEFAULT_LIMITS, NOW_MS)
    except RefusedBatch:
        return
    assert found.count == 3 == found.last_offset_delta + 1
    assert found.attributes & 0x78 == 0
    assert found.base_offset == 0
    assert found.producer_id < 0 or min(found.producer_epoch, found.base_sequence) >= 0
