"""Scrubbing a directory against hashing alone, on as many cores.

The unavoidable work is to hash every record once. ``hashlib`` holds the GIL for a record below
2 KiB, so the baseline uses processes. They are already started and have their records in memory,
while a scrub reads, decompresses, walks the tree and compares. The scrub hashes in vectors, on
threads. A second figure is for a scrub that starts processes of its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import sha3_256

from bench.object_log.bulk import load
from bench.object_log.workload import label, make_batches, size_of, timed
from bench.places import DirectoryPlace
from bench.results import Figure
from bench.session import Session
from stratalog import LogWriter
from stratalog.objectlog.check.scrub_log import scrub
from stratalog.objectlog.options import KIB, ScrubOptions

TARGET = 0.8
SHARES_PER_PROCESS = 4

_header = struct.Struct(">QQ")
_items: list[bytes] = []


async def scrubbing(session: Session) -> None:
    for place in session.places:
        if isinstance(place, DirectoryPlace):
            for processes in (None, cores()):
                await _start_up(session, place, processes)
            for record_bytes in (1 * KIB, 8 * KIB):
                await _compare(session, place, record_bytes)


async def _start_up(session: Session, place: DirectoryPlace, processes: int | None) -> None:
    """The start-up time of every scrub: its share of the figures below."""
    url = place.new()
    async with LogWriter.open(url, create=True) as log:
        await log.append(b"one")
    took_s = await timed(scrub(url, options=ScrubOptions(processes=processes)))
    session.record(
        Figure(
            question="scrub",
            name=f"scrub of one record{_in(processes)}",
            place=place.name,
            unit="s",
            value=took_s,
        )
    )
    place.drop(url)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def _in(processes: int | None) -> str:
    return "" if processes is None else f", in {processes} processes"


async def _compare(session: Session, place: DirectoryPlace, record_bytes: int) -> None:
    fragments = session.amount(64, 4)
    batches = make_batches(fragments, record_bytes)
    rounds = session.amount(2, 1) * SHARES_PER_PROCESS * cores()
    megabytes = rounds * size_of(batches) / 1e6
    url = place.new()
    async with LogWriter.open(url, create=True) as log:
        await load(log, batches * rounds)
        records = log.tail - 1

    async def scrubbed(processes: int | None) -> float:
        started_s = time.perf_counter()
        report = await scrub(url, options=ScrubOptions(processes=processes))
        took_s = time.perf_counter() - started_s
        assert report.clean, "nothing is damaged"
        assert report.records == records, "all of it was examined"
        return megabytes / took_s

    with hashing(cores(), fragments, record_bytes) as pool:

        async def hashed() -> float:
            loop = asyncio.get_running_loop()
            started_s = time.perf_counter()
            await asyncio.gather(*(loop.run_in_executor(pool, hash_items) for _ in range(rounds)))
            return megabytes / (time.perf_counter() - started_s)

        for processes, target in ((None, TARGET), (cores(), None)):
            await session.compare(
                question="scrub",
                name=f"scrub, {label(record_bytes)} records{_in(processes)}",
                place=place.name,
                against=f"hashing, {cores()} processes",
                unit="MB/s",
                bound="at least",
                target=target,
                baseline=hashed,
                ours=partial(scrubbed, processes),
            )
    place.drop(url)


@contextmanager
def hashing(processes: int, fragments: int, record_bytes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that hold the records."""
    context = multiprocessing.get_context("spawn")
    arguments = (fragments, record_bytes)
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_hold_items, initargs=arguments
    ) as pool:
        yield pool


def _hold_items(fragments: int, record_bytes: int) -> None:
    batches = make_batches(fragments, record_bytes)
    _items.extend(_header.pack(7, 7) + body for batch in batches for body in batch)


def hash_items() -> None:
    for item in _items:
        sha3_256(item).digest()
