"""Compacting a log against Spark that reads, filters and writes the same Parquet files.

Both keep one record in five. Ours verifies every record that it reads, hashes dropped and kept
records, syncs its writes, rewrites the tree, and deletes the replaced objects.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from urllib.parse import urlparse

from bench.object_log.bulk import load
from bench.object_log.workload import label, make_batches, size_of
from bench.pipeline.spark import seconds_of, spark
from bench.places import DirectoryPlace
from bench.session import Session
from stratalog import CompactOptions, IndexSet, LogWriter
from stratalog.objectlog.options import KIB
from stratalog.pipeline import compact_log

TARGET = 0.6
FRAGMENTS = 256
KEPT_OF = 5


async def dropping(session: Session) -> None:
    for place in session.places:
        if isinstance(place, DirectoryPlace):
            await _compare(session, place, 1 * KIB)


async def _compare(session: Session, place: DirectoryPlace, record_bytes: int) -> None:
    batches = make_batches(session.amount(FRAGMENTS, 8), record_bytes)
    megabytes = size_of(batches) / 1e6
    template = place.new()
    async with LogWriter.open(template, create=True) as log:
        await load(log, batches)
        tail = log.tail
    folder = Path(urlparse(template).path)
    live = IndexSet.of(range(KEPT_OF, tail, KEPT_OF))
    options = CompactOptions(interval_s=0.0)

    async def filtered() -> float:
        out = tempfile.mkdtemp(prefix="stratalog-bench-")
        try:
            reader = spark().read.option("recursiveFileLookup", "true")
            rows = reader.schema("offset bigint, timestamp_us bigint, body binary").parquet(
                str(folder / "log")
            )
            return megabytes / seconds_of(
                lambda: (
                    rows.where(f"offset % {KEPT_OF} = 0")
                    .write.mode("overwrite")
                    .option("compression", "zstd")
                    .parquet(f"{out}/rows")
                )
            )
        finally:
            shutil.rmtree(out)

    async def compacted() -> float:
        url = place.new()
        shutil.copytree(folder, Path(urlparse(url).path), dirs_exist_ok=True)
        try:
            started_s = time.perf_counter()
            done = await asyncio.to_thread(
                compact_log, spark(), url, live, up_to=tail, options=options
            )
            took_s = time.perf_counter() - started_s
            assert done.records > 0, "something was dropped"
            return megabytes / took_s
        finally:
            place.drop(url)

    await session.compare(
        question="dropping",
        name=f"one record in {KEPT_OF} is kept, {label(record_bytes)} records",
        place=place.name,
        against="read, filter, write in Spark",
        unit="MB/s",
        bound="at least",
        target=TARGET,
        baseline=filtered,
        ours=compacted,
    )
    place.drop(template)
