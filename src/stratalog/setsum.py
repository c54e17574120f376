"""The conserved quantity: an order-free, incremental hash over a set of items.

Each item is hashed with SHA3-256. The digest is read as eight little-endian u32 columns, and each
column is added modulo its own prime (all just below 2**32). Adding and removing are exact
inverses, the order does not matter, and two sums add up to the sum of the union:

    Setsum.of(b"A") + Setsum.of(b"B") == Setsum.of(b"A", b"B")

A log record's item has its offset and its time before its body (see ``objectlog.record_sums``), so
a sum binds every body to its place and time. The printed form is 64 hex digits of the 32
little-endian bytes, as Chroma's wal3 prints it. Persisted: keep stable.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable
from hashlib import sha3_256

import numpy as np
import numpy.typing as npt

from stratalog.errors import Invalid

PRIMES = (
    4294967291,
    4294967279,
    4294967231,
    4294967197,
    4294967189,
    4294967161,
    4294967143,
    4294967111,
)
DIGEST_BYTES = 32

_primes = np.array(PRIMES, dtype=np.uint64)
_columns = struct.Struct("<8I")


class Setsum:
    """An immutable sum. Supports ``+``, ``-``, ``==`` and use as a dictionary key."""

    __slots__ = ("_bytes",)

    _bytes: bytes

    def __init__(self, digest: bytes = bytes(DIGEST_BYTES)) -> None:
        if len(digest) != DIGEST_BYTES:
            raise Invalid(f"a setsum has {DIGEST_BYTES} bytes, not {len(digest)}")
        columns = _columns.unpack(digest)
        if max(columns) >= PRIMES[-1] and any(map(operator.ge, columns, PRIMES)):
            raise Invalid("a column of the setsum is not below its prime")
        self._bytes = digest

    @classmethod
    def of(cls, *items: bytes) -> Setsum:
        """The sum of these items."""
        return cls.of_digests(b"".join([sha3_256(item).digest() for item in items]))

    @classmethod
    def of_digests(cls, digests: bytes) -> Setsum:
        """The sum of items whose SHA3-256 digests are concatenated in ``digests``."""
        columns = np.frombuffer(digests, dtype="<u4").reshape(-1, 8)
        return cls.of_totals(columns.sum(axis=0, dtype=np.uint64))

    @classmethod
    def of_totals(cls, totals: npt.NDArray[np.uint64]) -> Setsum:
        """The sum of items the eight columns of whose digests were added up, without primes."""
        if totals.shape != (len(PRIMES),) or totals.dtype != np.uint64:
            raise Invalid(f"a setsum has {len(PRIMES)} columns of 64 bits to add up to")
        return cls._trusted((totals % _primes).astype("<u4").tobytes())

    @classmethod
    def total(cls, sums: Iterable[Setsum]) -> Setsum:
        """The sum of many sums, in one pass."""
        return cls.of_digests(b"".join([each._bytes for each in sums]))

    @classmethod
    def from_hexdigest(cls, text: str) -> Setsum:
        if len(text) != 2 * DIGEST_BYTES:
            raise Invalid(f"a setsum has {2 * DIGEST_BYTES} hex digits: {text!r}")
        try:
            digest = bytes.fromhex(text)
        except ValueError:
            raise Invalid(f"not a setsum in hex: {text!r}") from None
        return cls(digest)

    @classmethod
    def _trusted(cls, digest: bytes) -> Setsum:
        made = cls.__new__(cls)
        made._bytes = digest
        return made

    def digest(self) -> bytes:
        return self._bytes

    def hexdigest(self) -> str:
        return self._bytes.hex()

    def __add__(self, other: Setsum) -> Setsum:
        mine, theirs = _columns.unpack(self._bytes), _columns.unpack(other._bytes)
        return self._trusted(
            _columns.pack(*[(a + b) % p for a, b, p in zip(mine, theirs, PRIMES, strict=True)])
        )

    def __sub__(self, other: Setsum) -> Setsum:
        mine, theirs = _columns.unpack(self._bytes), _columns.unpack(other._bytes)
        return self._trusted(
            _columns.pack(*[(a - b) % p for a, b, p in zip(mine, theirs, PRIMES, strict=True)])
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setsum) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __bool__(self) -> bool:
        """Whether the set has any element, as far as a hash can say."""
        return self._bytes != EMPTY._bytes

    def __repr__(self) -> str:
        return f"Setsum({self.hexdigest()})"

    def __reduce__(self) -> tuple[type[Setsum], tuple[bytes]]:
        return (Setsum, (self._bytes,))


EMPTY = Setsum()
