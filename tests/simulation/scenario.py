"""The log under writers: processes that write, read, sweep, stall and die.

About forty operations a seed. Beside the writers, readers read and follow, and a keeper changes
only the past (a field that nobody else knows, and whole sweeps of unreferenced objects). At the
end everything that was sent has landed or never will, a new writer opens with no action, and the
history must be explained by the log that is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from unittest.mock import patch

import msgspec

import stratalog as sl
from simulation.world import TIMEOUT_S, OneLog, run_world
from stratalog.errors import Corrupt, StratalogError, Unavailable
from stratalog.objectlog.append import uploader
from stratalog.objectlog.append.pace import Pace
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.options import SweepOptions
from stratalog.objectlog.stored.manifest import Manifest
from stratalog.objectlog.tree.amend_manifest import amend
from stratalog.store.cas import Patience
from stratalog.testing import Node, Read, Row, Seen

OPERATIONS = 40
STRANGE_FIELD = "keeper"


class Writing(OneLog):
    """Writers beside readers and a keeper."""

    def options(self) -> sl.WriterOptions:
        random = self.random
        return sl.WriterOptions(
            on_fenced=random.choice(("raise", "reopen")),
            fragment_bytes=random.choice((64, 256, 1024)),
            batch_bytes_max=1 << 20,
            queue_records_max=random.choice((2, 1000)),
            uploads_max=random.choice((4, 16)),
            manifest_fragments_max=random.choice((2, 4)),
            interval_s=random.choice((0.0, 0.0, 0.0, 0.2)),
            timeout_s=TIMEOUT_S,
            compression="none",
            rollup_entries=random.choice((2, 3, 12)),
            snapshot_entries_max=random.choice((12, 16)),
        )

    async def live(self) -> None:
        # Small fragments too are encoded by a thread, in half of the runs.
        limit = self.random.choice((0, uploader.ENCODE_INLINE_BYTES_MAX))
        with (
            patch.object(uploader, "ENCODE_INLINE_BYTES_MAX", limit),
            patch.object(Pace, "divides", self.dividing()),
        ):
            await self.live_together()

    def dividing(self) -> Callable[[Pace, int], bool]:
        """Whether callers in step are divided: always, never, or now this, now that."""
        share, random = self.random.choice((1.0, 0.0, 0.5)), self.random
        return lambda _pace, _callers: random.random() < share

    async def live_together(self) -> None:
        writers = self.random.choice((1, 1, 2, 3))
        each = OPERATIONS // writers
        async with asyncio.TaskGroup() as processes:
            for number in range(writers):
                processes.create_task(self.process(f"w{number}", each, self.write))
            processes.create_task(self.reading_process())
            if self.random.random() < 0.6:
                processes.create_task(self.keeping_process())

    async def check(self) -> None:
        await self.append_the_last(self.store)
        await self.check_history()

    # Reading

    async def reading_process(self) -> None:
        node = self.node("reader")
        reader = node.spawn(self.read(node))
        await asyncio.wait([reader])
        reader.result()

    async def read(self, node: Node) -> None:
        for _ in range(self.random.randint(1, 2)):
            await asyncio.sleep(self.random.uniform(0.0, 10.0))
            number = self.history.call("reader", Read(1))
            try:
                seen = await self.read_once(node)
            except Unavailable:
                continue
            self.history.ok(number, seen)

    async def read_once(self, node: Node) -> Seen:
        options = sl.ReaderOptions(
            prefetch_fragments=self.random.choice((1, 4)), timeout_s=TIMEOUT_S
        )
        async with sl.LogReader.open(node.store, runtime=node.runtime, options=options) as reader:
            tail = reader.tail
            rows: list[Row] = []
            if self.random.random() < 0.5:
                rows = [(r.offset, r.timestamp_us, r.body) async for r in reader.records()]
            else:
                async with aclosing(reader.follow(1, idle_timeout_s=1.0)) as batches:
                    async for batch in batches:
                        rows.extend(zip(*(c.to_pylist() for c in batch.columns), strict=True))
                tail = reader.tail
            return Seen(tuple(rows), tail)

    # Changing only the past

    async def keeping_process(self) -> None:
        node = self.node("keeper")
        keeper = node.spawn(self.keep(node))
        await asyncio.wait([keeper])
        keeper.result()

    async def keep(self, node: Node) -> None:
        for _ in range(self.random.randint(1, 4)):
            await asyncio.sleep(self.random.uniform(0.0, 5.0))
            try:
                if self.random.random() < 0.5:
                    await self.add_field(node)
                else:
                    await self.sweep(node)
            except Corrupt:
                raise
            except StratalogError:
                continue

    async def sweep(self, node: Node) -> None:
        """Now and then also uploads ahead of the tail. Then the sweep epoch alone protects them."""
        await sweep(
            node.store,
            options=SweepOptions(timeout_s=TIMEOUT_S),
            older_manifest=self.random.random() < 0.5,
            runtime=node.runtime,
        )

    async def add_field(self, node: Node) -> None:
        def change(manifest: Manifest) -> Manifest | None:
            fields = manifest.unknown or {}
            if STRANGE_FIELD in fields:
                return None
            return msgspec.structs.replace(
                manifest,
                unknown={**fields, STRANGE_FIELD: msgspec.Raw(b'"kept"')},
                write_id=node.runtime.new_id(),
            )

        await amend(node.store, change, Patience(node.runtime, TIMEOUT_S))


def run_seed(seed: int) -> str:
    """Run one scenario; gives the digest of its trace."""
    return run_world(Writing, seed)
