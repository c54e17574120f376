"""What a checkpoint of a log on a disk carries. Persisted: keep stable.

MessagePack, an array: version, log start, producers, the largest time with its batch, the state
that the log's user keeps, the append time of the newest batch.
"""

from typing import Final

import msgspec

from stratalog.errors import Corrupt

VERSION: Final = 1


class LatestTime(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The batch that has the record with the largest time."""

    time_ms: int
    base_offset: int
    next_offset: int


class UserState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A function of all records below an offset."""

    offset: int
    state: bytes


class DiskState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a log at the index of its checkpoint."""

    version: int
    log_start: int
    producers: bytes
    """As ``Producers.snapshot`` made it."""
    latest: LatestTime | None
    user: UserState | None
    time_us: int = 0

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "DiskState":
        try:
            found = msgspec.msgpack.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"the checkpoint of {name!r} is not one of a log: {error}") from None
        if found.version != VERSION or found.log_start < 0:
            raise Corrupt(
                f"the checkpoint of {name!r} is not one that this version can read",
                expected=VERSION,
                actual=found.version,
            )
        return found
