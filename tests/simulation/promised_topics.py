"""What the clients of a broker were told and what they have seen, and whether it is still there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from simulation.promises import promise
from simulation.serving_client import PARTITIONS, Found, Values
from stratalog.partitions import NewRecord, encode_batch

UNACKNOWLEDGED_MAX = 5

Bounds = tuple[int, int]
"""Where a log begins and ends."""

State = Literal["there", "gone", "perhaps made", "perhaps deleted"]


@dataclass
class PromisedPartition:
    """One partition of one incarnation of a topic."""

    values: Values = field(default_factory=dict)
    """Acknowledged or seen, by offset."""
    start: int = 0
    """The log begins here or above."""
    start_max: int = 0
    """It begins here or below, unless it is bounded."""
    end: int = 0
    """The log ends here or above."""
    is_bounded: bool = False
    """Retention may take what is old."""

    @property
    def bounds(self) -> Bounds:
        return self.start, self.end

    def saw(self, start: int, end: int, before: Bounds) -> None:
        """A client was told where the log begins and ends. Since it asked, neither went back."""
        promise(start >= before[0], "log start", f"it goes back to {start}: {self}")
        promise(end >= before[1], "the end", f"it goes back to {end}: {self}")
        self.start, self.end = max(start, self.start), max(end, self.end)

    def check(self, where: str, tag: bytes, found: Found) -> None:
        self.saw(found.start, found.end, self.bounds)
        promise(
            self.is_bounded or found.start <= self.start_max,
            "nothing is removed early",
            f"{where} begins at {found.start}: {self}",
        )
        promise(
            sorted(found.values) == list(range(found.start, found.end)),
            "offsets are dense",
            f"{where} has {sorted(found.values)} from {found.start} to {found.end}",
        )
        for offset, value in found.values.items():
            promise(value.startswith(tag), "no old records", f"{where} has {value!r} at {offset}")
        for offset, value in self.values.items():
            if offset >= found.start:
                has = found.values.get(offset)
                promise(
                    has == value, "what was told stays", f"{where} {offset}: {value!r}, {has!r}"
                )
        several = len(found.values) - len(set(found.values.values()))
        promise(not several, "nothing is doubled", f"{where} has {several} twice")
        self.values |= found.values
        self.start_max = max(self.start_max, self.start)


@dataclass
class PromisedTopic:
    """One incarnation of a topic."""

    name: str
    incarnation: int
    state: State = "perhaps made"
    in_flight: int = 0
    """Requests that name it and have no answer yet. It is not deleted meanwhile: they could meet
    the next topic of this name."""
    partitions: list[PromisedPartition] = field(
        default_factory=lambda: [PromisedPartition() for _ in range(PARTITIONS)]
    )

    @property
    def tag(self) -> bytes:
        return b"%s%d." % (self.name.encode(), self.incarnation)

    def check(self, found: Sequence[Found] | None, *, is_settled: bool) -> None:
        if found is None:
            promise(
                self.state != "there", "a topic that was made stays", f"{self.name} is not there"
            )
            if is_settled:
                self.state = "gone"
            return
        promise(self.state != "gone", "a topic that was deleted is gone", self.name)
        if is_settled:
            self.state = "there"
        for number, (partition, has) in enumerate(zip(self.partitions, found, strict=True)):
            partition.check(f"{self.name}-{number}", self.tag, has)


@dataclass
class Made:
    """A batch of an idempotent producer."""

    batch: bytes
    values: list[bytes]


@dataclass
class IdempotentProducer:
    """It sends again, in order, what was not acknowledged."""

    number: int
    topic: PromisedTopic | None = None
    unacknowledged: list[Made] = field(default_factory=list)
    _producer_id: int = -1
    _sequence: int = 0

    @property
    def partition(self) -> int:
        return self.number % PARTITIONS

    def begin(self, topic: PromisedTopic, producer_id: int) -> None:
        self.topic, self._producer_id, self._sequence = topic, producer_id, 0
        self.unacknowledged.clear()

    def make(self, count: int) -> None:
        """One more batch, unless too many are under way."""
        if len(self.unacknowledged) >= UNACKNOWLEDGED_MAX:
            return
        assert self.topic is not None
        values = [
            self.topic.tag + b"p%d.%d.%d" % (self.number, self._producer_id, self._sequence + at)
            for at in range(count)
        ]
        batch = encode_batch(
            [NewRecord(None, value) for value in values],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += count
        self.unacknowledged.append(Made(bytes(batch), values))

    def acknowledged(self, made: Made) -> None:
        if made in self.unacknowledged:
            self.unacknowledged.remove(made)

    def check(self) -> None:
        """Its records are in their order: with what is never doubled, exactly once."""
        if self.topic is None:
            return
        prefix = self.topic.tag + b"p%d.%d." % (self.number, self._producer_id)
        found = self.topic.partitions[self.partition].values
        sent = [found[at][len(prefix) :] for at in sorted(found) if found[at].startswith(prefix)]
        numbers = list(map(int, sent))
        promise(
            numbers == list(range(len(numbers))), "order of a producer", f"{prefix!r}: {numbers}"
        )


@dataclass
class PromisedOffsets:
    """The commits of one group for one topic."""

    submitted: dict[int, int] = field(default_factory=dict)
    """Of each offset, the incarnation of the topic that it was committed for."""
    acknowledged: tuple[int, int] | None = None
    """The last one, with the incarnation."""
    is_busy: bool = False
    """One commit at a time, and none after one that was not answered in this life."""

    def check(self, where: str, topic: PromisedTopic, found: int | None) -> None:
        if found is not None:
            promise(
                self.submitted.get(found) == topic.incarnation,
                "offsets are of this topic",
                f"{where}: {found} of {self.submitted}",
            )
        if self.acknowledged is not None and self.acknowledged[1] == topic.incarnation:
            promise(
                found is not None and found >= self.acknowledged[0],
                "a committed offset stays",
                f"{where}: {found} instead of {self.acknowledged[0]}",
            )


class Promised:
    """All that was told."""

    def __init__(self) -> None:
        self.topics: dict[str, PromisedTopic] = {}
        """The newest incarnation of each name."""
        self.groups: dict[tuple[str, str], PromisedOffsets] = {}
        self._incarnations = 0
        self._values = 0
        self._commits = 0

    def usable(self) -> list[PromisedTopic]:
        """The topics that are there for certain."""
        return [topic for topic in self.topics.values() if topic.state == "there"]

    def begin(self, name: str) -> PromisedTopic:
        """A topic is about to be made."""
        self._incarnations += 1
        made = self.topics[name] = PromisedTopic(name, self._incarnations)
        return made

    def new_values(self, topic: PromisedTopic, count: int, size: int) -> list[bytes]:
        self._values += count
        first = self._values - count
        return [topic.tag + b"%d." % (first + at) + bytes(size) for at in range(count)]

    def next_commit(self, group: str, topic: PromisedTopic) -> int:
        self._commits += 1
        self.offsets(group, topic.name).submitted[self._commits] = topic.incarnation
        return self._commits

    def offsets(self, group: str, name: str) -> PromisedOffsets:
        return self.groups.setdefault((group, name), PromisedOffsets())

    def check(
        self,
        found: Mapping[str, Sequence[Found] | None],
        offsets: Mapping[str, Mapping[str, int]],
        *,
        is_settled: bool,
    ) -> None:
        """``is_settled``: no change of a topic is under way any more."""
        for name, topic in self.topics.items():
            topic.check(found[name], is_settled=is_settled)
        for (group, name), promised in self.groups.items():
            topic = self.topics[name]
            if topic.state == "there":
                promised.check(f"{group} {name}", topic, offsets.get(group, {}).get(name))
