"""A topic: its id, its settings, its partitions; and the note that it is stored as.

    key      topic/{id}: the id is 32 hexadecimal digits, random, and never used again
    value    JSON: version (1), name, partitions, settings, created_us
    on disk  partition n is called {id}-{n}

The note is the commit point. It is written when the partitions exist, and removed before they are;
so a partition that no note covers is a leftover. Persisted: keep stable.
"""

import re
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from stratalog.broker.topics.names import is_topic_name
from stratalog.broker.topics.settings import TimestampType, TopicSettings
from stratalog.errors import Corrupt
from stratalog.partitions import BatchLimits, PartitionLog

VERSION = 1
PREFIX = "topic/"

_partition_name = re.compile(r"[0-9a-f]{32}-(0|[1-9][0-9]{0,9})")


class TopicNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is stored of a topic."""

    version: int = VERSION
    name: str
    partitions: int
    settings: dict[str, str]
    created_us: int

    def encode(self) -> bytes:
        return msgspec.json.encode(self, order="sorted")


class _Versioned(msgspec.Struct):
    version: int


def decode_note(key: str, value: bytes) -> TopicNote:
    """A stored topic. ``Corrupt`` if it is none, or of a later version."""
    try:
        version = msgspec.json.decode(value, type=_Versioned).version
        if version != VERSION:
            raise Corrupt(
                f"the topic has version {version}, which this release does not know",
                hint="Open the data directory with the newest release that it was used with.",
                path=key,
            )
        note = msgspec.json.decode(value, type=TopicNote)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"not the note of a topic: {error}", path=key) from error
    if not is_topic_name(note.name) or note.partitions < 1:
        raise Corrupt("the note of a topic has a wrong name or number of partitions", path=key)
    return note


def note_key(topic_id: str) -> str:
    return PREFIX + topic_id


def partition_name(topic_id: str, number: int) -> str:
    """What a partition is called on the disk."""
    return f"{topic_id}-{number}"


def is_partition_name(name: str) -> bool:
    """Whether a partition on the disk belongs, or belonged, to a topic."""
    return _partition_name.fullmatch(name) is not None


class Topic:
    """One topic of an open broker. What it says changes when the topic is changed."""

    def __init__(
        self,
        topic_id: str,
        note: TopicNote,
        partitions: Sequence[PartitionLog],
        defaults: Mapping[str, str],
    ) -> None:
        self.id = topic_id
        self.uuid = UUID(hex=topic_id)
        self.name = note.name
        self.partitions: Sequence[PartitionLog] = partitions
        """By number."""
        self.note = note
        self.settings: TopicSettings = TopicSettings.of(note.settings, defaults)
        self.limits: BatchLimits = limits_of(self.settings)
        """What its partitions take, for each batch that is produced."""

    def __repr__(self) -> str:
        return f"Topic({self.name}, {self.id}, {len(self.partitions)} partitions)"

    def partition(self, number: int) -> PartitionLog | None:
        """One of its partitions, if there is one with this number."""
        return self.partitions[number] if 0 <= number < len(self.partitions) else None

    def became(
        self, note: TopicNote, partitions: Sequence[PartitionLog], defaults: Mapping[str, str]
    ) -> None:
        """It was changed, durably."""
        self.partitions = partitions
        self.note = note
        self.settings = TopicSettings.of(note.settings, defaults)
        self.limits = limits_of(self.settings)


def limits_of(settings: TopicSettings) -> BatchLimits:
    """What a batch is held to."""
    return BatchLimits(
        bytes_max=settings.message_bytes_max,
        before_ms_max=settings.timestamp_before_ms_max,
        after_ms_max=settings.timestamp_after_ms_max,
        uses_append_time=settings.timestamp_type is TimestampType.LOG_APPEND_TIME,
    )
