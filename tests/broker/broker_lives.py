"""Lives of a whole broker, of which the power is lost at every call: what its clients were told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kio.schema.errors import ErrorCode

from broker import crashes
from broker.crashes import Stage
from simulation.promised_topics import IdempotentProducer, Promised, PromisedTopic
from simulation.serving_client import PARTITIONS, Client
from simulation.serving_life import Life, open_life
from stratalog.broker import BrokerOptions
from stratalog.broker.groups import Groups, Identity, JoinCall, SyncCall
from stratalog.partitions import CheckpointTurns, PartitionLog
from stratalog.segments import DiskOptions
from stratalog.testing import SimulatedFiles, Simulation

DISK = DiskOptions(
    wal_file_bytes=1024,
    wal_files_max=8,
    segment_entries_max=4,
    major_after_minors=None,
    timeout_s=5.0,
)
BROKER = BrokerOptions(
    data=Path("unused"), http=None, retention_check_ms=200, group_initial_delay_ms=0
)
GROUP = "g"


@dataclass
class Ledger:
    """What clients know."""

    promised: Promised = field(default_factory=Promised)
    producers: list[IdempotentProducer] = field(
        default_factory=lambda: [IdempotentProducer(number) for number in range(2)]
    )
    producer_ids: list[int] = field(default_factory=list)
    generation: int = 0
    """The newest one of the group that somebody was told."""
    joined: Identity | None = None
    """Who has an assignment of that generation."""


@dataclass
class BrokerLife:
    """An open broker, and what its clients know."""

    life: Life
    ledger: Ledger

    def topic(self, name: str) -> PromisedTopic:
        return self.ledger.promised.topics[name]

    def log(self, name: str, number: int = 0) -> PartitionLog:
        log = self.life.context.topics.partition(name, number)
        assert log is not None
        return log

    async def create(self, name: str) -> None:
        topic = self.ledger.promised.begin(name)
        await self.life.client().create_topic(name, PARTITIONS)
        topic.state = "there"

    async def delete(self, name: str) -> None:
        self.topic(name).state = "perhaps deleted"
        await self.life.client().delete_topic(name)
        self.topic(name).state = "gone"

    async def append(self, name: str, size: int = 10) -> None:
        """To each partition, two batches in flight."""
        client = self.life.client()
        await asyncio.gather(
            *(self._append(client, name, each % PARTITIONS, size) for each in range(2 * PARTITIONS))
        )

    async def _append(self, client: Client, name: str, partition: int, size: int) -> None:
        values = self.ledger.promised.new_values(self.topic(name), 2, size)
        base = await client.produce_values(name, partition, values)
        self._acknowledged(name, partition, base, values)

    def _acknowledged(self, name: str, partition: int, base: int, values: Sequence[bytes]) -> None:
        self.topic(name).partitions[partition].values |= dict(enumerate(values, base))

    async def begin(self, name: str) -> None:
        """Idempotent producers begin to write to a topic."""
        for producer in self.ledger.producers:
            producer_id = await self.life.client().producer_id()
            assert producer_id not in self.ledger.producer_ids, "an id is given once"
            self.ledger.producer_ids.append(producer_id)
            producer.begin(self.topic(name), producer_id)

    async def produce(self) -> None:
        """Each producer has several batches in flight, and sends each of them twice."""
        for _ in range(3):
            for producer in self.ledger.producers:
                producer.make(2)
        await self.send_again()

    async def send_again(self) -> None:
        clients = self.life.client(), self.life.client()
        await asyncio.gather(
            *(self._send(client, each) for client in clients for each in self.ledger.producers)
        )

    async def _send(self, client: Client, producer: IdempotentProducer) -> None:
        topic, partition, sent = producer.topic, producer.partition, [*producer.unacknowledged]
        if topic is None:
            return
        asked = [client.produce(topic.name, partition, each.batch) for each in sent]
        for made, base in zip(sent, await asyncio.gather(*asked), strict=True):
            producer.acknowledged(made)
            self._acknowledged(topic.name, partition, base, made.values)

    async def commit(self, name: str) -> None:
        topic, promised = self.topic(name), self.ledger.promised
        offset = promised.next_commit(GROUP, topic)
        await self.life.client().commit(GROUP, name, offset)
        promised.offsets(GROUP, name).acknowledged = offset, topic.incarnation

    async def delete_records(self, name: str, offset: int) -> None:
        partition = self.topic(name).partitions[0]
        partition.start_max = offset
        await self.life.client().delete_records(name, 0, offset)
        partition.start = offset

    async def bound(self, name: str) -> None:
        """Retention may take all closed segments."""
        for partition in self.topic(name).partitions:
            partition.is_bounded = True
        await self.life.client().alter(name, {"retention.bytes": "0"})
        await asyncio.sleep(BROKER.retention_check_ms / 1000 * 2)

    @property
    def groups(self) -> Groups:
        return self.life.context.groups

    async def join(self) -> None:
        """A static member joins, or comes back, and gets an assignment. Then the one that it was
        is fenced, as soon as that is durable."""
        self.ledger.joined = None
        call = JoinCall("", "", "consumer", (("range", b""),), 10.0, 10.0, instance_id="static")
        joined = await self.groups.join(GROUP, call)
        assert joined.error is ErrorCode.none
        self.ledger.generation = max(self.ledger.generation, joined.generation)
        who = Identity(joined.member_id, "static", joined.generation)
        synced = await self.groups.sync(GROUP, SyncCall(who, ((who.member_id, b"all"),)))
        assert (synced.error, synced.assignment) == (ErrorCode.none, b"all")
        self.ledger.joined = who

    async def check(self) -> None:
        """All that clients were told is there."""
        client, promised = self.life.client(), self.ledger.promised
        found = {name: await client.everything(name) for name in sorted(promised.topics)}
        promised.check(found, {GROUP: await client.committed(GROUP)}, is_settled=True)
        for producer in self.ledger.producers:
            producer.check()
        group = self.groups.find(GROUP)
        generation = 0 if group is None else group.generation
        assert generation >= self.ledger.generation, "a generation that was told is kept"
        who = self.ledger.joined
        if who is not None and generation == who.generation:
            assert self.groups.heartbeat(GROUP, who) is ErrorCode.none

    async def go_on(self) -> None:
        """Everything can be used."""
        await self.send_again()
        for name, topic in list(self.ledger.promised.topics.items()):
            if topic.state != "there":
                await self.create(name)
            await self.append(name)
        await self.begin(next(iter(self.ledger.promised.topics)))
        await self.produce()
        await self.join()
        await self.check()


Step = crashes.Step[BrokerLife]


@asynccontextmanager
async def opened(
    files: SimulatedFiles, ledger: Ledger, simulation: Simulation
) -> AsyncIterator[BrokerLife]:
    """Open the broker, and close it."""
    turns = partial(CheckpointTurns, log_bytes_max=600)
    life = await open_life(files, DISK, BROKER, simulation.runtime, turns)
    try:
        yield BrokerLife(life, ledger)
    finally:
        for client in life.clients:
            client.close()
        await life.close()


survive = Stage(opened, Ledger, losses=1, used_every=8).survive
"""Play a step of a broker, and lose the power at every call of it."""
