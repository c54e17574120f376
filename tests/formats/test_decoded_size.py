"""What a fragment may become when it is decoded: no bomb is, and wal3's dictionaries are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from objectlog.planted_damage import bomb
from stratalog import Fragment, LogPosition, Setsum
from stratalog.errors import Corrupt
from stratalog.hashing import digest_of
from stratalog.objectlog.check.damage import DamageKind
from stratalog.objectlog.check.fragment_check import examine_fragment
from stratalog.objectlog.stored import Compression, Verify, decoded_size
from stratalog.objectlog.stored.decoded_size import Oversized, read_bounded
from stratalog.objectlog.stored.fragment import decode_fragment, encode_fragment, encode_staged
from stratalog.objectlog.stored.object_digest import with_digest
from stratalog.objectlog.stored.parquet_footer import columns_in

AT_US = 1_700_000_000_000_000


def entry_of(data: bytes, count: int, setsum: Setsum | None = None) -> Fragment:
    return Fragment(
        path="log/Bucket=0000000000000000/Writer=0123456789ab-1/FragmentSeqNo=0000000000000001.parquet",
        seq_no=1,
        start=LogPosition(1, AT_US),
        limit=LogPosition(1 + count, AT_US),
        num_bytes=len(data),
        setsum=setsum or Setsum.of(),
    )


@pytest.mark.parametrize("verify", [True, False, "records"])
def test_a_kilobyte_that_stands_for_gigabytes_is_refused_before_it_is_decoded(
    verify: Verify,
) -> None:
    data = bomb(1, AT_US, rows=2_600, body_bytes=1 << 20)
    assert len(data) < 3_000
    entry = with_digest(entry_of(data, 2_600), digest_of(data))
    before = pa.total_allocated_bytes()
    with pytest.raises(Corrupt, match="are allowed") as caught:
        decode_fragment(data, entry, verify=verify)
    assert caught.value.path == entry.path
    assert pa.total_allocated_bytes() - before < 64 << 20


def test_a_scrub_names_it() -> None:
    data = bomb(1, AT_US, rows=2_600, body_bytes=1 << 20)
    (damage,) = examine_fragment(data, entry_of(data, 2_600))
    assert damage.kind is DamageKind.FRAGMENT_DECODED_SIZE


def test_a_dictionary_as_wal3_writes_it_is_read() -> None:
    """Its worst case is far beyond what is allowed, what it holds is not."""
    bodies = [b"%d" % (number % 7) * 2_000 for number in range(50_000)]
    sink = pa.BufferOutputStream()
    columns = {
        "offset": pa.array(range(1, 50_001), pa.uint64()),
        "timestamp_us": pa.array([AT_US] * 50_000, pa.uint64()),
        "body": pa.array(bodies, pa.binary()),
    }
    pq.write_table(pa.table(columns), sink, compression="none")
    data = bytes(sink.getvalue())
    (group,) = columns_in(data)
    assert group[2].decoded_bytes * group[2].values > decoded_size.BODY_BYTES_MAX
    batch = decode_fragment(data, entry_of(data, 50_000), verify=False)
    assert batch.column(2).to_pylist() == bodies


def test_more_bodies_than_a_column_holds_are_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if a column held 100 kB: a fragment of two gigabytes would take as many to make."""
    encoded = encode_fragment(1, AT_US, [b"x" * 100_000, b"y" * 100_000], "none")
    entry = entry_of(encoded.data, 2, encoded.setsum)
    assert decode_fragment(encoded.data, entry).num_rows == 2
    monkeypatch.setattr(decoded_size, "BODY_BYTES_MAX", 100_000)
    with pytest.raises(Corrupt, match="100000 are allowed"):
        decode_fragment(encoded.data, entry)
    (damage,) = examine_fragment(encoded.data, entry)
    assert damage.kind is DamageKind.FRAGMENT_DECODED_SIZE


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
@pytest.mark.parametrize(
    "bodies",
    [[b""], [b""] * 200_000, [bytes(16 << 20)], [bytes(1 << 20)] * 16, [b"\xff" * 1000] * 5_000],
    ids=["empty", "many-empty", "one-of-zeros", "several-of-zeros", "alike"],
)
def test_what_compresses_best_is_within_the_bounds(
    bodies: list[bytes], compression: Compression
) -> None:
    encoded = encode_fragment(1, AT_US, bodies, compression)
    batch = decode_fragment(encoded.data, entry_of(encoded.data, len(bodies), encoded.setsum))
    assert batch.num_rows == len(bodies)
    staged = encode_staged(AT_US, pa.array(bodies, pa.binary()), compression)
    assert read_bounded(staged.data, pq.ParquetFile(pa.BufferReader(staged.data))).num_rows


def test_more_records_than_bytes_could_hold_are_refused() -> None:
    data = bomb(1, AT_US, rows=10, body_bytes=1)

    class Claiming:
        """A file whose footer claims a billion rows."""

        metadata = type("Metadata", (), {"num_rows": 1_000_000_000})

    with pytest.raises(Oversized, match="cannot hold 1000000000 records"):
        read_bounded(data, Claiming())


class TestFooter:
    def test_it_says_what_arrow_says(self) -> None:
        for data in (
            encode_fragment(1, AT_US, [b"a" * 600, b"b" * 600]).data,
            bomb(1, AT_US, rows=10, body_bytes=100),
        ):
            metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
            (group,) = columns_in(data)
            assert [each.decoded_bytes for each in group] == [
                metadata.row_group(0).column(n).total_uncompressed_size
                for n in range(metadata.num_columns)
            ]
            assert [each.values for each in group] == [metadata.num_rows] * 3

    def test_any_damage_is_a_value_error_or_harmless(self) -> None:
        data = encode_fragment(1, AT_US, [b"a", b"b"]).data
        size = int.from_bytes(data[-8:-4], "little")
        for position in range(len(data) - 8 - size, len(data)):
            for bit in range(8):
                bad = bytearray(data)
                bad[position] ^= 1 << bit
                try:
                    columns_in(bytes(bad))
                except ValueError:
                    continue
        for length in range(len(data)):
            with pytest.raises(ValueError, match=r"footer|Parquet"):
                columns_in(data[:length])

    @pytest.mark.parametrize(
        "footer", [b"", b"\x19", b"\x1c" * 100, b"\xff" * 50, b"\x1b\xff\xff\x7f"]
    )
    def test_any_footer_is_read_or_refused(self, footer: bytes) -> None:
        data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
        with pytest.raises(ValueError, match=r"footer|Parquet"):
            columns_in(data)
