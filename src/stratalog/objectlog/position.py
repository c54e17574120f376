"""Where a record is: its place and its time.

Stored as ``{"offset": N}`` plus our optional ``"timestamp_us": T``. Persisted: keep stable.
"""

from __future__ import annotations

import msgspec


class LogPosition(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, order=True):
    """A record's offset and append time. A time of 0 was not recorded (logs made by wal3)."""

    offset: int
    timestamp_us: int = 0


class Span(msgspec.Struct, frozen=True, gc=False):
    """The records of one batch: from ``first`` up to, but not including, offset ``limit``."""

    first: LogPosition
    limit: int

    @property
    def count(self) -> int:
        return self.limit - self.first.offset
