"""Appending while the same log is repeatedly collected, against appending alone.

The collection is a loop without a pause: it moves a cursor to the tail, and collects up to there
without waiting for readers. It runs in a process of its own, as a nightly job would, or in the
writer's process and through the writer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from statistics import fmean

import msgspec

from bench.object_log.bulk import load
from bench.object_log.workload import label, make_batches, rate
from bench.places import Place
from bench.processes import companion, give_answer, until_stopped
from bench.results import Figure
from bench.session import Session
from stratalog import Collector, CollectorOptions, CursorStore, LogWriter
from stratalog.errors import Conflict
from stratalog.objectlog.options import KIB
from stratalog.objectlog.stored.manifest import load_manifest
from stratalog.store import open_store

RECORD_BYTES = 1 * KIB
TARGET = 0.8
AT_ONCE = CollectorOptions(interval_s=0.0)


class Work(msgspec.Struct):
    """The work of a loop of collections."""

    collections: int = 0
    records: int = 0


Beside = Callable[[str, LogWriter], AbstractAsyncContextManager[list[Work]]]
"""Somebody who works while the block runs; the list tells afterwards what was done."""


async def beside(session: Session) -> None:
    for place in session.places:
        await _compare(session, place, "by another process", _in_another_process)
        await _compare(session, place, "through the writer", _through_the_writer)


async def _compare(session: Session, place: Place, how: str, work: Beside) -> None:
    batches = make_batches(session.amount(64, 16), RECORD_BYTES) * session.amount(4, 2)
    done: list[Work] = []

    async def alone() -> float:
        return await _append(place, batches, _nobody, done)

    async def collected() -> float:
        return await _append(place, batches, work, done)

    await session.compare(
        question="beside",
        name=f"append_many, {label(RECORD_BYTES)} records, collected {how}",
        place=place.name,
        against="nobody collects",
        unit="MB/s",
        bound="at least",
        target=TARGET,
        baseline=alone,
        ours=collected,
    )
    for name, unit, value in (
        ("collections", "times", fmean(each.collections for each in done)),
        ("records collected", "records", fmean(each.records for each in done)),
    ):
        session.record(
            Figure(
                question="beside",
                name=f"{name} in one run, {how}",
                place=place.name,
                unit=unit,
                value=value,
                bound="at least",
                target=1,
            )
        )


async def _append(
    place: Place, batches: list[list[bytes]], work: Beside, done: list[Work]
) -> float:
    url = place.new()
    try:
        async with LogWriter.open(url, create=True) as log:
            await log.append(b"first")
            await CursorStore(url).create("mover", 1)
            async with work(url, log) as found:
                megabytes_per_s = await rate(batches, load(log, batches))
            done.extend(found)
            return megabytes_per_s
    finally:
        place.drop(url)


@asynccontextmanager
async def _nobody(_url: str, _log: LogWriter) -> AsyncIterator[list[Work]]:
    yield []


@asynccontextmanager
async def _in_another_process(url: str, _log: LogWriter) -> AsyncIterator[list[Work]]:
    async with companion("bench.collection.beside", url, answer=Work) as process:
        yield process.answers


@asynccontextmanager
async def _through_the_writer(url: str, log: LogWriter) -> AsyncIterator[list[Work]]:
    stop = asyncio.Event()
    done: list[Work] = []
    collecting = asyncio.ensure_future(collect_until(stop, url, log))
    try:
        yield done
    finally:
        stop.set()
        done.append(await collecting)


async def collect_until(stop: asyncio.Event, url: str, log_writer: LogWriter | None = None) -> Work:
    """Repeatedly move the cursor to the tail and collect."""
    store = open_store(url)
    collector = Collector(store, log_writer=log_writer, options=AT_ONCE)
    cursor = await CursorStore(store).load("mover")
    work = Work()
    while not stop.is_set():
        manifest, _ = await load_manifest(store)
        cursor = await cursor.move(manifest.tail.offset)
        try:
            collected = await collector.collect()
        except Conflict:  # the tree changed each time it was planned
            continue
        work.collections += 1
        work.records += collected.records
    return work


async def _collect_beside(url: str) -> Work:
    stop = asyncio.Event()
    collecting = asyncio.ensure_future(collect_until(stop, url))
    await until_stopped()
    stop.set()
    return await collecting


if __name__ == "__main__":
    give_answer(asyncio.run(_collect_beside(sys.argv[1])))
