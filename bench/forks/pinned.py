"""Appending to a log that has a hundred pins, against appending to one that has none.

Both logs begin with the same fragments, of which the pins hold neighbouring stretches. The same
two logs serve for all runs, so that they grow alike and no set-up happens just before a run.
"""

from __future__ import annotations

from itertools import pairwise

from bench.object_log.bulk import load
from bench.object_log.workload import label, make_batches, rate
from bench.pairs import Side
from bench.places import Place
from bench.session import Session
from stratalog import LogReader, LogWriter, PinStore
from stratalog.objectlog.options import KIB
from stratalog.objectlog.stored.position import FIRST_OFFSET

RECORD_BYTES = 1 * KIB
HELD_FRAGMENTS = 16
PINS = 100
TARGET = 0.95


async def pinned(session: Session) -> None:
    for place in session.places:
        await _compare(session, place)


async def _compare(session: Session, place: Place) -> None:
    batches = make_batches(session.amount(96, 16), RECORD_BYTES)
    free, held = place.new(), place.new()
    for url in (free, held):
        async with LogWriter.open(url, create=True) as log:
            await load(log, batches[:HELD_FRAGMENTS])
    await _pin(held)

    def appending(url: str) -> Side:
        async def side() -> float:
            async with LogWriter.open(url) as log:
                return await rate(batches, load(log, batches))

        return side

    await session.compare(
        question="pinned",
        name=f"append_many, {label(RECORD_BYTES)} records, {PINS} pins",
        place=place.name,
        against="no pins",
        unit="MB/s",
        bound="at least",
        target=TARGET,
        baseline=appending(free),
        ours=appending(held),
    )
    assert len(await PinStore(held).list()) == PINS, "the pins were there all the time"
    place.drop(held)
    place.drop(free)


async def _pin(url: str) -> None:
    """Divide the log into stretches, and pin each."""
    async with LogReader.open(url) as reader:
        records = reader.tail - FIRST_OFFSET
    bounds = [FIRST_OFFSET + number * records // PINS for number in range(PINS + 1)]
    pins = PinStore(url)
    for number, (first, limit) in enumerate(pairwise(bounds)):
        await pins.create(f"pin_{number}", first, limit)
