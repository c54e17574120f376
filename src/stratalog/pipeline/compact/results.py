"""What compacting logs by a rule did, and what the ready-made rule says."""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.pipeline.jobs import Trouble, require
from stratalog.store import Usage

GRACE_S = 86_400.0
GRACE_S_MAX = 100 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class ByKey:
    """The last record of each key lives, and nothing else.

    ``key_sql`` is an expression over offset, timestamp and body. Where it is null the record has no
    key, and lives. ``tombstone_sql`` says whether a record means that its key is gone: then it
    lives for another ``grace_s`` seconds, so that slow readers hear of it.
    """

    key_sql: str
    tombstone_sql: str | None = None
    grace_s: float = GRACE_S

    def __post_init__(self) -> None:
        require(bool(self.key_sql.strip()), "a key is an expression")
        require(0 <= self.grace_s <= GRACE_S_MAX, "grace_s is from 0 to a hundred years")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedLog:
    """What was dropped from one log."""

    log: str | None
    log_id: str
    up_to: int
    """The offset after the last record that was judged."""

    read: int
    """How many records were read to find out what lives."""

    live: int
    """How many of those that were judged live."""

    records: int
    """How many went."""

    fragments: int
    rewritten: int
    bytes_before: int
    bytes_after: int
    objects: int
    """How many objects were deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedLogs:
    """What was dropped from all."""

    looked_at: int
    logs: tuple[CompactedLog, ...]
    gone: int
    troubles: tuple[Trouble, ...]
    seconds: float
    usage: Usage = field(default_factory=Usage)

    @property
    def records(self) -> int:
        """How many records went."""
        return sum(each.records for each in self.logs)

    @property
    def bytes_before(self) -> int:
        return sum(each.bytes_before for each in self.logs)

    @property
    def bytes_after(self) -> int:
        return sum(each.bytes_after for each in self.logs)
