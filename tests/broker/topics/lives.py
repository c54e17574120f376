"""Lives of one data directory: what was promised in each, and what the next one must find.

A ``Ledger`` holds what is known of each topic, by name: what it must be, or the two that it may be
while a change is under way. ``survive`` plays a step, and loses the power at every call of it
(``broker.crashes``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from broker import crashes
from broker.crashes import Stage
from stratalog.broker import BrokerOptions
from stratalog.broker.topics import Topic, Topics
from stratalog.partitions import (
    DEFAULT_LIMITS,
    NewRecord,
    PartitionLog,
    batches_in,
    check_batch,
    decode_records,
    encode_batch,
    time_of,
)
from stratalog.segments import Disk, DiskOptions
from stratalog.testing import SimulatedFiles, Simulation

OPTIONS = DiskOptions(
    wal_file_bytes=4096,
    wal_files_max=8,
    segment_entries_max=4,
    major_after_minors=None,
    timeout_s=5.0,
)
BROKER = BrokerOptions(data=Path("unused"))


@dataclass(frozen=True)
class Known:
    """A topic as it was promised. ``tag`` begins each of its records."""

    tag: str
    partitions: int
    settings: tuple[tuple[str, str], ...] = ()

    def fits(self, topic: Topic | None) -> bool:
        return (
            topic is not None
            and len(topic.partitions) == self.partitions
            and topic.note.settings == dict(self.settings)
        )


@dataclass
class Ledger:
    """What was promised."""

    may_be: dict[str, list[Known | None]] = field(default_factory=dict)
    sent: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """Each id that was seen, with the tag of its topic."""

    def begins(self, name: str, after: Known | None) -> None:
        (before,) = self.may_be.get(name, [None])
        self.may_be[name] = [before, after]

    def ended(self, name: str) -> None:
        self.may_be[name] = self.may_be[name][-1:]

    def now(self, name: str) -> Known:
        (known,) = self.may_be[name]
        assert known is not None
        return known


@dataclass
class Life:
    """An open directory, and the ledger."""

    disk: Disk
    topics: Topics
    ledger: Ledger

    async def create(self, name: str, partitions: int, tag: str) -> None:
        self.ledger.begins(name, Known(tag, partitions))
        await self.topics.create(name, partitions)
        self.ledger.ended(name)

    async def delete(self, name: str) -> None:
        self.ledger.begins(name, None)
        await self.topics.delete(name)
        self.ledger.ended(name)

    async def grow(self, name: str, partitions: int) -> None:
        known = self.ledger.now(name)
        self.ledger.begins(name, Known(known.tag, partitions, known.settings))
        await self.topics.grow(name, partitions)
        self.ledger.ended(name)

    async def configure(self, name: str, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        known = self.ledger.now(name)
        self.ledger.begins(name, Known(known.tag, known.partitions, tuple(given.items())))
        await self.topics.configure(name, lambda _: given)
        self.ledger.ended(name)

    async def append(self, name: str) -> None:
        """A record to each partition."""
        tag = self.ledger.now(name).tag
        topic = self.topics.get(name)
        assert topic is not None
        for number, log in enumerate(topic.partitions):
            sent = self.ledger.sent.setdefault((tag, number), [])
            sent.append(f"{tag}/{number}/{len(sent)}".encode())
            await append(log, sent[-1])
            self.ledger.acknowledged[tag, number] = len(sent)

    async def check(self) -> None:
        """The topics are as promised, each has its own records, and nothing else is there."""
        topics = {topic.name: topic for topic in self.topics.all()}
        for name, options in self.ledger.may_be.items():
            topic = topics.pop(name, None)
            fits = [
                each for each in options if (topic is None if each is None else each.fits(topic))
            ]
            assert fits, f"{name} is {topic}, and should be one of {options}"
            self.ledger.may_be[name] = fits[:1]
            if topic is not None:
                known = fits[0]
                assert known is not None
                assert self.ledger.ids.setdefault(topic.id, known.tag) == known.tag
                await self._check_records(topic, known.tag)
        assert not topics, f"never made: {topics}"
        wanted = [
            f"{topic.id}-{number}"
            for topic in self.topics.all()
            for number in range(len(topic.partitions))
        ]
        assert self.disk.partitions() == sorted(wanted), "partitions without a topic"
        notes = [key for key, _ in self.disk.notes.items("topic/")]
        assert notes == sorted(f"topic/{topic.id}" for topic in self.topics.all())

    async def _check_records(self, topic: Topic, tag: str) -> None:
        for number, log in enumerate(topic.partitions):
            found = await values(log)
            sent = self.ledger.sent.get((tag, number), [])
            assert found == sent[: len(found)], f"{topic} has records that are not its own"
            assert len(found) >= self.ledger.acknowledged.get((tag, number), 0)
            self.ledger.sent[tag, number] = found

    async def go_on(self) -> None:
        """Everything can be used, and made anew under the same names; nothing old appears."""
        for name in list(self.ledger.may_be):
            if self.ledger.may_be[name] != [None]:
                await self.append(name)
                await self.grow(name, self.ledger.now(name).partitions + 1)
                await self.check()
                await self.delete(name)
            await self.create(name, 2, f"{name} anew")
            await self.append(name)
        await self.check()


Step = crashes.Step[Life]


@asynccontextmanager
async def life(
    files: SimulatedFiles, ledger: Ledger, simulation: Simulation
) -> AsyncIterator[Life]:
    """Open the directory, and close it."""
    async with await Disk.open(files, OPTIONS, runtime=simulation.runtime, time_of=time_of) as disk:
        topics = await Topics.open(disk, BROKER, simulation.runtime)
        try:
            yield Life(disk, topics, ledger)
        finally:
            await topics.close()


async def append(log: PartitionLog, value: bytes, time_ms: int = 5) -> int:
    """One record, durably. Gives its offset."""
    data = encode_batch([NewRecord(None, value, time_ms)])
    return (await log.append(check_batch(data, DEFAULT_LIMITS, time_ms))).base_offset


async def values(log: PartitionLog) -> list[bytes]:
    """All records that can be read."""
    found: list[bytes] = []
    offset = log.log_start
    while offset < log.high_watermark:
        fetched = await log.fetch_stored(offset, 1 << 20)
        for batch in batches_in(fetched.parts):
            found += [record.value or b"" for record in decode_records(batch, offset)]
        offset = fetched.next_offset
    return found


survive = Stage(life, Ledger).survive
"""Play a step in a directory of topics, and lose the power at every call of it."""
