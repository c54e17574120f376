"""Making WAL files: the next one ahead of its time, or one on the spot.

While one file is open, a task makes the next one ready, so that the roll-over to it costs nothing:
its head is durable and a record of the journal names it. It is the spare, written over, or a new
file. Nobody knows its first batch yet, so its head says 0.

After a write that failed, or may have failed, the next file is made on the spot: its head says from
which batch on the file before it does not count. A file that was prepared by then is closed unused.
The first file after an opening, and one that could not be prepared, are made on the spot too.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from stratalog.errors import StratalogError
from stratalog.segments.context import DiskContext
from stratalog.segments.format import (
    GROWING_MAJOR,
    HEAD_BYTES,
    WAL_KIND,
    Head,
    Opened,
    WalFile,
    wal_path,
)
from stratalog.segments.io import File, in_sync_thread, typed
from stratalog.segments.write_ahead.flush_queue import ClosedWal, FlushQueue
from stratalog.segments.write_ahead.journal import Journal
from stratalog.segments.write_ahead.spare_wal import SpareWal

PREPARED_AT = 4
"""The next file is prepared when the open one is full to one part in so many."""

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class OpenWal:
    """The WAL file that is written, or the one that will be."""

    wal: WalFile
    nonce: bytes
    file: File
    position: int = HEAD_BYTES
    has_failed: bool = False
    """Whether a write has left bytes behind the position."""

    def closed(self, next_batch: int) -> ClosedWal:
        size = max(self.wal.size, self.position)
        return ClosedWal(self.wal, next_batch, size, self.position, not self.has_failed)


class NextWal:
    """The WAL file after the open one."""

    def __init__(
        self, context: DiskContext, journal: Journal, flush_queue: FlushQueue, spare: SpareWal
    ) -> None:
        self._context = context
        self._size = max(HEAD_BYTES, context.options.wal_file_bytes)
        self._journal = journal
        self._flush_queue = flush_queue
        self._spare = spare
        self._preparing: asyncio.Task[OpenWal | None] | None = None

    def prepare_if_due(self, current: OpenWal) -> None:
        """Begin to prepare it, unless that was done already or is not worth it yet."""
        if self._preparing is None and current.position * PREPARED_AT >= self._size:
            self._preparing = asyncio.create_task(self._prepare(), name="stratalog-next-wal")

    async def take(self, first: int) -> OpenWal:
        """The prepared file; without one, a new file that begins with this batch."""
        return await self._prepared() or await self._begin(first)

    async def take_new(self, first: int) -> OpenWal:
        """A new file whose head says that it begins with this batch. A prepared one is closed."""
        prepared = await self._prepared()
        if prepared is not None:
            prepared.file.close()
            self._flush_queue.put(prepared.closed(first))
        return await self._begin(first)

    async def close(self, next_batch: int) -> ClosedWal | None:
        """The prepared file, closed unused."""
        prepared = await self._prepared()
        if prepared is None:
            return None
        prepared.file.close()
        return prepared.closed(next_batch)

    async def _prepared(self) -> OpenWal | None:
        """Once: the next call is about the file after that."""
        if self._preparing is None:
            return None
        prepared = await asyncio.shield(self._preparing)
        self._preparing = None
        return prepared

    async def _prepare(self) -> OpenWal | None:
        """Nothing if it fails: then the roll-over tries again, and tells its errors."""
        try:
            spare = self._spare.take()
            return await (self._begin(0) if spare is None else self._write_over(spare))
        except StratalogError as error:
            log.warning("the next WAL file is not prepared: %s", error)
            return None

    async def _begin(self, first: int) -> OpenWal:
        """A new file. It is durable before the journal names it, and named before its use."""
        head, path = self._new_head(first)

        def write(file: File) -> None:
            file.write_at(0, head.to_bytes())
            file.allocate(self._size)
            file.sync()

        file = await self._context.begin_file(path, write, "beginning a WAL file")
        return await self._named(OpenWal(WalFile(head.number, path, self._size), head.nonce, file))

    async def _write_over(self, spare: str) -> OpenWal:
        """The spare. Its new head is durable before it gets its new name: no name ever stands for
        batches of a former life."""
        head, path = self._new_head(0)
        files = self._context.files

        def begin() -> tuple[File, int]:
            file = files.open_again(spare)
            try:
                file.write_at(0, head.to_bytes())
                size = file.size()
                file.allocate(size)  # it is: this lets a batch be written and synced in one call
                file.sync()
                files.rename(spare, path)
                files.sync_folder("wal")
            except OSError:
                file.close()
                raise
            return file, size

        try:
            file, size = await in_sync_thread(begin)
        except OSError as error:
            self._context.remove_files([spare, path])
            raise typed(error, "writing over a WAL file", spare) from error
        return await self._named(OpenWal(WalFile(head.number, path, size), head.nonce, file))

    def _new_head(self, first: int) -> tuple[Head, str]:
        number = self._journal.layout.next_wal
        nonce = bytes.fromhex(self._context.new_nonce())
        head = Head(WAL_KIND, self._context.disk, nonce, number, first, GROWING_MAJOR)
        return head, wal_path(number, nonce.hex())

    async def _named(self, opened: OpenWal) -> OpenWal:
        try:
            await self._journal.commit(lambda _: Opened(opened.wal), creates=[opened.wal.path])
        except BaseException:
            opened.file.close()
            raise
        return opened
