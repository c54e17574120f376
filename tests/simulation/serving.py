"""A broker under fire: producers, readers, groups and administrators on a node whose disk fails and
loses its power.

A seed has several lives of one data directory. Clients outlive the broker: they send again what was
not acknowledged, as published clients do. What they were told, and what they have seen, must be
there in every later life (``simulation.promised_topics``).
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from simulation.mortal import MortalNode
from simulation.node_disk import Faults
from simulation.promised_topics import IdempotentProducer, Made, Promised, PromisedTopic
from simulation.promises import promise
from simulation.serving_client import PARTITIONS, Client, Refused
from simulation.serving_life import Life, open_life
from simulation.wire_client import Gone
from stratalog.broker import BrokerOptions
from stratalog.errors import StratalogError
from stratalog.partitions import CheckpointTurns
from stratalog.segments import DiskOptions
from stratalog.segments.write_ahead import journal
from stratalog.testing import Simulation, simulate

LIVES = 4
TIME_MAX_S = 3600.0
STEPS_MAX = 2_000_000
TOPICS = ("a", "b")
GROUPS = ("g", "h")
ANSWER_S_MAX = 20.0
SENT_AGAIN_MAX = 50


def disk_options_of(random: Random) -> DiskOptions:
    return DiskOptions(
        wal_file_bytes=random.choice((1024, 4096, 16_384)),
        wal_files_max=random.choice((1, 2, 8)),
        batch_bytes_max=random.choice((512, 4096)),
        queue_bytes_max=random.choice((512, 8192)),
        segment_bytes_max=random.choice((512, 2048)),
        major_after_minors=random.choice((None, 2)),
        open_files_max=random.choice((1, 8)),
        timeout_s=5.0,
    )


class Fire(MortalNode):
    """One seed."""

    crash_share = 0.7
    calls_max = 400

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.promised = Promised()
        self.producers = [IdempotentProducer(number) for number in range(3)]
        self.disk_options = disk_options_of(self.random)
        self.turns = partial(
            CheckpointTurns,
            log_bytes_max=self.random.choice((200, 2000, 1 << 26)),
            all_bytes_max=self.random.choice((1000, 1 << 29)),
        )
        self.options = BrokerOptions(
            data=Path("simulated"),
            http=None,
            retention_check_ms=self.random.choice((200, 5_000)),
            in_flight_max=self.random.choice((2, 64)),
            producers_max=self.random.choice((8, 1000)),
        )

    async def run(self) -> str:
        for number in range(LIVES):
            self.trace.note(f"life {number}")
            await self.life()
            self.files.fail_if(None)
        life = await self.opened()
        await self.look(life, "opened")
        await self.finish(life.client())
        await self.look(life, "the end")
        await life.close()
        assert not self.simulation.unhandled, self.simulation.unhandled
        return self.trace.digest()

    async def opened(self) -> Life:
        runtime = self.simulation.runtime
        return await open_life(self.files, self.disk_options, self.options, runtime, self.turns)

    async def look(self, life: Life, when: str, *, is_settled: bool = True) -> None:
        """Everything that was promised is there."""
        client, promised = life.client(), self.promised
        found = {name: await client.everything(name) for name in sorted(promised.topics)}
        offsets = {group: await client.committed(group) for group in GROUPS}
        promised.check(found, offsets, is_settled=is_settled)
        for producer in self.producers:
            producer.check()
        for name, partitions in found.items():
            for number, each in enumerate(partitions or ()):
                self.trace.note(f"{when}: {name}-{number} from {each.start} to {each.end}")

    async def finish(self, client: Client) -> None:
        """What producers still have to send, arrives now."""
        for producer in self.producers:
            if producer.topic in self.promised.usable():
                for _ in range(SENT_AGAIN_MAX):
                    await self.send_again(client, client, producer)
                    if not producer.unacknowledged:
                        break
                    await asyncio.sleep(1.0)
                promise(not producer.unacknowledged, "a healthy disk takes records", f"{producer}")

    # Lives

    async def live(self) -> None:
        life = await self.opened()
        await self.look(life, "opened")
        for topic in self.promised.topics.values():
            topic.in_flight = 0
        for group in self.promised.groups.values():
            group.is_busy = False
        is_faulty = self.random.random() < 0.4
        if is_faulty:
            self.files.fail_if(Faults(self.random, self.random.choice((0.003, 0.02))))
        work = [self.produce(life, producer) for producer in self.producers]
        work += [self.work(life) for _ in range(self.random.randint(1, 3))]
        await asyncio.gather(*work)
        self.files.fail_if(None)
        await self.finish(life.client())
        look = self.look(life, "worked", is_settled=False)
        await (self.tolerant(look) if is_faulty else look)  # a log may be down until the next life
        if self.random.random() < 0.5:
            await life.close()
        else:
            self.files.crash()

    # Work

    async def tolerant(self, work: Coroutine[Any, Any, None]) -> None:
        """A refusal, a lost connection or a silent broker: the client goes on."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await work
        except (Refused, Gone, TimeoutError, StratalogError) as error:
            self.trace.note(f"{type(error).__name__} {error}")

    async def produce(self, life: Life, producer: IdempotentProducer) -> None:
        for _ in range(self.random.randint(2, 8)):
            clients = life.client(), life.client()
            if self.random.random() < 0.2:
                self.simulation.loop.call_later(self.random.choice((0.0, 0.01)), clients[0].leave)
            await self.tolerant(self.send(clients, producer))
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.01, 0.3)))

    async def send(self, clients: tuple[Client, Client], producer: IdempotentProducer) -> None:
        """A few batches in flight; then again what was not acknowledged."""
        usable = self.promised.usable()
        is_new = not producer.unacknowledged and self.random.random() < 0.1
        if is_new or producer.topic not in usable:
            if not usable:
                return
            producer_id = await clients[0].producer_id()
            producer.begin(self.random.choice(usable), producer_id)
        for _ in range(self.random.choice((1, 1, 2, 4))):
            producer.make(self.random.choice((1, 1, 3)))
        await self.send_again(*clients, producer)

    async def send_again(self, first: Client, second: Client, producer: IdempotentProducer) -> None:
        """In order on one connection; now and then on another one too, before the answers came."""
        topic, partition, sent = producer.topic, producer.partition, [*producer.unacknowledged]
        if topic is None or topic.state != "there":
            return
        with self.asking(topic):
            asked = [first.produce(topic.name, partition, each.batch) for each in sent]
            if self.random.random() < 0.3:
                asked += [second.produce(topic.name, partition, each.batch) for each in sent]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            self.answered(producer, topic, partition, sent, answers)

    def answered(
        self,
        producer: IdempotentProducer,
        topic: PromisedTopic,
        partition: int,
        sent: list[Made],
        answers: list[int | BaseException],
    ) -> None:
        """``Gone`` if one of them has not come."""
        for at, answer in enumerate(answers):
            made = sent[at % len(sent)]
            if isinstance(answer, int):
                producer.acknowledged(made)
                self.acknowledged(topic, partition, answer, made.values)
            elif isinstance(answer, Refused):
                promise(at > 0 or not answer.is_fatal, "retries are taken", f"{producer}: {answer}")
            elif not isinstance(answer, Gone):
                raise answer
        if any(isinstance(answer, Gone) for answer in answers):
            raise Gone

    def acknowledged(
        self, topic: PromisedTopic, partition: int, base: int, values: list[bytes]
    ) -> None:
        promised = topic.partitions[partition]
        for offset, value in enumerate(values, base):
            was = promised.values.setdefault(offset, value)
            promise(was == value, "an offset is of one record", f"{offset}: {was!r}, {value!r}")

    @contextlib.contextmanager
    def asking(self, topic: PromisedTopic) -> Iterator[None]:
        """If there is no answer, it may still be on its way: the topic is not deleted any more."""
        topic.in_flight += 1
        try:
            yield
        except (Gone, TimeoutError, asyncio.CancelledError):
            raise
        except BaseException:
            topic.in_flight -= 1
            raise
        else:
            topic.in_flight -= 1

    async def work(self, life: Life) -> None:
        client = life.client()
        for _ in range(self.random.randint(3, 12)):
            await self.tolerant(self.operation(client))
            await asyncio.sleep(self.random.choice((0.0, 0.0, 0.002, 0.2, 2.0)))

    async def operation(self, client: Client) -> None:
        random, drawn = self.random, self.random.random()
        name = random.choice(TOPICS)
        topic = self.promised.topics.get(name)
        if topic is None or topic.state == "gone":
            await self.create(client, name)
        elif topic.state != "there":
            return
        elif drawn < 0.35:
            await self.append(client, topic)
        elif drawn < 0.6:
            await self.read(client, topic)
        elif drawn < 0.75:
            await self.commit(client, topic)
        elif drawn < 0.85:
            await self.delete_records(client, topic)
        elif drawn < 0.92:
            await self.shorten(client, topic)
        else:
            await self.delete(client, topic)

    async def create(self, client: Client, name: str) -> None:
        self.trace.note(f"create {name}")
        topic = self.promised.begin(name)
        await client.create_topic(name, PARTITIONS)
        topic.state = "there"

    async def delete(self, client: Client, topic: PromisedTopic) -> None:
        if topic.in_flight:
            return
        self.trace.note(f"delete {topic.name}")
        topic.state = "perhaps deleted"
        await client.delete_topic(topic.name)
        topic.state = "gone"

    async def append(self, client: Client, topic: PromisedTopic) -> None:
        """Without an id: what is not acknowledged is not sent again."""
        partition = self.random.randrange(PARTITIONS)
        size = self.random.choice((0, 20, 300))
        values = self.promised.new_values(topic, self.random.choice((1, 2, 5)), size)
        with self.asking(topic):
            base = await client.produce_values(topic.name, partition, values)
        self.acknowledged(topic, partition, base, values)

    async def read(self, client: Client, topic: PromisedTopic) -> None:
        partition = self.random.randrange(PARTITIONS)
        promised = topic.partitions[partition]
        with self.asking(topic):
            before = promised.bounds
            start, end = await client.offsets(topic.name, partition)
            promised.saw(start, end, before)
            if start < end:
                before = promised.bounds
                offset = self.random.randrange(start, end)
                found = await client.fetch(topic.name, partition, offset)
                promised.saw(found.start, found.end, before)
                promised.values |= found.values

    async def commit(self, client: Client, topic: PromisedTopic) -> None:
        group = self.random.choice(GROUPS)
        promised = self.promised.offsets(group, topic.name)
        if promised.is_busy:
            return
        offset = self.promised.next_commit(group, topic)
        promised.is_busy = True
        with self.asking(topic):
            await client.commit(group, topic.name, offset)
        promised.is_busy = False
        promised.acknowledged = (offset, topic.incarnation)

    async def delete_records(self, client: Client, topic: PromisedTopic) -> None:
        partition = self.random.randrange(PARTITIONS)
        promised = topic.partitions[partition]
        with self.asking(topic):
            start, end = await client.offsets(topic.name, partition)
            if start == end:
                return
            offset = self.random.randint(start, end)
            promised.start_max = max(promised.start_max, offset)
            await client.delete_records(topic.name, partition, offset)
        promised.start = max(promised.start, offset)

    async def shorten(self, client: Client, topic: PromisedTopic) -> None:
        """Retention takes closed segments, whenever it comes by."""
        for partition in topic.partitions:
            partition.is_bounded = True
        with self.asking(topic):
            await client.alter(topic.name, {"retention.bytes": "500"})


def run_seed(seed: int) -> str:
    """Run one seed; gives the digest of its trace. Journals are small, so that they get full."""
    with (
        patch.object(journal, "FILE_BYTES_MIN", 4096 if seed % 3 else 1024),
        warnings.catch_warnings(),
    ):
        # Of tasks that had not begun when their process died.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        return simulate(
            lambda simulation: Fire(simulation).run(),
            seed,
            time_max_s=TIME_MAX_S,
            steps_max=STEPS_MAX,
        )
