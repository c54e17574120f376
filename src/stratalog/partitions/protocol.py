"""`PartitionLog`: one partition of a topic, as the broker sees it.

Behind it may be one node's disk, a chain of nodes, or an object log. Offsets are Kafka's: dense,
from 0. Records travel and rest as record batches, which nothing here decodes on the hot path.

    log_start ≤ high_watermark ≤ end

Readers see what lies below the high watermark: it is durable as the topic's settings promise, and
never disappears.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from stratalog.errors import NotFound
from stratalog.partitions.batch import Batch
from stratalog.partitions.producers import ProducerState


class OutOfRange(NotFound):
    """There is no such offset yet. ``actual`` has the high watermark."""

    kind: ClassVar[str] = "out-of-range"
    default_hint = "Continue at the high watermark, or ask which offsets there are."


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append has become, when it is durable."""

    base_offset: int
    append_time_ms: int
    is_duplicate: bool = False
    """The same batch was there already, and its original is durable."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches, with their offsets and leader epochs filled in."""

    parts: Sequence[bytes | bytearray | memoryview]
    size: int
    next_offset: int
    """The offset after the last of them; the offset that was asked for if there are none."""


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """An offset, and the time of the record at it."""

    offset: int
    time_ms: int
    epoch: int


class PartitionLog(Protocol):
    """One partition of a topic."""

    @property
    def log_start(self) -> int:
        """The first offset that can be read."""

    @property
    def high_watermark(self) -> int:
        """Readers stop before it: the offset after the last committed record."""

    @property
    def end(self) -> int:
        """The offset that the next record will get."""

    @property
    def epoch(self) -> int:
        """The leader epoch under which it numbers now."""

    @property
    def size(self) -> int:
        """The bytes that it keeps."""

    def append(self, batch: Batch) -> asyncio.Future[Appended]:
        """Number a checked batch and write it, in the order of the calls.

        Its memory becomes the log's: nobody else may change it any more.

        Returns at once. Done when it is committed; a duplicate, when its original is.
        Raises at once: ``RefusedProducer`` if its sequence number does not fit, ``Full`` if there
        is no room.
        """

    async def room(self) -> None:
        """Wait until an append would find room."""

    def fetch(self, offset: int, bytes_max: int) -> Fetched | None:
        """Whole committed batches from the one that covers ``offset``, at least one if there is.

        ``None`` if they are not in memory: then ``fetch_stored`` gets them.
        ``Trimmed`` below the log's start, ``OutOfRange`` beyond the high watermark.
        """

    async def fetch_stored(self, offset: int, bytes_max: int) -> Fetched:
        """As ``fetch``, from wherever they are."""

    def on_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it whenever the high watermark or the log's start moved. Returns what ends it.

        It is called in the event loop, and must not wait or raise.
        """

    async def offset_for_time(self, time_ms: int) -> TimedOffset | None:
        """The first committed record whose time is at or after this; ``None`` if there is none."""

    async def offset_of_latest_time(self) -> TimedOffset | None:
        """The committed record with the largest time; ``None`` if the log is empty."""

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The largest epoch at or below this one, and the offset after its last record."""

    async def delete_before(self, offset: int) -> int:
        """Records below an offset become unreadable, durably. Returns the log's start."""

    async def retain(self, *, bytes_max: int | None, time_min_ms: int | None) -> int:
        """Drop closed segments without which ``bytes_max`` bytes are left, and those that are
        wholly older than ``time_min_ms``. Returns the log's start."""

    def producers(self) -> Sequence[ProducerState]:
        """The producers that it knows, for ``DescribeProducers``."""

    async def snapshot(self, offset: int, state: bytes) -> None:
        """Keep a state that is a function of all records below ``offset``, and drop them.

        ``Invalid`` unless a batch ends there that is committed.
        """

    async def state(self) -> tuple[int, bytes] | None:
        """The newest such state and its offset."""

    async def close(self) -> None:
        """Finish what was begun, so that the next opening is quick."""
