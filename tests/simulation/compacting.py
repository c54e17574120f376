"""The log under compaction: owners who give records up, beside everybody who keeps a log.

What lives is decided as a state machine decides it: records die one by one and never come back,
and a compaction is told what lived when its owner looked. Several compactors and an eraser run at
once, beside writers, readers, pins, cursors, collectors and sweepers; some go through a writer of
their process. All may stall before they decide something, and die at any call.

The store objects when a record goes that nobody has given up, when one comes back, or when
``collected`` is not the sum of what is gone (``linked_records``), or when a record is stored
anywhere that a certificate calls erased. Readers must see every record that lives, in its place. At
the end nothing is stored that nothing leads to, and every erasure that was begun is finished.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from unittest.mock import patch

import stratalog as sl
from simulation import keeping
from simulation.hesitation import HesitantStore
from simulation.keeping import Keeping
from simulation.world import TIMEOUT_S, Crew, forgiven, kind_of, run_world
from stratalog.errors import StratalogError, Trimmed
from stratalog.objectlog.collection.sweep_log import sweep
from stratalog.objectlog.compaction import repack as replanting
from stratalog.objectlog.holds.upload_guard import UPLOAD_GUARD_PREFIX
from stratalog.runtime import Runtime
from stratalog.testing import Node, Row, Simulation, check_appends

WRITES = 8
READS = 3
PINS = 2
CURSOR_STEPS = 4
COLLECTIONS = 4
COMPACTIONS = 8
ERASURES = 4
SWEEPS = 2
LOOKS = 30
DEATHS = (0.0, 0.2, 0.6, 0.95)
WEAK_MOMENTS = {
    **keeping.WEAK_MOMENTS,
    "compactor": ("put manifest", "put gc", "put stage", "put log", "put log", "put log", "delete"),
    "eraser": ("put manifest", "put certificate", "put gc", "put log", "delete", "get manifest"),
    "pinner": ("put pin", "get manifest"),
}


class Compacting(Keeping):
    """Everybody at once."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.share = self.random.choice(DEATHS)
        self.kept: list[list[int]] = []  # of each compaction that is under way

    async def live(self) -> None:
        await self.write_before()
        await self.launch(
            Crew("writer", self.write, WRITES, (1, 1, 2), 4),
            Crew("reader", self.read, READS, (1, 2), 10),
            Crew("pinner", self.pin, PINS, (0, 1), 10),
            Crew("cursor", self.hold, CURSOR_STEPS, 1, 8),
            Crew("collector", self.collect, COLLECTIONS, (1, 2), 12),
            Crew("compactor", self.compact, COMPACTIONS, (1, 2, 3), 25),
            Crew("eraser", self.erase, ERASURES, (0, 1, 2, 2), 25),
            Crew("sweeper", self.sweep, SWEEPS, 1, 12),
        )

    def way(self, node: Node) -> HesitantStore:
        moment = self.random.choice(WEAK_MOMENTS[kind_of(node)])
        return HesitantStore(node, moment, self.span_s, self.random)

    # Dying and compacting

    def bury(self) -> tuple[sl.IndexSet, int]:
        """Some more records die; gives what lives below some offset, and that offset."""
        records = self.store.records
        up_to = self.random.randint(records.first_offset, records.tail)
        low, high = sorted(self.random.randint(records.first_offset, up_to) for _ in range(2))
        if self.random.random() < 0.5:
            records.dead.update(range(low, high))  # neighbours, so that whole fragments die
        for offset in range(records.first_offset, up_to):
            if self.random.random() < self.share / 2:
                records.dead.add(offset)
        return sl.IndexSet(range(records.tail)) - sl.IndexSet.of(records.dead), max(1, up_to)

    async def compact(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                await self.compact_once(node)

    async def compact_once(self, node: Node, log_writer: sl.LogWriter | None = None) -> None:
        live, up_to = self.bury()
        options = sl.CompactOptions(
            live_share_min=self.random.choice((0.3, 0.6, 1.0)),
            fragment_bytes=self.random.choice((100, 2000)),
            groups_max=self.random.choice((1, 4)),
            compression="none",
            attempts_max=2,
            interval_s=self.random.choice((0.0, 0.0, 3.0)),
            timeout_s=TIMEOUT_S,
        )
        self.kept.append([offset for offset in range(up_to) if offset in live])
        try:
            await sl.compact(
                self.way(node),
                live,
                up_to=up_to,
                log_writer=log_writer,
                writer=node.name,
                options=options,
                runtime=node.runtime,
            )
        finally:
            self.kept.pop(0)

    # Erasing

    async def erase(self, node: Node, operations: int) -> None:
        for _ in range(operations):
            await self.rest(operations)
            with forgiven():
                if self.random.random() < 0.3:
                    await self.finish_erasures(self.way(node), node.name, node.runtime)
                else:
                    await self.erase_once(node)

    async def erase_once(self, node: Node) -> None:
        """Some records, one of the newest often among them."""
        way: sl.Store = self.way(node)
        beside = self.random.random() < 0.5
        if beside:
            await self.beside_a_compaction()
            way = node.store  # in haste: it should end before the compaction does
        records = self.store.records
        low, high = records.first_offset, records.tail - 1
        drawn = [self.random.randint(low, high) for _ in range(self.random.randint(1, 3))]
        if beside and self.kept:
            drawn += [each for each in self.kept[-1] if low <= each and self.random.random() < 0.3]
        if self.random.random() < 0.4:
            drawn.append(high)
        records.dead.update(drawn)
        await sl.erase(
            way,
            sl.IndexSet.of(drawn),
            despite_holders=beside or self.random.random() < 0.5,
            writer=node.name,
            options=self.erasing(),
            runtime=node.runtime,
        )

    async def beside_a_compaction(self) -> None:
        """Wait for one that has begun, and may have read what it will store in a moment."""
        for _ in range(LOOKS):
            async for _row in self.store.list(UPLOAD_GUARD_PREFIX):
                return
            await asyncio.sleep(self.span_s / LOOKS)

    async def finish_erasures(self, store: sl.Store, writer: str, runtime: Runtime) -> None:
        await sl.finish_erasures(store, writer=writer, options=self.erasing(), runtime=runtime)

    def erasing(self) -> sl.CompactOptions:
        return sl.CompactOptions(
            fragment_bytes=self.random.choice((100, 2000)),
            compression="none",
            attempts_max=self.random.choice((2, 5)),
            interval_s=self.random.choice((0.0, 0.0, 3.0)),
            timeout_s=TIMEOUT_S,
        )

    async def operation(self, node: Node, log: sl.LogWriter, name: str) -> None:
        """As everywhere, and now and then a compaction through the writer of the process."""
        if self.random.random() < 0.1:
            with forgiven():
                await self.compact_once(node, log_writer=log)
        else:
            await super().operation(node, log, name)

    # Reading

    async def read_once(self, node: Node) -> None:
        """Every record that lives is there as it was written; what is absent was given up."""
        options = sl.ReaderOptions(
            prefetch_fragments=self.random.choice((1, 4)), timeout_s=TIMEOUT_S
        )
        async with sl.LogReader.open(self.way(node), runtime=node.runtime, options=options) as log:
            first, tail = log.first_offset, log.tail
            rows: list[Row] = []
            try:
                async with aclosing(log.records(first)) as records:
                    async for record in records:
                        rows.append((record.offset, record.timestamp_us, record.body))
                        if self.random.random() < 0.05:
                            self.stall(node)
            except Trimmed as trimmed:
                tail = rows[-1][0] + 1 if rows else first
                self.check_trimmed(trimmed, tail)
            self.check_rows(rows, first, tail)

    def check_rows(self, rows: list[Row], first: int, limit: int) -> None:
        records = self.store.records
        there = [offset for offset, _, _ in rows]
        assert there == sorted(set(there)), "in order, once each"
        missing = set(range(first, limit)) - set(there) - records.dead
        assert not missing, f"{missing} live and were not read"
        for row in rows:
            assert records.between(row[0], row[0] + 1) == [row], row

    async def pin(self, node: Node, operations: int) -> None:
        """What a pin holds stays as it was when it was made, whatever is compacted."""
        pins = sl.PinStore(self.way(node), owner=node.name, runtime=node.runtime)
        for number in range(operations):
            await self.rest(operations)
            with forgiven():
                name = f"pin_{node.name.replace('.', '_')}_{number}"
                first = self.store.manifest.first_offset
                if self.random.random() < 0.3:  # somebody forgets it
                    until_us = node.runtime.now_us() + self.random.randint(0, 20_000_000)
                    await pins.create(name, first, expires_us=until_us)
                    continue
                held = await pins.create(name, first)
                self.store.acknowledged(held)
                seen = await self.pinned(node, held.name)
                await self.rest(operations)
                assert await self.pinned(node, held.name) == seen, "a pin shows what it showed"
                await held.release()

    async def pinned(self, node: Node, name: str) -> list[Row]:
        options = sl.ReaderOptions(timeout_s=TIMEOUT_S)
        async with (
            sl.LogReader.open(
                self.way(node), pin=name, runtime=node.runtime, options=options
            ) as reader,
            aclosing(reader.records(reader.first_offset)) as records,
        ):
            return [(each.offset, each.timestamp_us, each.body) async for each in records]

    # The end

    async def finish(self) -> None:
        """Nobody lives any more: their pins are released, their stages revoked."""
        runtime = self.simulation.runtime
        for pin in await sl.PinStore(self.store, owner="last", runtime=runtime).list():
            await pin.release()
        await super().finish()
        stages = [
            row.path.removeprefix(UPLOAD_GUARD_PREFIX).removesuffix(".json")
            async for row in self.store.list(UPLOAD_GUARD_PREFIX)
        ]
        await sweep(self.store, revoke=stages, runtime=runtime)
        try:
            await self.finish_erasures(self.store, "last", runtime)
        except StratalogError as error:
            raise AssertionError(f"an erasure cannot be finished: {error}") from error
        for certificate in await sl.list_certificates(self.store):
            report = await sl.verify_certificate(certificate, self.store, runtime=runtime)
            assert certificate.complete, certificate.reasons
            assert report.holds, report.checks

    async def check_history(self) -> None:
        """What is there, and what is gone, explain all answers together."""
        records = self.store.records
        async with sl.LogReader.open(self.store, runtime=self.simulation.runtime) as reader:
            rows: list[Row] = [
                (record.offset, record.timestamp_us, record.body)
                async for record in reader.records(reader.first_offset)
            ]
            self.check_rows(rows, reader.first_offset, reader.tail)
        rows = list(records.before(records.tail))
        check_appends(self.history, rows, blanks=records.blanks)
        self.check_nothing_was_swallowed()


def run_seed(seed: int) -> str:
    """Run one scenario; gives the digest of its trace."""
    with patch.object(replanting, "NODE_ENTRIES_MAX", 2 + seed % 3):
        return run_world(Compacting, seed)
