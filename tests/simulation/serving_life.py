"""One life of a broker: on a simulated disk, with clients that need no socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from unittest.mock import patch

from simulation.serving_client import Client
from simulation.wire_client import WireClient
from stratalog.broker import BrokerOptions, broker
from stratalog.broker.context import BrokerContext
from stratalog.broker.requests import Dispatcher, served
from stratalog.broker.wire import Shared
from stratalog.broker.wire.memory import RequestMemory
from stratalog.partitions import CheckpointTurns, time_of
from stratalog.runtime import Runtime
from stratalog.segments import Disk, DiskOptions
from stratalog.testing import SimulatedFiles


@dataclass
class Life:
    """One running broker."""

    parts: AsyncExitStack
    context: BrokerContext
    shared: Shared
    clients: list[WireClient] = field(default_factory=list)

    def client(self) -> Client:
        wire = WireClient(self.shared, asyncio.get_running_loop())
        self.clients.append(wire)
        return Client(wire)

    async def close(self) -> None:
        await self.parts.aclose()


async def open_life(
    files: SimulatedFiles,
    disk_options: DiskOptions,
    options: BrokerOptions,
    runtime: Runtime,
    turns: Callable[[], CheckpointTurns] = CheckpointTurns,
) -> Life:
    """Open a broker, all but its port. ``turns``: the logs of a simulation are short."""
    async with AsyncExitStack() as parts:
        disk = await Disk.open(files, disk_options, runtime=runtime, time_of=time_of)
        parts.push_async_callback(disk.close)
        with patch.object(broker, "CheckpointTurns", turns):
            context = await broker._open_parts(parts, disk, options, runtime)
        shared = Shared(
            dispatch=Dispatcher(context, served()),
            memory=RequestMemory(options.request_memory_bytes),
            request_bytes_max=options.request_bytes_max,
            in_flight_max=options.in_flight_max,
            unsent_bytes_max=options.unsent_bytes_max,
            connections_max=options.connections_max,
            frame_s_max=options.frame_ms_max / 1000,
            idle_s_max=options.idle_ms_max / 1000,
        )
        return Life(parts.pop_all(), context, shared)
    raise AssertionError
