"""What compacting logs by a rule has come to."""

from dataclasses import dataclass, field

from stratalog.objectlog.compaction import Compacted
from stratalog.pipeline.jobs import Dropped, LogRef, Trouble
from stratalog.store import Usage


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
class CompactedLogs(Dropped):
    """What was dropped from all."""

    looked_at: int
    logs: tuple[CompactedLog, ...]
    gone: int
    troubles: tuple[Trouble, ...]
    seconds: float
    usage: Usage = field(default_factory=Usage)


def compacted_log(
    ref: LogRef,
    name: str | None,
    up_to: int,
    done: Compacted | None = None,
    *,
    read: int = 0,
    live: int = 0,
) -> CompactedLog:
    """What a compaction did with a log; nothing if there is none."""
    return CompactedLog(
        log=name,
        log_id=ref.log_id or "",
        up_to=up_to,
        read=read,
        live=live,
        records=done.records if done else 0,
        fragments=done.fragments if done else 0,
        rewritten=done.rewritten if done else 0,
        bytes_before=done.bytes_before if done else 0,
        bytes_after=done.bytes_after if done else 0,
        objects=done.removed.fragments + done.removed.snapshots if done else 0,
    )
