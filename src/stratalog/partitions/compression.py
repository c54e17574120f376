"""The codecs of record batches, with a limit on what a batch may swell to.

Any bytes give the records' bytes or ``Undecodable``. Snappy comes raw from C clients, and framed by
the Java library from others; we read both and write the frames. LZ4 is written in independent
blocks, because Java clients read no others.
"""

import enum
import struct
import zlib
from collections.abc import Callable
from typing import ClassVar, Final

import pyarrow as pa
import xxhash

from stratalog.errors import Corrupt
from stratalog.partitions.batch import SWOLLEN_BYTES_MAX

CHUNK_BYTES: Final = 1 << 20
GZIP_PIECE_BYTES: Final = 16 * 1024
SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEAD: Final = struct.Struct(">8sii")
_SNAPPY_CHUNK_BYTES: Final = 32 * 1024
_SNAPPY_RATIO_MAX: Final = 32
"""A copy of 64 bytes takes at least three."""
_SIZE: Final = struct.Struct(">i")

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS: Final = b"\x60\x40"
"""Version 1, independent blocks of up to 64 kB."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_RAW_BLOCK: Final = 1 << 31
_LZ4_SIZE: Final = struct.Struct("<I")
_GZIP: Final = 16 + zlib.MAX_WBITS


class Undecodable(Corrupt):
    """The records of a batch cannot be decoded, although its checksum may be right."""

    kind: ClassVar[str] = "undecodable"
    default_hint = "The producer wrote it like this. Skip the batch, or read it raw."


class Codec(enum.IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompress(data: memoryview, codec: int, bytes_max: int = SWOLLEN_BYTES_MAX) -> bytes:
    """``Undecodable`` if it is damaged, or larger than the limit."""
    if codec == Codec.NONE:
        return bytes(data)
    decode = _DECODERS.get(codec)
    if decode is None:
        raise Undecodable(f"there is no codec {codec}")
    try:
        return decode(data, bytes_max)
    except (zlib.error, pa.ArrowException, OSError, ValueError, struct.error) as error:
        name = Codec(codec).name.lower()
        raise Undecodable(f"the batch is damaged inside of {name}: {error}") from None


def compress(data: bytes, codec: Codec) -> bytes:
    """What ``decompress`` reads, and every client of Kafka."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, wbits=_GZIP)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def _too_large(bytes_max: int) -> Undecodable:
    return Undecodable(
        f"the records of the batch take more than {bytes_max} bytes", expected=bytes_max
    )


def _decompress_gzip(data: memoryview, bytes_max: int) -> bytes:
    """Members may follow one another, thousands of them. So they are taken piece by piece: what is
    left of a piece after a member is copied."""
    found = bytearray()
    at = 0
    while at < len(data):
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            piece = data[at : at + GZIP_PIECE_BYTES]
            if not len(piece):
                raise Undecodable("the batch is cut off inside of gzip")
            found += member.decompress(piece, bytes_max + 1 - len(found))
            if len(found) > bytes_max:
                raise _too_large(bytes_max)
            at += len(piece) - len(member.unused_data)
    return bytes(found)


def _decompress_snappy(data: memoryview, bytes_max: int) -> bytes:
    if bytes(data[: len(SNAPPY_MAGIC)]) != SNAPPY_MAGIC:
        return _decompress_raw_snappy(data, bytes_max)
    found = bytearray()
    at = _SNAPPY_HEAD.size
    while at < len(data):
        (size,) = _SIZE.unpack_from(data, at)
        at += _SIZE.size
        if not 0 < size <= len(data) - at:
            raise Undecodable(f"a frame of snappy has {size} bytes, and {len(data) - at} are left")
        found += _decompress_raw_snappy(data[at : at + size], bytes_max - len(found))
        at += size
    return bytes(found)


def _decompress_raw_snappy(data: memoryview, bytes_max: int) -> bytes:
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > bytes_max:
        raise _too_large(bytes_max)
    if size > len(data) * _SNAPPY_RATIO_MAX:
        raise Undecodable(f"{len(data)} bytes of snappy cannot hold {size}")
    return bytes(pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True))


def _decompress_stream(name: str) -> Callable[[memoryview, int], bytes]:
    def decompress_stream(data: memoryview, bytes_max: int) -> bytes:
        found = bytearray()
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                found += chunk
                if len(found) > bytes_max:
                    raise _too_large(bytes_max)
        return bytes(found)

    return decompress_stream


def _compress_snappy(data: bytes) -> bytes:
    codec = pa.Codec("snappy")
    parts = [_SNAPPY_HEAD.pack(SNAPPY_MAGIC, 1, 1)]
    for start in range(0, len(data), _SNAPPY_CHUNK_BYTES):
        chunk = codec.compress(data[start : start + _SNAPPY_CHUNK_BYTES], asbytes=True)
        parts += (_SIZE.pack(len(chunk)), chunk)
    return b"".join(parts)


def _compress_lz4(data: bytes) -> bytes:
    codec = pa.Codec("lz4_raw")
    header_check = xxhash.xxh32_intdigest(_LZ4_FLAGS) >> 8 & 0xFF
    parts = [_LZ4_MAGIC, _LZ4_FLAGS, bytes([header_check])]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        smaller = codec.compress(block, asbytes=True)
        if len(smaller) < len(block):
            parts += (_LZ4_SIZE.pack(len(smaller)), smaller)
        else:
            parts += (_LZ4_SIZE.pack(len(block) | _LZ4_RAW_BLOCK), block)
    parts.append(_LZ4_SIZE.pack(0))
    return b"".join(parts)


_DECODERS: Final[dict[int, Callable[[memoryview, int], bytes]]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_stream("lz4"),
    Codec.ZSTD: _decompress_stream("zstd"),
}
