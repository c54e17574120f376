"""A broker on a directory, and a connection to it that asks in any version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from broker.topics.lives import append
from stratalog.broker import Broker, BrokerOptions
from stratalog.broker.admin.connection import Connection, connect
from stratalog.partitions import PartitionLog

PATIENCE_S = 60.0
T = TypeVar("T")

WRONG_NAMES = ["", ".", "..", "a/b", "../../etc/passwd", "a\0b", "x" * 300, "ä", "a b"]


@dataclass
class Asking:
    """A broker, and a client."""

    broker: Broker
    connection: Connection

    async def ask(self, request: Any, answer: type[T]) -> T:
        return await self.connection.ask(request, answer)  # type: ignore[type-var]

    async def create(self, *names: str, partitions: int = 1) -> None:
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=TopicName(name),
                    num_partitions=i32(partitions),
                    replication_factor=i16(1),
                    assignments=(),
                    configs=(),
                )
                for name in names
            )
        )
        answer = await self.ask(request, CreateTopicsResponse)
        assert {each.error_code for each in answer.topics} <= {ErrorCode.none}

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        found = self.broker.context.topics.partition(topic, partition)
        assert found is not None
        return found

    async def append(self, topic: str, *values: tuple[bytes, int], partition: int = 0) -> None:
        """Records, each with its time in ms, one batch each."""
        for value, time_ms in values:
            await append(self.log(topic, partition), value, time_ms)


@asynccontextmanager
async def asking(data: Path, **options: Any) -> AsyncIterator[Asking]:
    given = BrokerOptions(data=data, listen="127.0.0.1:0", http=None, **options)
    async with (
        Broker.open(given) as broker,
        connect(str(broker.address), timeout_s=PATIENCE_S) as connection,
    ):
        yield Asking(broker, connection)


def run(data: Path, test: Callable[[Asking], Awaitable[None]], **options: Any) -> None:
    """Play a test against a broker."""

    async def main() -> None:
        async with asking(data, **options) as client:
            await test(client)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
