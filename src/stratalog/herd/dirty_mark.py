"""A mark: that a log may get records up to an offset. The body of a record in a dirty log.

    version u8 · log id 16 bytes · end u64 · sweep_epoch u64 · reinsertions u16 · first_us u64

big-endian, 43 bytes. ``first_us`` is when the log was first marked since it was last clean, and
``reinsertions`` how often a roll-up has put the mark back since then. Persisted: keep stable.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from stratalog.errors import Corrupt, Invalid
from stratalog.herd.names import ID_BYTES

VERSION = 1
MARK_BYTES_MAX = 48
REINSERTIONS_MAX = 0xFFFF

_mark = struct.Struct(f">B{ID_BYTES}sQQHQ")


class Mark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a dirty log knows of a log."""

    log_id: str
    end: int
    """The offset after the last record that the log may get."""

    sweep_epoch: int
    """In which epoch of the log the upload began. It can be linked in no other."""

    first_us: int
    reinsertions: int = 0

    def to_bytes(self) -> bytes:
        return _mark.pack(
            VERSION,
            bytes.fromhex(self.log_id),
            self.end,
            self.sweep_epoch,
            self.reinsertions,
            self.first_us,
        )

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Mark:
        """Decode a body. Anything else is ``Corrupt``; a newer version is ``Invalid``."""
        if len(data) != _mark.size:
            if len(data) > 1 and data[0] > VERSION:
                raise Invalid(
                    f"a mark of version {data[0]}, and this library knows {VERSION}",
                    hint="Use a newer version of stratalog.",
                )
            raise Corrupt(f"a mark has {_mark.size} bytes, not {len(data)}")
        version, log_id, end, sweep_epoch, reinsertions, first_us = _mark.unpack(data)
        if version != VERSION:
            raise Corrupt(f"not a mark: it begins with {version}")
        return cls(
            log_id=log_id.hex(),
            end=end,
            sweep_epoch=sweep_epoch,
            reinsertions=reinsertions,
            first_us=first_us,
        )

    def may_go(self, *, tail: int, sweep_epoch: int, compacted_upto: int) -> bool:
        """Whether nothing of this log waits, as far as this mark tells.

        ``tail`` and ``sweep_epoch`` are those of a manifest that was read before the cursor.
        """
        if compacted_upto >= self.end:
            return True
        return sweep_epoch > self.sweep_epoch and compacted_upto >= tail


def together(marks: Iterable[Mark]) -> Mark:
    """One mark in the place of several of one log."""
    several = [*marks]
    return Mark(
        log_id=several[0].log_id,
        end=max(mark.end for mark in several),
        sweep_epoch=max(mark.sweep_epoch for mark in several),
        first_us=min(mark.first_us for mark in several),
        reinsertions=max(mark.reinsertions for mark in several),
    )


def put_back(mark: Mark) -> Mark:
    """The mark as a roll-up puts it back."""
    count = min(mark.reinsertions + 1, REINSERTIONS_MAX)
    return msgspec.structs.replace(mark, reinsertions=count)
