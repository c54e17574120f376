"""The method: interleaved pairs.

A machine's speed drifts from minute to minute, and other programs come and go. So the baseline
and ours take turns, and each pair of neighbouring runs gives one ratio. Every other pair runs in
the opposite order. The result is the median of the ratios, stored with its spread.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

PAIRS = 9
PAIRS_QUICK = 2

Side = Callable[[], Awaitable[float]]


async def measure_pairs(baseline: Side, ours: Side, pairs: int) -> tuple[list[float], list[float]]:
    """The values of the baseline and of ours, pair by pair, after a warm-up of each."""
    await _calm(baseline)
    await _calm(ours)
    baselines: list[float] = []
    mine: list[float] = []
    for number in range(pairs):
        if number % 2 == 0:
            baselines.append(await _calm(baseline))
            mine.append(await _calm(ours))
        else:
            mine.append(await _calm(ours))
            baselines.append(await _calm(baseline))
    return baselines, mine


async def _calm(side: Side) -> float:
    """One run, without the garbage of the run before."""
    gc.collect()
    return await side()
