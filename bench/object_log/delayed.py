"""Appending with the delays of S3 injected: the protocol's cost in round trips.

A put takes 28 ms at the median and 75 ms at the 99th percentile; the objects are in memory.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from bench.object_log.bulk import load
from bench.object_log.workload import Batch, label, make_batches, make_bodies, rate, start_manifest
from bench.session import Session
from stratalog import LogWriter, WriterOptions
from stratalog.objectlog.options import KIB
from stratalog.objectlog.stored.fragment import encode_fragment
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store.memory import MemoryStore
from stratalog.testing import DelayedStore

PLACE = "memory with S3's delays"
LONE_TARGET = 1.15
SATURATED_TARGET = 5.0
LOGS_AT_ONCE = 4
ONE_IN_FLIGHT = WriterOptions(uploads_max=1, manifest_fragments_max=1)

_seeds = itertools.count(1)


async def delayed(session: Session) -> None:
    await _lone(session)
    for record_bytes in (1 * KIB, 8 * KIB):
        await _saturated(session, record_bytes)


def _delayed_store() -> DelayedStore:
    return DelayedStore(MemoryStore(), seed=next(_seeds))


async def _lone(session: Session) -> None:
    """The median over a few concurrent logs, which mostly wait, but not for each other."""
    bodies = make_bodies(session.amount(40, 6), 1 * KIB)

    async def two_puts() -> list[float]:
        store = _delayed_store()
        manifest, etag = await start_manifest(store)
        fragment = encode_fragment(1, DEFAULT_RUNTIME.now_us(), bodies[:1]).data
        numbers = itertools.count()

        async def put(_: bytes) -> None:
            nonlocal etag
            await store.put_if_absent(f"log/{next(numbers)}", fragment)
            next_manifest = msgspec.structs.replace(manifest, write_id=DEFAULT_RUNTIME.new_id())
            etag = await store.put_if_match(MANIFEST_PATH, next_manifest.to_json(), etag)

        return await _latencies_ms(bodies, put)

    async def append() -> list[float]:
        async with LogWriter.open(_delayed_store(), create=True) as log:
            return await _latencies_ms(bodies, log.append)

    await session.compare(
        question="delayed",
        name="lone append, p50",
        place=PLACE,
        against="two puts",
        unit="ms",
        bound="at most",
        target=LONE_TARGET,
        baseline=lambda: _median(two_puts),
        ours=lambda: _median(append),
    )


async def _median(log: Callable[[], Awaitable[list[float]]]) -> float:
    found = await asyncio.gather(*(log() for _ in range(LOGS_AT_ONCE)))
    return statistics.median(itertools.chain.from_iterable(found))


async def _latencies_ms(
    bodies: Sequence[bytes], work: Callable[[bytes], Awaitable[object]]
) -> list[float]:
    found: list[float] = []
    for body in bodies:
        started_s = time.perf_counter()
        await work(body)
        found.append((time.perf_counter() - started_s) * 1e3)
    return found


async def _saturated(session: Session, record_bytes: int) -> None:
    batches = make_batches(session.amount(96, 16), record_bytes)
    fewer = batches[: session.amount(24, 4)]

    async def throughput(part: Sequence[Batch], options: WriterOptions) -> float:
        async with LogWriter.open(_delayed_store(), create=True, options=options) as log:
            return await rate(part, load(log, part))

    await session.compare(
        question="delayed",
        name=f"saturated, {label(record_bytes)} records",
        place=PLACE,
        against="one fragment in flight",
        unit="MB/s",
        bound="at least",
        target=SATURATED_TARGET,
        baseline=lambda: throughput(fewer, ONE_IN_FLIGHT),
        ours=lambda: throughput(batches, WriterOptions()),
    )
