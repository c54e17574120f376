"""MessagePack hooks for index sets, in records of the journal and in messages of a transfer."""

from stratalog.indexset import IndexSet


def encode_set(value: object) -> object:
    """For ``enc_hook``: the binary form of a set, which has a checksum of its own."""
    if isinstance(value, IndexSet):
        return value.to_bytes()
    raise NotImplementedError(f"{type(value)} has no form in MessagePack")


def decode_set(kind: type, value: object) -> object:
    """For ``dec_hook``. ``Corrupt`` if it is damaged."""
    if kind is not IndexSet:
        raise NotImplementedError(f"{kind} is not read from MessagePack")
    if not isinstance(value, bytes):
        raise ValueError("a set of indexes is bytes")  # msgspec turns this into a DecodeError
    return IndexSet.from_bytes(value)
