"""Scrubbing a herd on Spark against hashing alone, on as many cores.

The baseline's processes are already started and have their records in memory. Ours reads,
decompresses, walks the trees, compares, adds up and leaves an audit table; its workers are already
started too. Each Spark job has a fixed cost of a second or two, so a small herd is shown as well.
"""

from __future__ import annotations

import asyncio
import time

from bench.collection.scrubbing import SHARES_PER_PROCESS, hash_items, hashing
from bench.object_log.workload import label, make_batches, size_of
from bench.pipeline.herds import make_herd
from bench.pipeline.spark import cores, seconds_of, spark
from bench.places import DirectoryPlace
from bench.session import Session
from stratalog.objectlog.options import KIB
from stratalog.pipeline import scrub_herd

SMALL_LOGS = 50
LOGS = 200
TARGET = 0.7


async def scrubbing(session: Session) -> None:
    for place in session.places:
        if isinstance(place, DirectoryPlace):
            await _compare(session, place, SMALL_LOGS, 1 * KIB, target=None)
            for record_bytes in (1 * KIB, 8 * KIB):
                await _compare(session, place, LOGS, record_bytes, target=TARGET)


async def _compare(
    session: Session, place: DirectoryPlace, many: int, record_bytes: int, target: float | None
) -> None:
    fragments, logs = session.amount(16, 2), session.amount(many, 4)
    batches = make_batches(fragments, record_bytes)
    megabytes = logs * size_of(batches) / 1e6
    url = place.new()
    await make_herd(url, logs, batches)
    rounds = SHARES_PER_PROCESS * cores()
    hashed_megabytes = rounds * size_of(batches) / 1e6

    async def scrubbed() -> float:
        def scrub() -> None:
            report = scrub_herd(spark(), url)
            assert not report.damages, "nothing is damaged"
            assert report.records == logs * sum(map(len, batches)), "all of it was examined"

        return megabytes / seconds_of(scrub)

    with hashing(cores(), fragments, record_bytes) as pool:

        async def hashed() -> float:
            loop = asyncio.get_running_loop()
            started_s = time.perf_counter()
            await asyncio.gather(*(loop.run_in_executor(pool, hash_items) for _ in range(rounds)))
            return hashed_megabytes / (time.perf_counter() - started_s)

        await session.compare(
            question="scrubbing",
            name=f"scrub of {logs} logs, {label(record_bytes)} records",
            place=place.name,
            against=f"hashing, {cores()} processes",
            unit="MB/s",
            bound="at least",
            target=target,
            baseline=hashed,
            ours=scrubbed,
        )
    place.drop(url)
