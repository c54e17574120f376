"""The durable offsets of all groups, and which of them have expired."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stratalog.broker.groups.stored import OffsetKey, StoredGroup, StoredOffset

Place = tuple[str, int]
"""A topic's id, as 32 hex digits, and a partition."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset that a member wants to keep."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Offsets:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Place, StoredOffset]] = {}

    def __len__(self) -> int:
        return sum(len(places) for places in self._of.values())

    def __iter__(self) -> Iterator[str]:
        """The groups that have offsets."""
        return iter(self._of)

    def of(self, group: str) -> Mapping[Place, StoredOffset]:
        return self._of.get(group, {})

    def put(self, key: OffsetKey, offset: StoredOffset) -> None:
        self._of.setdefault(key.group, {})[key.topic_id, key.partition] = offset

    def remove(self, key: OffsetKey) -> None:
        places = self._of.get(key.group, {})
        places.pop((key.topic_id, key.partition), None)
        if not places:
            self._of.pop(key.group, None)


def expired(
    places: Mapping[Place, StoredOffset], emptied_at_ms: int, now_ms: int, retention_ms: int
) -> list[Place]:
    """The offsets of an empty group that nobody has touched for so long: neither committed, nor
    was there a member who could have. Both times come from the log, so every broker that reads
    it agrees."""
    return [
        place
        for place, offset in places.items()
        if max(offset.committed_at_ms, emptied_at_ms) + retention_ms <= now_ms
    ]


def emptied_at_ms(stored: StoredGroup | None) -> int:
    """When the last member left; 0 for a group that never had one."""
    return stored.changed_at_ms if stored is not None and not stored.members else 0
