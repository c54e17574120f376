"""A broker over logs in memory: all of the wire and the handlers, no disk."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from stratalog.broker.context import BrokerContext
from stratalog.broker.groups import Groups
from stratalog.broker.options import Address, BrokerOptions
from stratalog.broker.producer_ids import ProducerIds
from stratalog.broker.requests import Dispatcher, served
from stratalog.broker.topics import Topics
from stratalog.broker.wire import Endpoint
from stratalog.errors import NotFound
from stratalog.partitions import KeyedLog, PartitionLog
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.segments import Disk
from stratalog.testing import MemoryPartitionLog


class MemoryNotes:
    """Notes that last as long as the process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def items(self, prefix: str) -> Iterable[tuple[str, bytes]]:
        return sorted(each for each in self.values.items() if each[0].startswith(prefix))

    async def change(self, changes: Mapping[str, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value


class MemoryHome:
    """Partitions in memory."""

    def __init__(self, log_type: type[MemoryPartitionLog] = MemoryPartitionLog) -> None:
        self.logs: dict[str, PartitionLog] = {}
        self._log_type = log_type

    def names(self) -> list[str]:
        return sorted(self.logs)

    async def create(self, name: str) -> PartitionLog:
        return self.logs.setdefault(name, self._log_type())

    async def open(self, name: str) -> PartitionLog:
        if name not in self.logs:
            raise NotFound(name)
        return self.logs[name]

    async def remove(self, name: str) -> None:
        self.logs.pop(name, None)

    async def close(self) -> None:
        """Nothing is open."""


class MemoryBroker:
    """What a test sees of it."""

    def __init__(self, context: BrokerContext, endpoint: Endpoint) -> None:
        self.context = context
        self.endpoint = endpoint
        self.address: Address = endpoint.address
        self.topics = context.topics
        self.shared = endpoint.shared


@asynccontextmanager
async def memory_context(
    *,
    log_type: type[MemoryPartitionLog] = MemoryPartitionLog,
    runtime: Runtime = DEFAULT_RUNTIME,
    **given: Any,
) -> AsyncIterator[BrokerContext]:
    """What the handlers of a broker work with, without a port."""
    settings: dict[str, Any] = {"data": Path("unused"), "listen": "127.0.0.1:0", "http": None}
    options = BrokerOptions(**(settings | given))
    notes = MemoryNotes()
    topics = Topics(MemoryHome(log_type), notes, options, runtime)
    stored = await KeyedLog.open(MemoryPartitionLog(runtime=runtime))
    groups = await Groups.open(
        stored, options, runtime, lambda topic: topics.by_id(topic) is not None
    )
    try:
        yield BrokerContext(
            options=options,
            runtime=runtime,
            cluster_id="memory",
            advertised=Address.parse(options.listen),
            disk=cast(Disk, None),
            topics=topics,
            groups=groups,
            producer_ids=ProducerIds(notes),
        )
    finally:
        await groups.close()
        await stored.close()
        await topics.close()


@asynccontextmanager
async def memory_broker(
    *, log_type: type[MemoryPartitionLog] = MemoryPartitionLog, **given: Any
) -> AsyncIterator[MemoryBroker]:
    """A broker that serves on a free port."""
    async with memory_context(log_type=log_type, **given) as context:
        endpoint = await Endpoint.listen(context.options, Dispatcher(context, served()))
        context.advertised = endpoint.address
        context.meters.traffic = endpoint.shared
        try:
            yield MemoryBroker(context, endpoint)
        finally:
            endpoint.drain()
            await context.groups.close()
            await endpoint.close()
