"""Sets of three million indexes against NumPy on the same intervals.

The unavoidable work is to merge two sorted arrays of bounds: NumPy sorts them together, counts the
open intervals at each, and keeps the bounds where the answer changes. To make a set from sorted
members, it finds neighbours that differ by more than one; to query it, it uses ``searchsorted``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bench.pairs import Side
from bench.session import Session
from stratalog.indexset import IndexSet

TARGET = 2.0
MEMBERS = 3_000_000

Bounds = npt.NDArray[np.int64]


async def sets(session: Session) -> None:
    count = session.amount(MEMBERS, MEMBERS // 100)
    random = np.random.default_rng(7)
    members = np.flatnonzero(random.random(2 * count) < 0.5).astype(np.int64)
    others = np.flatnonzero(random.random(2 * count) < 0.5).astype(np.int64)
    one, other = IndexSet.of(members), IndexSet.of(others)
    left, right = _bounds(one), _bounds(other)
    asked = random.integers(0, 2 * count, count)
    for name, against, baseline, ours in (
        ("union", "merged bounds", lambda: _merged(left, right, 1), lambda: one | other),
        ("intersection", "merged bounds", lambda: _merged(left, right, 2), lambda: one & other),
        (
            "from sorted members",
            "where neighbours differ",
            lambda: _of_sorted(members),
            lambda: IndexSet.of(members),
        ),
        (
            "membership of as many",
            "searchsorted",
            lambda: np.searchsorted(left, asked, side="right") % 2 == 1,
            lambda: one.contains(asked),
        ),
    ):
        await session.compare(
            question="sets",
            name=f"{name}, {len(one):,} members",
            place="memory",
            against=against,
            unit="ms",
            bound="at most",
            target=TARGET,
            baseline=_timed(baseline),
            ours=_timed(ours),
        )


def _bounds(some: IndexSet) -> Bounds:
    return np.array(some.to_json(), dtype=np.int64).reshape(-1)


def _merged(left: Bounds, right: Bounds, depth: int) -> Bounds:
    """The bounds between which ``depth`` of two sets' intervals are open, in plain NumPy."""
    both = np.concatenate([left, right])
    steps = np.concatenate([_steps(left), _steps(right)])
    order = np.argsort(both, kind="stable")
    points, is_open = both[order], np.cumsum(steps[order]) >= depth
    last = np.append(points[1:] != points[:-1], True)
    points, is_open = points[last], is_open[last]
    changes = np.diff(is_open.astype(np.int8), prepend=np.int8(0)) != 0
    found: Bounds = points[changes]
    return found


def _of_sorted(members: Bounds) -> Bounds:
    """The bounds of the intervals that sorted members form, in plain NumPy."""
    breaks = np.flatnonzero(np.diff(members) != 1)
    starts = members[np.append(0, breaks + 1)]
    limits = members[np.append(breaks, len(members) - 1)] + 1
    return np.column_stack([starts, limits]).reshape(-1)


def _steps(bounds: Bounds) -> Bounds:
    steps = np.ones(len(bounds), dtype=np.int64)
    steps[1::2] = -1
    return steps


def _timed(work: Callable[[], object]) -> Side:
    async def side() -> float:
        started_s = time.perf_counter()
        work()
        return (time.perf_counter() - started_s) * 1e3

    return side
