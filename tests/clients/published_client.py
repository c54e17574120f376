"""What the tests ask of every published client. Each adapter says it in its client's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30.0

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Sent:
    """A record to be written; without a time, now."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    time_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True)
class Received:
    """A record as a consumer got it."""

    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    time_ms: int


class PublishedClient(Protocol):
    """A published Kafka client, unmodified, with its own defaults where a test does not care."""

    name: str

    def __init__(self, address: str) -> None: ...

    def produce(
        self, topic: str, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> list[int]:
        """Write all of them with acks=all; the offset of each, in the order of the records."""
        ...

    def read(self, topic: str, start: int, count: int, partition: int = 0) -> list[Received]:
        """So many records from this offset on, by assignment."""
        ...

    def offset_at(self, topic: str, time_ms: int, partition: int = 0) -> int | None:
        """The first offset at or after a time."""
        ...

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The first offset, and the next one to be written."""
        ...

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None: ...

    def committed(self, group: str, topic: str, partition: int = 0) -> int | None: ...

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def topics(self) -> dict[str, int]:
        """The number of partitions of each."""
        ...

    def add_partitions(self, name: str, total: int) -> None: ...

    def config(self, topic: str) -> dict[str, str]: ...

    def set_config(self, topic: str, key: str, value: str) -> None: ...

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None: ...

    def brokers(self) -> dict[int, str]:
        """The brokers by number, and where clients are told to connect."""
        ...

    def groups(self) -> set[str]: ...

    def all_committed(self, group: str) -> dict[tuple[str, int], int]:
        """What the group has committed, as its administrators see it."""
        ...

    def group_state(self, group: str) -> str: ...
