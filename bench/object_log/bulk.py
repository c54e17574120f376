"""Bulk loading: `append_many` against a straight loop that hashes, encodes and puts.

Both make the same objects of about 1 MiB, with the same number in flight. The writer has twice as
many callers as uploads, so that it never waits for a caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import cast

from bench.hashing import Way, hashing
from bench.object_log.workload import (
    IN_FLIGHT,
    Batch,
    fresh_store,
    label,
    make_batches,
    put_fragments,
    rate,
)
from bench.places import Place
from bench.session import Session
from stratalog import LogWriter
from stratalog.objectlog.options import KIB

CALLERS = 2 * IN_FLIGHT
TARGET = 0.85


async def bulk(session: Session) -> None:
    for place in session.places:
        for record_bytes in (1 * KIB, 8 * KIB):
            await _compare(session, place, record_bytes)


async def _compare(session: Session, place: Place, record_bytes: int) -> None:
    batches = make_batches(session.amount(64, 16), record_bytes)

    async def straight_loop(way: Way) -> float:
        with hashing(way):
            async with fresh_store(place) as store:
                return await rate(batches, put_fragments(store, batches))

    async def ours() -> float:
        async with fresh_store(place) as store, LogWriter.open(store, create=True) as log:
            return await rate(batches, load(log, batches))

    for against, way, target in (
        ("straight loop", "one by one", TARGET),
        ("straight loop, hashing in vectors", "in vectors", None),
    ):
        await session.compare(
            question="bulk",
            name=f"append_many, {label(record_bytes)} records",
            place=place.name,
            against=against,
            unit="MB/s",
            bound="at least",
            target=target,
            baseline=partial(straight_loop, cast(Way, way)),
            ours=ours,
        )


async def load(log: LogWriter, batches: Sequence[Batch]) -> None:
    """Append batches from enough callers to keep the writer busy."""
    remaining = iter(batches)

    async def caller() -> None:
        for batch in remaining:
            await log.append_many(batch)

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(caller())
