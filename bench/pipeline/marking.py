"""A lone append to a log of a herd, with its dirty mark, against one to a log of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

from bench.places import Place
from bench.session import Session
from stratalog import Herd, LogWriter

APPENDS = 60
BODY = b"x" * 100


async def marking(session: Session) -> None:
    for place in session.places:
        await _compare(session, place)


async def _compare(session: Session, place: Place) -> None:
    appends = session.amount(APPENDS, 5)
    lone, root = place.new(), place.new()
    async with (
        LogWriter.open(lone, create=True) as log,
        Herd.open(root, server="bench") as herd,
    ):
        marked = await herd.create("log")

        async def baseline() -> float:
            return await _median_ms(lambda: log.append(BODY), appends)

        async def ours() -> float:
            return await _median_ms(lambda: marked.append(BODY), appends)

        await session.compare(
            question="marking",
            name="a lone append in a herd, with its mark",
            place=place.name,
            against="a log of its own",
            unit="ms",
            bound="at most",
            target=None,
            baseline=baseline,
            ours=ours,
        )
    place.drop(root)
    place.drop(lone)


async def _median_ms(append: Callable[[], Awaitable[object]], count: int) -> float:
    took: list[float] = []
    for _ in range(count):
        started_s = time.perf_counter()
        await append()
        took.append(1000 * (time.perf_counter() - started_s))
    return statistics.median(took)
