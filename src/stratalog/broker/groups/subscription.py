"""The topics that the members of a consumer group read.

Members of protocol type ``consumer`` put their subscription into the metadata of each protocol:
int16 version, array of strings (the topics), and more that nobody here needs.
"""

import struct

from stratalog.broker.groups.group import Group

CONSUMER = "consumer"


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """``None`` if nobody can tell: the group is of another type, or wrote something else."""
    if group.protocol_type != CONSUMER:
        return None
    topics: set[str] = set()
    for member in group.roster:
        for _, metadata in member.protocols[:1]:
            read = _topics(metadata)
            if read is None:
                return None
            topics |= read
    return frozenset(topics)


def _topics(metadata: bytes) -> set[str] | None:
    topics = set()
    try:
        _, many = struct.unpack_from(">hi", metadata)
        at = 6
        for _ in range(max(many, 0)):
            (length,) = struct.unpack_from(">h", metadata, at)
            name = metadata[at + 2 : at + 2 + length]
            if length < 0 or len(name) < length:
                return None
            topics.add(name.decode())
            at += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
