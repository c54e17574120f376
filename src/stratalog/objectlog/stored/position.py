"""Where a record is: its place and its time.

Stored as ``{"offset": N}`` plus our optional ``"timestamp_us": T``. Persisted: keep stable.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from stratalog.errors import Invalid

FIRST_OFFSET = 1
OFFSET_MAX = 2**63 - 1

Natural = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
"""A stored count, offset, time or size. The top bit of a u64 is kept free."""


class LogPosition(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    gc=False,
    order=True,
    forbid_unknown_fields=True,
):
    """A record's offset and append time. A time of 0 was not recorded (logs made by wal3)."""

    offset: Natural
    timestamp_us: Natural = 0


class Span(msgspec.Struct, frozen=True, gc=False):
    """The records of one batch: from ``first`` up to, but not including, offset ``limit``."""

    first: LogPosition
    limit: int

    @property
    def count(self) -> int:
        return self.limit - self.first.offset


def check_offset(offset: int) -> None:
    """Refuse what cannot be the offset of a record."""
    if type(offset) is not int or not FIRST_OFFSET <= offset <= OFFSET_MAX:
        raise Invalid(
            f"not an offset: {offset!r}; offsets are whole numbers from {FIRST_OFFSET} on",
            hint=f"Offsets begin at {FIRST_OFFSET}."
            if type(offset) is int
            else "Convert another kind of number with int().",
            expected=FIRST_OFFSET,
            actual=offset,
        )
