"""Reading everything through a fork against reading its source: the same objects, the same code.

Unverified iteration computes least, so slower access to the objects would show most there. It is
short, so one run reads the log several times, each time with a reader of its own.
"""

from __future__ import annotations

import time

from bench.object_log.bulk import load
from bench.object_log.workload import label, make_batches, size_of
from bench.pairs import Side
from bench.places import Place
from bench.session import Session
from stratalog import LogReader, LogWriter, ReaderOptions, fork
from stratalog.objectlog.options import KIB

RECORD_BYTES = 1 * KIB
TARGET = 0.95


async def reading(session: Session) -> None:
    for place in session.places:
        await _compare(session, place)


async def _compare(session: Session, place: Place) -> None:
    batches = make_batches(session.amount(96, 16), RECORD_BYTES)
    megabytes = size_of(batches) / 1e6
    records = sum(len(batch) for batch in batches)
    source, target = place.new(), place.new()
    async with LogWriter.open(source, create=True) as log:
        await load(log, batches)
    await fork(source, target)

    def iterating(url: str, *, verify: bool, times: int) -> Side:
        async def side() -> float:
            started_s = time.perf_counter()
            for _ in range(times):
                assert await _iterate(url, verify=verify) == records, "everything was read"
            return times * megabytes / (time.perf_counter() - started_s)

        return side

    for name, verify, times in (
        ("unverified", False, session.amount(3, 1)),
        ("verified", True, 1),
    ):
        await session.compare(
            question="reading",
            name=f"{name}, {label(RECORD_BYTES)} records, through a fork",
            place=place.name,
            against="its source",
            unit="MB/s",
            bound="at least",
            target=TARGET,
            baseline=iterating(source, verify=verify, times=times),
            ours=iterating(target, verify=verify, times=times),
        )
    place.drop(target)
    place.drop(source)


async def _iterate(url: str, *, verify: bool) -> int:
    """Read everything; returns the number of records."""
    records = 0
    async with LogReader.open(url, options=ReaderOptions(verify=verify)) as reader:
        async for batch in reader.batches():
            records += batch.num_rows
    return records
