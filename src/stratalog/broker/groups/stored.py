"""What groups keep in their keyed log. Persisted: keep stable.

A key is a MessagePack array that begins with the version of the layout, and ends nowhere else:

    [1, "g", group]                                         a group
    [1, "o", group, topic id, partition]                    a committed offset

The topic's *id* is in the key: a topic that is deleted and created again under its name begins
without offsets. Its value is MessagePack too, an array of the fields below in their order; fields
are only ever added, at the end, each with a default.

A group is stored whenever a generation begins, when it gets its assignments, when a static member
comes back, and when the last member has left. So no generation is ever given twice, and after a
crash the members go on in the generation that they know. What is removed has no value.
"""

import msgspec

from stratalog.errors import Corrupt

VERSION = 1


class StoredMember(msgspec.Struct, frozen=True, array_like=True):
    """A member of a stored generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class StoredGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group: an *empty* one has no members, a *stable* one has assignments."""

    generation: int
    is_stable: bool
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[StoredMember, ...]
    changed_at_ms: int = 0
    """When it came into this state, by the wall clock."""


class StoredOffset(msgspec.Struct, frozen=True, array_like=True):
    """A committed offset."""

    topic: str
    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int


class GroupKey(msgspec.Struct, frozen=True):
    group: str


class OffsetKey(msgspec.Struct, frozen=True):
    group: str
    topic_id: str
    partition: int


_encode = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.msgpack.Decoder(list[str | int]).decode
_decode_group = msgspec.msgpack.Decoder(StoredGroup).decode
_decode_offset = msgspec.msgpack.Decoder(StoredOffset).decode


def encode_key(key: GroupKey | OffsetKey) -> bytes:
    if isinstance(key, GroupKey):
        return _encode([VERSION, "g", key.group])
    return _encode([VERSION, "o", key.group, key.topic_id, key.partition])


def encode_value(value: StoredGroup | StoredOffset) -> bytes:
    return _encode(value)


def decode_key(stored: bytes) -> GroupKey | OffsetKey:
    """``Corrupt`` for anything that this version of the library does not write."""
    try:
        fields = _decode_key(stored)
    except msgspec.MsgspecError as error:
        raise _unknown("key") from error
    match fields:
        case [1, "g", str(group)]:
            return GroupKey(group)
        case [1, "o", str(group), str(topic_id), int(partition)]:
            return OffsetKey(group, topic_id, partition)
        case _:
            raise _unknown("key")


def decode_group(stored: bytes) -> StoredGroup:
    try:
        return _decode_group(stored)
    except msgspec.MsgspecError as error:
        raise _unknown("group") from error


def decode_offset(stored: bytes) -> StoredOffset:
    try:
        return _decode_offset(stored)
    except msgspec.MsgspecError as error:
        raise _unknown("offset") from error


def _unknown(what: str) -> Corrupt:
    return Corrupt(
        f"a stored {what} in the log of the groups is not one that this version knows",
        hint="It may have been written by a newer version. Start that version again.",
    )
