"""The setsum: its published vectors, and that it is a commutative group of sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashing.makers import with_vectors, without_vectors
from stratalog import Setsum
from stratalog.errors import Invalid
from stratalog.objectlog.stored import record_sums
from stratalog.objectlog.stored.record_sums import (
    CHUNK_RECORDS,
    JOIN_BYTES_MAX,
    JOIN_RECORDS_MIN,
    bytes_of_records,
    sum_of_records,
)
from stratalog.setsum import EMPTY, PRIMES

VECTORS = {
    (): "0" * 64,
    (b"",): "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a",
    (b"A",): "1c9ebd6caf02840a5b2b7f0fc870ec1db154886ae9fe621b822b14fd0bf513d6",
    (b"B",): "521ec18851e17bbba961bc46c70baf03ee67ebdea11a8306de39c15a90e9d2e5",
    (b"A", b"B"): "6ebc7ef500e4ffc5048d3b568f7c9b210abd73498a19e621f965d55754dfe6bb",
}

U63 = st.integers(0, 2**63 - 1)
ITEMS = st.lists(st.binary(max_size=40), max_size=20)
SUMS = ITEMS.map(lambda items: Setsum.of(*items))


@pytest.fixture(params=["hashlib", "vectors"], scope="module", autouse=True)
def hashed_by(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything here is true with the extra ``fast`` and without it."""
    maker = with_vectors() if request.param == "vectors" else without_vectors()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_sums, "MAKER", maker)
        yield


def sum_of(offsets: list[int], timestamp_us: int, bodies: list[bytes]) -> Setsum:
    return sum_of_records(
        np.array(offsets, dtype=np.uint64),
        np.full(len(offsets), timestamp_us, dtype=np.uint64),
        pa.array(bodies, pa.binary()),
    )


@pytest.mark.parametrize(("items", "hexdigest"), VECTORS.items())
def test_vectors_of_items(items: tuple[bytes, ...], hexdigest: str) -> None:
    assert Setsum.of(*items).hexdigest() == hexdigest
    assert Setsum.from_hexdigest(hexdigest) == Setsum.of(*items)


def test_the_vector_of_a_removed_item() -> None:
    removed = EMPTY - Setsum.of(b"record")
    hexdigest = "583d1a37928aaf47b502c49bf81903632686c075d67c83b3d8194fe6e0df5124"
    assert removed.hexdigest() == hexdigest


def test_the_vector_of_one_record() -> None:
    found = sum_of([1], 1700000000000000, [b"record-1"])
    hexdigest = "55539a2af1ffd6301b8b2efd01744f5186069b326c0e6a50b9b4934b282a2e21"
    assert found.hexdigest() == hexdigest


@pytest.mark.parametrize(
    ("first", "hexdigest"),
    [
        (100, "7751cc108d8a2a134d6e3c62d5a47499ca465d50d52841c8bf5c56e678e53320"),
        (0, "8ab4181e47a93dd5fb9d21f9bae97f6b89a8addc734d3b261fe039d63e90869c"),
    ],
)
def test_the_vectors_of_a_batch_at_absolute_and_relative_offsets(
    first: int, hexdigest: str
) -> None:
    bodies = [bytes.fromhex(text) for text in ("010203", "040506", "070809")]
    found = sum_of([first, first + 1, first + 2], 1234567890123456, bodies)
    assert found.hexdigest() == hexdigest


@given(ITEMS, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(items: list[bytes], random: object) -> None:
    shuffled = sorted(items, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert Setsum.of(*shuffled) == Setsum.of(*items)


@given(SUMS, SUMS, SUMS)
def test_sums_form_a_commutative_group(a: Setsum, b: Setsum, c: Setsum) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + EMPTY == a == a - EMPTY
    assert a - a == EMPTY
    assert (a + b) - b == a == (a - b) + b
    assert hash(a + b) == hash(b + a)
    assert bool(a - a) is False


@given(ITEMS, ITEMS)
def test_the_sum_of_a_union_is_the_sum_of_the_sums(a: list[bytes], b: list[bytes]) -> None:
    assert Setsum.of(*a, *b) == Setsum.of(*a) + Setsum.of(*b)


@given(st.lists(SUMS, max_size=10))
def test_a_total_equals_adding_one_by_one(sums: list[Setsum]) -> None:
    one_by_one = EMPTY
    for each in sums:
        one_by_one = one_by_one + each
    assert Setsum.total(sums) == one_by_one


def one_by_one(offset: int, timestamp_us: int, bodies: list[bytes]) -> Setsum:
    """The sum of records from an offset on, by the definition."""
    return Setsum.of(
        *(
            number.to_bytes(8, "big") + timestamp_us.to_bytes(8, "big") + body
            for number, body in enumerate(bodies, offset)
        )
    )


@given(st.lists(st.tuples(U63, U63, st.binary(max_size=40)), max_size=2 * JOIN_RECORDS_MIN))
def test_a_batch_equals_its_records_one_by_one(records: list[tuple[int, int, bytes]]) -> None:
    found = sum_of_records(
        np.array([offset for offset, _, _ in records], dtype=np.uint64),
        np.array([timestamp_us for _, timestamp_us, _ in records], dtype=np.uint64),
        pa.array([body for _, _, body in records], pa.binary()),
    )
    assert found == Setsum.total(one_by_one(*record[:2], [record[2]]) for record in records)


@pytest.mark.parametrize(
    "count",
    [
        1,
        JOIN_RECORDS_MIN - 1,
        JOIN_RECORDS_MIN,
        CHUNK_RECORDS - 1,
        CHUNK_RECORDS,
        2 * CHUNK_RECORDS + 1,
    ],
)
@pytest.mark.parametrize("size", [0, 1, JOIN_BYTES_MAX, JOIN_BYTES_MAX + 1])
def test_a_batch_of_any_shape_equals_its_records_one_by_one(count: int, size: int) -> None:
    bodies = [bytes([number % 256]) * size for number in range(count)]
    assert sum_of([*range(7, 7 + count)], 9, bodies) == one_by_one(7, 9, bodies)


def test_large_and_small_bodies_in_one_batch() -> None:
    bodies = [b"x" * (70_000 if number % 1500 == 3 else number % 50) for number in range(4000)]
    assert sum_of([*range(4000)], 9, bodies) == one_by_one(0, 9, bodies)


@pytest.mark.parametrize("size", [3, JOIN_BYTES_MAX + 3])
def test_a_slice_of_a_column_is_hashed_as_such(size: int) -> None:
    bodies = [bytes([number % 256]) * size for number in range(3000)]
    part = pa.array(bodies, pa.binary()).slice(700, 1500)
    offsets = np.arange(700, 2200, dtype=np.uint64)
    found = sum_of_records(offsets, np.full(1500, 9, dtype=np.uint64), part)
    assert found == one_by_one(700, 9, bodies[700:2200])


@pytest.mark.parametrize(
    "totals", [np.zeros(7, np.uint64), np.zeros(8, np.int64), np.zeros((1, 8), np.uint64)]
)
def test_totals_that_are_not_eight_columns_are_refused(totals: np.ndarray[Any, Any]) -> None:
    with pytest.raises(Invalid, match="columns"):
        Setsum.of_totals(totals)


def test_an_empty_column_without_bounds_is_empty() -> None:
    nothing = pa.py_buffer(b"")
    column = pa.Array.from_buffers(pa.binary(), 0, [None, nothing, nothing])
    assert sum_of_records(np.empty(0, np.uint64), np.empty(0, np.uint64), column) == EMPTY


@pytest.mark.parametrize(("start", "count"), [(0, 10), (3, 5), (4, 0)])
def test_the_size_of_records_is_that_of_arrow(start: int, count: int) -> None:
    numbers = pa.array(range(10), pa.uint64())
    bodies = pa.array([b"x" * number for number in range(10)], pa.binary())
    batch = pa.RecordBatch.from_arrays([numbers, numbers, bodies], ["offset", "time", "body"])
    part = batch.slice(start, count)
    assert bytes_of_records(part) == part.nbytes


@given(SUMS)
def test_the_printed_form_and_the_digest_come_back(a: Setsum) -> None:
    assert Setsum.from_hexdigest(a.hexdigest()) == a == Setsum(a.digest())
    columns = np.frombuffer(a.digest(), dtype="<u4").tolist()
    assert all(column < prime for column, prime in zip(columns, PRIMES, strict=True))


def test_many_equal_digests_do_not_overflow() -> None:
    highest = b"\xff" * 32
    one = Setsum.of_digests(highest)
    total = EMPTY
    for _ in range(1000):
        total = total + one
    assert Setsum.of_digests(highest * 1000) == total


@pytest.mark.parametrize("column", range(8))
def test_a_column_that_is_not_below_its_prime_is_refused(column: int) -> None:
    digest = bytearray(32)
    digest[4 * column : 4 * column + 4] = PRIMES[column].to_bytes(4, "little")
    with pytest.raises(Invalid):
        Setsum(bytes(digest))


@pytest.mark.parametrize("text", ["", "00", "0" * 63, "0" * 65, "g" * 64, " " * 64, "0" * 62 + "é"])
def test_what_is_not_64_hex_digits_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        Setsum.from_hexdigest(text)
