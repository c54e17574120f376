"""How large a fragment may become when it is decoded, decided before anything is.

A stored object of a kilobyte can stand for gigabytes: a codec repeats a byte, a dictionary a value.
What a writer has stored is bounded by the format, and anything beyond it is refused:

    bodies      2 GiB, which is what one Arrow column holds
    a codec     zstd, the densest that is written, gives at most 128 KiB for 4 bytes
    records     each has a length of 4 bytes before it is compressed

The footer says how large the columns are without their codec. A dictionary and shared prefixes make
them larger again. We write neither, but wal3 writes dictionaries: such a column is decoded only
once the lengths behind its indices add up to no more than is allowed.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stratalog.objectlog.stored.parquet_footer import columns_in

BODY_BYTES_MAX = 2**31 - 1
ENVELOPE_BYTES_MAX = 64 * 1024
"""Parquet's own in a fragment: headers of pages, and the footer."""

EXPANSION_MAX = 32 * 1024
LENGTH_BYTES = 4

PLAIN_DICTIONARY, DELTA_BYTE_ARRAY, RLE_DICTIONARY = 2, 7, 8
_REPEATING = frozenset({PLAIN_DICTIONARY, DELTA_BYTE_ARRAY, RLE_DICTIONARY})


class Oversized(ValueError):
    """A fragment that would be larger than one can be."""


def encoded_bytes_max(count: int, body_bytes: int) -> int:
    """Room for a fragment, made once: an output that grows is copied each time.

    A body has 4 bytes before it, four numbers beside it are 9 each at most, and what cannot be
    compressed grows by less than a 64th. Room that is not written to is never touched.
    """
    return body_bytes + body_bytes // 64 + 40 * count + ENVELOPE_BYTES_MAX


def read_bounded(data: bytes, file: pq.ParquetFile) -> pa.Table:
    """All columns of a fragment. ``Oversized`` if they would be larger than a fragment can be."""
    count, allowed = file.metadata.num_rows, min(BODY_BYTES_MAX, EXPANSION_MAX * len(data))
    if count * LENGTH_BYTES > EXPANSION_MAX * len(data):
        raise Oversized(f"{len(data)} bytes cannot hold {count} records")
    columns = [column for group in columns_in(data) for column in group]
    size = sum(column.decoded_bytes for column in columns)
    if size > encoded_bytes_max(count, allowed):
        raise Oversized(f"it would be decoded to {size} bytes, and {allowed} are allowed")
    repeated = sum(
        column.decoded_bytes * column.values
        for column in columns
        if not _REPEATING.isdisjoint(column.encodings)
    )
    if repeated > allowed:
        return _read_repeating(data, file.schema_arrow.names, allowed)
    return file.read(use_threads=False)


def _read_repeating(data: bytes, names: Sequence[str], allowed: int) -> pa.Table:
    """The columns of a fragment that stores each body once and refers to it."""
    source = pa.BufferReader(data)
    file = pq.ParquetFile(source, pre_buffer=False, read_dictionary=list(names[2:]))
    table = file.read(use_threads=False)
    for number in range(2, table.num_columns):
        column = table.column(number)
        if not pa.types.is_dictionary(column.type):
            continue
        size = sum(map(_bytes_behind, column.chunks))
        if size > allowed:
            raise Oversized(f"it would be decoded to {size} bytes, and {allowed} are allowed")
        dense = [chunk.dictionary_decode() for chunk in column.chunks]
        table = table.set_column(number, names[number], pa.chunked_array(dense))
    return table


def _bytes_behind(chunk: pa.DictionaryArray) -> int:
    lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(chunk.indices)).as_py() or 0
