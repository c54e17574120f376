"""A broker in memory under mutated frames: that connection gets an answer or is closed, and
nothing else notices.

One seed is one broker with many connections, in virtual time. Beside them a healthy client writes
records, and is answered at once. Afterwards its log holds what it wrote and nothing else; the logs
that the mutated frames reach hold whole batches of the corpus, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.produce.v8.response import ProduceResponse

from broker.fuzz.corpus import TOPICS, batches, corpus
from broker.fuzz.mutation import mutated
from broker.plugged import Client, PluggedBroker, plugged_broker, turns
from broker.record_requests import produce_request
from stratalog.broker.wire import Refused
from stratalog.partitions import NewRecord, batches_in, encode_batch
from stratalog.testing import MemoryPartitionLog, Simulation, simulate

HEALTHY = "healthy"
HEALTHY_VERSION = 8
FRAMES_PER_CONNECTION_MAX = 12
AT_ONCE_S = 0.05
LOOK_S = 10.0
CHECKED_EVERY = 50
IN_FLIGHT_MAX = 8
UNSENT_BYTES_MAX = 1000
BURST_MAX = 1000
BURST_SHARE = 0.03
NOT_READING_SHARE = 0.5
STUCK_S = 1000.0
"""No request waits longer: a fetch waits for ten minutes at most, half a frame for 30 seconds."""
WAITS_FOR_OTHERS = (11, 14)
"""Join and sync wait for other members, for as long as their request says."""
AS_STORED = 16
"""Batches are compared from here on: the offset and the epoch before it are the broker's."""
STEPS_PER_FRAME_MAX = 1000


@dataclass
class Fuzzed:
    """What happened."""

    frames: int = 0
    connections: int = 0
    answers: int = 0
    closed: int = 0
    appended: int = 0
    """Batches of mutated frames that were whole all the same."""
    healthy: int = 0

    def __add__(self, other: Fuzzed) -> Fuzzed:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Fuzzed(*(one + another for one, another in pairs))


def fuzz(seed: int, frames: int, on_frames: Callable[[int], None] = lambda _: None) -> Fuzzed:
    """Send so many frames. Raises if anything but their connections notices."""

    async def main(simulation: Simulation) -> Fuzzed:
        async with plugged_broker(
            simulation,
            look_s=LOOK_S,
            group_session_ms_max=60_000,
            idle_ms_max=10**9,
            in_flight_max=IN_FLIGHT_MAX,
            unsent_bytes_max=UNSENT_BYTES_MAX,
        ) as broker:
            fuzzing = Fuzzing(broker, simulation.random)
            await fuzzing.begin()
            while fuzzing.found.frames < frames:
                on_frames(await fuzzing.connection())
                assert not simulation.unhandled, simulation.unhandled
                if fuzzing.found.connections % CHECKED_EVERY == 0:
                    await fuzzing.check_topics()
            await fuzzing.check_topics()
            fuzzing.check_healthy_log()
            return fuzzing.found

    with _errors_are_failures():
        return simulate(
            main, seed, time_max_s=1e12, steps_max=1_000_000 + frames * STEPS_PER_FRAME_MAX
        )


@dataclass
class Fuzzing:
    """One broker, its healthy client, and what happened so far."""

    broker: PluggedBroker
    random: Random
    found: Fuzzed = field(default_factory=Fuzzed)
    written: list[bytes] = field(default_factory=list)

    async def begin(self) -> None:
        for name in (HEALTHY, *TOPICS):
            await self.broker.create(name, 2)
        self.healthy = self.broker.client()

    async def connection(self) -> int:
        """One connection with a few frames. Gives their number."""
        random, broker = self.random, self.broker
        client = Client(broker.shared)
        sent, may_wait = 0, False
        for _ in range(random.randint(1, FRAMES_PER_CONNECTION_MAX)):
            frame = mutated(random, corpus())
            may_wait |= int.from_bytes(frame[4:6]) in WAITS_FOR_OTHERS
            if random.random() < BURST_SHARE:
                client.plug.reads = random.random() >= NOT_READING_SHARE
                frame *= random.randint(2, BURST_MAX)
            _send(random, client, frame)
            sent += 1
            if client.is_closed:
                break
            if random.random() < 0.5:
                await self.turns()
        await self.write_beside()
        if not client.plug.reads and random.random() < 0.5:
            client.plug.read_on()
        if random.random() < 0.1 and not may_wait:
            client.plug.read_on()
            await self.all_answered(client)
        if random.random() < 0.5:
            await self.turns()
        self.found.closed += client.is_closed
        client.leave()
        await self.memory_is_back()
        self.found.answers += len(client.answers())
        self.found.connections += 1
        self.found.frames += sent
        return sent

    async def write_beside(self) -> None:
        """The healthy client is answered at once, and rightly."""
        number = len(self.written)
        batch = bytes(encode_batch([NewRecord(b"%d" % number, b"healthy")]))
        async with asyncio.timeout(AT_ONCE_S):
            answer: Any = await self.healthy.ask(
                produce_request(HEALTHY_VERSION, HEALTHY, batch), ProduceResponse
            )
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code is ErrorCode.none
        assert partition.base_offset == number
        self.written.append(batch)
        self.found.healthy += 1

    async def all_answered(self, client: Client) -> None:
        """Everything has its answer, or the connection is closed, in the longest time that a
        request may wait."""
        until = asyncio.get_running_loop().time() + STUCK_S
        connection = client.connection
        while not client.is_closed and not (connection.is_quiet and not connection.is_within):
            assert asyncio.get_running_loop().time() < until, "a request has no answer"
            await asyncio.sleep(LOOK_S)

    async def turns(self) -> None:
        """Let some of the requests be handled."""
        for _ in range(self.random.randint(1, 20)):
            await asyncio.sleep(0)

    async def memory_is_back(self) -> None:
        """The connection has gone, and left nothing behind."""
        for _ in range(100):
            await asyncio.sleep(0)
            if not self.broker.shared.memory.used and len(self.broker.shared.connections) == 1:
                return
        raise AssertionError(f"{self.broker.shared.memory.used} bytes of requests are left")

    def check_healthy_log(self) -> None:
        """It holds what was written to it."""
        found = [bytes(each)[AS_STORED:] for each in _stored(self.broker.log(HEALTHY))]
        assert found == [each[AS_STORED:] for each in self.written]

    async def check_topics(self) -> None:
        """The other logs hold nothing but whole batches. They begin anew: a frame may be a right
        request to delete a topic."""
        await turns()  # what was on its way when its client left is committed now
        known = {each[AS_STORED:] for each in batches()}
        for topic in self.broker.topics.all():
            if topic.name != HEALTHY:
                for log in topic.partitions:
                    assert isinstance(log, MemoryPartitionLog)
                    for each in _stored(log):
                        assert bytes(each)[AS_STORED:] in known
                        self.found.appended += 1
                with suppress(Refused):  # a frame that was sent before may have asked for it
                    await self.broker.topics.delete(topic.name)
        for name in TOPICS:
            await self.broker.topics.ensure(name, 2)


def _send(random: Random, client: Client, frame: bytes) -> None:
    """Whole, or in two pieces."""
    at = random.choice((len(frame), random.randint(0, len(frame))))
    client.send(frame[:at])
    if not client.is_closed:
        client.send(frame[at:])


def _stored(log: MemoryPartitionLog) -> Iterator[memoryview]:
    """The batches of a log, whose offsets are dense."""
    at = log.log_start
    fetched = log.fetch(at, 2**62)
    assert fetched is not None
    for batch in batches_in(fetched.parts):
        assert batch.base_offset <= at if at == log.log_start else batch.base_offset == at
        at = batch.base_offset + batch.count
        yield batch.data
    assert at == log.high_watermark == log.end


class _Failures(logging.Handler):
    """Keeps what the broker logs as an error: the failure of a handler."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


@contextmanager
def _errors_are_failures() -> Iterator[None]:
    """Warnings of closed connections are many here, and expected; errors are not."""
    logger = logging.getLogger("stratalog.broker")
    failures, level = _Failures(), logger.level
    logger.addHandler(failures)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(failures)
        logger.setLevel(level)
    assert not failures.found, failures.found[0]
