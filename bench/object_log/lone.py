"""One caller, one record at a time: the overhead over the two puts that it must wait for."""

from __future__ import annotations

from bench.object_log.workload import (
    closed_loop,
    fresh_store,
    make_bodies,
    put_fragments_and_manifests,
    split,
    start_manifest,
    timed,
)
from bench.places import Place
from bench.session import Session
from stratalog import LogWriter
from stratalog.objectlog.options import KIB

RECORD_BYTES = 1 * KIB
TARGET = 1.25


async def lone(session: Session) -> None:
    for place in session.places:
        await _compare(session, place)


async def _compare(session: Session, place: Place) -> None:
    bodies = make_bodies(session.amount(160, 16), RECORD_BYTES)

    async def baseline() -> float:
        async with fresh_store(place) as store:
            manifest, etag = await start_manifest(store)
            batches = split(bodies, 1)
            took_s = await timed(put_fragments_and_manifests(store, batches, manifest, etag))
            return took_s / len(bodies) * 1e3

    async def ours() -> float:
        async with fresh_store(place) as store, LogWriter.open(store, create=True) as log:
            return await timed(closed_loop(1, bodies, log.append)) / len(bodies) * 1e3

    await session.compare(
        question="lone",
        name="lone append",
        place=place.name,
        against="its fragment, then its manifest",
        unit="ms",
        bound="at most",
        target=TARGET,
        baseline=baseline,
        ours=ours,
    )
