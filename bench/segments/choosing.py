"""Choosing dead segments among many, against plain NumPy on the same intervals.

The unavoidable work is to test, for each segment's range, whether a live interval overlaps it: two
binary searches in the sorted bounds per segment.
"""

from __future__ import annotations

import time

import numpy as np

from bench.session import Session
from stratalog.indexset import IndexSet
from stratalog.segments.format.layout import SegmentFile
from stratalog.segments.maintenance.choose_segments import dead_segments

TARGET = 2.0
SEGMENTS = 10_000
LIVE = 3_000_000
ENTRIES = 4096


async def choosing(session: Session) -> None:
    count = session.amount(SEGMENTS, SEGMENTS // 100)
    files = [_segment(number) for number in range(count)]
    last = count * ENTRIES
    random = np.random.default_rng(7)
    # Half of the segments have no live entry.
    spots = random.choice(count, count // 2, replace=False)
    each = max(1, session.amount(LIVE, LIVE // 100) // len(spots))
    members = [spot * ENTRIES + 1 + random.choice(ENTRIES, each, replace=False) for spot in spots]
    live = IndexSet.of(np.concatenate(members))
    bounds = live.bounds
    firsts = np.array([file.indexes.first for file in files])
    lasts = np.array([file.indexes.last for file in files])

    async def plain() -> float:
        began_s = time.perf_counter()
        entered = np.searchsorted(bounds, firsts, side="right")
        left = np.searchsorted(bounds, lasts, side="right")
        np.flatnonzero((entered % 2 == 0) & (entered == left))
        return (time.perf_counter() - began_s) * 1e3

    async def ours() -> float:
        began_s = time.perf_counter()
        dead_segments(files, live, last)
        return (time.perf_counter() - began_s) * 1e3

    await session.compare(
        question="choosing",
        name=f"the dead among {count:,} segments, {len(live):,} live",
        place="memory",
        against="interval overlap in NumPy",
        unit="ms",
        bound="at most",
        target=TARGET,
        baseline=plain,
        ours=ours,
    )


def _segment(number: int) -> SegmentFile:
    first = number * ENTRIES + 1
    return SegmentFile(
        path=f"seg/00000001.{number:012}-{number:012}.0000000000000000.seg",
        size=ENTRIES * 1024,
        indexes=IndexSet(range(first, first + ENTRIES)),
        previous=first - 1,
        steps=((first, 1),),
        lowest=number,
        highest=number,
        entries=ENTRIES,
    )
