"""Fragments: both variants, what they refuse, and what other writers may do differently."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import make
from stratalog import Fragment, LogPosition, Setsum
from stratalog.errors import Corrupt
from stratalog.objectlog.stored.compression import Compression
from stratalog.objectlog.stored.fragment import (
    RECORD_SCHEMA,
    decode_fragment,
    encode_fragment,
    fragment_path,
)

ABSOLUTE_SUM = "7751cc108d8a2a134d6e3c62d5a47499ca465d50d52841c8bf5c56e678e53320"
RELATIVE_SUM = "8ab4181e47a93dd5fb9d21f9bae97f6b89a8addc734d3b261fe039d63e90869c"


def linked(setsum: Setsum, first: int = make.FIRST_OFFSET, count: int = 3) -> Fragment:
    return make.entry(1, first, count, setsum)


def table(**changed: pa.Array) -> pa.Table:
    columns = {
        "offset": pa.array([100, 101, 102], type=pa.uint64()),
        "timestamp_us": pa.array([make.TIMESTAMP_US] * 3, type=pa.uint64()),
        "body": pa.array(make.BODIES, type=pa.binary()),
    }
    return pa.table({**columns, **changed})


def parquet(rows: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    return bytes(sink.getvalue())


def test_the_vector_of_the_absolute_variant() -> None:
    encoded = encode_fragment(make.FIRST_OFFSET, make.TIMESTAMP_US, make.BODIES)
    assert encoded.setsum.hexdigest() == ABSOLUTE_SUM
    batch = decode_fragment(encoded.data, linked(encoded.setsum))
    assert batch.to_pydict() == {
        "offset": [100, 101, 102],
        "timestamp_us": [make.TIMESTAMP_US] * 3,
        "body": make.BODIES,
    }


@pytest.mark.parametrize("start", [1, 100, 2**62])
def test_the_vector_of_the_relative_variant_holds_whatever_the_start(start: int) -> None:
    entry = linked(Setsum.from_hexdigest(RELATIVE_SUM), start)
    batch = decode_fragment(make.relative_fragment(), entry)
    assert batch.schema == RECORD_SCHEMA
    assert batch.column(0).to_pylist() == [start, start + 1, start + 2]
    assert batch.column(2).to_pylist() == make.BODIES


@given(
    st.lists(st.binary(max_size=2000), min_size=1, max_size=20),
    st.integers(1, 2**62),
    st.integers(0, 2**62),
    st.sampled_from(["zstd", "snappy", "none"]),
)
def test_any_records_come_back(
    bodies: list[bytes], first: int, timestamp_us: int, compression: Compression
) -> None:
    encoded = encode_fragment(first, timestamp_us, bodies, compression)
    batch = decode_fragment(encoded.data, linked(encoded.setsum, first, len(bodies)))
    assert batch.schema == RECORD_SCHEMA
    assert batch.column(0).to_pylist() == list(range(first, first + len(bodies)))
    assert batch.column(1).to_pylist() == [timestamp_us] * len(bodies)
    assert batch.column(2).to_pylist() == bodies


def test_the_columns_are_required_and_in_one_row_group() -> None:
    encoded = encode_fragment(1, 5, [b"x"] * 1000)
    file = pq.ParquetFile(pa.BufferReader(encoded.data))
    assert file.schema_arrow == RECORD_SCHEMA
    assert not any(field.nullable for field in file.schema_arrow)
    assert file.metadata.num_row_groups == 1
    statistics = file.metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max) == (1, 1000)


def random_bodies(count: int, size: int) -> list[bytes]:
    random = Random(7)
    return [random.randbytes(size) for _ in range(count)]


@pytest.mark.parametrize(
    ("bodies", "codec"),
    [
        pytest.param([b"x" * 100], "UNCOMPRESSED", id="next to nothing"),
        pytest.param([b"x" * 2000], "ZSTD", id="little"),
        pytest.param(random_bodies(10, 2000), "ZSTD", id="too little for a sample"),
        pytest.param(random_bodies(500, 1000), "UNCOMPRESSED", id="noise"),
        pytest.param(random_bodies(10_000, 50), "ZSTD", id="noise in small bodies"),
        pytest.param([b"x" * 1000] * 500, "ZSTD", id="text"),
        pytest.param(random_bodies(300, 1000) + [b"x" * 1000] * 200, "ZSTD", id="some text"),
        pytest.param([b""] * 100_000, "ZSTD", id="empty bodies"),
    ],
)
def test_only_bodies_that_are_worth_it_are_compressed(bodies: list[bytes], codec: str) -> None:
    encoded = encode_fragment(1, 5, bodies)
    group = pq.ParquetFile(pa.BufferReader(encoded.data)).metadata.row_group(0)
    assert [group.column(index).compression for index in range(3)] == [
        "UNCOMPRESSED",
        "UNCOMPRESSED",
        codec,
    ]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
@pytest.mark.parametrize(("count", "size"), [(1, 5_000_000), (3_000, 1_000), (200_000, 1)])
def test_noise_fits_into_the_room_that_is_made_for_it(
    count: int, size: int, codec: Compression
) -> None:
    bodies = random_bodies(count, size)
    encoded = encode_fragment(2**63, 2**62, bodies, codec)
    stored = pq.ParquetFile(pa.BufferReader(encoded.data)).read()
    assert stored.column("body").to_pylist() == bodies


def rows_with_more_columns() -> pa.Table:
    return table(key=pa.array([b"k", None, b""], type=pa.binary()))


OTHER_WRITERS: dict[str, Callable[[], bytes]] = {
    "nullable columns without nulls": lambda: parquet(table()),
    "large binary": lambda: parquet(table(body=pa.array(make.BODIES, type=pa.large_binary()))),
    "signed offsets": lambda: parquet(table(offset=pa.array([100, 101, 102], type=pa.int64()))),
    "several row groups": lambda: parquet(table(), row_group_size=1),
    "more columns": lambda: parquet(rows_with_more_columns()),
    "a dictionary and pages of version 2": lambda: parquet(table(), data_page_version="2.0"),
    "brotli": lambda: parquet(table(), compression="brotli"),
}


@pytest.mark.parametrize("name", OTHER_WRITERS)
@pytest.mark.parametrize("verify", [True, False])
def test_what_another_writer_does_differently_is_read(name: str, verify: bool) -> None:
    entry = linked(Setsum.from_hexdigest(ABSOLUTE_SUM))
    batch = decode_fragment(OTHER_WRITERS[name](), entry, verify=verify)
    assert batch.schema == RECORD_SCHEMA
    assert batch.column(0).to_pylist() == [100, 101, 102]
    assert batch.column(2).to_pylist() == make.BODIES


WRONG: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no Parquet": lambda: b"PAR1" * 10,
    "no rows": lambda: parquet(table().slice(0, 0)),
    "a row too few": lambda: parquet(table().slice(0, 2)),
    "a row too many": lambda: parquet(pa.concat_tables([table(), table().slice(2)])),
    "another order": lambda: parquet(table().take([0, 2, 1])),
    "other offsets": lambda: parquet(table(offset=pa.array([101, 102, 103], type=pa.uint64()))),
    "negative offsets": lambda: parquet(table(offset=pa.array([-1, 0, 1], type=pa.int64()))),
    "text in place of offsets": lambda: parquet(table(offset=pa.array(["a", "b", "c"]))),
    "a null body": lambda: parquet(table(body=pa.array([b"", None, b""], type=pa.binary()))),
    "numbers in place of bodies": lambda: parquet(table(body=pa.array([1, 2, 3]))),
    "a missing column": lambda: parquet(table().drop_columns(["timestamp_us"])),
    "columns in another order": lambda: parquet(table().select([1, 0, 2])),
    "another name": lambda: parquet(table().rename_columns(["offset", "time", "body"])),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("verify", [True, False])
def test_what_is_not_the_fragment_is_corrupt_and_named(name: str, verify: bool) -> None:
    entry = linked(Setsum.from_hexdigest(ABSOLUTE_SUM))
    with pytest.raises(Corrupt) as caught:
        decode_fragment(WRONG[name](), entry, verify=verify)
    assert caught.value.path == entry.path


@pytest.mark.parametrize("column", ["timestamp_us", "body"])
def test_a_changed_value_is_noticed_only_by_its_sum(column: str) -> None:
    changed = {
        "timestamp_us": pa.array([make.TIMESTAMP_US + 1] * 3, type=pa.uint64()),
        "body": pa.array([b"", *make.BODIES[1:]], type=pa.binary()),
    }
    data = parquet(table(**{column: changed[column]}))
    entry = linked(Setsum.from_hexdigest(ABSOLUTE_SUM))
    decode_fragment(data, entry, verify=False)
    with pytest.raises(Corrupt, match="setsum") as caught:
        decode_fragment(data, entry)
    assert caught.value.expected == ABSOLUTE_SUM


def test_swapped_bodies_are_noticed() -> None:
    swapped = encode_fragment(100, make.TIMESTAMP_US, make.BODIES[::-1])
    with pytest.raises(Corrupt, match="setsum"):
        decode_fragment(swapped.data, linked(Setsum.from_hexdigest(ABSOLUTE_SUM)))


@pytest.mark.parametrize(
    ("seq_no", "bucket"), [(1, 0), (4095, 0), (4096, 0x1000), (0x1234, 0x1000)]
)
def test_paths_are_grouped_into_buckets(seq_no: int, bucket: int) -> None:
    path = fragment_path(seq_no, "abc", 7)
    assert path == (f"log/Bucket={bucket:016x}/Writer=abc-7/FragmentSeqNo={seq_no:016x}.parquet")
    entry = msgspec.structs.replace(linked(Setsum()), path=path)
    assert entry.incarnation == "abc"


@pytest.mark.parametrize(
    "path",
    [
        "log/Bucket=0000000000001000/FragmentSeqNo=0000000000001234.parquet",
        "log/Uuid=6ba7b810-9dad-11d1-80b4-00c04fd430c8.parquet",
    ],
)
def test_paths_of_wal3_have_no_incarnation(path: str) -> None:
    entry = msgspec.structs.replace(linked(Setsum()), path=path)
    assert entry.incarnation is None
    assert entry.start == LogPosition(make.FIRST_OFFSET, make.TIMESTAMP_US)
