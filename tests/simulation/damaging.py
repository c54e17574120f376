"""A store that loses bits: something of a log is flipped or cut, and nobody may believe it.

A log of any shape is written by the processes of ``scenario``'s kind. Then, again and again, one
object that it reaches is damaged in one place. A reader must refuse the log, and a scrub must name
the object. When it is mended, the log reads as before, also with every record hashed.

A reader checks bytes by their digest alone. So this is what notices a digest that is not compared,
and one that is of other bytes than those that were put.
"""

from __future__ import annotations

import stratalog as sl
from simulation.promises import promise
from simulation.world import TIMEOUT_S, OneLog, run_world
from stratalog.errors import Corrupt
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.testing import Row, Simulation

APPENDS = (1, 2, 5, 12)
DAMAGES = 6
IN_PROCESS = sl.ScrubOptions(processes=0, timeout_s=TIMEOUT_S)
NO_CACHE = sl.ReaderOptions(cache_bytes=0, timeout_s=TIMEOUT_S)
RECORDS = sl.ReaderOptions(verify="records", timeout_s=TIMEOUT_S)


class Damaging(OneLog):
    """One writer, and a disk that rots."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.objects: dict[str, bytes] = {}

    def options(self) -> sl.WriterOptions:
        return sl.WriterOptions(
            fragment_bytes=self.random.choice((64, 1024)),
            compression=self.random.choice(("none", "zstd")),
            rollup_entries=self.random.choice((2, 3, 12)),
            snapshot_entries_max=self.random.choice((12, 16)),
        )

    async def live(self) -> None:
        runtime = self.simulation.runtime
        async with sl.LogWriter.open(self.store, options=self.options(), runtime=runtime) as log:
            for _ in range(self.random.choice(APPENDS)):
                await log.append_many([self.body() for _ in range(self.random.randint(1, 4))])

    async def check(self) -> None:
        rows = await self.rows(RECORDS)
        await self.expect_clean()
        for _ in range(DAMAGES):
            path = self.random.choice(await self.reached())
            good = self.bucket._store._objects[path]
            self.bucket._store._objects[path] = self.damaged(bytes(good))
            await self.expect_named(path)
            self.bucket._store._objects[path] = good
        promise(await self.rows(RECORDS) == rows, "mended", "the log reads as before")
        await self.expect_clean()

    def damaged(self, good: bytes) -> bytes:
        """One bit less or more, or a cut end."""
        if self.random.random() < 0.2:
            return good[: self.random.randrange(len(good))]
        position = self.random.randrange(len(good))
        changed = bytes([good[position] ^ 1 << self.random.randrange(8)])
        return good[:position] + changed + good[position + 1 :]

    async def expect_named(self, path: str) -> None:
        runtime = self.simulation.runtime
        try:
            await self.rows(NO_CACHE)
        except Corrupt:
            pass
        else:
            promise(False, "refused", f"{path} was damaged and is served")
        report = await sl.scrub(self.store, options=IN_PROCESS, runtime=runtime)
        named = {damage.path for damage in report.damages}
        promise(path in named, "named", f"{path} was damaged, and a scrub names {named}")

    async def expect_clean(self) -> None:
        report = await sl.scrub(self.store, options=IN_PROCESS, runtime=self.simulation.runtime)
        promise(report.clean, "clean", f"nothing is damaged, and a scrub names {report.damages}")

    async def rows(self, options: sl.ReaderOptions) -> list[Row]:
        runtime = self.simulation.runtime
        async with sl.LogReader.open(self.store, options=options, runtime=runtime) as reader:
            return [(r.offset, r.timestamp_us, r.body) async for r in reader.records()]

    async def reached(self) -> list[str]:
        """The manifest, and all that it leads to."""
        log = self.store.log("")
        return sorted({MANIFEST_PATH, *log.reached})


def run_seed(seed: int) -> str:
    """Run one scenario; gives the digest of its trace."""
    return run_world(Damaging, seed)
