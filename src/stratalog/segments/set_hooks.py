"""Sets of indexes inside of MessagePack: in records of the journal and in messages."""

from __future__ import annotations

from stratalog.indexset import IndexSet


def encode_set(value: object) -> object:
    """For ``enc_hook``: the binary form of a set, which has a checksum of its own."""
    if isinstance(value, IndexSet):
        return value.to_bytes()
    raise NotImplementedError(f"{type(value)} has no form in MessagePack")


def decode_set(kind: type, value: object) -> object:
    """For ``dec_hook``. ``Corrupt`` if it is damaged."""
    if kind is IndexSet and isinstance(value, bytes):
        return IndexSet.from_bytes(value)
    raise NotImplementedError(f"{kind} is not read from MessagePack")
