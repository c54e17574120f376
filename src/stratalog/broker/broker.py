"""`Broker`: a data directory, opened and served.

It opens from below, disk, topics, groups, the port; and closes from above, within a stated time:
no more requests are read, those in flight are answered, then everything is closed in turn.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Final, Self

from stratalog.broker import http
from stratalog.broker.context import BrokerContext, Meters
from stratalog.broker.groups import Groups
from stratalog.broker.options import MIB, Address, BrokerOptions
from stratalog.broker.producer_ids import ProducerIds
from stratalog.broker.requests import Dispatcher, served
from stratalog.broker.topics import DiskNotes, Topics
from stratalog.broker.wire import Endpoint
from stratalog.opening import Opening
from stratalog.partitions import MERGED_SHARE, CheckpointTurns, DiskLog, KeyedLog, time_of
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.segments import Disk, DiskOptions

log = logging.getLogger("stratalog.broker")

CLUSTER_NOTE: Final = "cluster"
CLUSTER_ID_LENGTH: Final = 22
GROUPS_PARTITION: Final = "groups"
DRAIN_SHARE: Final = 0.5
"""Of the time for a shutdown: for the answers in flight."""
WAL_FILE_BYTES_MAX: Final = 256 * MIB
QUEUE_BYTES_MAX: Final = 64 * MIB


class Broker:
    """One open broker. ``await Broker.open(options)``, or enter it with ``async with``.

    ``address`` is where it listens, with the port that was chosen; ``http_address`` is where its
    pages are, if anywhere.
    """

    def __init__(
        self,
        context: BrokerContext,
        endpoint: Endpoint,
        pages: http.Server | None,
        parts: AsyncExitStack,
    ) -> None:
        """Use ``open``."""
        self.context = context
        self.address: Address = endpoint.address
        """Where it listens, with the port that was chosen."""
        self.http_address: Address | None = None if pages is None else pages.address
        self._endpoint = endpoint
        self._pages = pages
        self._parts = parts
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def open(cls, options: BrokerOptions, *, runtime: Runtime = DEFAULT_RUNTIME) -> Opening[Self]:
        """Open the data directory and serve it.

        ``Conflict`` if another process has it open, ``Corrupt`` if it is damaged, ``Unavailable``
        if an address cannot be had.
        """
        return Opening(lambda: cls._open(options, runtime))

    @classmethod
    async def _open(cls, options: BrokerOptions, runtime: Runtime) -> Self:
        async with AsyncExitStack() as opened:
            pages = None
            if options.http is not None:
                pages = await http.serve(Address.parse(options.http))
                opened.push_async_callback(pages.close)
            disk = await Disk.open(
                options.data, disk_options(options), runtime=runtime, time_of=time_of
            )
            opened.push_async_callback(disk.close)
            context = await _open_parts(opened, disk, options, runtime)
            endpoint = await Endpoint.listen(options, Dispatcher(context, served()))
            opened.push_async_callback(endpoint.close)
            context.advertised = (
                endpoint.address if options.advertise is None else Address.parse(options.advertise)
            )
            context.meters.traffic = endpoint.shared
            if pages is not None:
                pages.watch(context)
            return cls(context, endpoint, pages, opened.pop_all())
        raise AssertionError  # the stack lets every exception through

    async def close(self) -> None:
        """Answer what is in flight, then close everything. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        seconds = self.context.options.shutdown_ms / 1000
        if self._pages is not None:
            self._pages.stopping()
        self._endpoint.drain()
        await self.context.groups.close()
        try:
            await asyncio.wait_for(self._endpoint.quiet(), seconds * DRAIN_SHARE)
        except TimeoutError:
            log.warning("some requests were not answered in time: their clients ask again")
        try:
            await asyncio.wait_for(self._parts.aclose(), seconds * (1 - DRAIN_SHARE))
        except TimeoutError:
            # Everything that was acknowledged is durable. The next opening reads a little more.
            log.warning("the data directory was not closed in time")


async def _open_parts(
    opened: AsyncExitStack, disk: Disk, options: BrokerOptions, runtime: Runtime
) -> BrokerContext:
    turns, notes = CheckpointTurns(), DiskNotes(disk)
    cluster_id = await _cluster_id(notes, runtime)
    topics = await Topics.open(disk, options, runtime, turns)
    opened.push_async_callback(topics.close)
    group_log = await DiskLog.open(disk, GROUPS_PARTITION, runtime=runtime, turns=turns)
    opened.push_async_callback(group_log.close)
    stored = await KeyedLog.open(group_log)
    opened.push_async_callback(stored.close)
    groups = await Groups.open(
        stored, options, runtime, lambda topic: topics.by_id(topic) is not None
    )
    opened.push_async_callback(groups.close)
    return BrokerContext(
        options=options,
        runtime=runtime,
        cluster_id=cluster_id,
        advertised=Address.parse(options.listen),
        disk=disk,
        topics=topics,
        groups=groups,
        producer_ids=ProducerIds(notes),
        meters=Meters(),
    )


async def _cluster_id(notes: DiskNotes, runtime: Runtime) -> str:
    known = notes.get(CLUSTER_NOTE)
    if known is None:
        known = runtime.new_id(CLUSTER_ID_LENGTH).encode()
        await notes.change({CLUSTER_NOTE: known})
    return known.decode()


def disk_options(options: BrokerOptions) -> DiskOptions:
    """The limits of the disk that fit this broker.

    A quarter of the memory is one WAL file, so that one is written while others are flushed. The
    queue is small: of tiny writes it takes several times its bytes.
    """
    retention_ms = options.retention_ms
    return DiskOptions(
        memory_bytes_max=options.memory_bytes,
        wal_file_bytes=min(max(options.memory_bytes // 4, MIB), WAL_FILE_BYTES_MAX),
        wal_files_max=3,
        queue_bytes_max=min(max(options.memory_bytes // 32, MIB), QUEUE_BYTES_MAX),
        merge_time_max=None if retention_ms is None else max(retention_ms // MERGED_SHARE, 1),
    )
