"""Many callers that append one record each and wait for it.

With 1,024 callers at most 1 MiB is in flight. On a slow store the writer divides it into two
fragments that upload side by side, on a fast one it puts one at a time. The straight loop puts
fragments of half of the callers' records, two at a time, on both: that is its faster way.

Two more loops are shown: one hashes in vectors, one has sixteen fragments of 1 MiB in flight, which
1,024 callers could not supply. With 64 callers, a round fills a small fragment that is linked
before the callers continue, so the loop also puts the manifest.
"""

from __future__ import annotations

from functools import partial

from bench.hashing import Way, hashing
from bench.object_log.workload import (
    closed_loop,
    fresh_store,
    make_bodies,
    put_fragments,
    put_fragments_and_manifests,
    rate,
    split,
    start_manifest,
)
from bench.places import Place
from bench.session import Session
from stratalog import LogWriter
from stratalog.objectlog.options import KIB

RECORD_BYTES = 1 * KIB
TARGET = 0.7
MANY, FEW = 1024, 64
FRAGMENTS_UNDER_WAY = 2


async def singles(session: Session) -> None:
    for place in session.places:
        await _many(session, place)
        await _few(session, place)


async def _many(session: Session, place: Place) -> None:
    bodies = make_bodies(MANY * session.amount(32, 6), RECORD_BYTES)
    halves = split(bodies, MANY // FRAGMENTS_UNDER_WAY)
    wholes = split(bodies, MANY)

    async def narrow(way: Way) -> float:
        with hashing(way):
            async with fresh_store(place) as store:
                return await rate(halves, put_fragments(store, halves, FRAGMENTS_UNDER_WAY))

    async def wide(way: Way) -> float:
        with hashing(way):
            async with fresh_store(place) as store:
                return await rate(wholes, put_fragments(store, wholes))

    for against, loop, target in (
        ("straight loop, 1 MiB under way", partial(narrow, "one by one"), TARGET),
        ("straight loop, 1 MiB under way, in vectors", partial(narrow, "in vectors"), None),
        ("straight loop, 16 MiB under way", partial(wide, "one by one"), None),
    ):
        await session.compare(
            question="singles",
            name=f"{MANY:,} concurrent appends",
            place=place.name,
            against=against,
            unit="MB/s",
            bound="at least",
            target=target,
            baseline=loop,
            ours=lambda: _append(place, bodies, MANY),
        )


async def _few(session: Session, place: Place) -> None:
    bodies = make_bodies(FEW * session.amount(64, 8), RECORD_BYTES)
    batches = split(bodies, FEW)

    async def baseline() -> float:
        with hashing("one by one"):
            return await straight_loop()

    async def straight_loop() -> float:
        async with fresh_store(place) as store:
            manifest, etag = await start_manifest(store)
            return await rate(batches, put_fragments_and_manifests(store, batches, manifest, etag))

    await session.compare(
        question="singles",
        name=f"{FEW} concurrent appends",
        place=place.name,
        against="straight loop with manifests",
        unit="MB/s",
        bound="at least",
        target=TARGET,
        baseline=baseline,
        ours=lambda: _append(place, bodies, FEW),
    )


async def _append(place: Place, bodies: list[bytes], callers: int) -> float:
    async with fresh_store(place) as store, LogWriter.open(store, create=True) as log:
        return await rate([bodies], closed_loop(callers, bodies, log.append))
