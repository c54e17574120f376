"""Logs for tests of the source: several fragments, known rows, and ways to lose them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

import stratalog as sl
from stratalog.herd import Herd
from stratalog.objectlog.bulk.commit import link_uploaded
from stratalog.objectlog.bulk.upload import BulkUpload
from stratalog.testing import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT_ONCE = sl.CollectorOptions(interval_s=0.0)
FRAGMENTS = 10
PER_FRAGMENT = 10
RECORDS = FRAGMENTS * PER_FRAGMENT

SMALL_TREE = sl.WriterOptions(rollup_entries=2, snapshot_entries_max=4)


async def fill(url: str, fragments: int = FRAGMENTS, records: int = PER_FRAGMENT) -> list[Row]:
    """Append so many fragments to a log, which is created if need be. Its rows."""
    async with sl.LogWriter.open(url, create=True, options=SMALL_TREE) as log:
        for _ in range(fragments):
            await log.append_many([b"%d" % (log.tail + each) for each in range(records)])
    return await rows_in(url)


async def fill_herd(root: str, sizes: dict[str, int]) -> None:
    """A herd whose logs have so many fragments of ten records."""
    async with Herd.open(root, server="test") as herd:
        for name, fragments in sizes.items():
            log = await herd.create(name)
            for number in range(fragments):
                await log.append_many([b"%s %d %d" % (name.encode(), number, i) for i in range(10)])


async def stage(url: str, *batches: Iterable[bytes]) -> None:
    """Append fragments with relative offsets, as a sink does."""
    staging = await BulkUpload.open(url)
    staged = [await staging.upload(pa.array([*bodies], pa.binary())) for bodies in batches]
    await link_uploaded(url, staged)


async def rows_in(url: str | sl.Store, **bounds: int) -> list[Row]:
    """What the library's own reader says."""
    async with sl.LogReader.open(url) as reader:
        bounds.setdefault("from_offset", reader.first_offset)
        found = [each async for each in reader.records(**bounds)]
    return [(each.offset, each.timestamp_us, each.body) for each in found]


def rows_of(frame: DataFrame) -> list[Row]:
    """What Spark says, in the order of offsets."""
    table = frame.select("offset", "timestamp", "body").toArrow().sort_by("offset")
    times_us = table.column("timestamp").cast(pa.int64()).to_pylist()
    offsets, bodies = (table.column(name).to_pylist() for name in ("offset", "body"))
    return [*zip(offsets, times_us, bodies, strict=True)]


def collect_before(url: str, offset: int) -> None:
    """Give up everything before an offset, and what nothing links."""

    async def main() -> None:
        cursors = sl.CursorStore(url)
        try:
            await (await cursors.load("keeper")).move(offset)
        except sl.errors.NotFound:
            await cursors.create("keeper", offset)
        await sl.collect(url, options=AT_ONCE)
        await sl.sweep(url)

    asyncio.run(main())
